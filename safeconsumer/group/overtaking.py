"""
Finds what others wrote between reading a topic and writing to it.

Kafka has no compare-and-set. But an acknowledgement has the record's offset, so that a
writer can see afterwards whether its record replaced one that it had not read.
"""

from collections.abc import Sequence

from safeconsumer.group.facts import Standing
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import Acknowledged


def overwritten(
    operator: Operator, source: str, done: Sequence[Acknowledged], since: int
) -> tuple[Standing, ...]:
    """
    Return the records that ours replaced and that were written since a look.

    Of each hold it is the last one, which may be a tombstone.

    Args:
        operator: the connection.
        source: ``operator`` or ``group``, for the control topic.
        done: our records.
        since: the end offset of that topic when it was read.
    """
    ours = {one.change.key: one.offset for one in done}
    end = max(ours.values(), default=since)
    last: dict[object, Standing] = {}
    for record in operator.records_between(source, since, end):
        if record.offset < ours.get(record.key, since):
            last[record.key] = record
    return tuple(last.values())


def overwrote(several: Sequence[Standing]) -> str:
    """Tell an operator what was overwritten unseen; "" if nothing was."""
    if not several:
        return ""
    said = "; ".join(
        f"{one.key.scope} was lifted" if one.hold is None else " ".join(one.cells())
        for one in several
    )
    return f"you overwrote what was written at the same moment: {said}. Check status"
