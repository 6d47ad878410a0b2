"""Answers about committed offsets, of more than was asked for."""

from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from tests.harness.kafka.offline import offline

P0 = TopicPartition("t", 0)


def test_an_offset_of_a_partition_that_waits_for_a_reset_sets_its_position(monkeypatch):
    """As kafka-python's does; nothing is raised out of the poll that asked."""

    async def answer(_partitions, _timeout_ms=None):
        return {P0: OffsetAndMetadata(123, "", -1)}

    with offline(SafeConsumer) as consumer:
        consumer.assign([P0])
        consumer._subscription.request_offset_reset(P0)
        coordinator = consumer._coordinator
        monkeypatch.setattr(coordinator, "fetch_committed_offsets_async", answer)
        assert consumer._net.run(coordinator.refresh_committed_offsets_if_needed_async)
        assert consumer._subscription.assignment[P0].position.offset == 123
