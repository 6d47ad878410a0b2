"""
One member and one partition: its journal, followed line by line.
"""

import math
from collections.abc import Iterable, Iterator

from attrs import define, field, frozen

from safeconsumer._core import scopes
from safeconsumer._core.scopes import TopicPartition
from safeconsumer.audit.journal import Entry, tp_text

# What changes one member's state; the others are of producers and operators.
_EVENTS = frozenset(
    {
        *("assigned", "call", "deliver", "hold", "lift", "lost", "parked"),
        *("return", "revoked"),
    }
)


@frozen(kw_only=True)
class Finding:
    """
    One promise that was broken.

    Attributes:
        check: which: S1 to S8, L1, G2.
        partition: where.
        member: by whom; "" if by the fleet together.
        offset: the first offset concerned, or None.
        evidence: what the journal says, in one sentence.
        at: when, seconds since the epoch; None if no moment can be named.
    """

    check: str
    partition: TopicPartition
    member: str
    offset: int | None
    evidence: str
    at: float | None = None


@frozen(kw_only=True)
class Delivered:
    """
    A run of delivered records.
    """

    start: int
    end: int
    at: float


@define(kw_only=True)
class Epoch:
    """
    One ownership: from assigned to revoked or lost.
    """

    member: str
    at: float
    runs: list[Delivered] = field(factory=list)
    was_sought: bool = False
    generation: int | None = None


@frozen(kw_only=True)
class Committed:
    """
    A commit: asked for, and answered unless the member or the broker died.
    """

    at: float
    offset: int
    is_sure: bool = True


@define
class _Hold:
    placed: int
    until: float
    # Ends that were earlier are those of another hold, of the same scope and owner. Of
    # a hold that was told of itself, each later line is about it.
    since: float = 0.0


@define
class _Resumed:
    at: float
    polls: int = 0


class Replay:
    """
    Follows one member's journal as far as it concerns one partition.

    Args:
        tp: the partition.
        patience: seconds within which a resumed partition must deliver what is there.

    Attributes:
        findings: what it broke by itself.
        epochs: its ownerships.
        commits: what it asked to be committed, and what was.
    """

    # A delivery may take that many polls after a resume, whatever the clock says.
    _POLLS = 3

    def __init__(self, tp: TopicPartition, patience: float) -> None:
        self._tp = tp
        self._patience = patience
        self._position: int | None = None
        self._is_owned = False
        self._holds: dict[tuple[str, str], _Hold] = {}
        self._calls: dict[object, int] = {}
        self._asked: dict[object, str] = {}
        self._resumed: _Resumed | None = None
        self._lifts: list[Entry] = []
        self._covers: dict[str, bool] = {}
        self.findings: list[Finding] = []
        self.epochs: list[Epoch] = []
        self.commits: list[Committed] = []

    def follow(self, entries: Iterable[Entry]) -> "Replay":
        """
        Take over a whole journal.
        """
        entries = tuple(entries)
        self._lifts = [one for one in entries if one.event == "lift"]
        for entry in entries:
            if entry.event in _EVENTS:
                getattr(self, f"_{entry.event}")(entry)
        return self

    # ------------------------------------------------------------ calls

    def _call(self, entry: Entry) -> None:
        self._calls[entry["id"]] = entry.number
        if entry["op"] == "commit":
            self._commits(entry)
        elif entry["op"] == "resume":
            for key in self._keys(entry):
                self._holds.pop(key, None)
        elif entry["op"] == "seek" and tp_text(self._tp) in (entry["offsets"] or {}):
            self._position = None
            if self.epochs:
                self.epochs[-1].was_sought = True

    def _return(self, entry: Entry) -> None:
        if entry["ok"] is False:
            return
        match entry["op"]:
            case "pause":
                for key in self._keys(entry):
                    end = self._end(entry, key, entry.at)
                    self._holds[key] = _Hold(entry.number, end, entry.at)
                self._check_paused(entry)
            case "resume":
                if self._is_owned and not self._held_before(math.inf, entry.at):
                    self._resumed = _Resumed(entry.at)
                self._check_paused(entry)
            case "poll" if self._resumed is not None:
                self._resumed.polls += 1
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
            if hold.placed < number and at < hold.until
        ]

    def _check_paused(self, entry: Entry) -> None:
        name = tp_text(self._tp)
        if entry["paused"] is None or name not in (entry["assigned"] or ()):
            return
        held = self._held_before(math.inf, entry.at)
        should = bool(held) or name in (entry["gated"] or ())
        if should != (name in entry["paused"]):
            is_not = "is not" if should else "is"
            evidence = f"paused() says it {is_not}, with holds {held}"
            self._find("S7", entry, None, evidence)

    def _commits(self, entry: Entry) -> None:
        offset = (entry["offsets"] or {}).get(tp_text(self._tp))
        if offset is None:
            return
        # Without an answer it may have been done all the same.
        self.commits.append(Committed(at=entry.at, offset=offset, is_sure=False))
        evidence = ""
        if not self._is_owned:
            evidence = "committed without owning it"
        elif self._position is not None and offset > self._position:
            evidence = f"committed {offset}, delivered only up to {self._position}"
        self._asked[entry["id"]] = evidence

    def _committed(self, entry: Entry) -> None:
        offset = (entry["offsets"] or {}).get(tp_text(self._tp))
        evidence = self._asked.pop(entry["id"], "")
        if offset is not None:
            self.commits.append(Committed(at=entry.at, offset=offset))
            if evidence:
                self._find("S5", entry, offset, evidence)

    # ------------------------------------------------------------ holds from elsewhere

    def _hold(self, entry: Entry) -> None:
        if self._is_covered_by(entry["scope"]):
            key = entry["scope"], entry["owner"] or ""
            self._holds[key] = _Hold(entry.number, self._end(entry, key))

    def _end(self, entry: Entry, key: tuple[str, str], earliest: float = 0.0) -> float:
        # That a hold ended may be written down after the delivery that it allowed, and
        # after the call that placed the next one.
        ends = (
            one["since"] or one.at
            for one in self._lifts
            if one.number > entry.number and (one["scope"], one["owner"] or "") == key
        )
        later = (end for end in ends if end >= earliest)
        return min(entry["until"] or math.inf, *later, math.inf)

    def _lift(self, entry: Entry) -> None:
        key = entry["scope"], entry["owner"] or ""
        hold = self._holds.get(key)
        if hold is not None and (entry["since"] or entry.at) >= hold.since:
            del self._holds[key]

    # ------------------------------------------------------------ ownership

    def _assigned(self, entry: Entry) -> None:
        if tp_text(self._tp) in entry["partitions"] and not self._is_owned:
            self._is_owned = True
            self._position = None
            generation = entry["generation"]
            self.epochs.append(
                Epoch(member=entry.member, at=entry.at, generation=generation)
            )

    def _revoked(self, entry: Entry) -> None:
        if tp_text(self._tp) in entry["partitions"]:
            self._is_owned = False
            self._resumed = None

    _lost = _revoked

    # ------------------------------------------------------------ records

    def _deliver(self, entry: Entry) -> None:
        if entry["tp"] != tp_text(self._tp):
            return
        if not self._is_owned:
            self._find("S3", entry, entry["first"], "delivered without owning it")
            self.epochs.append(Epoch(member=entry.member, at=entry.at))
            self._is_owned = True
        self._check_held(entry)
        self._check_order(entry)
        self._check_liveness(entry)
        self._position = entry["next"]
        run = Delivered(start=entry["from"], end=entry["next"], at=entry.at)
        self.epochs[-1].runs.append(run)

    def _check_held(self, entry: Entry) -> None:
        called = self._calls.get(entry["poll"], entry.number)
        held = self._held_before(called, entry.at)
        if held:
            scope, owner = held[0]
            evidence = f"delivered {entry['count']} while {scope} was held by {owner}"
            self._find("S1", entry, entry["first"], evidence)

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
        if waited > self._patience and resumed.polls > self._POLLS:
            evidence = f"{waited:.1f} s and {resumed.polls} polls after the resume"
            self._find("L1", entry, entry["first"], evidence)

    def _parked(self, entry: Entry) -> None:
        if entry["tp"] != tp_text(self._tp):
            return
        parked, limit = entry["bytes"], entry["limit"]
        if parked and not self._is_owned:
            self._find("S8", entry, None, f"{parked} bytes parked without owning it")
        elif limit is not None and parked > limit:
            self._find("S8", entry, None, f"{parked} bytes parked, {limit} allowed")

    def _find(
        self,
        check: str,
        entry: Entry,
        offset: int | None,
        evidence: str,
    ) -> None:
        said = f"entry {entry.number}: {evidence}"
        self.findings.append(
            Finding(
                check=check,
                partition=self._tp,
                member=entry.member,
                offset=offset,
                evidence=said,
                at=entry.at,
            )
        )
