"""
The verdict on a fleet: one row per check and partition.
"""

from collections.abc import Iterable

from attrs import asdict, evolve, frozen

from safeconsumer.audit.checker import CHECKS, Verdict

CLEAN, VIOLATED, UNKNOWN = 0, 1, 2


@frozen(kw_only=True)
class Row:
    """
    What one check says of one partition.

    Attributes:
        group: the consumer group; "" for none.
        check: one of :data:`safeconsumer.audit.checker.CHECKS`.
        topic: where.
        partition: where.
        violations: how often it was broken.
        offset: of the first violation, or None.
        member: by whom the first was.
        evidence: what its journal says.
        basis: what the first one rests on.
        entry: the number of the entry that shows it; None if it takes several.
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
    entry: int | None = None

    def as_dict(self) -> dict[str, object]:
        """
        Return the row as plain JSON values.
        """
        return asdict(self)


def rows_of(verdict: Verdict) -> tuple[Row, ...]:
    """
    Return one row for every check of one group and partition.
    """
    return tuple(_row(verdict, name) for name in CHECKS)


def status_of(rows: Iterable[Row], *, is_complete: bool) -> int:
    """
    Return the exit status: violated, could not tell, or clean.
    """
    rows = tuple(rows)
    if any(row.violations for row in rows):
        return VIOLATED
    return CLEAN if rows and is_complete else UNKNOWN


def _row(verdict: Verdict, name: str) -> Row:
    case = verdict.case
    row = Row(
        group=case.group or "",
        check=name,
        topic=case.topic,
        partition=case.partition,
    )
    own = [one for one in verdict.findings if one.check == name]
    if not own:
        return row
    return evolve(
        row,
        violations=len(own),
        offset=own[0].offset,
        member=own[0].member,
        evidence=own[0].evidence,
        basis=own[0].basis.value,
        entry=own[0].entry,
    )
