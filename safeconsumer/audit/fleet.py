"""
What members did together with one partition: S2, G2, L1, W5 and W10 of the fleet.

What one member's own journal proves is judged where it is followed (``replay.py``).
Here journals of several hosts are laid side by side: by offsets where these tell, else
by clocks, which may differ by the allowance. A moment of one host is before another's
only if it is so by more than that.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import define, field, frozen

from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.replay import Let, Replay, Waited
from safeconsumer.audit.spans import Spans, between, merged, uncovered

Members = Mapping[str, Replay]


# ---------------------------------------------------------------- what was written


@define
class Acknowledged:
    """
    Records that producers were told of, or that were found in a topic.

    Attributes:
        runs: which, without their times.
    """

    runs: Spans = field(factory=Spans)
    _last: "array[int]" = field(factory=lambda: array("q"))
    _at: "array[float]" = field(factory=lambda: array("d"))

    def add(self, fact: Fact) -> None:
        """
        Take note of a run.
        """
        self.runs.add(fact["first"], fact["last"] + 1)
        if self._at and self._at[-1] == fact.at:  # one look at a topic
            self._last[-1] = max(self._last[-1], fact["last"])
        else:
            self._last.append(fact["last"])
            self._at.append(fact.at)

    def time_of(self, offset: int) -> float | None:
        """
        Return a moment at which a record was there; None if nobody tells.

        A log is written in the order of its offsets, so every later one tells, too.
        """
        found = (
            at for last, at in zip(self._last, self._at, strict=True) if last >= offset
        )
        return min(found, default=None)


def missing(
    case: Address, members: Members, acknowledged: Acknowledged, *, is_drained: bool
) -> Iterator[Finding]:
    """
    Yield what nobody delivered (S2).

    Members of no group share nothing: each is to deliver what lies between its first
    record and its last; together they are to have everything, once drained.
    """
    if not case.group and not is_drained:
        for member in members.values():
            yield from _missing(case, [member], acknowledged, is_drained=False)
    else:
        yield from _missing(case, members.values(), acknowledged, is_drained=is_drained)


def _missing(
    case: Address,
    members: Iterable[Replay],
    acknowledged: Acknowledged,
    *,
    is_drained: bool,
) -> Iterator[Finding]:
    epochs = [epoch for one in members for epoch in one.epochs]
    written = merged(acknowledged.runs)
    if not written:
        # Where an ownership went on, nobody can tell a record from what never was one.
        passed = merged((run.start, run.end) for one in epochs for run in one.runs)
        for (_, end), (start, _) in pairwise(passed):
            said = f"nobody delivered offsets {end} to {start - 1}"
            yield _of_offsets("S2", case, end, said)
        return
    covered = merged(span for one in epochs for span in one.came)
    if not is_drained:
        # What lies before the first delivery may have been read before there were
        # journals, what lies after the last one may still come.
        if not covered:
            return
        written = between(written, covered.starts[0], covered.ends[-1])
    for start, end in uncovered(written, covered):
        said = f"nobody delivered acknowledged offsets {start} to {end - 1}"
        yield _of_offsets("S2", case, start, said)


def not_done(
    case: Address, members: Members, acknowledged: Acknowledged
) -> Iterator[Finding]:
    """
    Yield what no handler completed (W5), where there are workers.

    Who is no worker did what a poll returned, as far as journals tell.
    """
    parts = list(members.values())
    if not any(one.is_working for one in parts):
        return
    spans = [span for one in parts for span in one.handled.done]
    plain = [epoch for one in parts if not one.is_working for epoch in one.epochs]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.came)])
    for start, end in uncovered(merged(acknowledged.runs), covered):
        said = f"nobody completed acknowledged offsets {start} to {end - 1}"
        yield _of_offsets("W5", case, start, said)


# ---------------------------------------------------------------- resumes


def slow_resumes(
    case: Address,
    members: Members,
    acknowledged: Acknowledged,
    patience: float,
    skew: float,
) -> Iterator[Finding | str]:
    """
    Yield resumes after which what was there did not come (L1), or why that is unknown.

    When a record was appended is told by the broker, by its time, or by who was told
    that a record at that offset or a later one is there. A producer's own time for it
    can only excuse: events are dated as their producer likes.
    """
    for member, one in members.items():
        for wait in one.waits:
            there = _appended(wait, acknowledged)
            known = -math.inf if there is None else there + skew
            if wait.until - max(wait.resumed, known) <= patience:
                continue
            created = -math.inf if wait.created is None else wait.created + skew
            if wait.until - max(wait.resumed, created) <= patience:
                continue
            if there is None:
                if wait.is_delivered:
                    yield "nobody tells when records that came late were appended"
                continue
            waited = wait.until - max(wait.resumed, known)
            what = "" if wait.is_delivered else ", and nothing came"
            said = f"{waited:.1f} s and {wait.polls} polls after the resume{what}"
            yield Finding(
                check="L1",
                case=case,
                member=member,
                offset=wait.offset,
                evidence=f"entry {wait.entry}: {said}",
                basis=Basis.CLOCKS if there > wait.resumed - skew else Basis.TIME,
                at=wait.until,
                entry=wait.entry,
            )


def _appended(wait: Waited, acknowledged: Acknowledged) -> float | None:
    if wait.written is not None:
        return wait.written
    return acknowledged.time_of(wait.offset)


# ---------------------------------------------------------------- holds of operators


@frozen(kw_only=True)
class Span:
    """
    A hold of the group, by the clock of who placed it.

    Attributes:
        scope: what it covers.
        owner: whose it is.
        start: when it was acknowledged.
        end: before its lift was asked for, by the clock of who asked, and before it
            expires; ``inf`` if neither is told.
        is_limited: whether it is told when it expires.
    """

    scope: str
    owner: str
    start: float
    end: float
    is_limited: bool


def spans_of(control: Sequence[Fact], skew: float) -> list[Span]:
    """
    Return when holds of the group were surely in force.

    A lift ends each hold of its scope and owner that may have been placed before it: in
    the same journal by the order of entries, else by clocks.
    """
    lifts = [one for one in control if one.event == "group-lift"]
    return [
        Span(
            scope=hold["scope"],
            owner=hold["owner"] or "",
            start=hold.at,
            end=_end_of(hold, lifts, skew),
            is_limited=hold["until"] is not None,
        )
        for hold in sorted(control, key=lambda one: one.at)
        if hold.event == "group-hold"
    ]


def _end_of(hold: Fact, lifts: Iterable[Fact], skew: float) -> float:
    ends = [
        lift.at
        for lift in lifts
        if (lift["scope"], lift["owner"]) == (hold["scope"], hold["owner"])
        and _may_follow(hold, lift, skew)
    ]
    return (
        min(ends, default=math.inf)
        if hold["until"] is None
        else min([*ends, float(hold["until"])])
    )


def _may_follow(hold: Fact, lift: Fact, skew: float) -> bool:
    if hold.member == lift.member:
        return lift.number > hold.number
    return lift.at >= hold.at - skew


def binds(span: Span, epoch: Epoch, skew: float) -> bool:
    """
    Tell whether an ownership surely began under a hold of the group.
    """
    return epoch.owned_since > span.start + skew


def delivered_though_held(
    case: Address, members: Members, spans: Sequence[Span], skew: float
) -> Iterator[Finding]:
    """
    Yield deliveries from ownerships that began after a hold was acknowledged (G2).
    """
    epochs = [epoch for one in members.values() for epoch in one.epochs]
    for epoch in sorted(epochs, key=lambda one: one.at):
        for span in spans:
            late = [run for run in epoch.runs if run.at < span.end - skew]
            if binds(span, epoch, skew) and late:
                said = f"delivered though {span.scope} was held for the group before"
                yield Finding(
                    check="G2",
                    case=case,
                    member=epoch.member,
                    offset=late[0].start,
                    evidence=said,
                    basis=Basis.CLOCKS,
                    at=epoch.delivered_at,
                )
                break


def taken_for_lifted(
    case: Address, members: Members, spans: Sequence[Span], skew: float
) -> Iterator[Finding]:
    """
    Yield deliveries of members that took a hold of the group for lifted too early (S1).

    That it was lifted is what the member says; what counts is when its operator did.
    """
    for member, one in members.items():
        for let in one.let_go:
            span = next((span for span in spans if _is_early(let, span, skew)), None)
            if span is not None:
                said = (
                    f"delivered {let.count} while {let.scope} was held by {let.owner}: "
                    "it was taken for lifted"
                )
                yield Finding(
                    check="S1",
                    case=case,
                    member=member,
                    offset=let.offset,
                    evidence=f"entry {let.entry}: {said}",
                    basis=Basis.CLOCKS,
                    at=let.delivered,
                    entry=let.entry,
                )


def _is_early(let: Let, span: Span, skew: float) -> bool:
    return was_in_force(span, let, skew) and let.delivered < span.end - skew


def was_in_force(span: Span, let: Let, skew: float) -> bool:
    """
    Tell whether a hold of the group is the one that a member let go too early.

    It was too early if the span lasts beyond that.
    """
    # Members name an operator's holds operator:alice, the group's own group:app.
    is_same = (let.scope, let.owner.partition(":")[2]) == (span.scope, span.owner)
    if not is_same or (let.is_expired and not span.is_limited):
        return False
    return span.start + skew < let.ended


def begun_though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    """
    Yield handlers that began long after a hold that their member never heard of (W10).

    What a member's own journal says is judged without clocks.
    """
    for member, part in members.items():
        for span in spans:
            begun = part.handled.begun
            late = begun.between(span.start + patience + skew, span.end - skew)
            first = next(late, None)
            if first is not None:
                at, offset = first
                said = (
                    f"began {offset} {at - span.start:.1f} s after {span.scope} was "
                    "held for the group"
                )
                yield Finding(
                    check="W10",
                    case=case,
                    member=member,
                    offset=offset,
                    evidence=said,
                    basis=Basis.CLOCKS,
                    at=at,
                )


def _of_offsets(check: str, case: Address, offset: int, evidence: str) -> Finding:
    return Finding(
        check=check,
        case=case,
        member="",
        offset=offset,
        evidence=evidence,
        basis=Basis.OFFSETS,
    )
