"""Follows the facts of one member about one partition, one by one."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from attrs import define, frozen

from safeconsumer.audit.anew import Dating
from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.handled import Handled, offsets_of
from safeconsumer.audit.holding import Holds, Key, Placed, ended_at, keys
from safeconsumer.audit.ownerships import Commits, Delivered, Epoch, Moments
from safeconsumer.journal.format import EXPIRED

# Holds with which a worker limits its input; its handlers go on (W9).
_WORKERS_OWN = frozenset(
    {
        "worker:backpressure",
        "worker:retry",
        "worker:drain",
        "worker:floor",
        "worker:unreadable",
    }
)


# Seconds: a hold expires when the consumer next checks, and its entry follows that.
_EXPIRES_WITHIN = 1.0
_WRITTEN_WITHIN = 1.0

_NOT_OWNED = "committed without owning it"


@frozen(kw_only=True)
class Waited:
    """
    A resume after which the next record was long in coming.

    Attributes:
        entry: the number of the entry that shows it.
        resumed: when the last hold was gone.
        until: when the record came, or the journal ended.
        polls: how many polls returned meanwhile.
        offset: the offset of the record, or of the expected one; None if unknown.
        written: when the broker appended it, if that is known.
        created: its producer's time, if only that is known.
        is_delivered: whether it came at all.
        was_sought: whether a seek moved the partition to an unknown position.
    """

    entry: int
    resumed: float
    until: float
    polls: int
    offset: int | None
    written: float | None = None
    created: float | None = None
    is_delivered: bool = True
    was_sought: bool = False


@frozen
class Heard:
    """
    A member's entry that a hold from elsewhere is in force.

    Attributes:
        key: its scope and owner.
        at: when the member read it.
        ends: how many ends of holds of that key the member had read before.
    """

    key: Key
    at: float
    ends: int


@define
class Let:
    """
    A hold from elsewhere that the member took for over, and what it did then.

    Attributes:
        scope: its scope.
        owner: its owner.
        ended: when it was over, by the member's journal.
        is_expired: whether, by that journal, it ended without a lift.
        check: A1 for deliveries, W10 for handlers.
        delivered: when the next record came, or its handler began.
        offset: the offset of that record.
        count: how many records came with it.
        entry: the number of the entry that shows them; 0 if nothing came.
    """

    scope: str
    owner: str
    ended: float
    is_expired: bool
    check: str = "A1"
    delivered: float = 0.0
    offset: int = 0
    count: int = 0
    entry: int = 0


@define(eq=False)
class _Asked:
    """
    A commit, from its call on.

    Attributes:
        fact: the fact of the call.
        offset: the offset to be committed.
        epoch: the ownership in which it was asked for; None if there was none yet.
        was_owned: whether that ownership had not ended.
        seeks: how many seeks that ownership had had.
        evidence: the fault of the commit, or "".
        is_sure: whether it was acknowledged.
    """

    fact: Fact
    offset: int
    epoch: Epoch | None
    was_owned: bool
    seeks: int
    evidence: str = ""
    is_sure: bool = False


@frozen
class _Sought:
    """The state before a seek, which is restored if the seek fails."""

    epoch: Epoch
    position: int | None
    committed: int
    is_at_start: bool


@frozen
class _Resumed:
    at: float
    polls: int


@define(eq=False)
class _Suspicion:
    """A violation, unless a later entry shows that the holds had ended before."""

    finding: Callable[[Placed], Finding]
    fact: Fact
    holds: list[Placed]


class Replay:
    """
    Follows one member's journal as far as it concerns one partition.

    Args:
        case: the group and the partition.
        patience: seconds within which a resumed partition must deliver what is there.

    Attributes:
        epochs: its ownerships.
        strays: its commits before it first had the partition.
        waits: resumes after which nothing came for long.
        let_go: holds from elsewhere that it took for over before it delivered.
        heard: the holds from elsewhere that it read.
        lifted: the holds from elsewhere that it took for lifted, and when.
        delivered: when polls returned records, with the first offset of each.
        was_hidden: whether an entry of a pause or resume lacks what ``paused()``
            returned.
        is_blind: whether it makes commits that its journal lacks.
        handled: what a worker's handlers did with its records.
        is_working: whether a worker's handlers get the records.
        late: commits after the partition was revoked, with the generation that revoked
            it; they are wrong if that generation assigned it to a member.
        generations: the generations in which the member gained the partition.
    """

    # A delivery may take this many polls after a resume, however long they take.
    _POLLS = 3

    def __init__(self, case: Address, patience: float) -> None:
        self._case = case
        self._patience = patience
        self._position: int | None = None
        self._is_owned = False
        self._holds = Holds()
        self._suspicions: list[_Suspicion] = []
        self._unheld: list[tuple[Fact, Callable[[], None]]] = []
        self._asked: dict[object, _Asked] = {}
        self._blind: list[_Asked] = []  # at a position that is not known yet
        self._unplaced: list[_Asked] = []  # those whose position never became known
        self._committed_up_to = -1  # in this ownership, since the last seek
        self._sought_times = 0  # in this ownership
        self._seeks: dict[object, _Sought] = {}
        self._sought_at = 0
        self._peeked = -1  # the offset up to which peeked records will come again
        self._dating = Dating()
        self._departed_at = 0
        self._departed_in: int | None = None
        self._resumed: _Resumed | None = None
        self._findings: list[Finding] = []
        self.epochs: list[Epoch] = []
        self.strays = Commits()
        self.waits: list[Waited] = []
        self.let_go: list[Let] = []
        self._let: list[Let] = []
        self._let_work: list[tuple[Placed, Let]] = []
        self.heard: list[Heard] = []
        self._ends: Counter[Key] = Counter()
        self.lifted: list[tuple[Key, float]] = []
        self.delivered = Moments()
        self.was_hidden = False
        self.is_blind = False
        self._changed = 0
        self._flying: set[object] = set()
        self.handled = Handled(self._find)
        self.is_working = False
        self.late: list[tuple[int, Finding]] = []
        self.generations: set[int] = set()
        self._excused: set[tuple[int, int]] = set()
        self._takers = self._by_event()

    def _by_event(self) -> Mapping[str, Callable[[Fact], None]]:
        return {
            "assigned": self._assigned,
            "begins": self._begins,
            "call": self._call,
            "completed": self.handled.completed,
            "deliver": self._deliver,
            "dropped": self.handled.dropped,
            "handle": self._handle,
            "handled": self.handled.ended,
            "hold": self._hold,
            "lift": self._lift,
            "lost": self._revoked,
            "moved": self._moved,
            "over": self._over,
            "parked": self._parked,
            "return": self._return,
            "revoked": self._revoked,
            "working": self._works,
        }

    def take(self, fact: Fact) -> None:
        """Follow one fact; events that concern no check change nothing."""
        taker = self._takers.get(fact.event)
        if taker is not None:
            taker(fact)
            if self._is_owned:
                self.epochs[-1].over = fact.at

    def findings(self) -> Iterator[Finding]:
        """Yield the promises that it broke by itself, once all facts were taken."""
        yield from self._findings
        for one in self._suspicions:
            yield one.finding(one.holds[0])

    def _works(self, fact: Fact) -> None:  # noqa: ARG002 - one shape
        self.is_working = True
        self.handled.works()

    # ------------------------------------------------------------ for a picture

    @property
    def is_owned(self) -> bool:
        """Whether the member has the partition now."""
        return self._is_owned

    @property
    def holds(self) -> Holds:
        """The holds over the partition."""
        return self._holds

    @property
    def let(self) -> Sequence[Let]:
        """Holds from elsewhere that it took for over, if nothing has come since."""
        return self._let

    # ------------------------------------------------------------ calls

    def _call(self, fact: Fact) -> None:
        self._holds.take(fact)
        if fact["op"] in {"pause", "resume"}:
            self._flying.add(fact["id"])
        if fact["op"] == "commit":
            self._commits(fact)
        elif fact["op"] == "seek" and self._is_owned:
            self._seek(fact)

    def _return(self, fact: Fact) -> None:
        self._flying.discard(fact["id"])
        if fact["ok"] is False:
            self._asked.pop(fact["id"], None)
            if fact["op"] == "resume":
                self._hold(fact)
            self._failed_to_seek(fact)
            return
        match fact["op"]:
            case "pause":
                self._hold(fact)
                self._check_paused(fact)
                self._changed = fact.number
            case "resume":
                self._let_flow(fact)
                self._check_paused(fact)
                self._changed = fact.number
            case "commit":
                self._committed(fact)
            case "seek":
                self._sought(fact)

    # ------------------------------------------------------------ positions

    def _seek(self, fact: Fact) -> None:
        # Until it returns, the position is unknown.
        epoch = self.epochs[-1]
        is_at_start = not epoch.runs
        self._seeks[fact["id"]] = _Sought(
            epoch, self._position, self._committed_up_to, is_at_start
        )
        epoch.seeks += is_at_start
        self._leave_position()
        self._sought_times += 1

    def _sought(self, fact: Fact) -> None:
        self.handled.sought(fact["offset"])
        sought = self._seeks.pop(fact["id"], None)
        if sought is None or sought.epoch is not self._latest:
            return
        self._sought_at = fact.number
        if self._position is None and fact["offset"] is not None:
            self._stands_at(fact["offset"])

    def _failed_to_seek(self, fact: Fact) -> None:
        sought = self._seeks.pop(fact["id"], None)
        if sought is None:
            return
        sought.epoch.seeks -= sought.is_at_start
        if sought.epoch is self._latest and self._position is None:
            self._sought_times -= 1
            self._committed_up_to = sought.committed
            if sought.position is not None:
                self._stands_at(sought.position)

    def _begins(self, fact: Fact) -> None:
        # The member's own word is used only if nothing else gives the position.
        if self._is_owned and self._position is None:
            self._stands_at(fact["offset"])

    def _leave_position(self) -> None:
        self._position = None
        self._committed_up_to = -1
        self._unplaced += self._blind
        self._blind.clear()

    def _stands_at(self, position: int) -> None:
        self._position = position
        for asked in self._blind:
            if asked.offset > max(position, self._peeked):
                asked.evidence = f"committed {asked.offset} at {position}"
                self._accuse(asked)
        self._blind.clear()

    @property
    def unplaced(self) -> Iterator[tuple[Epoch, int]]:
        """The commits at unknown positions, each with its ownership."""
        for asked in (*self._unplaced, *self._blind):
            if asked.is_sure and asked.epoch is not None:
                yield asked.epoch, asked.offset

    # ------------------------------------------------------------ what paused() says

    def _check_paused(self, fact: Fact) -> None:
        if fact["paused"] is None:
            self.was_hidden = self.was_hidden or self._is_owned
            return
        held = self._holds.standing(fact.at)
        if not fact["assigned"] or not self._was_still(fact, held):
            return
        should = bool(held) or bool(fact["gated"])
        if should == fact["paused"]:
            return
        if not should:
            if fact["gated"] is not None:
                said = "paused() says it is, and nothing holds it"
                self._unheld.append((fact, self._find("A7", fact, None, said)))
        elif fact["gated"]:
            self._find("A7", fact, None, "paused() says it is not, and it is gated")
        else:
            self._suspect("A7", fact, None, "paused() says it is not,", held)

    def _was_still(self, fact: Fact, held: list[Placed]) -> bool:
        # Other threads may have changed something between the look and the entry.
        if fact["seen"] is None:
            return True
        if self._changed > fact["seen"] or self._flying:
            return False
        return held == self._holds.standing(fact["seen_at"] - _EXPIRES_WITHIN)

    def _commits(self, fact: Fact) -> None:
        offset = fact["offset"]
        if offset is None:
            return
        self._commits_of(self._latest).add(fact.at, offset, is_sure=False)
        latest, times = self._latest, self._sought_times
        asked = _Asked(fact, offset, latest, self._is_owned, times)
        self._asked[fact["id"]] = asked
        if self._position is not None and offset > max(self._position, self._peeked):
            asked.evidence = (
                f"committed {offset}, delivered only up to {self._position}"
            )
        elif not self._is_owned:
            asked.evidence = _NOT_OWNED
        elif offset < self._committed_up_to:
            before = self._committed_up_to
            asked.evidence = f"committed {offset}, {before} was committed before"
        elif self._position is None:
            self._blind.append(asked)
        if self.is_working:
            self.handled.committing(fact, offset)

    def _committed(self, fact: Fact) -> None:
        offset = fact["offset"]
        if offset is None:
            return
        unknown = _Asked(fact, offset, self._latest, was_owned=False, seeks=0)
        asked = self._asked.pop(fact["id"], unknown)
        asked.fact, asked.is_sure = fact, True
        epoch = asked.epoch
        self._commits_of(epoch).add(fact.at, offset, is_sure=True)
        if epoch is not None and asked.was_owned:
            epoch.has_committed = True
            if epoch is self._latest and asked.seeks == self._sought_times:
                self._committed_up_to = max(self._committed_up_to, offset)
            if not asked.seeks:
                low, high = epoch.sure or (offset, offset)
                epoch.sure = min(low, offset), max(high, offset)
        self._accuse(asked)

    def _accuse(self, asked: _Asked) -> None:
        if asked.evidence and asked.is_sure:
            self._find("A5", asked.fact, asked.offset, asked.evidence)
            self._tell_late(asked.evidence)

    @property
    def _latest(self) -> Epoch | None:
        return self.epochs[-1] if self.epochs else None

    def _commits_of(self, epoch: Epoch | None) -> Commits:
        return self.strays if epoch is None else epoch.commits

    def _tell_late(self, evidence: str) -> None:
        # A cooperative rebalance revokes in one generation and assigns in the next:
        # in between nobody owns the partition, and its old owner may commit.
        if evidence == _NOT_OWNED and self._departed_in is not None:
            self.late.append((self._departed_in, self._findings.pop()))

    # ------------------------------------------------------------ holds

    def _hold(self, fact: Fact) -> None:
        for hold in self._holds.take(fact).placed:
            self._resumed = None
            if hold.is_remote:
                self._heard_of(hold)
            # The begin of these ownerships is known already.
            began = self.handled.at_work()
            self._excused.update((hold.number, offset) for offset in began)

    def _heard_of(self, hold: Placed) -> None:
        # It was in force a little before its entry was written.
        self.heard.append(Heard(hold.key, hold.at, self._ends[hold.key]))
        self._changed = hold.number
        for fact, take_back in self._unheld:
            if hold.at - fact.at <= _WRITTEN_WITHIN:
                take_back()
        self._unheld.clear()

    def _lift(self, fact: Fact) -> None:
        self._changed = fact.number
        ended = self._holds.take(fact).ended
        over = frozenset(keys(fact))
        for one in self._suspicions:
            gone = [
                hold
                for hold in one.holds
                if hold.key in over and hold.is_over(fact, one.fact)
            ]
            one.holds = [hold for hold in one.holds if hold not in gone]
            # It is over by the member's journal; the operator's may show otherwise.
            self.let_go += _done_then(one.fact, [_let(hold, fact) for hold in gone])
        self._suspicions = [one for one in self._suspicions if one.holds]
        remote = [hold for hold in ended if hold.is_remote]
        self._ends.update(hold.key for hold in remote)
        if fact["why"] != EXPIRED:
            self.lifted += ((hold.key, ended_at(fact)) for hold in remote)
        self._let += [_let(hold, fact) for hold in remote]
        self._let_work += [(hold, _let(hold, fact)) for hold in remote]
        if ended:
            self._let_flow(fact)

    def _let_flow(self, fact: Fact) -> None:
        is_quiet = bool(self._holds.standing(fact.at)) or bool(fact["gated"])
        if self._is_owned and not is_quiet:
            self._resumed = _Resumed(fact.at, fact.polls)

    # ------------------------------------------------------------ ownership

    def _assigned(self, fact: Fact) -> None:
        self._changed = fact.number
        self.is_blind = self.is_blind or fact["commits"] is False
        if not self._is_owned:
            self._is_owned = True
            self._leave_position()
            self._peeked = -1
            self._dating = Dating()
            self._sought_times = 0
            self._seeks.clear()
            generation = fact["generation"]
            began = Epoch(member=fact.member, at=fact.at, generation=generation)
            self.generations.add(-1 if generation is None else generation)
            before = self.epochs[-1] if self.epochs else None
            is_given_back = before is not None and before.is_followed_by(generation)
            if before is not None and is_given_back:
                began.owned_since = before.owned_since
            self.handled.gained(is_given_back=is_given_back)
            self.epochs.append(began)

    def _revoked(self, fact: Fact) -> None:
        self._changed = fact.number
        self._over(fact)
        if self._is_owned:
            is_lost = self.epochs[-1].was_lost = fact.event == "lost"
            self._departed_in = None if is_lost else fact["generation"]
        self._is_owned = False
        self._departed_at = fact.number
        self._resumed = None

    # ------------------------------------------------------------ records

    def _deliver(self, fact: Fact) -> None:
        if not self._is_owned:
            self._find("A3", fact, fact["first"], "delivered without owning it")
            now = Epoch(member=fact.member, at=fact.at, was_assigned=False)
            self.epochs.append(now)
            self._is_owned = True
        self.delivered.add(fact.at, fact["first"])
        if self.epochs[-1].first is None:
            self.epochs[-1].first = fact.at, fact["first"]
        self._dating.take(fact, self.epochs[-1].dated, self._position)
        self._check_held(fact)
        if fact["peek"]:  # it will come again, whatever is committed until then
            self._peeked = max(self._peeked, fact["next"])
            self._check_liveness(fact)
            self._check_let(fact)
            self._came(fact)
            return
        self._check_order(fact)
        if self._blind:
            self._stands_at(fact["from"])
        self._check_liveness(fact)
        self._check_let(fact)
        self._went_on(fact, fact.at)
        self._came(fact)
        if self.is_working:
            self.handled.delivered(fact)

    def _moved(self, fact: Fact) -> None:
        # It moved over offsets without records: transaction markers, compaction.
        if self._is_owned:
            if self._blind:
                self._stands_at(fact["from"])
            self._went_on(fact, math.inf)

    def _went_on(self, fact: Fact, at: float) -> None:
        self._position = fact["next"]
        run = Delivered(start=fact["from"], end=fact["next"], at=at)
        runs = self.epochs[-1].runs
        if runs and runs[-1].end == run.start:
            start, at = runs[-1].start, min(runs[-1].at, at)
            runs[-1] = Delivered(start=start, end=run.end, at=at)
        else:
            runs.append(run)

    def _came(self, fact: Fact) -> None:
        came, at = self.epochs[-1].came, fact["first"]
        for start, end in fact["gaps"] or ():
            came.add(at, start)
            at = end
        came.add(at, fact["last"] + 1)

    def _check_held(self, fact: Fact) -> None:
        called = fact.number if fact.called is None else fact.called
        held = self._holds.standing(fact.at, called)
        if held:
            evidence = f"delivered {fact['count']} while"
            self._suspect("A1", fact, fact["first"], evidence, held)

    # ------------------------------------------------------------ handlers

    def _handle(self, fact: Fact) -> None:
        # A hold is in force from the return of its call, or from the entry that reports
        # a hold from elsewhere, to the call of its resume. A handler that had begun by
        # then may write its start later: the hold has the records that handlers were
        # working on. Each of these may begin once, and nothing else may.
        offset = fact["offset"]
        held = [
            hold
            for hold in self._holds.standing(fact.at)
            if hold.owner not in _WORKERS_OWN and not self._is_excused(hold, fact)
        ]
        if held:
            self._suspect("W10", fact, offset, f"began {offset} while", held)
        began = [one for one in self._let_work if not self._is_excused(one[0], fact)]
        self.let_go += _done_then(fact, [let for _, let in began])
        self._let_work = [one for one in self._let_work if one not in began]
        self.handled.began(fact)

    def _is_excused(self, hold: Placed, fact: Fact) -> bool:
        offsets = offsets_of(fact)
        excuses = {(hold.number, offset) for offset in offsets}
        was_running = all(offset in hold.running for offset in offsets)
        if not was_running or excuses & self._excused:
            return False
        self._excused |= excuses
        return True

    # ------------------------------------------------------------ checks

    def _check_order(self, fact: Fact) -> None:
        start, first, last, end = (
            fact[name] for name in ("from", "first", "last", "next")
        )
        if not start <= first <= last < end or fact["count"] > last - first + 1:
            evidence = f"offsets {first} to {last} do not lie in {start} to {end - 1}"
            self._find("A3", fact, first, evidence)
        called = fact.number if fact.called is None else fact.called
        if self._position is None or called < self._sought_at:
            return
        if start > self._position:
            evidence = f"went on at {start}; {self._position} was next"
            self._find("A3", fact, self._position, evidence)
        elif start < self._position:
            evidence = f"went back to {start}; {self._position} was next"
            self._find("A4", fact, start, evidence)

    def _check_liveness(self, fact: Fact) -> None:
        resumed, self._resumed = self._resumed, None
        if resumed is None:
            return
        since, polls = resumed.at, fact.polls - resumed.polls
        asked = fact["asked"]  # a step of an iteration: it was waiting only then
        is_slow = polls > self._POLLS
        if asked is not None:
            since, is_slow = max(since, asked), True
        if is_slow and fact.at - since > self._patience:
            self._wait(fact, since, polls, fact["first"])

    def _wait(
        self,
        fact: Fact,
        since: float,
        polls: int,
        offset: int | None,
        *,
        came: bool = True,
    ) -> None:
        self.waits.append(
            Waited(
                entry=fact.number,
                resumed=since,
                until=fact.at,
                polls=polls,
                offset=offset,
                written=fact["written"],
                created=fact["created"],
                is_delivered=came,
                was_sought=offset is None and self._was_moved(),
            )
        )

    def _was_moved(self) -> bool:
        return bool(self.epochs[-1].runs) or self.epochs[-1].was_sought

    def _over(self, fact: Fact) -> None:
        # At the end of the journal or of the ownership, records that were resumed and
        # polled for may never have come.
        resumed = self._resumed
        if resumed is None or not self._is_owned:
            return
        polls = fact.polls - resumed.polls
        if polls > self._POLLS and fact.at - resumed.at > self._patience:
            self._wait(fact, resumed.at, polls, self._position, came=False)

    def _check_let(self, fact: Fact) -> None:
        self.let_go += _done_then(fact, self._let)
        self._let.clear()

    def _parked(self, fact: Fact) -> None:
        parked, limit = fact["bytes"], fact["limit"]
        # The next poll throws away the data of a partition that departs during a poll.
        is_late = fact.called is not None and self._departed_at > fact.called
        if parked and not self._is_owned and not is_late:
            self._find("A8", fact, None, f"{parked} bytes parked without owning it")
        elif limit is not None and parked > limit:
            self._find("A8", fact, None, f"{parked} bytes parked, {limit} allowed")

    def _suspect(
        self,
        check: str,
        fact: Fact,
        offset: int | None,
        evidence: str,
        holds: Iterable[Placed],
    ) -> None:
        def finding(hold: Placed) -> Finding:
            said = f"{evidence} {hold.scope} was held by {hold.owner}"
            return self._finding(check, fact, offset, said, Basis.ORDER)

        self._suspicions.append(_Suspicion(finding, fact, list(holds)))

    def _find(
        self,
        check: str,
        fact: Fact,
        offset: int | None,
        evidence: str,
        basis: Basis = Basis.ORDER,
    ) -> Callable[[], None]:
        # Returns a function that withdraws it.
        found = self._finding(check, fact, offset, evidence, basis)
        self._findings.append(found)
        return lambda: self._findings.remove(found)

    def _finding(
        self, check: str, fact: Fact, offset: int | None, evidence: str, basis: Basis
    ) -> Finding:
        return Finding(
            check=check,
            case=self._case,
            member=fact.member,
            offset=offset,
            evidence=f"entry {fact.number}: {evidence}",
            basis=basis,
            at=fact.at,
            entry=fact.number,
        )


def _let(hold: Placed, lift: Fact) -> Let:
    ended = min(hold.until, ended_at(lift))
    return Let(hold.scope, hold.owner, ended, lift["why"] == EXPIRED)


def _done_then(fact: Fact, several: Iterable[Let]) -> Iterator[Let]:
    # Only holds of operators and of the group have a second journal about their end.
    for one in several:
        if ":" not in one.owner or fact.event not in {"deliver", "handle"}:
            continue
        one.delivered, one.entry = fact.at, fact.number
        if fact.event == "handle":
            one.check, one.offset, one.count = "W10", fact["offset"], 1
        else:
            one.offset, one.count = fact["first"], fact["count"]
        yield one
