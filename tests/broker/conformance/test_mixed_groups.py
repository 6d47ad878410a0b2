"""Tests a cooperative group in which some members are ours and others use librdkafka."""

from itertools import product

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from safeconsumer import SafeConsumer
from tests.harness.members import Librdkafka, Polled
from tests.harness.polling import poll_all_until, read
from tests.harness.producing import produce

pytestmark = [pytest.mark.real_broker, pytest.mark.nightly]

PARTITIONS, RECORDS = 4, 20


@pytest.mark.contract("P6")
def test_paused_topic_stays_paused_in_a_group_with_librdkafka(
    kafka_broker, kafka_topic, make_producer, make_consumer
):
    """Partitions move to the librdkafka member, which reads them, and back to our member."""
    topic = kafka_topic(partitions=PARTITIONS)
    group = f"g-{topic}"
    ours = make_consumer(
        SafeConsumer,
        topic,
        group=group,
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )
    poll_all_until(ours, lambda: len(ours.assignment()) == PARTITIONS)
    ours.pause(topic)
    produce(make_producer(), topic, *[RECORDS] * PARTITIONS)
    other = Librdkafka(kafka_broker, group, topic, "cooperative-sticky")

    def is_shared():
        owned = {tp.partition for tp in ours.assignment()}
        return owned and other.owned == set(range(PARTITIONS)) - owned

    with Polled(other):
        came = poll_all_until(ours, is_shared)
        count = len(other.owned) * RECORDS
        came += poll_all_until(ours, lambda: len(other.records) == count)
    other.consumer.close()
    came += poll_all_until(ours, lambda: len(ours.assignment()) == PARTITIONS)
    assert came == []
    ours.resume(topic)
    left = read(ours, PARTITIONS * RECORDS - len(other.records))
    delivered = other.records + [(one.partition, one.offset) for one in left]
    assert sorted(delivered) == [*product(range(PARTITIONS), range(RECORDS))]
