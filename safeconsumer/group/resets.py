"""Finds where the holds of a group move its partitions."""

from collections.abc import Iterable

from safeconsumer.group.facts import HoldRecord
from safeconsumer.holds.resets import Target, Targets
from safeconsumer.holds.scope import TopicPartition


def targets_of(records: Iterable[HoldRecord]) -> Targets:
    """Return where partitions are moved; of several resets the last written one counts."""
    found: dict[TopicPartition, Target] = {}
    resets = [one for one in records if one.hold is not None and one.hold.reset]
    for one in sorted(resets, key=lambda one: (one.incarnation, one.offset)):
        found |= _of_record(one)
    return found


def _of_record(one: HoldRecord) -> Targets:
    hold, scope = one.hold, one.scope
    reset = None if hold is None else hold.reset
    if hold is None or reset is None:
        return {}
    ids = dict(reset.topic_ids)
    return {
        (topic, partition): Target(
            offset=offset,
            topic_id=ids.get(topic),
            owner=one.owner,
            hold_id=hold.hold_id,
            record=one.offset,
        )
        for topic, partition, offset in reset.to
        if scope.covers((topic, partition))
    }
