"""
Judges by offsets what members did together with one partition: A2 and W5.

``tracks.py`` judges what one member's own journal proves, ``group_holds.py`` compares
members with holds of their group.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from attrs import define, field, frozen

from safeconsumer.audit.entries import Acked, Kept
from safeconsumer.audit.findings import Address, Basis, Finding
from safeconsumer.audit.ownerships import Epoch
from safeconsumer.audit.spans import Span, Spans, between, merged, uncovered
from safeconsumer.audit.tracks import Track

Members = Mapping[str, Track]


@define
class Acknowledged:
    """
    Records that producers got acknowledged, or that were found in a topic.

    Attributes:
        told: their offsets, as members reported them.
        kept: the first offset of the log that was read; older records are unknown. None
            if none was read.
    """

    told: Spans = field(factory=Spans)
    kept: int | None = None

    def add(self, entry: Acked | Kept) -> None:
        """Add a run that was reported, or the first offset of the log."""
        if isinstance(entry, Kept):
            self.kept = max(self.kept or 0, entry.first)
        else:
            self.told.add(entry.first, entry.last + 1)

    @property
    def untold(self) -> int:
        """The offset below which nothing says what was written; 0 if everything is known."""
        least = self.kept or 0
        told_from = min(self.told.starts, default=least)
        return least if told_from >= least else 0


def missing(
    case: Address, members: Members, acknowledged: Acknowledged, *, is_drained: bool
) -> Iterator[Finding]:
    """
    Yield the records that nobody delivered (A2).

    Members without a group share nothing: each must deliver all records between its
    first position and its last record; once drained, they must have delivered all of
    them together.
    What the application skipped by a seek is not missing, nor what the client's reset
    rule skipped, unless the log still has it.
    """
    if not case.group and not is_drained:
        for member in members.values():
            yield from _missing(case, [member], acknowledged, is_drained=False)
    else:
        yield from _missing(case, members.values(), acknowledged, is_drained=is_drained)


def _missing(
    case: Address,
    members: Iterable[Track],
    acknowledged: Acknowledged,
    *,
    is_drained: bool,
) -> Iterator[Finding]:
    epochs = [epoch for one in members for epoch in one.epochs]
    written = merged(acknowledged.told)
    # Within an ownership, a missing record looks like an offset without a record.
    untold = acknowledged.untold if written else math.inf
    skips = skipped(epochs, acknowledged.kept)
    passed = merged([*positions(epochs), *skips]) if untold else ()
    for (_, end), (start, _) in pairwise(passed):
        if end < untold:
            said = f"nobody delivered offsets {end} to {min(start, untold) - 1}"
            yield _of_offsets("A2", case, end, said)
    if not written:
        return
    covered = merged([*(span for one in epochs for span in one.came), *skips])
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


@frozen
class Unrecorded:
    """
    Offsets that positions went over and of which no member had a record.

    A transaction leaves one of them at least: they are counted, not kept.

    Attributes:
        first: the first run of them; None if there are none.
        count: how many there are.
    """

    first: Span | None
    count: int


def unrecorded(
    case: Address, members: Members, acknowledged: Acknowledged
) -> Unrecorded:
    """
    Return the offsets that positions went over and of which no member had a record.

    Where something says what was written, these are missing, or had none. Members
    without a group share nothing.
    """
    is_known = acknowledged.told or acknowledged.kept is not None
    end = acknowledged.untold if is_known else math.inf
    shared = (
        [[*members.values()]] if case.group else [[one] for one in members.values()]
    )
    first, count = None, 0
    for parts in shared:
        epochs = [epoch for one in parts for epoch in one.epochs]
        came = merged(span for one in epochs for span in one.came)
        for start, over in uncovered(positions(epochs), came):
            if start < end:
                first = first or (start, int(min(over, end)))
                count += int(min(over, end)) - start
    return Unrecorded(first, count)


def deleted(epochs: Iterable[Epoch], kept: int | None) -> Spans:
    """Return what the client's reset rule skipped, where the log begins behind it."""
    spans = (span for one in epochs for span in one.deleted)
    return merged(span for span in spans if kept is None or span[0] < kept)


def skipped(epochs: Sequence[Epoch], kept: int | None) -> Spans:
    """Return what a seek, or the client's reset rule, skipped."""
    found = [span for one in epochs for span in one.skipped]
    found += deleted(epochs, kept)
    # A seek before anything came skips what lies between all others and its target.
    sought = {one.runs[0].start for one in epochs if one.was_sought and one.runs}
    end = 0
    for start, end_of_run in positions(epochs):
        if start in sought:
            found.append((end, start))
        end = end_of_run
    return merged(found)


def not_done(
    case: Address, members: Members, acknowledged: Acknowledged
) -> Iterator[Finding]:
    """
    Yield the records that no handler completed (W5), if there are workers.

    For a member without a worker, delivered records count as completed. What a worker
    gave up because its program went beyond it is for those who get it after that.
    """
    parts = list(members.values())
    if not any(one.is_working for one in parts):
        return
    spans = [span for one in parts for span in one.handled.done]
    plain = [epoch for one in parts if not one.is_working for epoch in one.epochs]
    covered = merged([*spans, *(span for epoch in plain for span in epoch.came)])
    workers = [epoch for one in parts if one.is_working for epoch in one.epochs]
    passed = [one for one in workers if one.passed]
    stay = merged(span for one in workers for span in _came_to_stay(one, passed))
    skips = [
        *skipped([*plain, *workers], acknowledged.kept),
        *(span for one in passed for span in one.passed),
    ]
    written = uncovered(merged(acknowledged.told), merged(skips))
    came = uncovered(stay, deleted(workers, acknowledged.kept))
    for start, end in uncovered(merged([*written, *came]), covered):
        said = f"nobody completed offsets {start} to {end - 1}"
        yield _of_offsets("W5", case, start, said)


def _came_to_stay(epoch: Epoch, passed: Iterable[Epoch]) -> Iterable[Span]:
    since = [span for one in passed if one.is_since(epoch) for span in one.passed]
    return uncovered(merged(epoch.came), merged(since)) if since else epoch.came


def _of_offsets(check: str, case: Address, offset: int, evidence: str) -> Finding:
    return Finding(
        check=check,
        case=case,
        member="",
        offset=offset,
        evidence=evidence,
        basis=Basis.OFFSETS,
    )
