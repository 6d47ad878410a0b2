"""
One member and one partition: its journal, followed line by line.
"""

import math
from collections.abc import Callable, Iterator

from attrs import frozen

from safeconsumer.audit.handled import Handled
from safeconsumer.audit.journal import Entry, tp_text
from safeconsumer.audit.members import Member, Placed
from safeconsumer.audit.ownerships import Commits, Delivered, Epoch
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.scope import TopicPartition

# Holds by which a worker limits what it takes; its handlers work on (W9).
_WORKERS_OWN = frozenset(
    {"worker:backpressure", "worker:retry", "worker:drain", "worker:floor"}
)


_NOT_OWNED = "committed without owning it"


@frozen(kw_only=True)
class Finding:
    """
    One promise that was broken.

    Attributes:
        check: which, one of :data:`safeconsumer.audit.checker.CHECKS`.
        partition: where.
        member: by whom; "" if by the fleet together.
        offset: the first offset concerned, or None.
        evidence: what the journal says, in one sentence.
        at: when, seconds since the epoch; None if no moment can be named.
        entry: the number of the entry that shows it; None if it takes several.
    """

    check: str
    partition: TopicPartition
    member: str
    offset: int | None
    evidence: str
    at: float | None = None
    entry: int | None = None


@frozen
class _Resumed:
    at: float
    polls: int


class Replay:
    """
    Follows one member's journal as far as it concerns one partition.

    Args:
        tp: the partition.
        patience: seconds within which a resumed partition must deliver what is there.
        member: what it shares with the member's other partitions.

    Attributes:
        findings: what it broke by itself.
        epochs: its ownerships.
        commits: what it asked to be committed, and what was.
        handled: what a worker's handlers did with its records.
        late: commits after it departed, by the generation that took it away: wrong if
            that gave it to anybody.
        generations: those in which it was gained.
    """

    # A delivery may take that many polls after a resume, whatever the clock says.
    _POLLS = 3

    def __init__(self, tp: TopicPartition, patience: float, member: Member) -> None:
        self._tp = tp
        self._name = tp_text(tp)
        self._patience = patience
        self._member = member
        self._position: int | None = None
        self._is_owned = False
        self._holds: dict[tuple[str, str], Placed] = {}
        self._asked: dict[object, tuple[str, Epoch | None]] = {}
        self._departed_at = 0
        self._departed_in: int | None = None
        self._resumed: _Resumed | None = None
        self._covers: dict[str, bool] = {}
        self.findings: list[Finding] = []
        self.epochs: list[Epoch] = []
        self.commits = Commits()
        self.handled = Handled(self._find)
        self.late: list[tuple[int, Finding]] = []
        self.generations: set[int] = set()
        self._excused: set[tuple[int, int]] = set()
        self._takers = {
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
        }

    def take(self, entry: Entry) -> None:
        """
        Follow one entry that is about this partition, or about all.
        """
        self._takers[entry.event](entry)

    def take_hold(self, key: tuple[str, str], hold: Placed) -> None:
        """
        Take note of a hold, which may have been placed before this was heard of.
        """
        if self._is_covered_by(key[0]):
            self._place(key, hold)

    def _place(self, key: tuple[str, str], hold: Placed) -> None:
        self._holds[key] = hold
        # These have said already that they began.
        began = self.handled.at_work()
        self._excused.update((hold.number, offset) for offset in began)

    # ------------------------------------------------------------ calls

    def _call(self, entry: Entry) -> None:
        if entry["op"] == "resume":
            for key in self._keys(entry):
                self._holds.pop(key, None)
        elif entry["op"] == "commit":
            self._commits(entry)
        elif entry["op"] == "seek":
            self._position = None
            self.handled.sought()
            if self.epochs:
                self.epochs[-1].was_sought = True

    def _return(self, entry: Entry) -> None:
        if entry["ok"] is False:
            self._asked.pop(entry["id"], None)
            return
        match entry["op"]:
            case "pause":
                for key in self._keys(entry):
                    self._place(key, self._member.placed(entry, key))
                self._check_paused(entry)
            case "resume":
                if self._is_owned and not self._held_before(math.inf, entry.at):
                    self._resumed = _Resumed(entry.at, self._member.polls)
                self._check_paused(entry)
            case "commit":
                self._committed(entry)

    def _keys(self, entry: Entry) -> Iterator[tuple[str, str]]:
        for scope in entry["scopes"] or ():
            if self._is_covered_by(scope):
                yield scope, entry["owner"] or ""

    def _is_covered_by(self, scope: str) -> bool:
        known = self._covers.get(scope)
        if known is None:
            known = self._covers[scope] = scopes.parse(scope).covers(self._tp)
        return known

    def _held_before(self, number: float, at: float) -> list[tuple[str, str]]:
        return [
            key
            for key, hold in self._holds.items()
            if hold.number < number and at < hold.until
        ]

    def _check_paused(self, entry: Entry) -> None:
        name = self._name
        if entry["paused"] is None or name not in (entry["assigned"] or ()):
            return
        held = self._held_before(math.inf, entry.at)
        should = bool(held) or name in (entry["gated"] or ())
        if should != (name in entry["paused"]):
            is_not = "is not" if should else "is"
            evidence = f"paused() says it {is_not}, with holds {held}"
            self._find("S7", entry, None, evidence)

    def _commits(self, entry: Entry) -> None:
        offset = (entry["offsets"] or {}).get(self._name)
        if offset is None:
            return
        self.commits.add(entry.at, offset, is_sure=False)
        evidence = ""
        if self._position is not None and offset > self._position:
            evidence = f"committed {offset}, delivered only up to {self._position}"
        elif not self._is_owned:
            evidence = _NOT_OWNED
        epoch = self.epochs[-1] if self._is_owned else None
        self._asked[entry["id"]] = evidence, epoch
        if self._member.is_working:
            self.handled.committing(entry, offset)

    def _committed(self, entry: Entry) -> None:
        offset = (entry["offsets"] or {}).get(self._name)
        evidence, epoch = self._asked.pop(entry["id"], ("", None))
        if epoch is not None:
            epoch.has_committed = True
        if offset is not None:
            self.commits.add(entry.at, offset, is_sure=True)
            if evidence:
                self._find("S5", entry, offset, evidence)
                self._tell_late(evidence)

    def _tell_late(self, evidence: str) -> None:
        # A cooperative rebalance takes away in one generation and gives in the next:
        # between the two nobody owns the partition, and what it had is committed.
        is_late = evidence == _NOT_OWNED and self._departed_in is not None
        if is_late:
            self.late.append((self._departed_in, self.findings.pop()))  # type: ignore[arg-type]  # it is known

    # ------------------------------------------------------------ holds from elsewhere

    def _hold(self, entry: Entry) -> None:
        key = entry["scope"], entry["owner"] or ""
        self.take_hold(key, self._member.placed(entry, key))

    def _lift(self, entry: Entry) -> None:
        key = entry["scope"], entry["owner"] or ""
        hold = self._holds.get(key)
        if hold is not None and hold.is_ended_by(entry):
            del self._holds[key]

    # ------------------------------------------------------------ ownership

    def _assigned(self, entry: Entry) -> None:
        if not self._is_owned:
            self._is_owned = True
            self._position = None
            generation = entry["generation"]
            began = Epoch(member=entry.member, at=entry.at, generation=generation)
            self.generations.add(-1 if generation is None else generation)
            before = self.epochs[-1] if self.epochs else None
            is_given_back = before is not None and before.is_followed_by(generation)
            if before is not None and is_given_back:
                began.owned_since = before.owned_since
            self.handled.gained(is_given_back=is_given_back)
            self.epochs.append(began)

    def _revoked(self, entry: Entry) -> None:
        if self._is_owned:
            is_lost = self.epochs[-1].was_lost = entry.event == "lost"
            self._departed_in = None if is_lost else entry["generation"]
        self._is_owned = False
        self._departed_at = entry.number
        self._resumed = None

    # ------------------------------------------------------------ records

    def _deliver(self, entry: Entry) -> None:
        if not self._is_owned:
            self._find("S3", entry, entry["first"], "delivered without owning it")
            self.epochs.append(Epoch(member=entry.member, at=entry.at))
            self._is_owned = True
        self._check_held(entry)
        self._check_order(entry)
        self._check_liveness(entry)
        self._went_on(entry, entry.at)
        self._came(entry)
        if self._member.is_working:
            self.handled.delivered(entry)

    def _moved(self, entry: Entry) -> None:
        # Over what is no record: markers of transactions, what was compacted away.
        if self._is_owned:
            self._went_on(entry, math.inf)

    def _went_on(self, entry: Entry, at: float) -> None:
        self._position = entry["next"]
        run = Delivered(start=entry["from"], end=entry["next"], at=at)
        runs = self.epochs[-1].runs
        if runs and runs[-1].end == run.start:
            start, at = runs[-1].start, min(runs[-1].at, at)
            runs[-1] = Delivered(start=start, end=run.end, at=at)
        else:
            runs.append(run)

    def _came(self, entry: Entry) -> None:
        came, at = self.epochs[-1].came, entry["first"]
        for start, end in entry["gaps"] or ():
            came.add(at, start)
            at = end
        came.add(at, entry["last"] + 1)

    def _check_held(self, entry: Entry) -> None:
        called = self._member.called_at(entry)
        held = self._held_before(called, entry.at)
        if held:
            scope, owner = held[0]
            evidence = f"delivered {entry['count']} while {scope} was held by {owner}"
            self._find("S1", entry, entry["first"], evidence)

    # ------------------------------------------------------------ handlers

    def _handle(self, entry: Entry) -> None:
        # In force is a hold from the return of its call, or from the entry that tells
        # of one from elsewhere, to the call of its resume. A handler that was begun by
        # then may write so later: what handlers were at stands with the hold, each of
        # these may begin once, and nothing else may.
        offset = entry["offset"]
        for scope, owner in self._held_before(math.inf, entry.at):
            hold = self._holds[scope, owner]
            excuse = hold.number, offset
            if owner in _WORKERS_OWN:
                continue
            if offset in hold.running.get(self._name, ()) and (
                excuse not in self._excused
            ):
                self._excused.add(excuse)
                continue
            evidence = f"began {offset} while {scope} was held by {owner}"
            self._find("W10", entry, offset, evidence)
            break
        self.handled.began(entry)

    # ------------------------------------------------------------ checks

    def _check_order(self, entry: Entry) -> None:
        start, first, last, end = (
            entry[name] for name in ("from", "first", "last", "next")
        )
        if not start <= first <= last < end or entry["count"] > last - first + 1:
            evidence = f"offsets {first} to {last} do not lie in {start} to {end - 1}"
            self._find("S3", entry, first, evidence)
        if self._position is None:
            return
        if start > self._position:
            evidence = f"went on at {start}; {self._position} was next"
            self._find("S3", entry, self._position, evidence)
        elif start < self._position:
            evidence = f"went back to {start}; {self._position} was next"
            self._find("S4", entry, start, evidence)

    def _check_liveness(self, entry: Entry) -> None:
        resumed, self._resumed = self._resumed, None
        written = entry["written"]
        if resumed is None or written is None:
            return
        waited = entry.at - max(resumed.at, written)
        polls = self._member.polls - resumed.polls
        if waited > self._patience and polls > self._POLLS:
            evidence = f"{waited:.1f} s and {polls} polls after the resume"
            self._find("L1", entry, entry["first"], evidence)

    def _parked(self, entry: Entry) -> None:
        parked, limit = entry["bytes"], entry["limit"]
        # What departs in the middle of a poll is thrown away by the next.
        polling = self._member.polling
        is_late = polling is not None and self._departed_at > polling
        if parked and not self._is_owned and not is_late:
            self._find("S8", entry, None, f"{parked} bytes parked without owning it")
        elif limit is not None and parked > limit:
            self._find("S8", entry, None, f"{parked} bytes parked, {limit} allowed")

    def _find(
        self,
        check: str,
        entry: Entry,
        offset: int | None,
        evidence: str,
    ) -> Callable[[], None]:
        # Returns what takes it back.
        found = Finding(
            check=check,
            partition=self._tp,
            member=entry.member,
            offset=offset,
            evidence=f"entry {entry.number}: {evidence}",
            at=entry.at,
            entry=entry.number,
        )
        self.findings.append(found)
        return lambda: self.findings.remove(found)
