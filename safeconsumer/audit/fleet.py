"""
Judges what members did together with one partition: A2, G2, L1, W5 and W10.

``replay.py`` judges what one member's own journal proves. This module compares the
journals of several hosts: by offsets where these suffice, otherwise by clocks, which
may differ by the allowance. A moment on one host is before a moment on another one only
if the difference is larger than the allowance.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, groupby, islice, pairwise

from attrs import define, evolve, field

from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.holding import Key
from safeconsumer.audit.operators import Span
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.replay import Heard, Let, Replay, Waited
from safeconsumer.audit.spans import Span as Stretch
from safeconsumer.audit.spans import Spans, between, merged, uncovered

Members = Mapping[str, Replay]


# ---------------------------------------------------------------- what was written


@define
class Acknowledged:
    """
    Records that producers got acknowledged, or that were found in a topic.

    Attributes:
        told: their offsets, by the member that reported them, without their times.
        least: the first offset of the log that was read; older records are unknown.
    """

    told: dict[str, Spans] = field(factory=dict)
    least: int = 0
    _last: "array[int]" = field(factory=lambda: array("q"))
    _at: "array[float]" = field(factory=lambda: array("d"))
    # Computed when they are first needed.
    _times: "_Least | None" = None
    _offsets: "_Least | None" = None

    def add(self, fact: Fact) -> None:
        """Add a run, or the first offset of the log."""
        if fact.event == "kept":
            self.least = max(self.least, fact["first"])
            return
        known = self.told.setdefault(fact.member, Spans())
        known.add(fact["first"], fact["last"] + 1)
        self._times = self._offsets = None
        if self._at and self._at[-1] == fact.at:  # one look at a topic
            self._last[-1] = max(self._last[-1], fact["last"])
        else:
            self._last.append(fact["last"])
            self._at.append(fact.at)

    @property
    def untold(self) -> int:
        """The offset below which nothing says what was written; 0 if everything is known."""
        told_from = min((start for start, _ in self.runs), default=self.least)
        return self.least if told_from >= self.least else 0

    @property
    def runs(self) -> Iterator[Stretch]:
        """The offsets of the records, without their times."""
        return chain.from_iterable(self.told.values())

    def time_of(self, offset: int) -> float | None:
        """
        Return a moment at which a record existed; None if no moment is known.

        A log is written in the order of its offsets, so later records prove it too.
        """
        if self._times is None:
            self._times = _Least("qd", self._last, self._at)
        return self._times.at_or_after(offset)

    def next_after(self, at: float) -> int | None:
        """
        Return an offset that was written after a moment; None if there is no such one.

        If nothing was written at all, it is 0.
        """
        if not self._last:
            return 0
        if self._offsets is None:
            self._offsets = _Least("dq", self._at, self._last)
        found = self._offsets.at_or_after(math.nextafter(at, math.inf))
        return None if found is None else int(found)


class _Least:
    """Finds the least value of all keys from a given one on, without a scan."""

    def __init__(
        self, kinds: str, keys: Sequence[float], values: Sequence[float]
    ) -> None:
        pairs = sorted(zip(keys, values, strict=True))
        self._keys = array(kinds[0], (key for key, _ in pairs))
        least = accumulate((value for _, value in reversed(pairs)), min)
        self._least = array(kinds[1], least)[::-1]

    def at_or_after(self, key: float) -> float | None:
        found = bisect_left(self._keys, key)
        return self._least[found] if found < len(self._least) else None


def missing(
    case: Address, members: Members, acknowledged: Acknowledged, *, is_drained: bool
) -> Iterator[Finding]:
    """
    Yield the records that nobody delivered (A2).

    Members without a group share nothing: each must deliver all records between its
    first position and its last record; once drained, they must have delivered all of
    them together.
    Records that a seek skipped are missing too: only the program knows whether that was
    intended.
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
    # Within an ownership, a missing record looks like an offset without a record.
    untold = acknowledged.untold if written else math.inf
    passed = positions(epochs) if untold else ()
    for (_, end), (start, _) in pairwise(passed):
        if end < untold:
            said = f"nobody delivered offsets {end} to {min(start, untold) - 1}"
            yield _of_offsets("A2", case, end, said)
    if not written:
        return
    covered = merged(span for one in epochs for span in one.came)
    if not is_drained:
        # Records before the first position of an ownership may have been read before
        # there were journals. Records after the last delivery may still come, unless
        # the position has passed them and is committed.
        stood = [run.start for one in epochs for run in one.runs]
        over = (min(one.sure[1], one.end) for one in epochs if one.sure is not None)
        bottom = min([*covered.starts[:1], *stood], default=0)
        written = between(written, bottom, max([*covered.ends[-1:], *over, 0]))
    for start, end in uncovered(written, covered):
        said = f"nobody delivered acknowledged offsets {start} to {end - 1}"
        yield _of_offsets("A2", case, start, said)


def positions(epochs: Iterable[Epoch]) -> Spans:
    """Return what positions went over, records or not."""
    return merged((run.start, run.end) for one in epochs for run in one.runs)


def not_done(
    case: Address, members: Members, acknowledged: Acknowledged
) -> Iterator[Finding]:
    """
    Yield the records that no handler completed (W5), if there are workers.

    For a member without a worker, delivered records count as completed.
    """
    parts = list(members.values())
    if not any(one.is_working for one in parts):
        return
    spans = [span for one in parts for span in one.handled.done]
    plain = [epoch for one in parts if not one.is_working for epoch in one.epochs]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.came)])
    workers = [epoch for one in parts if one.is_working for epoch in one.epochs]
    came = (span for epoch in workers for span in epoch.came)
    for start, end in uncovered(merged([*acknowledged.runs, *came]), covered):
        said = f"nobody completed offsets {start} to {end - 1}"
        yield _of_offsets("W5", case, start, said)


# ---------------------------------------------------------------- resumes


def slow_resumes(
    case: Address,
    members: Members,
    acknowledged: Acknowledged,
    patience: float,
    skew: float,
) -> Iterator[Finding | tuple[str, str]]:
    """
    Yield resumes after which existing records did not come (L1), or why it is unknown.

    The time at which a record was appended is known from the broker's time in it, or
    from an acknowledgement of that offset or a later one. A producer's time can only
    excuse a delay, since producers may date records as they like.
    """
    if not any(one.waits for one in members.values()):
        return
    reached = _Reached(members.values())
    for member, one in members.items():
        for wait in one.waits:
            offset = _expected(wait, reached, acknowledged, skew)
            if offset is None:
                yield "L1", "the position of the resumed partition is unknown"
                continue
            there = _appended(wait, offset, acknowledged)
            known = -math.inf if there is None else there + skew
            if wait.until - max(wait.resumed, known) <= patience:
                continue
            created = -math.inf if wait.created is None else wait.created + skew
            if wait.until - max(wait.resumed, created) <= patience:
                continue
            if there is None:
                if wait.is_delivered:
                    said = "it is unknown when the late records were appended"
                    yield "L1", said
                continue
            waited = wait.until - max(wait.resumed, known)
            what = "" if wait.is_delivered else ", and nothing came"
            said = f"{waited:.1f} s and {wait.polls} polls after the resume{what}"
            yield Finding(
                check="L1",
                case=case,
                member=member,
                offset=offset,
                evidence=f"entry {wait.entry}: {said}",
                basis=Basis.CLOCKS if there > wait.resumed - skew else Basis.TIME,
                at=wait.until,
                entry=wait.entry,
            )


class _Reached:
    """Finds how far members had read or committed in ownerships that began before."""

    def __init__(self, members: Iterable[Replay]) -> None:
        epochs = [epoch for one in members for epoch in one.epochs]
        epochs.sort(key=lambda one: one.at)
        self._at = [one.at for one in epochs]
        most = (max(one.commits.most, one.end) for one in epochs)
        self._most = list(accumulate(most, max))

    def before(self, at: float) -> int:
        found = bisect_left(self._at, at)
        return self._most[found - 1] if found else -1


def _expected(
    wait: Waited, reached: _Reached, acknowledged: Acknowledged, skew: float
) -> int | None:
    # If nothing came in an ownership, it should begin at the latest where others had
    # stopped before, or at the first record that was written after the resume.
    if wait.offset is not None:
        return wait.offset
    most = -1 if wait.was_sought else reached.before(wait.resumed - skew)
    return most if most >= 0 else acknowledged.next_after(wait.resumed + skew)


def _appended(wait: Waited, offset: int, acknowledged: Acknowledged) -> float | None:
    if wait.written is not None:
        return wait.written
    return acknowledged.time_of(offset)


# ---------------------------------------------------------------- holds of operators


def though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding | tuple[str, str]]:
    """
    Yield what was done under holds of the group, or why it cannot be judged (G2).

    It cannot be judged where it is uncertain whether a hold was lifted or placed.
    """
    sure = list(_though_held(case, members, spans, patience, skew))
    yield from sure
    known = {one.check for one in sure}
    for is_sure, what in ((True, "when it was lifted"), (False, "whether it was held")):
        several = [
            evolve(one, end=one.latest) for one in spans if one.is_sure is is_sure
        ]
        for one in _though_held(case, members, several, patience, skew):
            if one.check not in known:
                yield one.check, f"it is unknown {what}: {one.evidence}"
    for check, evidence in taken_for_expired(members, spans, patience, skew):
        if check not in known:
            yield check, f"no journal gives the hold a limit: {evidence}"


def _though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    yield from delivered_though_held(case, members, spans, skew)
    yield from delivered_long_after(case, members, spans, patience, skew)
    yield from taken_for_lifted(case, members, spans, skew)
    yield from begun_though_held(case, members, spans, patience, skew)


def binds(span: Span, epoch: Epoch, skew: float) -> bool:
    """Return whether an ownership certainly began under a hold of the group."""
    return epoch.owned_since > span.start + skew


def delivered_though_held(
    case: Address, members: Members, spans: Sequence[Span], skew: float
) -> Iterator[Finding]:
    """Yield deliveries from ownerships that began after a hold was acknowledged (G2)."""
    epochs = [epoch for one in members.values() for epoch in one.epochs]
    for epoch in sorted(epochs, key=lambda one: one.at):
        if epoch.first is None:
            continue
        at, offset = epoch.first
        for span in spans:
            if binds(span, epoch, skew) and at < span.end - skew:
                said = f"delivered though {span.scope} was held for the group before"
                if not (span.is_lifted or span.is_limited):
                    said = f"{said}, and no journal has a lift of it"
                yield Finding(
                    check="G2",
                    case=case,
                    member=epoch.member,
                    offset=offset,
                    evidence=said,
                    basis=Basis.CLOCKS,
                    at=at,
                )
                break


def delivered_long_after(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    """
    Yield deliveries of members that owned the partition before it was held (G2).

    They may go on until they have read the hold, for as long as patience allows. From
    then on they are judged by their own journals (A1).
    """
    for member, part in members.items():
        heard: dict[Key, list[float]] = {}
        for one in part.heard:
            heard.setdefault(one.key, []).append(one.at)
        for span in spans:
            first = _delivered_unheard(part, heard, span, patience, skew)
            if first is not None:
                at, offset = first
                said = (
                    f"delivered {offset} {at - span.start:.1f} s after {span.scope} "
                    "was held for the group"
                )
                yield _by_clocks("G2", case, member, first, said)


def _delivered_unheard(
    part: Replay,
    heard: Mapping[Key, Sequence[float]],
    span: Span,
    patience: float,
    skew: float,
) -> tuple[float, int] | None:
    since = span.asked - skew
    known = (_at_or_after(own, since) for key, own in heard.items() if span.is_of(key))
    start = span.start + patience + skew
    end = min([span.end - skew, *known])
    bound: list[Epoch] | None = None
    for at, offset in part.delivered.between(start, end):
        if bound is None:
            bound = [one for one in part.epochs if binds(span, one, skew)]
        if not any(one.at <= at <= one.over for one in bound):
            return at, offset
    return None


def _at_or_after(times: Sequence[float], at: float) -> float:
    found = bisect_left(times, at)
    return times[found] if found < len(times) else math.inf


def taken_for_lifted(
    case: Address, members: Members, spans: Sequence[Span], skew: float
) -> Iterator[Finding]:
    """
    Yield what members did that took a hold of the group for lifted too early.

    It is A1 for deliveries, and W10 for handlers. The member reports when it saw the
    lift; what counts is when the operator lifted the hold.
    """
    standing = _Standing(spans)
    for member, one in members.items():
        for let in one.let_go:
            span = standing.under(let, skew)
            if span is not None:
                said = (
                    f"{_done(let)} while {let.scope} was held by {let.owner}: "
                    "it was taken for lifted"
                )
                yield Finding(
                    check=let.check,
                    case=case,
                    member=member,
                    offset=let.offset,
                    evidence=f"entry {let.entry}: {said}",
                    basis=Basis.CLOCKS,
                    at=let.delivered,
                    entry=let.entry,
                )


def _done(let: Let) -> str:
    is_work = let.check == "W10"
    return f"began {let.offset}" if is_work else f"delivered {let.count}"


def taken_for_expired(
    members: Members, spans: Sequence[Span], patience: float, skew: float
) -> Iterator[tuple[str, str]]:
    """
    Yield what members did after a hold expired for them that has no limit.

    Someone without a journal may have given the hold a limit. If a limit was removed,
    the member hears of that a little later.
    """
    limited = {(one.scope, one.owner) for one in spans if one.is_limited}
    standing = _Standing(
        evolve(one, is_limited=True) for one in spans if not one.is_limited
    )
    for one in members.values():
        for let in one.let_go:
            key = let.scope, let.owner.partition(":")[2]
            late = skew + (patience if key in limited else 0.0)
            if let.is_expired and standing.under(let, late) is not None:
                held = f"{let.scope} was held by {let.owner}"
                what = f"{_done(let)} while {held}: it was taken for expired"
                yield let.check, f"entry {let.entry}: {what}"


class _Standing:
    """Finds holds that lasted longer than a member thought, without a scan."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self._own: dict[tuple[str, str], list[Span]] = {}
        for span in sorted(spans, key=lambda one: one.start):
            self._own.setdefault((span.scope, span.owner), []).append(span)
        self._latest = {
            key: list(accumulate((span.end for span in own), max))
            for key, own in self._own.items()
        }

    def under(self, let: Let, skew: float) -> Span | None:
        key = let.scope, let.owner.partition(":")[2]
        latest = self._latest.get(key, ())
        first = bisect_right(latest, let.delivered)
        # Earlier ones were over, and later ones had not begun.
        for one in islice(self._own.get(key, ()), first, None):
            if one.start >= let.ended:
                break
            if _is_early(let, one, skew):
                return one
        return None


def _is_early(let: Let, span: Span, skew: float) -> bool:
    return was_in_force(span, let, skew) and let.delivered < span.end - skew


def was_in_force(span: Span, let: Let, skew: float) -> bool:
    """
    Return whether a hold of the group is the one that a member dropped too early.

    It was too early if the span lasts beyond that.
    """
    is_same = span.is_of((let.scope, let.owner))
    if not is_same or (let.is_expired and not span.is_limited):
        return False
    return span.start + skew < let.ended


def unknown_holds(
    heard: Iterable[Heard], spans: Sequence[Span], near: float
) -> Iterator[Heard]:
    """
    Yield the holds from elsewhere that a member read and no operator's journal has.

    A hold that it read after the previous one ended is another hold, and needs another
    entry of an operator: somebody who keeps no journal may have placed one of them.

    Args:
        heard: the holds that the member read, in order.
        spans: the holds in operators' journals.
        near: seconds by which an operator's entry and a member's may differ.
    """
    turns: dict[Key, list[Heard]] = {}
    for one in heard:
        turns.setdefault(one.key, []).append(one)
    for key, own in turns.items():
        free = sorted(
            (one for one in spans if one.is_of(key)), key=lambda one: one.latest
        )
        yield from _unknown(own, free, near)


def _unknown(
    heard: Iterable[Heard], free: Sequence[Span], near: float
) -> Iterator[Heard]:
    # A hold that was placed again while in force is one hold, and is matched as one.
    used: set[int] = set()
    first = 0
    for _, several in groupby(heard, key=lambda one: one.ends):
        turn: list[Span] = []
        for one in several:
            while first < len(free) and free[first].latest + near < one.at:
                first += 1
            about = (
                span
                for span in chain(turn, islice(free, first, None))
                if span.asked - near <= one.at <= span.latest + near
            )
            span = next((span for span in about if span.episode not in used), None)
            if span is None:
                yield one
            elif span not in turn:
                turn.append(span)
        used.update(span.episode for span in turn)


def begun_though_held(
    case: Address,
    members: Members,
    spans: Sequence[Span],
    patience: float,
    skew: float,
) -> Iterator[Finding]:
    """
    Yield handlers that began long after a hold that their member never read (W10).

    ``replay.py`` judges a member's own journal without clocks.
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
                yield _by_clocks("W10", case, member, first, said)


def _by_clocks(
    check: str, case: Address, member: str, first: tuple[float, int], evidence: str
) -> Finding:
    at, offset = first
    return Finding(
        check=check,
        case=case,
        member=member,
        offset=offset,
        evidence=evidence,
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
