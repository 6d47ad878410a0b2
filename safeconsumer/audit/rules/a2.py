"""
A2: every record is delivered.

The rule compares offsets. A position also passes offsets without a record, so a loss is
certain only if producers' journals, or the topic itself, show which records were
written. Records that the application skipped by a seek are not missing. Records that
the client's reset policy skipped are missing only if the log still has them. If no
offset was committed, that policy decides where an ownership begins, and records below
the start of the log are not missing. Members without a group do not share partitions:
each of them must deliver all records between its first position and its last record.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from attrs import frozen

from safeconsumer.audit.case import Acknowledged, Case, Epoch
from safeconsumer.audit.entries import Transactional
from safeconsumer.audit.findings import Basis, Finding
from safeconsumer.audit.rules.a4 import auto_reset_text
from safeconsumer.audit.rules.rule import Rule, Unjudged
from safeconsumer.audit.spans import Span, Spans, between, merged, uncovered

# The reason why A2 is not judged with ``--drained``.
_UNKNOWN_WRITES = (
    "no journal shows the written records: give producers' journals, or the topic "
    "(audit --against-topic)"
)

# The reason why A2 is not judged if a position passed offsets that may have had
# records.
_UNRECORDED = (
    "had no record, in a topic that is not compacted and of which no transaction was "
    "read: "
)

# The reason why A2 is not judged if a position was out of range, or nothing was
# committed.
_UNKEPT = "only the topic shows where its log begins (audit --against-topic)"


def of_offsets(check: str, offset: int, evidence: str) -> Finding:
    """Return a finding that rests on the offsets of several members."""
    return Finding(
        check=check,
        member="",
        offset=offset,
        evidence=evidence,
        basis=Basis.OFFSETS,
    )


def _across(case: Case) -> Iterator[Finding | Unjudged]:
    if not case.parts and not case.address.group and case.acknowledged.written:
        yield "A2", "no journal shows a member that read the acknowledged records"
    if not case.incomparable:
        yield from _missing_of_all(case)


def _shared(case: Case) -> list[list[Epoch]]:
    # Return lists of ownerships that together deliver each record: one list for a
    # group, or, without a group, one for each member.
    if case.address.group:
        return [case.epochs]
    return [one.epochs for one in case.parts.values()]


def _missing_of_all(case: Case) -> Iterator[Finding]:
    if not case.address.group and not case.settings.is_drained:
        for part in case.parts.values():
            yield from _missing(case, part.epochs)
    else:
        yield from _missing(case, case.epochs)


def _missing(case: Case, epochs: Sequence[Epoch]) -> Iterator[Finding]:
    acknowledged = case.acknowledged
    written = merged(acknowledged.written)
    # Within an ownership, a lost record cannot be distinguished from an offset without
    # a record.
    known_from = acknowledged.known_from if written else math.inf
    skips = skipped(epochs, acknowledged.kept)
    gone = gone_before(case, epochs)
    # Records before the very first position may have been read earlier.
    between_begins = [one for one in gone if one[0] > 0]
    ranges = [*positions(epochs), *skips, *between_begins] if known_from else ()
    passed = merged(ranges)
    for (_, end), (start, _) in pairwise(passed):
        if end < known_from:
            evidence = (
                f"no member delivered offsets {end} to {min(start, known_from) - 1}"
            )
            yield of_offsets("A2", end, evidence)
    if not written:
        return
    covered = merged([*(span for one in epochs for span in one.records), *skips])
    if not case.settings.is_drained:
        # Records before the first position of an ownership may have been read before
        # journals were written. Records after the last delivery may still be delivered,
        # unless the position has passed them and is committed.
        stood = [start for one in epochs for start in one.runs.starts]
        over = (min(one.sure, one.end) for one in epochs if one.sure >= 0)
        bottom = min([*covered.starts[:1], *stood], default=0)
        written = between(written, bottom, max([*covered.ends[-1:], *over, 0]))
    for start, end in uncovered(written, merged([*covered, *gone])):
        evidence = f"no member delivered acknowledged offsets {start} to {end - 1}"
        yield of_offsets("A2", start, evidence)


def positions(epochs: Iterable[Epoch]) -> Spans:
    """Return all ranges of offsets that positions passed or that peeks read."""
    return merged(span for one in epochs for span in (*one.runs, *one.peeked))


def deleted(epochs: Iterable[Epoch], kept: int | None) -> Spans:
    """Return the offsets that the reset policy skipped and that the log lacks."""
    spans = (span for one in epochs for span in one.deleted)
    return merged(span for span in spans if kept is None or span[0] < kept)


def skipped(epochs: Sequence[Epoch], kept: int | None) -> Spans:
    """Return the ranges that a seek, or the client's reset policy, skipped."""
    found = [span for one in epochs for span in one.skipped]
    found += deleted(epochs, kept)
    # A seek at the start of an ownership skips the offsets directly below its target
    # that no position passed, even if another seek moves the position before a record
    # is read.
    sought = {
        start
        for one in epochs
        if one.was_sought
        for start in (*one.runs.starts[:1], *one.peeked.starts[:1], *one.sought)
    }
    passed = merged([*positions(epochs), *found])
    found += ((passed.end_below(target), target) for target in sought)
    return merged(found)


def gone_before(case: Case, epochs: Sequence[Epoch]) -> Spans:
    """
    Return the deleted offsets below the start of ownerships without a committed offset.

    If the start of the log is unknown, all offsets directly below the start of the
    ownership that were neither passed nor skipped may be deleted, so all of them are
    returned.
    """
    found = Spans()
    for epoch, (start, end) in _before_begins(case, epochs):
        log = _log_start(case, epoch)
        found.add(start, end if log is None else min(end, log))
    return found


def _log_start(case: Case, epoch: Epoch) -> int | None:
    return case.acknowledged.kept if epoch.log is None else epoch.log


def _before_begins(case: Case, epochs: Sequence[Epoch]) -> Iterator[tuple[Epoch, Span]]:
    # For an ownership without a commit, yield the offsets directly below its start that
    # were neither passed nor skipped. If several ownerships have the same start, the
    # highest known start of the log counts.
    lacking = [one for one in epochs if one.lacked_commit(case.address.group)]
    if not lacking:
        return
    lacking.sort(key=lambda one: -1 if one.log is None else one.log)
    begun = {one.began.offset: one for one in lacking if one.began is not None}
    end = 0
    for start, next_ in merged([*positions(epochs), *skipped(epochs, None)]):
        if start in begun and end < start:
            yield begun[start], (end, start)
        end = next_


# ---------------------------------------------------------------- unknown records


@frozen
class Unrecorded:
    """
    Offsets that positions passed and for which no member got a record.

    Each transaction leaves at least one such offset, so the offsets are counted, not
    kept.

    Attributes:
        first: the first range of such offsets; None if there are none.
        count: the number of such offsets.
    """

    first: Span | None
    count: int


def unrecorded(case: Case) -> Unrecorded:
    """
    Return the offsets that positions passed and for which no member got a record.

    Offsets are left out if producers or the topic show whether they have records.
    """
    acknowledged: Acknowledged = case.acknowledged
    is_known = acknowledged.written or acknowledged.kept is not None
    upto = acknowledged.known_from if is_known else math.inf
    first, count = None, 0
    for epochs in _shared(case):
        came = merged(span for one in epochs for span in one.records)
        for start, over in uncovered(positions(epochs), came):
            if start < upto:
                first = first or (start, int(min(over, upto)))
                count += int(min(over, upto)) - start
    return Unrecorded(first, count)


def _why_open(case: Case) -> str:
    # Return why A2 cannot be judged completely; the losses that were found count
    # anyway.
    acknowledged = case.acknowledged
    if why := _unexplained_jump(case) or _unexplained_begin(case):
        return why
    if hole := _hole(case):
        return hole
    if not case.settings.is_drained:
        return ""
    # Deliveries alone cannot show whether all records were delivered.
    if not acknowledged.written and not case.is_written:
        return _UNKNOWN_WRITES
    least = acknowledged.known_from
    passed = positions(case.epochs)
    if any(uncovered(merged([(0, least)] if least else []), passed)):
        return f"the topic's records before offset {least} are deleted"
    return ""


def _unexplained_jump(case: Case) -> str:
    # Return why a reset may have skipped records that the log still had; "" if no reset
    # has.
    if case.acknowledged.kept is not None:
        return ""
    for part in case.parts.values():
        for jump in part.auto_resets:
            if jump.end > jump.start and not jump.is_over_deleted:
                return f"{auto_reset_text(part.member, jump)}: {_UNKEPT}"
    return ""


def _unexplained_begin(case: Case) -> str:
    # Return why records before an ownership without a commit may be lost; "" if none
    # are.
    written = merged(case.acknowledged.written)
    for epochs in _shared(case):
        for epoch, (start, end) in _before_begins(case, epochs):
            if _log_start(case, epoch) is not None:
                continue
            # Records before the very first position may have been read earlier.
            is_between = start > 0 or case.settings.is_drained
            if is_between and (not written or between(written, start, end)):
                return (
                    f"{epoch.member} found nothing committed and began at {end}; no member "
                    f"delivered offsets {start} to {end - 1}: {_UNKEPT}"
                )
    return ""


def _hole(case: Case) -> str:
    is_plain = case.address.topic in case.settings.uncompacted
    several = (one.marks for one in case.parts.values())
    if not is_plain or any(Transactional in marks for marks in several):
        return ""
    first = unrecorded(case).first
    if first is None:
        return ""
    start, end = first
    where = "audit --against-topic tells"
    if case.acknowledged.kept is not None:
        where = "the topic has deleted them since"
    return f"offsets {start} to {end - 1} {_UNRECORDED}{where}"


RULE = Rule(check="A2", basis=Basis.OFFSETS, across=_across, left_open=_why_open)
