"""
Judges a churn by a small book of its own: what was held, owned and delivered by whom.

It shares no code with the product. It is told what programs know (calls that have
returned, calls of listeners, records) and reads what brokers were asked.
"""

import re
from collections import Counter, deque
from math import inf

from attrs import define, field
from kafka import TopicPartition

from tests.sim.churn.logs import Logs
from tests.sim.lab import Lab

PROPAGATION = 5.0  # seconds within which owners obey a hold of the group
SETTLING = 30.0  # seconds after a fault until all is well
_STORY = 60  # lines of it that a violation tells


class ViolationError(AssertionError):
    """What a promise excludes has happened; the message ends with what led to it."""


def covers(scope, tp):
    """Whether a scope, in the notation of the contract, includes a partition."""
    if scope.startswith("re:"):
        return re.fullmatch(scope.removeprefix("re:"), tp.topic) is not None
    return scope in {"@all", tp.topic, short(tp)}


def short(*partitions):
    """Return partitions in the notation of the contract."""
    return " ".join(f"{tp.topic}:{tp.partition}" for tp in sorted(partitions))


@define
class Unrest:
    """What is wrong with a member, or with brokers: how much now, and until when."""

    count: int = 0
    ended_at: float = -inf

    def begin(self):
        """Note that something goes wrong."""
        self.count += 1

    def end(self, now):
        self.count -= 1
        self.note(now)

    def note(self, now):
        self.ended_at = now

    def is_over(self, now):
        """Whether all has been well for a while."""
        return self.count == 0 and now - self.ended_at > SETTLING


@define
class Hold:
    """A hold that is in force for sure: from ``since`` until ``until``."""

    since: float
    until: float = inf


@define
class Ownership:
    """
    A partition at one member, from one assignment to its end.

    Attributes:
        began: not before this: then the broker was asked for the assignment.
        firsts: where it may begin: what is committed, or else the log's start.
        next: the next record's offset; None until the first has come.
        is_new: nothing that was fetched before it may be delivered in it.
        is_first: this member has never owned it before.
        is_fetched: a Fetch has asked for it.
        running: the record that a Worker's handler has begun with last.
    """

    began: float
    firsts: set[int]
    next: int | None = None
    is_new: bool = True
    is_first: bool = True
    is_fetched: bool = False
    running: int | None = None


@define
class Judge:
    """The books of all members of a group, and what they have in common."""

    lab: Lab
    logs: Logs
    books: dict[str, "Book"] = field(factory=dict)
    seen: Counter[str] = field(factory=Counter)
    group_holds: dict[str, float] = field(factory=dict)
    owners: dict[TopicPartition, str] = field(factory=dict)
    done: dict[TopicPartition, set[int]] = field(factory=dict)
    trouble: Unrest = field(factory=Unrest)
    verdict: ViolationError | None = None
    committing: list[tuple["Book | None", set[TopicPartition]]] = field(factory=list)

    def begin(self):
        self.lab.cluster.on_request = self._asked

    def book(self, name, **facts):
        """Open the book of a new member."""
        self.books[name] = Book(judge=self, name=name, **facts)
        return self.books[name]

    def first_offsets(self, tp):
        """Return where who gets a partition now begins."""
        self.logs.look()
        return {self.logs.committed.get(tp, self.logs.log(tp).start)}

    def _asked(self, request, message):
        book = self.books.get(request.origin)
        if book is not None and request.api == "SyncGroup":
            book.synced_at, book.generation = self.lab.now, message.body.generation_id
        if book is not None and request.api == "Fetch":
            book.fetches([TopicPartition(*tp) for tp in request.partitions])
        if request.api in {"OffsetCommit", "EndTxn"}:
            named = {
                TopicPartition(topic.name, one.partition_index)
                for topic in getattr(message.body, "topics", ())
                for one in topic.partitions
            }
            self.committing.append((book, named))
            self.lab.world.call_later(0.0, self._compare)

    def _compare(self):
        """Look what requests have committed; several may come in one instant."""
        asked, self.committing = self.committing, []
        before = dict(self.logs.committed)
        for tp, at in self.logs.newly_committed().items():
            self.seen["committed"] += 1
            for one in self.books.values():
                if tp in one.owned and one.owned[tp].next is None:
                    one.owned[tp].firsts.add(at)
            whose = [book for book, named in asked if tp in named]
            whose += [book for book, named in asked if not named]  # a transaction's end
            if whose and whose[0] is not None:
                whose[0].committed(tp, at, before.get(tp))

    def worth_seeing(self, wanted):
        """Fail if less was seen than wanted: then nothing was judged."""
        missing = {what: n for what, n in wanted.items() if self.seen[what] < n}
        assert not missing, f"nothing worth seeing: {missing} of {dict(self.seen)}"


@define(eq=False)
class Book:
    """What one member's program knows of itself, and what is known of it."""

    judge: Judge
    name: str
    is_cooperative: bool
    is_committed: bool
    patience: float  # seconds that a Fetch may wait behind another on its connection
    holds: dict[tuple[str, str], Hold] = field(factory=dict)
    owned: dict[TopicPartition, Ownership] = field(factory=dict)
    kept: dict[TopicPartition, Ownership] = field(factory=dict)
    before: set[TopicPartition] = field(factory=set)  # all that it ever owned
    furthest: dict[TopicPartition, int] = field(factory=dict)
    generation: int = -1
    assigned_in: int = -1
    synced_at: float = -inf
    disturbance: Unrest = field(factory=Unrest)
    is_worker: bool = False
    story: deque[str] = field(factory=lambda: deque(maxlen=_STORY))

    @property
    def now(self):
        """Virtual seconds since the beginning."""
        return self.judge.lab.now

    @property
    def is_well(self):
        """Whether nothing has disturbed this member or brokers for a while."""
        unrests = (self.disturbance, self.judge.trouble)
        return all(one.is_over(self.now) for one in unrests)

    def say(self, what):
        """Add a line to the story that a violation tells."""
        self.story.append(f"{self.now:9.3f} {what}")

    def fail(self, promise, what):
        """Tell a violation, also where what is raised would be caught."""
        story = "\n    ".join(self.story)
        text = f"{promise}: {self.name} at {self.now:.3f}: {what}\n    {story}"
        self.judge.verdict = self.judge.verdict or ViolationError(text)
        raise self.judge.verdict

    # Holds

    def held_since(self, tp, owner=None):
        """Return since when a hold of an owner, or of any, covers a partition, or None."""
        since = [
            hold.since
            for (whose, scope), hold in self.holds.items()
            if owner in {None, whose} and hold.until > self.now and covers(scope, tp)
        ]
        return min(since, default=None)

    def placed(self, owner, scope, until=inf):
        """Note a hold: the call that placed it has returned."""
        self.say(f"placed {scope} of {owner} until {until:.3f}")
        before = self.holds.get((owner, scope))
        since = before.since if before and before.until > self.now else self.now
        self.holds[owner, scope] = Hold(since, until)

    def lifted(self, owner, scope):
        """Note that a hold is about to be lifted."""
        self.say(f"lifts {scope} of {owner}")
        self.holds.pop((owner, scope), None)

    def look(self):
        """Count what a hold keeps from being delivered."""
        for tp, mine in self.owned.items():
            at = min(mine.firsts) if mine.next is None else mine.next
            is_waiting = at < self.judge.logs.log(tp).end
            if is_waiting and self.held_since(tp) is not None:
                self.judge.seen["held with records waiting"] += 1

    # Ownerships

    def assigned(self, partitions):
        self.say(f"assigned {short(*partitions)} in generation {self.generation}")
        kept, self.kept = self.kept, {}
        is_next = self.generation == self.assigned_in + 1
        self.assigned_in = self.generation
        for tp in partitions:
            mine = kept.get(tp)
            if mine is None or not is_next:
                is_mine_only = self.judge.owners.get(tp) == self.name
                mine = self._gained(tp, mine if is_mine_only else None)
            self.owned[tp] = mine
            self.judge.owners[tp] = self.name
            self.before.add(tp)

    def _gained(self, tp, mine):
        """Begin an ownership; it may continue the last one if nobody had it since."""
        self.judge.seen["gained"] += 1
        firsts = self.judge.first_offsets(tp)
        is_first = tp not in self.before
        if mine is None:
            return Ownership(self.synced_at, firsts, is_first=is_first)
        firsts |= mine.firsts if mine.next is None else {mine.next}
        return Ownership(mine.began, firsts, is_new=False, is_first=False)

    def revoked(self, partitions):
        """Note what the listener gives up; an eager join may give it back."""
        self.say(f"revoked {short(*partitions)}")
        for tp in partitions:
            mine = self.owned.pop(tp, None)
            if mine is not None and not self.is_cooperative:
                self.kept[tp] = mine

    def lost(self, partitions):
        self.say(f"lost {short(*partitions)}")
        self.judge.seen["lost"] += 1
        self.kept.clear()
        for tp in partitions:
            self.owned.pop(tp, None)

    def left(self, why):
        """Note that it owns nothing any more."""
        self.say(why)
        self.owned.clear()
        self.kept.clear()

    # Records

    def delivered(self, tp, offsets):
        """Judge records that the program was given."""
        mine = self._may_deliver(tp, offsets[0])
        for offset in offsets:
            self._follows(tp, mine, offset)
            mine.next = offset + 1
            self.furthest[tp] = max(self.furthest.get(tp, 0), offset + 1)
            self.judge.seen["delivered"] += 1
        self._tell(tp, offsets[0], offsets[-1])

    def _tell(self, tp, first, last):
        # Line by line an iteration would fill the story.
        what, _, end = self.story[-1].rpartition("-") if self.story else ("", "", "")
        if f" got {short(tp)} " in what and end == str(first - 1):
            self.story[-1] = f"{what}-{last}"
        else:
            self.say(f"got {short(tp)} {first}-{last}")

    def _may_deliver(self, tp, offset):
        since = self.held_since(tp)
        if since is not None:
            promise = "W10" if self.is_worker else "P1"
            self.fail(promise, f"{short(tp)} {offset} is held since {since:.3f}")
        mine = self.owned.get(tp)
        if mine is None:
            self.fail("P9", f"{short(tp)} {offset}: it owns {short(*self.owned)}")
        if mine.is_new and not mine.is_fetched:
            self.fail("P9", f"{short(tp)} {offset} was fetched in an older ownership")
        for scope, at in self.judge.group_holds.items():
            is_late = self.is_well and self.now - at > PROPAGATION
            if covers(scope, tp) and (at < mine.began or is_late):
                why = f"acknowledged at {at:.3f}, owned since {mine.began:.3f}"
                self.fail("G2", f"{short(tp)} {offset}: {scope} is held, {why}")
        return mine

    def _follows(self, tp, mine, offset):
        logs = self.judge.logs
        places = {mine.next} if mine.next is not None else mine.firsts
        if not any(
            logs.is_next(tp, place, offset, is_committed=self.is_committed)
            for place in places
        ):
            starts = logs.starts[tp]
            self.fail("P8", f"{short(tp)} {offset} follows {places}, starts {starts}")
        if mine.next is not None and offset > mine.next:
            self.judge.seen["passed over what is hidden or deleted"] += 1

    def sought(self, tp, offset):
        """Note a seek that has returned."""
        self.say(f"sought {short(tp)} {offset}")
        self.owned[tp].next = offset
        self.furthest[tp] = max(self.furthest.get(tp, 0), offset)

    def looked(self, told, owner=None):
        """Judge what ``quiet()`` has returned, or ``paused()`` for an owner."""
        self.look()
        for tp in self.owned:
            if self.held_since(tp, owner) is not None and tp not in told:
                whose = owner or "anybody"
                self.fail(
                    "P3", f"{short(tp)}, held by {whose}, is not in {short(*told)}"
                )

    def stands(self, tp, position):
        """Judge what ``position()`` has returned."""
        mine, logs = self.owned.get(tp), self.judge.logs
        if mine is None or mine.next is None:
            return
        if position == mine.next or position in logs.starts[tp]:
            return
        hidden = logs.given(tp, mine.next, position, is_committed=self.is_committed)
        if position < mine.next or hidden:
            self.fail("P8", f"position of {short(tp)} is {position}, not {mine.next}")

    # What brokers are asked

    def fetches(self, partitions):
        """Judge a Fetch: none is sent for what is held."""
        for tp in partitions:
            if tp in self.kept:  # between an eager join's two calls of the listener
                self.kept[tp].is_fetched = True
            mine = self.owned.get(tp)
            if mine is None:
                continue
            mine.is_fetched = True
            since = self.held_since(tp)
            if since is None:
                continue
            if mine.is_first and since < mine.began:
                self.fail("P7", f"Fetch of {short(tp)}, held since {since:.3f}")
            late = self.now - max(since, mine.began) - self.patience
            if late > 0 and self.is_well:
                self.fail("P11", f"Fetch of {short(tp)}, held since {since:.3f}")

    def committed(self, tp, offset, before):
        """Judge an offset that a commit of this member has changed."""
        self.say(f"committed {short(tp)} {before} -> {offset}")
        logs = self.judge.logs
        if not self.is_worker:
            places = {self.furthest.get(tp, 0), *logs.starts[tp], before or 0}
            first = max(places)
            if logs.given(tp, first, offset, is_committed=self.is_committed):
                self.fail("P8", f"{short(tp)}: {offset} is committed, not delivered")
            return
        if before is not None and offset < before:
            self.fail("W4", f"{short(tp)}: {offset} is committed after {before}")
        first = max(before or 0, logs.starts[tp][-1])
        wanted = logs.given(tp, first, offset, is_committed=self.is_committed)
        undone = [one for one in wanted if one not in self.judge.done.get(tp, ())]
        if undone:
            self.fail("W4", f"{short(tp)}: {offset} is committed, {undone} not done")

    # Handlers of a Worker

    def begins(self, tp, offset):
        """Judge the start of a handler; what is returned notes that it has succeeded."""
        mine = self._may_deliver(tp, offset)
        if mine.running != offset:  # else it is tried again
            if mine.running is not None:
                self.fail("W3", f"{short(tp)}: {offset} begins beside {mine.running}")
            self._follows(tp, mine, offset)
            mine.next, mine.running = offset + 1, offset
        self.say(f"begins {short(tp)} {offset}")

        def done():
            self.say(f"done {short(tp)} {offset}")
            self.judge.seen["delivered"] += 1
            self.judge.done.setdefault(tp, set()).add(offset)
            mine.running = None

        return done
