"""Turns results into a report with one row per check and partition."""

from collections.abc import Iterable

from attrs import asdict, evolve, frozen

from safeconsumer.audit.findings import Basis
from safeconsumer.audit.results import CHECKS, Result

CLEAN, VIOLATED, UNKNOWN = 0, 1, 2


@frozen(kw_only=True)
class Row:
    """
    The result of one check on one partition.

    Attributes:
        group: the consumer group; "" without a group.
        check: one of :data:`safeconsumer.audit.results.CHECKS`.
        topic: the topic.
        partition: the number of the partition.
        violations: how often the promise was broken.
        offset: the offset of the first violation, or None.
        member: the member that committed the first violation.
        evidence: the evidence for that violation, from the member's journal.
        basis: the kind of evidence for the first violation, or for a clean result.
        unjudged: the reason why the check could not be judged completely, or ""; the
            violations that were found are real even then.
        entry: the number of the entry that shows the first violation; None if several
            entries show it.
        at: when the first violation happened, seconds since the epoch; None if unknown.
        unrecorded: for A2, the number of offsets for which no member had a record, if
            the written records are unknown.
    """

    group: str
    check: str
    topic: str
    partition: int
    violations: int = 0
    offset: int | None = None
    member: str = ""
    evidence: str = ""
    basis: str = ""
    unjudged: str = ""
    entry: int | None = None
    at: float | None = None
    unrecorded: int = 0

    def as_dict(self) -> dict[str, object]:
        """Return the row as plain JSON values."""
        return asdict(self)


def rows_of(result: Result) -> tuple[Row, ...]:
    """Return one row for every check of one group and partition."""
    return tuple(_row(result, name) for name in CHECKS)


def status_of(rows: Iterable[Row], *, is_complete: bool) -> int:
    """
    Return the exit status: violated, undecided, or clean.

    Args:
        rows: the rows of all groups and partitions.
        is_complete: whether every journal could be read. If not, a violation counts
            only if one process's own journal proves it, because the missing journal may
            contain other deliveries and commits.
    """
    rows = tuple(rows)
    if any(row.violations and (is_complete or _is_proven(row)) for row in rows):
        return VIOLATED
    is_judged = is_complete and not any(row.unjudged for row in rows)
    return CLEAN if rows and is_judged else UNKNOWN


def _is_proven(row: Row) -> bool:
    # S1 is judged without a journal, because a stream does not write one.
    return row.basis == Basis.ORDER.value or row.check == "S1"


def _row(result: Result, name: str) -> Row:
    case = result.case
    row = Row(
        group=case.group or "",
        check=name,
        topic=case.topic,
        partition=case.partition,
        basis=result.bases[name].value,
        unjudged=result.unjudged.get(name, ""),
        unrecorded=result.unrecorded if name == "A2" else 0,
    )
    own = [one for one in result.findings if one.check == name]
    # Put findings that no other journal can refute first.
    own.sort(key=lambda one: one.basis is not Basis.ORDER)
    if not own:
        return row
    return evolve(
        row,
        violations=sum(1 + len(one.more) for one in own),
        offset=own[0].offset,
        member=own[0].member,
        evidence=own[0].evidence,
        basis=own[0].basis.value,
        entry=own[0].entry,
        at=own[0].at,
    )
