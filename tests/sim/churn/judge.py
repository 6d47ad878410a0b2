"""
Judges a churn test by its own record of members' holds, ownerships and deliveries.

The judge shares no code with the product. Programs report what they know (calls that
have returned, listener calls, records), and the judge observes the requests to the
brokers.
"""

from collections import Counter, deque
from math import inf

from attrs import define, field
from kafka import TopicPartition
from kafka.errors import IllegalStateError, KafkaError

from tests.harness.scopes import covers, short
from tests.sim.churn.logs import Logs
from tests.sim.lab import Lab

PROPAGATION = 5.0  # seconds within which owners obey a hold of the group
SETTLING = 30.0  # seconds after a fault until everything works again
_HISTORY = 60  # lines of a member's history that a violation shows


class ViolationError(AssertionError):
    """A promise was broken; the message ends with the member's history."""


@define
class Disturbance:
    """Counts faults of a member, or of brokers, and remembers when the last fault ended."""

    count: int = 0
    ended_at: float = -inf

    def begin(self):
        """Record that a fault starts."""
        self.count += 1

    def end(self, now):
        self.count -= 1
        self.note(now)

    def note(self, now):
        self.ended_at = now

    def is_over(self, now):
        """Return whether there has been no fault for a while."""
        return self.count == 0 and now - self.ended_at > SETTLING


@define
class Hold:
    """A hold that is certainly in force from ``since`` until ``until``."""

    since: float
    until: float = inf


@define
class Ownership:
    """
    A member's ownership of a partition, from one assignment to its end.

    Attributes:
        began: when the member requested the assignment; the ownership began no earlier.
        firsts: the offsets at which the ownership may start: a committed offset, or the
            log's start.
        next: the next record's offset; None until the first record has arrived.
        is_new: whether records fetched before the ownership must not be delivered in it.
        is_first: whether the member has never owned the partition before.
        is_fetched: whether a Fetch has named the partition.
        running: the latest record that a Worker's handler has started.
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
    """Keeps a ``Book`` for each member of a group, and tracks the group's holds and logs."""

    lab: Lab
    logs: Logs
    books: dict[str, "Book"] = field(factory=dict)
    seen: Counter[str] = field(factory=Counter)
    group_holds: dict[str, float] = field(factory=dict)
    owners: dict[TopicPartition, str] = field(factory=dict)
    done: dict[TopicPartition, set[int]] = field(factory=dict)
    trouble: Disturbance = field(factory=Disturbance)
    verdict: ViolationError | None = None
    committing: list[tuple["Book | None", set[TopicPartition]]] = field(factory=list)

    def begin(self):
        self.lab.cluster.on_request = self._asked

    def book(self, name, **facts):
        """Create the ``Book`` that tracks a new member."""
        self.books[name] = Book(judge=self, name=name, **facts)
        return self.books[name]

    def group_held(self, scope):
        """Record a hold of the group that the brokers have acknowledged."""
        self.group_holds.setdefault(scope, self.lab.now)
        self.seen["group holds"] += 1

    def group_lifted(self, scope):
        """Record that a hold of the group is about to be lifted."""
        self.group_holds.pop(scope, None)

    def first_offsets(self, tp):
        """Return the offset at which a member starts if it gets the partition now."""
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
        """Find newly committed offsets; several requests may arrive at the same time."""
        asked, self.committing = self.committing, []
        before = dict(self.logs.committed)
        for tp, at in self.logs.newly_committed().items():
            self.seen["committed"] += 1
            for one in self.books.values():
                if tp in one.owned and one.owned[tp].next is None:
                    one.owned[tp].firsts.add(at)
            books = [book for book, named in asked if tp in named]
            books += [book for book, named in asked if not named]  # a transaction's end
            if books and books[0] is not None:
                books[0].committed(tp, at, before.get(tp))

    def check_coverage(self, wanted):
        """Fail if too little happened, because the churn test has then proved nothing."""
        missing = {what: n for what, n in wanted.items() if self.seen[what] < n}
        assert not missing, f"too little happened: {missing} of {dict(self.seen)}"


@define(eq=False)
class Book:
    """Tracks the calls of one member's program, and judges the records it receives."""

    judge: Judge
    name: str
    is_cooperative: bool
    is_committed: bool
    patience: float  # seconds for which a Fetch may wait for another on its connection
    holds: dict[tuple[str, str], Hold] = field(factory=dict)
    owned: dict[TopicPartition, Ownership] = field(factory=dict)
    kept: dict[TopicPartition, Ownership] = field(factory=dict)
    # Every partition that the member has ever owned.
    before: set[TopicPartition] = field(factory=set)
    furthest: dict[TopicPartition, int] = field(factory=dict)
    generation: int = -1
    assigned_in: int = -1
    synced_at: float = -inf
    disturbance: Disturbance = field(factory=Disturbance)
    is_worker: bool = False
    history: deque[str] = field(factory=lambda: deque(maxlen=_HISTORY))

    @property
    def now(self):
        """Return the virtual seconds since the world started."""
        return self.judge.lab.now

    @property
    def is_well(self):
        """Return whether this member and the brokers have been undisturbed for a while."""
        both = (self.disturbance, self.judge.trouble)
        return all(one.is_over(self.now) for one in both)

    def log(self, line):
        """Add a line to the history, which the message of a violation contains."""
        self.history.append(f"{self.now:9.3f} {line}")

    def fail(self, promise, what):
        """Raise a violation, and keep it, because the client may catch the error."""
        history = "\n    ".join(self.history)
        text = f"{promise}: {self.name} at {self.now:.3f}: {what}\n    {history}"
        self.judge.verdict = self.judge.verdict or ViolationError(text)
        raise self.judge.verdict

    # Holds

    def held_since(self, tp, owner=None):
        """Return the time since which a hold (of one owner) covers a partition, or None."""
        since = [
            hold.since
            for (its, scope), hold in self.holds.items()
            if owner in {None, its} and hold.until > self.now and covers(scope, tp)
        ]
        return min(since, default=None)

    def placed(self, owner, scope, until=inf):
        """Record a hold after the call that placed it has returned."""
        self.log(f"placed {scope} of {owner} until {until:.3f}")
        before = self.holds.get((owner, scope))
        since = before.since if before and before.until > self.now else self.now
        self.holds[owner, scope] = Hold(since, until)

    def lifted(self, owner, scope):
        """Record that a hold is about to be lifted."""
        self.log(f"lifts {scope} of {owner}")
        self.holds.pop((owner, scope), None)

    def count_held(self):
        """Count the partitions that have undelivered records and a hold."""
        for tp, mine in self.owned.items():
            at = min(mine.firsts) if mine.next is None else mine.next
            is_waiting = at < self.judge.logs.log(tp).end
            if is_waiting and self.held_since(tp) is not None:
                self.judge.seen["held with records waiting"] += 1

    # Ownerships

    def assigned(self, partitions):
        self.log(f"assigned {short(*partitions)} in generation {self.generation}")
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
        """Return an ownership, which may continue the member's previous ownership."""
        self.judge.seen["gained"] += 1
        firsts = self.judge.first_offsets(tp)
        is_first = tp not in self.before
        if mine is None:
            return Ownership(self.synced_at, firsts, is_first=is_first)
        firsts |= mine.firsts if mine.next is None else {mine.next}
        return Ownership(mine.began, firsts, is_new=False, is_first=False)

    def revoked(self, partitions):
        """Record revoked partitions, which an eager join may give back to the member."""
        self.log(f"revoked {short(*partitions)}")
        for tp in partitions:
            mine = self.owned.pop(tp, None)
            if mine is not None and not self.is_cooperative:
                self.kept[tp] = mine

    def lost(self, partitions):
        self.log(f"lost {short(*partitions)}")
        self.judge.seen["lost"] += 1
        self.kept.clear()
        for tp in partitions:
            self.owned.pop(tp, None)

    def left(self, why):
        """Record that the member no longer owns any partition."""
        self.log(why)
        self.owned.clear()
        self.kept.clear()

    # Records

    def delivered(self, tp, offsets):
        """Judge the records that a poll returned."""
        mine = self._may_deliver(tp, offsets[0])
        for offset in offsets:
            self._follows(tp, mine, offset)
            mine.next = offset + 1
            self.furthest[tp] = max(self.furthest.get(tp, 0), offset + 1)
            self.judge.seen["delivered"] += 1
        self._log_records(tp, offsets[0], offsets[-1])

    def _log_records(self, tp, first, last):
        # Entries for each record of an iteration would fill the history.
        line, _, end = (self.history or [""])[-1].rpartition("-")
        if f" got {short(tp)} " in line and end == str(first - 1):
            self.history[-1] = f"{line}-{last}"
        else:
            self.log(f"got {short(tp)} {first}-{last}")

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
        """Record a seek that has returned."""
        self.log(f"sought {short(tp)} {offset}")
        self.owned[tp].next = offset
        self.furthest[tp] = max(self.furthest.get(tp, 0), offset)

    def look(self, consumer):
        """Judge the results of the consumer's queries between two polls."""
        self.listed_as_held(consumer.quiet())
        self.listed_as_held(consumer.paused(), owner="app")
        for tp in sorted(self.owned):
            try:
                position = consumer.position(tp, timeout_ms=0)
            except (KafkaError, IllegalStateError):  # the member has left the group
                continue
            if position is not None:
                self.stands_at(tp, position)

    def listed_as_held(self, listed, owner=None):
        """Judge the result of ``quiet()``, or of ``paused()`` for an owner."""
        self.count_held()
        for tp in self.owned:
            if self.held_since(tp, owner) is not None and tp not in listed:
                by = owner or "any owner"
                self.fail("P3", f"{short(tp)}, held by {by}, not in {short(*listed)}")

    def stands_at(self, tp, position):
        """Judge the result of ``position()``."""
        mine, logs = self.owned.get(tp), self.judge.logs
        if mine is None or mine.next is None:
            return
        if position == mine.next or position in logs.starts[tp]:
            return
        hidden = logs.given(tp, mine.next, position, is_committed=self.is_committed)
        if position < mine.next or hidden:
            self.fail("P8", f"position of {short(tp)} is {position}, not {mine.next}")

    # Requests to brokers

    def fetches(self, partitions):
        """Judge a Fetch, which must not name held partitions."""
        for tp in partitions:
            if tp in self.kept:  # between the two listener calls of an eager join
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
        """Judge a committed offset that this member has changed."""
        self.log(f"committed {short(tp)} {before} -> {offset}")
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
        """Judge the start of a handler; return a function that records its success."""
        mine = self._may_deliver(tp, offset)
        if mine.running != offset:  # otherwise the worker retries the same record
            if mine.running is not None:
                self.fail("W3", f"{short(tp)}: {offset} begins beside {mine.running}")
            self._follows(tp, mine, offset)
            mine.next, mine.running = offset + 1, offset
        self.log(f"begins {short(tp)} {offset}")

        def done():
            self.log(f"done {short(tp)} {offset}")
            self.judge.seen["delivered"] += 1
            self.judge.done.setdefault(tp, set()).add(offset)
            mine.running = None

        return done
