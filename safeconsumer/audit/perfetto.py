"""
Writes the facts as a trace that ui.perfetto.dev and chrome://tracing can open.

The trace reads the same facts as the rules, so that it cannot contradict a verdict.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from attrs import evolve, frozen

from safeconsumer.audit import facts
from safeconsumer.audit.case import Epoch
from safeconsumer.audit.facts import Delivered, Fact
from safeconsumer.audit.findings import Address, Finding
from safeconsumer.audit.judge import Judge
from safeconsumer.audit.reading import covering
from safeconsumer.audit.results import Result, Settings
from safeconsumer.audit.stream import Source
from safeconsumer.journal.format import tp_text

_MICROSECONDS = 1e6


@frozen(kw_only=True)
class Slice:
    """
    A period in which a member owned the partition, or had to obey a hold of it.

    Attributes:
        member: the member.
        name: the member, and whether its membership was lost; or the scope and the
            owner of the hold.
        start: when the ownership or the hold began.
        end: when the ownership or the hold ended.
    """

    member: str
    name: str
    start: float
    end: float


@frozen(kw_only=True)
class Run:
    """
    Records that were delivered together.

    Attributes:
        member: the member that received them.
        came: the fact that describes the delivery.
        is_wrong: whether A1 or G2 found that the records were delivered while the
            partition was held.
    """

    member: str
    came: Delivered
    is_wrong: bool


@frozen(kw_only=True)
class Lane:
    """The history of one partition in one group; times are seconds since the epoch."""

    case: Address
    owned: Sequence[Slice]
    held: Sequence[Slice]
    runs: Sequence[Run]
    findings: Sequence[Finding]


class Collector:
    """
    Passes journals to the judge, and collects the content of a trace.

    Args:
        settings: the judge's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._judge = Judge(settings, watch=self._see)
        self._runs: dict[Address, list[tuple[str, Delivered]]] = {}
        self._held: dict[tuple[str | None, str], list[facts.OwnHold]] = {}
        self._began, self._ended = math.inf, -math.inf

    def read(self, journal: Source) -> None:
        """
        Read a whole journal.

        Raises:
            JournalError: the journal is broken somewhere.
        """
        self._judge.read(journal)

    def _see(self, address: Address, member: str, fact: Fact) -> None:
        self._began, self._ended = min(self._began, fact.at), max(self._ended, fact.at)
        if isinstance(fact, Delivered):
            self._runs.setdefault(address, []).append((member, fact))
        elif isinstance(fact, facts.OwnHold):
            self._held.setdefault((address.group, member), []).append(fact)

    def lanes(self) -> list[Lane]:
        """Return the histories of all partitions, once all journals are read."""
        return [self._lane(one) for _, one in sorted(self._judge.results().items())]

    def trace(self, covers: Callable[[Address], bool] = lambda _: True) -> str:
        """
        Return the trace as JSON, once all journals are read.

        Args:
            covers: returns whether a partition of a group is shown.
        """
        lanes = [one for one in self.lanes() if covers(one.case)]
        return _Trace(self._began, self._ended).of(lanes)

    def _lane(self, result: Result) -> Lane:
        case = result.case
        epochs = self._judge.epochs(case)
        bound = [*_bound(result, epochs)]
        findings = [*result.every]
        is_wrong = _wrong(findings, bound)
        return Lane(
            case=case,
            owned=[
                Slice(
                    member=one.member,
                    name=one.member + " (lost it)" * one.was_lost,
                    start=one.owned.at,
                    end=one.over,
                )
                for one in sorted(epochs, key=lambda one: one.owned.at)
            ],
            held=_merged([*self._holds_over(result, epochs), *bound]),
            runs=[
                Run(member=member, came=came, is_wrong=is_wrong(member, came))
                for member, came in self._runs.get(case, ())
            ],
            findings=findings,
        )

    def _holds_over(self, result: Result, epochs: Iterable[Epoch]) -> Iterator[Slice]:
        case = result.case
        for epoch in epochs:
            for one in self._held.get((case.group, epoch.member), ()):
                known = one.until or one.expires or _lifted(one, result, epoch.member)
                until = min(known, epoch.over)
                if covering(one.scope)(case.tp):
                    yield from _held(epoch, one.scope, one.owner, (one.at, until))


def _lifted(hold: facts.OwnHold, result: Result, member: str) -> float:
    # Return the end of a hold that is missing from the journal: the end on the holds
    # topic, converted to the member's clock.
    clock = result.clocks[member]
    spans = [
        one.span
        for one in result.group_holds
        if (one.span.scope, one.span.holder) == (hold.scope, hold.owner)
        and one.span.start <= clock.latest(hold.at)
    ]
    return clock.window(0.0, spans[-1].end)[1] if spans else math.inf


def _held(
    epoch: Epoch, scope: str, owner: str, during: tuple[float, float]
) -> Iterator[Slice]:
    # Show a hold only for the time in which the member owned the partition.
    start, end = max(during[0], epoch.owned.at), during[1]
    if start < end:
        yield Slice(
            member=epoch.member, name=f"{scope} by {owner}", start=start, end=end
        )


def _bound(result: Result, epochs: Iterable[Epoch]) -> Iterator[Slice]:
    # A member that owned the partition before the hold was placed obeys the hold once
    # it has read it; the member's journal shows that time.
    for epoch in epochs:
        for bounds in result.group_holds:
            during = bounds.during(epoch, result.clocks[epoch.member])
            yield from _held(epoch, bounds.span.scope, bounds.span.holder, during)


def _wrong(
    findings: Sequence[Finding], bound: Iterable[Slice]
) -> Callable[[str, Delivered], bool]:
    # G2 reports only the first delivery of each ownership.
    broken = {(one.member, one.entry) for one in findings if one.check == "A1"}
    names = {one.member for one in findings if one.check == "G2"}
    spans = [one for one in bound if one.member in names]

    def is_wrong(member: str, run: Delivered) -> bool:
        return (member, run.n) in broken or any(
            one.member == member and one.start <= run.at <= one.end for one in spans
        )

    return is_wrong


def _merged(held: Iterable[Slice]) -> list[Slice]:
    # A hold that is placed again while in force counts as one hold, and so does a hold
    # that both the control topics and a member's journal contain.
    found: dict[tuple[str, str], list[Slice]] = {}
    for one in sorted(held, key=lambda one: one.start):
        own = found.setdefault((one.member, one.name), [])
        if own and one.start <= own[-1].end:
            own[-1] = evolve(own[-1], end=max(own[-1].end, one.end))
        else:
            own.append(one)
    every = (one for own in found.values() for one in own)
    return sorted(every, key=lambda one: (one.start, one.name))


class _Trace:
    """
    Builds trace events, with a process for each group and its rows for each partition.

    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    Slices of one row must not overlap, so each owner and each hold has its own row.
    """

    def __init__(self, began: float, ended: float) -> None:
        self._began, self._ended = began, ended
        self._events: list[dict[str, Any]] = []
        self._processes: dict[str, int] = {}
        self._rows: dict[tuple[int, str], int] = {}

    def of(self, lanes: Iterable[Lane]) -> str:
        for lane in lanes:
            self._add(lane)
        return json.dumps({"displayTimeUnit": "ms", "traceEvents": self._events})

    def _add(self, lane: Lane) -> None:
        place, group = tp_text(lane.case.tp), lane.case.group or ""
        for owned in lane.owned:
            self._slice(group, f"{place} owner {owned.member}", owned)
        for held in lane.held:
            self._slice(group, f"{place} held, for {held.member}: {held.name}", held)
        for run in lane.runs:
            self._event(
                group,
                f"{place} records",
                f"{run.came.first} to {run.came.last}" + " while held" * run.is_wrong,
                run.came.at,
                ph="X",
                dur=1,
                args={"member": run.member, "records": run.came.count},
                **({"cname": "terrible"} if run.is_wrong else {}),
            )
        for one in lane.findings:
            at = self._began if one.at is None else one.at
            args = {"member": one.member, "evidence": one.evidence}
            self._event(
                group, f"{place} findings", one.check, at, ph="i", s="t", args=args
            )

    def _slice(self, group: str, row: str, span: Slice) -> None:
        start, end = max(span.start, self._began), min(span.end, self._ended)
        if start <= end:
            dur = max(1, round((end - start) * _MICROSECONDS))
            self._event(group, row, span.name, start, ph="X", dur=dur)

    def _event(self, group: str, row: str, name: str, at: float, **more: Any) -> None:  # noqa: ANN401 - JSON
        pid = self._processes.get(group)
        if pid is None:
            pid = self._processes[group] = len(self._processes) + 1
            self._named("process_name", f"group {group}", pid=pid)
        tid = self._rows.get((pid, row))
        if tid is None:
            tid = self._rows[pid, row] = len(self._rows) + 1
            self._named("thread_name", row, pid=pid, tid=tid)
        ts = round((at - self._began) * _MICROSECONDS)
        where = {"pid": pid, "tid": tid, "ts": ts}
        self._events.append({"name": name, **where, **more})

    def _named(self, kind: str, name: str, **where: int) -> None:
        args = {"name": name}
        self._events.append({"ph": "M", "name": kind, "args": args, **where})
