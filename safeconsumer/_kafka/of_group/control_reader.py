"""Reads control topics, and requests the end offsets of these topics from brokers."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.network import await_for
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher

# org.apache.kafka.common.requests.ListOffsetsRequest.LATEST_TIMESTAMP
_LATEST = -1

Ids = Mapping[str, object | None]
"""
The topic ids by name; None for a topic whose broker reports no id.
"""

Answer = Callable[[Mapping[TopicPartition, int] | None, Ids], object]
"""
A function that is called on an IO thread with the end offsets, or None if these could
not be fetched, and with the ids of the topics.
"""


class LastFetchTimes(PauseSafeFetcher):
    """
    Keeps the time of the last successful fetch of each partition.

    ``poll`` hides failed fetches, and no longer fetches a deleted topic, but reports no
    error. Both cases look like a topic without new records.
    """

    def prepare_times(self) -> None:
        """Set the attributes that this class needs in addition to its parent's."""
        self.answered_at: dict[TopicPartition, float] = {}
        # When the requests for these responses were sent; a response may have been late
        # on its way.
        self._sent_at: dict[TopicPartition, float] = {}
        self._began_at = time.monotonic()

    def silence(self) -> float:
        """Return the longest time in seconds since a partition's last successful fetch."""
        return self._seconds_since(self.answered_at)

    def age(self) -> float:
        """Return the seconds since the request for the oldest last response was sent."""
        return self._seconds_since(self._sent_at)

    def _seconds_since(self, times: Mapping[TopicPartition, float]) -> float:
        partitions = self._subscriptions.assigned_partitions()
        found = [times.get(tp, self._began_at) for tp in partitions]
        return time.monotonic() - min(found, default=self._began_at)

    def _handle_fetch_response(
        self,
        node_id: int,
        fetch_offsets: Mapping[TopicPartition, int],
        send_time: float,
        response: Any,  # noqa: ANN401 - of any version
    ) -> None:
        super()._handle_fetch_response(node_id, fetch_offsets, send_time, response)
        errors = [
            partition.error_code
            for topic in response.responses
            for partition in topic.partitions
        ]
        if not getattr(response, "error_code", 0) and not any(errors):
            self.answered_at.update(dict.fromkeys(fetch_offsets, time.monotonic()))
            self._sent_at.update(dict.fromkeys(fetch_offsets, send_time))


class ControlReader:
    """
    The operations that group control needs on the consumer that reads control topics.

    Args:
        consumer: the ``SafeConsumer`` that reads control topics, without a group.

    Thread rules: only the polling thread, except that any thread may call :meth:`wake`.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - SafeConsumer is a layer above
        self._consumer = consumer
        self._fetcher = consumer._fetcher
        self._fetcher.__class__ = LastFetchTimes
        self._fetcher.prepare_times()

    def wake(self) -> None:
        """End the current wait of ``poll``; any thread may call this."""
        self._fetcher.wake()

    def silence(self) -> float:
        """Return the longest time in seconds since a partition's last successful fetch."""
        return float(self._fetcher.silence())

    def age(self) -> float:
        """Return the seconds since the request for the oldest last response was sent."""
        return float(self._fetcher.age())

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int) -> None:
        """Continue at an offset; ``leader_epoch`` is the previous record's, -1 if unknown."""
        position = OffsetAndMetadata(offset, "", leader_epoch)
        self._consumer._subscription.seek(tp, position)

    def epochs(self) -> dict[TopicPartition, int]:
        """Return the leader epochs of the positions, with -1 for an unknown epoch."""
        assignment = self._consumer._subscription.assignment
        return {
            tp: state.position.leader_epoch
            for tp, state in assignment.items()
            if state.position is not None
        }

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions, which may be past offsets whose records were compacted."""
        assignment = self._consumer._subscription.assignment
        return {
            tp: state.position.offset
            for tp, state in assignment.items()
            if state.position is not None
        }


class EndOffsets:
    """
    Requests the end offsets and topic ids of partitions, over its own connections.

    A broker answers the requests on one connection in order. On the reader's
    connection, a request would therefore wait for a pending fetch, for up to
    ``fetch_max_wait_ms``.

    Args:
        consumer: a consumer that has no group and never polls.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer

    def ask(
        self, partitions: Sequence[TopicPartition], timeout_ms: float, answer: Answer
    ) -> None:
        """
        Send the requests without blocking; ``answer`` is called later with the result.

        Any thread may call this.

        Raises:
            RuntimeError: the consumer is closed.
        """
        future = self._consumer._net.call_soon_with_future(
            self._ends, partitions, timeout_ms
        )
        future.add_callback(lambda found: answer(*found))
        future.add_errback(lambda _: answer(None, {}))

    async def _ends(
        self, partitions: Sequence[TopicPartition], timeout_ms: float
    ) -> tuple[Mapping[TopicPartition, int], Ids]:
        consumer = self._consumer
        found = await consumer._fetcher._fetch_offsets_by_times_async(
            dict.fromkeys(partitions, _LATEST), timeout_ms
        )
        # The ids are requested from the same brokers, after the offsets. Kafka never
        # reuses an id, so if the id is the known one, the offsets belong to that topic.
        cluster, manager = consumer._cluster, consumer._client._manager
        for leader in {cluster.leader_for_partition(tp) for tp in partitions}:
            # A metadata request that is in flight was sent before the offsets arrived,
            # so another one is sent.
            for _ in range(1 + cluster.metadata_refresh_in_progress):
                asked = manager.call_soon(cluster.refresh_metadata, leader)
                await await_for(manager, asked, timeout_ms)
        ids = topic_ids(consumer, [tp.topic for tp in partitions])
        return _offsets(found), ids


def topic_ids(consumer: KafkaConsumer, topics: Sequence[str]) -> Ids:
    """Return the topics' ids; None for a topic whose broker reports no id."""
    return {name: consumer._cluster.topic_id(name) for name in topics}


def _offsets(ends: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
    return {tp: end.offset for tp, end in ends.items()}
