"""Answers what producers and readers ask about a partition's records, but Fetch."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from safeconsumer.testing import _batches, _codes
from safeconsumer.testing._batches import Batch
from safeconsumer.testing._log import Log
from safeconsumer.testing._protocol import Exchange
from safeconsumer.testing._topics import Topic

if TYPE_CHECKING:
    from safeconsumer.testing._cluster import Cluster

# What ListOffsets asks for instead of a time.
_LATEST, _EARLIEST, _NEWEST, _EARLIEST_LOCAL = -1, -2, -3, -4
READ_COMMITTED = 1


class Records:
    """The requests about records that are answered at once."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "Produce": self._produce,
            "ListOffsets": self._list_offsets,
            "DeleteRecords": self._delete_records,
            "OffsetForLeaderEpoch": self._offset_for_leader_epoch,
        }

    def led(
        self, exchange: Exchange, topic: str, partition: int, epoch: int = -1
    ) -> tuple[Log | None, int]:
        """
        Return a partition's log if the broker that was asked leads it, else an error.

        ``epoch`` is the leader's as the client knows it, -1 if it does not say.
        """
        log = self._cluster.topics.log(topic, partition)
        if exchange.error:
            return None, exchange.error
        if log is None:
            return None, _codes.UNKNOWN_TOPIC_OR_PARTITION
        if log.leader != exchange.node:
            return None, _codes.NOT_LEADER_OR_FOLLOWER
        if epoch > log.epoch:
            return None, _codes.UNKNOWN_LEADER_EPOCH
        if 0 <= epoch < log.epoch:
            return None, _codes.FENCED_LEADER_EPOCH
        return log, _codes.NONE

    def append(self, topic: Topic, partition: int, batch: Batch) -> int:
        """Write a batch, by the topic's settings; return its first record's offset."""
        is_by_log = topic.setting("message.timestamp.type") == "LogAppendTime"
        append_time = self._cluster.now_ms() if is_by_log else None
        return topic.logs[partition].append(batch, append_time)

    def _produce(self, exchange: Exchange) -> None:
        body = exchange.body

        def one(topic: str, asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            log, error = self.led(exchange, topic, asked.index)
            base = -1
            if log is not None:
                base, error = self._written(body, topic, asked)
            found = self._cluster.topics.get(topic)
            is_by_log = (
                found is not None
                and found.setting("message.timestamp.type") == "LogAppendTime"
            )
            return {
                "index": asked.index,
                "error_code": error,
                "base_offset": base,
                "log_append_time_ms": self._cluster.now_ms() if is_by_log else -1,
                "log_start_offset": -1 if log is None else log.start,
            }

        told = [
            {
                "name": topic.name,
                "partition_responses": [
                    one(topic.name, p) for p in topic.partition_data
                ],
            }
            for topic in body.topic_data
        ]
        if body.acks:
            exchange.reply(responses=told)
        else:
            exchange.reply_nothing()
        self._cluster.fetches.look_again()

    def _written(self, body: Any, name: str, asked: Any) -> tuple[int, int]:  # noqa: ANN401
        """Write a partition's batches; return the first offset, or -1, and an error."""
        topic = self._cluster.topics.get(name)
        assert topic is not None  # noqa: S101  its log was found
        try:
            batches = _batches.split(bytes(asked.records or b""))
        except _batches.CorruptBatchError:
            return -1, _codes.CORRUPT_MESSAGE
        log = topic.logs[asked.index]
        bases = []
        for batch in batches:
            base = log.producers.written(batch)
            if base is None:
                error = self._problem(body, topic, asked.index, batch)
                if error:
                    return -1, error
                base = self.append(topic, asked.index, batch)
            bases.append(base)
        return bases[0], _codes.NONE

    def _problem(self, body: Any, topic: Topic, partition: int, batch: Batch) -> int:  # noqa: ANN401
        if len(batch.data) > topic.number("max.message.bytes"):
            return _codes.MESSAGE_TOO_LARGE
        is_compacted = "compact" in topic.setting("cleanup.policy")
        if is_compacted and any(one.key is None for one in batch.records()):
            return _codes.INVALID_RECORD
        producers = topic.logs[partition].producers
        header = batch.header
        error = producers.problem(batch)
        if error or not batch.is_transactional or producers.is_open(header.producer_id):
            return error
        is_part = self._cluster.transactions.has(
            body.transactional_id, header.producer_id, (topic.name, partition)
        )
        return _codes.NONE if is_part else _codes.INVALID_TXN_STATE

    def _list_offsets(self, exchange: Exchange) -> None:
        is_committed = exchange.body.isolation_level == READ_COMMITTED

        def one(topic: str, asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            epoch = asked.current_leader_epoch
            log, error = self.led(exchange, topic, asked.partition_index, epoch)
            found = (-1, -1, -1)
            if log is not None:
                found = _sought(log, asked.timestamp, is_committed=is_committed)
            offset, at, epoch = found
            return {
                "partition_index": asked.partition_index,
                "error_code": error,
                "timestamp": at,
                "offset": offset,
                "leader_epoch": epoch,
            }

        exchange.reply(
            topics=[
                {"name": t.name, "partitions": [one(t.name, p) for p in t.partitions]}
                for t in exchange.body.topics
            ]
        )

    def _delete_records(self, exchange: Exchange) -> None:
        def one(topic: str, asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            log, error = self.led(exchange, topic, asked.partition_index)
            if log is not None and asked.offset > log.end:
                log, error = None, _codes.OFFSET_OUT_OF_RANGE
            if log is not None:
                log.delete_before(log.end if asked.offset < 0 else asked.offset)
            return {
                "partition_index": asked.partition_index,
                "low_watermark": -1 if log is None else log.start,
                "error_code": error,
            }

        exchange.reply(
            topics=[
                {"name": t.name, "partitions": [one(t.name, p) for p in t.partitions]}
                for t in exchange.body.topics
            ]
        )
        self._cluster.fetches.look_again()

    def _offset_for_leader_epoch(self, exchange: Exchange) -> None:
        def one(topic: str, asked: Any) -> dict[str, Any]:  # noqa: ANN401  not typed
            epoch = asked.current_leader_epoch
            log, error = self.led(exchange, topic, asked.partition, epoch)
            found = (-1, -1) if log is None else log.end_of_epoch(asked.leader_epoch)
            return {
                "error_code": error,
                "partition": asked.partition,
                "leader_epoch": found[0],
                "end_offset": found[1],
            }

        exchange.reply(
            topics=[
                {
                    "topic": t.topic,
                    "partitions": [one(t.topic, p) for p in t.partitions],
                }
                for t in exchange.body.topics
            ]
        )


def _sought(log: Log, timestamp: int, *, is_committed: bool) -> tuple[int, int, int]:
    """Return offset, time and leader's epoch of what ListOffsets asks for, or -1."""
    if timestamp in {_EARLIEST, _EARLIEST_LOCAL}:
        return log.start, -1, log.epoch
    if timestamp == _LATEST:
        return log.stable_end if is_committed else log.end, -1, log.epoch
    if timestamp == _NEWEST:
        return log.newest()
    if timestamp < 0:
        return -1, -1, -1
    found = log.first_since(timestamp)
    return (-1, -1, -1) if is_committed and found[0] >= log.stable_end else found
