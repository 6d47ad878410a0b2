"""Finds where the holds of a group move its partitions."""

from collections.abc import Iterable

from safeconsumer.group.facts import HoldRecord
from safeconsumer.holds.resets import Target, Targets
from safeconsumer.holds.scope import TopicPartition


def targets_of(records: Iterable[HoldRecord]) -> Targets:
    """Return where partitions are moved; of several resets the last written one counts."""
    found: dict[TopicPartition, Target] = {}
    for one in sorted(records, key=lambda one: (one.incarnation, one.offset)):
        if (hold := one.hold) is None or hold.reset is None:
            continue
        ids = dict(hold.reset.topic_ids)
        found |= {
            (topic, partition): Target(
                offset=offset,
                topic_id=ids.get(topic),
                owner=one.owner,
                hold_id=hold.hold_id,
                record=one.offset,
            )
            for topic, partition, offset in hold.reset.to
            if one.scope.covers((topic, partition))
        }
    return found
