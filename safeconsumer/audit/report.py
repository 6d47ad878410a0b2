"""
The verdict on a fleet: one row per check and partition.
"""

from collections.abc import Iterable, Sequence

from attrs import asdict, frozen

from safeconsumer.audit.checker import CHECKS
from safeconsumer.audit.replay import Finding
from safeconsumer.holds.scope import TopicPartition

CLEAN, VIOLATED, UNKNOWN = 0, 1, 2


@frozen(kw_only=True)
class Row:
    """
    What one check says of one partition.

    Attributes:
        check: one of :data:`safeconsumer.audit.checker.CHECKS`.
        topic: where.
        partition: where.
        violations: how often it was broken.
        offset: of the first violation, or None.
        member: by whom the first was.
        evidence: what its journal says.
        entry: the number of the entry that shows it; None if it takes several.
    """

    check: str
    topic: str
    partition: int
    violations: int = 0
    offset: int | None = None
    member: str = ""
    evidence: str = ""
    entry: int | None = None

    def as_dict(self) -> dict[str, object]:
        """
        Return the row as plain JSON values.
        """
        return asdict(self)


def rows_of(tp: TopicPartition, findings: Sequence[Finding]) -> tuple[Row, ...]:
    """
    Return one row for every check of one partition.
    """
    return tuple(_row(tp, name, findings) for name in CHECKS)


def status_of(rows: Iterable[Row], *, is_complete: bool) -> int:
    """
    Return the exit status: violated, could not tell, or clean.
    """
    rows = tuple(rows)
    if any(row.violations for row in rows):
        return VIOLATED
    return CLEAN if rows and is_complete else UNKNOWN


def _row(tp: TopicPartition, name: str, findings: Sequence[Finding]) -> Row:
    own = [one for one in findings if one.check == name]
    if not own:
        return Row(check=name, topic=tp[0], partition=tp[1])
    return Row(
        check=name,
        topic=tp[0],
        partition=tp[1],
        violations=len(own),
        offset=own[0].offset,
        member=own[0].member,
        evidence=own[0].evidence,
        entry=own[0].entry,
    )
