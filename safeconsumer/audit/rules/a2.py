"""
A2: every record is delivered.

The rule compares offsets. A position also passes offsets without a record: a loss is
certain only if producers' journals, or the topic itself, show which records were
written. Records that the application skipped by a seek are not missing, nor are those
that the client's reset rule skipped, unless the log still has them. Members without a
group share nothing: each must deliver all records between its first position and its
last record.
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

# Why A2 is not judged under ``--drained``.
_UNKNOWN_WRITES = (
    "no journal shows the written records: give producers' journals, or the topic "
    "(audit --against-topic)"
)

# Why A2 is not judged if a position passed offsets that may have had records.
_UNRECORDED = (
    "had no record, in a topic that is not compacted and of which no transaction was "
    "read: "
)

# Why A2 is not judged if a position was out of range.
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


def _missing_of_all(case: Case) -> Iterator[Finding]:
    if not case.address.group and not case.settings.is_drained:
        for part in case.parts.values():
            yield from _missing(case, part.epochs)
    else:
        yield from _missing(case, case.epochs)


def _missing(case: Case, epochs: Sequence[Epoch]) -> Iterator[Finding]:
    acknowledged = case.acknowledged
    written = merged(acknowledged.written)
    # Within an ownership, a missing record looks like an offset without a record.
    known_from = acknowledged.known_from if written else math.inf
    skips = skipped(epochs, acknowledged.kept)
    passed = merged([*positions(epochs), *skips]) if known_from else ()
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
        # there were journals. Records after the last delivery may still come, unless
        # the position has passed them and is committed.
        stood = [start for one in epochs for start in one.runs.starts]
        over = (min(one.sure, one.end) for one in epochs if one.sure >= 0)
        bottom = min([*covered.starts[:1], *stood], default=0)
        written = between(written, bottom, max([*covered.ends[-1:], *over, 0]))
    for start, end in uncovered(written, covered):
        evidence = f"no member delivered acknowledged offsets {start} to {end - 1}"
        yield of_offsets("A2", start, evidence)


def positions(epochs: Iterable[Epoch]) -> Spans:
    """Return the ranges that positions passed, or peeks read, with records or not."""
    return merged(span for one in epochs for span in (*one.runs, *one.peeked))


def deleted(epochs: Iterable[Epoch], kept: int | None) -> Spans:
    """Return the offsets that the client's reset rule skipped and the log lacks."""
    spans = (span for one in epochs for span in one.deleted)
    return merged(span for span in spans if kept is None or span[0] < kept)


def skipped(epochs: Sequence[Epoch], kept: int | None) -> Spans:
    """Return the ranges that a seek, or the client's reset rule, skipped."""
    found = [span for one in epochs for span in one.skipped]
    found += deleted(epochs, kept)
    # A seek before the first record skips the offsets between all others and its target.
    sought = {
        start
        for one in epochs
        if one.was_sought
        for start in (*one.runs.starts[:1], *one.peeked.starts[:1])
    }
    end = 0
    for start, end_of_run in positions(epochs):
        if start in sought:
            found.append((end, start))
        end = end_of_run
    return merged(found)


# ---------------------------------------------------------------- unknown records


@frozen
class Unrecorded:
    """
    Offsets that positions passed and of which no member had a record.

    Each transaction leaves at least one of them, so they are counted, not kept.

    Attributes:
        first: the first run of them; None if there are none.
        count: their number.
    """

    first: Span | None
    count: int


def unrecorded(case: Case) -> Unrecorded:
    """
    Return the offsets that positions passed and of which no member had a record.

    Offsets that a producer or the topic accounts for are not among them.
    """
    acknowledged: Acknowledged = case.acknowledged
    is_known = acknowledged.written or acknowledged.kept is not None
    upto = acknowledged.known_from if is_known else math.inf
    shared = [case.epochs]
    if not case.address.group:
        shared = [one.epochs for one in case.parts.values()]
    first, count = None, 0
    for epochs in shared:
        came = merged(span for one in epochs for span in one.records)
        for start, over in uncovered(positions(epochs), came):
            if start < upto:
                first = first or (start, int(min(over, upto)))
                count += int(min(over, upto)) - start
    return Unrecorded(first, count)


def _why_open(case: Case) -> str:
    # The losses that were found count nevertheless.
    acknowledged = case.acknowledged
    if acknowledged.kept is None:
        for part in case.parts.values():
            for jump in part.auto_resets:
                if jump.end > jump.start and not jump.is_over_deleted:
                    evidence = auto_reset_text(
                        part.member, jump.n, jump.start, jump.end
                    )
                    return f"{evidence}: {_UNKEPT}"
    if hole := _hole(case):
        return hole
    if not case.settings.is_drained:
        return ""
    # The delivered records cannot show whether all records came.
    if not acknowledged.written and not case.is_written:
        return _UNKNOWN_WRITES
    least = acknowledged.known_from
    passed = positions(case.epochs)
    if any(uncovered(merged([(0, least)] if least else []), passed)):
        return f"the topic's records before offset {least} are deleted"
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
