"""
One member and one partition: its facts, followed one by one.
"""

import math
from collections.abc import Callable, Iterable, Iterator

from attrs import define, frozen

from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.handled import Handled
from safeconsumer.audit.holding import Holds, Placed, ended_at, keys
from safeconsumer.audit.ownerships import Commits, Delivered, Epoch

# Holds by which a worker limits what it takes; its handlers work on (W9).
_WORKERS_OWN = frozenset(
    {"worker:backpressure", "worker:retry", "worker:drain", "worker:floor"}
)


_NOT_OWNED = "committed without owning it"


@frozen
class _Resumed:
    at: float
    polls: int


@define(eq=False)
class _Suspicion:
    """
    What is wrong unless a later entry says that the holds had ended before.
    """

    finding: Callable[[Placed], Finding]
    at: float
    holds: list[Placed]


class Replay:
    """
    Follows one member's journal as far as it concerns one partition.

    Args:
        case: the group and the partition.
        patience: seconds within which a resumed partition must deliver what is there.

    Attributes:
        epochs: its ownerships.
        commits: what it asked to be committed, and what was.
        handled: what a worker's handlers did with its records.
        is_working: whether a worker's handlers get the records.
        late: commits after it departed, by the generation that took it away: wrong if
            that gave it to anybody.
        generations: those in which it was gained.
    """

    # A delivery may take that many polls after a resume, whatever the clock says.
    _POLLS = 3

    def __init__(self, case: Address, patience: float) -> None:
        self._case = case
        self._patience = patience
        self._position: int | None = None
        self._is_owned = False
        self._holds = Holds()
        self._suspicions: list[_Suspicion] = []
        self._asked: dict[object, tuple[str, Epoch | None]] = {}
        self._departed_at = 0
        self._departed_in: int | None = None
        self._resumed: _Resumed | None = None
        self._findings: list[Finding] = []
        self.epochs: list[Epoch] = []
        self.commits = Commits()
        self.handled = Handled(self._find)
        self.is_working = False
        self.late: list[tuple[int, Finding]] = []
        self.generations: set[int] = set()
        self._excused: set[tuple[int, int]] = set()
        self._takers: dict[str, Callable[[Fact], None]] = {
            "assigned": self._assigned,
            "call": self._call,
            "completed": self.handled.completed,
            "deliver": self._deliver,
            "handle": self._handle,
            "handled": self.handled.ended,
            "hold": self._hold,
            "lift": self._lift,
            "lost": self._revoked,
            "moved": self._moved,
            "parked": self._parked,
            "return": self._return,
            "revoked": self._revoked,
            "working": self._works,
        }

    def take(self, fact: Fact) -> None:
        """
        Follow one fact; those of an event that no check is about change nothing.
        """
        taker = self._takers.get(fact.event)
        if taker is not None:
            taker(fact)

    def findings(self) -> Iterator[Finding]:
        """
        Yield what it broke by itself, once all facts were taken.
        """
        yield from self._findings
        for one in self._suspicions:
            yield one.finding(one.holds[0])

    def _works(self, fact: Fact) -> None:  # noqa: ARG002 - one shape
        self.is_working = True

    # ------------------------------------------------------------ calls

    def _call(self, fact: Fact) -> None:
        self._holds.take(fact)
        if fact["op"] == "commit":
            self._commits(fact)
        elif fact["op"] == "seek":
            self._position = None
            self.handled.sought()
            if self.epochs:
                self.epochs[-1].was_sought = True

    def _return(self, fact: Fact) -> None:
        if fact["ok"] is False:
            self._asked.pop(fact["id"], None)
            return
        match fact["op"]:
            case "pause":
                self._hold(fact)
                self._check_paused(fact)
            case "resume":
                if self._is_owned and not self._holds.standing(fact.at):
                    self._resumed = _Resumed(fact.at, fact.polls)
                self._check_paused(fact)
            case "commit":
                self._committed(fact)

    def _check_paused(self, fact: Fact) -> None:
        if fact["paused"] is None or not fact["assigned"]:
            return
        held = self._holds.standing(fact.at)
        should = bool(held) or bool(fact["gated"])
        if should == fact["paused"]:
            return
        if not should:
            self._find("S7", fact, None, "paused() says it is, and nothing holds it")
        elif fact["gated"]:
            self._find("S7", fact, None, "paused() says it is not, and it is gated")
        else:
            self._suspect("S7", fact, None, "paused() says it is not,", held)

    def _commits(self, fact: Fact) -> None:
        offset = fact["offset"]
        if offset is None:
            return
        self.commits.add(fact.at, offset, is_sure=False)
        evidence = ""
        if self._position is not None and offset > self._position:
            evidence = f"committed {offset}, delivered only up to {self._position}"
        elif not self._is_owned:
            evidence = _NOT_OWNED
        epoch = self.epochs[-1] if self._is_owned else None
        self._asked[fact["id"]] = evidence, epoch
        if self.is_working:
            self.handled.committing(fact, offset)

    def _committed(self, fact: Fact) -> None:
        offset = fact["offset"]
        evidence, epoch = self._asked.pop(fact["id"], ("", None))
        if epoch is not None:
            epoch.has_committed = True
        if offset is not None:
            self.commits.add(fact.at, offset, is_sure=True)
            if evidence:
                self._find("S5", fact, offset, evidence)
                self._tell_late(evidence)

    def _tell_late(self, evidence: str) -> None:
        # A cooperative rebalance takes away in one generation and gives in the next:
        # between the two nobody owns the partition, and what it had is committed.
        if evidence == _NOT_OWNED and self._departed_in is not None:
            self.late.append((self._departed_in, self._findings.pop()))

    # ------------------------------------------------------------ holds

    def _hold(self, fact: Fact) -> None:
        for hold in self._holds.take(fact):
            # These have said already that they began.
            began = self.handled.at_work()
            self._excused.update((hold.number, offset) for offset in began)

    def _lift(self, fact: Fact) -> None:
        self._holds.take(fact)
        over = frozenset(keys(fact))
        since = ended_at(fact)
        for one in self._suspicions:
            if since <= one.at:
                one.holds = [
                    hold
                    for hold in one.holds
                    if hold.key not in over or not hold.is_ended_by(fact)
                ]
        self._suspicions = [one for one in self._suspicions if one.holds]

    # ------------------------------------------------------------ ownership

    def _assigned(self, fact: Fact) -> None:
        if not self._is_owned:
            self._is_owned = True
            self._position = None
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
        if self._is_owned:
            is_lost = self.epochs[-1].was_lost = fact.event == "lost"
            self._departed_in = None if is_lost else fact["generation"]
        self._is_owned = False
        self._departed_at = fact.number
        self._resumed = None

    # ------------------------------------------------------------ records

    def _deliver(self, fact: Fact) -> None:
        if not self._is_owned:
            self._find("S3", fact, fact["first"], "delivered without owning it")
            self.epochs.append(Epoch(member=fact.member, at=fact.at))
            self._is_owned = True
        self._check_held(fact)
        self._check_order(fact)
        self._check_liveness(fact)
        self._went_on(fact, fact.at)
        self._came(fact)
        if self.is_working:
            self.handled.delivered(fact)

    def _moved(self, fact: Fact) -> None:
        # Over what is no record: markers of transactions, what was compacted away.
        if self._is_owned:
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
            self._suspect("S1", fact, fact["first"], evidence, held)

    # ------------------------------------------------------------ handlers

    def _handle(self, fact: Fact) -> None:
        # In force is a hold from the return of its call, or from the entry that tells
        # of one from elsewhere, to the call of its resume. A handler that was begun by
        # then may write so later: what handlers were at stands with the hold, each of
        # these may begin once, and nothing else may.
        offset = fact["offset"]
        held = [
            hold
            for hold in self._holds.standing(fact.at)
            if hold.owner not in _WORKERS_OWN and not self._is_excused(hold, offset)
        ]
        if held:
            self._suspect("W10", fact, offset, f"began {offset} while", held)
        self.handled.began(fact)

    def _is_excused(self, hold: Placed, offset: int) -> bool:
        excuse = hold.number, offset
        if offset not in hold.running or excuse in self._excused:
            return False
        self._excused.add(excuse)
        return True

    # ------------------------------------------------------------ checks

    def _check_order(self, fact: Fact) -> None:
        start, first, last, end = (
            fact[name] for name in ("from", "first", "last", "next")
        )
        if not start <= first <= last < end or fact["count"] > last - first + 1:
            evidence = f"offsets {first} to {last} do not lie in {start} to {end - 1}"
            self._find("S3", fact, first, evidence)
        if self._position is None:
            return
        if start > self._position:
            evidence = f"went on at {start}; {self._position} was next"
            self._find("S3", fact, self._position, evidence)
        elif start < self._position:
            evidence = f"went back to {start}; {self._position} was next"
            self._find("S4", fact, start, evidence)

    def _check_liveness(self, fact: Fact) -> None:
        resumed, self._resumed = self._resumed, None
        written = fact["written"]
        if resumed is None or written is None:
            return
        waited = fact.at - max(resumed.at, written)
        polls = fact.polls - resumed.polls
        if waited > self._patience and polls > self._POLLS:
            evidence = f"{waited:.1f} s and {polls} polls after the resume"
            self._find("L1", fact, fact["first"], evidence, Basis.CLOCKS)

    def _parked(self, fact: Fact) -> None:
        parked, limit = fact["bytes"], fact["limit"]
        # What departs in the middle of a poll is thrown away by the next.
        is_late = fact.called is not None and self._departed_at > fact.called
        if parked and not self._is_owned and not is_late:
            self._find("S8", fact, None, f"{parked} bytes parked without owning it")
        elif limit is not None and parked > limit:
            self._find("S8", fact, None, f"{parked} bytes parked, {limit} allowed")

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

        self._suspicions.append(_Suspicion(finding, fact.at, list(holds)))

    def _find(
        self,
        check: str,
        fact: Fact,
        offset: int | None,
        evidence: str,
        basis: Basis = Basis.ORDER,
    ) -> Callable[[], None]:
        # Returns what takes it back.
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
