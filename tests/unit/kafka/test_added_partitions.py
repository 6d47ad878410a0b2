"""Which partitions count as added, so that ``latest`` passes over nothing of them (W12)."""

from collections.abc import Collection

import pytest
from kafka import TopicPartition
from kafka.consumer.subscription_state import OffsetResetStrategy
from kafka.coordinator.base import Generation
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from safeconsumer import SafeConsumer
from tests.harness.kafka.fixtures import Maker

TOPIC = "orders"


@pytest.fixture
def member(safe: Maker) -> SafeConsumer:
    """Make a member that reads added partitions from their start."""
    consumer = safe(TOPIC, group_id="g", auto_offset_reset="latest")
    consumer._safe_facade.begin_added_at_start()
    return consumer


def joined(
    consumer: SafeConsumer, generation: int, partitions: Collection[int]
) -> None:
    """Complete a join that assigns these partitions of the topic."""
    kind = ConsumerProtocolAssignment
    assigned = [kind.TopicPartition(topic=TOPIC, partitions=list(partitions))]
    data = kind(version=0, assigned_partitions=assigned, user_data=b"").encode()
    coordinator = consumer._coordinator
    coordinator._joined_subscription = {TOPIC}
    coordinator._generation = Generation(generation, "m", "range")
    complete = coordinator._on_join_complete_async
    consumer._net.run(complete, generation, "m", "range", data)


def begins(consumer: SafeConsumer, partition: int) -> int:
    """Return where a partition begins that no commit knows."""
    consumer._subscription.reset_missing_positions()
    state = consumer._subscription.assignment[TopicPartition(TOPIC, partition)]
    return int(state.reset_strategy)


@pytest.mark.contract("W12")
def test_a_leader_notes_the_partitions_that_it_assigned(member: SafeConsumer) -> None:
    """
    What comes while it assigns is added.

    1. It assigns two, and asks for metadata. 2. That has a third one, and comes before
    the join is complete. 3. Another join assigns the third one: it is an added one.
    """
    coordinator = member._coordinator
    coordinator._is_leader = True
    coordinator._assignment_snapshot = {TOPIC: {0, 1}}
    coordinator._metadata_snapshot = {TOPIC: {0, 1, 2}}
    joined(member, 1, [0, 1])
    assert coordinator.need_rejoin()
    joined(member, 2, [0, 1, 2])
    assert begins(member, 2) == OffsetResetStrategy.EARLIEST
    assert begins(member, 1) == OffsetResetStrategy.LATEST


@pytest.mark.contract("W12")
def test_a_topic_that_was_made_again_smaller_may_grow(member: SafeConsumer) -> None:
    """The count of the topic before it says nothing about this one."""
    for generation, partitions in enumerate(([0, 1, 2, 3], [0], [0, 1]), 1):
        member._coordinator._metadata_snapshot = {TOPIC: set(partitions)}
        joined(member, generation, partitions)
    assert begins(member, 1) == OffsetResetStrategy.EARLIEST


def test_a_topic_that_is_subscribed_to_again_is_counted_anew(
    member: SafeConsumer,
) -> None:
    """What it gained while nobody here read it was not added while this member ran."""
    note = member._subscription.note_partitions
    note({TOPIC: {0}})
    note({"others": {0}})
    note({TOPIC: {0, 1}, "others": ()})
    member._coordinator._metadata_snapshot = {TOPIC: {0, 1}}
    joined(member, 1, [0, 1])
    assert begins(member, 1) == OffsetResetStrategy.LATEST


def test_a_topic_that_is_not_known_for_a_while_keeps_its_count(
    member: SafeConsumer,
) -> None:
    """Metadata without its partitions says nothing about them."""
    for partitions in ({0}, set[int](), {0, 1}):
        member._subscription.note_partitions({TOPIC: partitions})
    member._coordinator._metadata_snapshot = {TOPIC: {0, 1}}
    joined(member, 1, [0, 1])
    assert begins(member, 1) == OffsetResetStrategy.EARLIEST
