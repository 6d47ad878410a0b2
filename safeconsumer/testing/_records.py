"""Answers the requests about records, except Fetch."""

from collections.abc import Callable, Mapping
from typing import Any

from safeconsumer.testing import _batches, _codes
from safeconsumer.testing._batches import Batch
from safeconsumer.testing._codes import RefusedError
from safeconsumer.testing._fetching import READ_COMMITTED, Fetches
from safeconsumer.testing._log import Log
from safeconsumer.testing._protocol import Exchange, Fields
from safeconsumer.testing._topics import Topic, Topics
from safeconsumer.testing._transactions import Transactions

# Special timestamps in ListOffsets.
_LATEST, _EARLIEST = -1, -2


class Records:
    """Answers those requests about records that never have to wait."""

    def __init__(
        self,
        topics: Topics,
        fetches: Fetches,
        transactions: Transactions,
        now_ms: Callable[[], int],
    ) -> None:
        self._topics, self._fetches = topics, fetches
        self._transactions, self._now_ms = transactions, now_ms
        self.handlers: Mapping[str, Callable[[Exchange], None]] = {
            "Produce": self._produce,
            "ListOffsets": self._list_offsets,
            "DeleteRecords": self._delete_records,
            "OffsetForLeaderEpoch": self._offset_for_leader_epoch,
        }

    def append(self, topic: Topic, partition: int, batch: Batch) -> int:
        """Append a batch as the topic's settings demand; return the first offset."""
        return topic.logs[partition].append(batch, self._append_time(topic))

    def _append_time(self, topic: Topic) -> int | None:
        is_by_log = topic.setting("message.timestamp.type") == "LogAppendTime"
        return self._now_ms() if is_by_log else None

    def _produce(self, exchange: Exchange) -> None:
        def one(name: str, asked: Any) -> Fields:  # noqa: ANN401  not typed
            log = self._topics.led(exchange.node, name, asked.index)
            topic = self._topics.known(name)
            base = self._written(exchange.body.transactional_id, topic, asked)
            append_time = self._append_time(topic)
            return {
                "base_offset": base,
                "log_append_time_ms": -1 if append_time is None else append_time,
                "log_start_offset": log.start,
            }

        exchange.reply_by_partition(one)
        self._fetches.answer_waiting()

    def _written(self, transaction: str | None, topic: Topic, asked: Any) -> int:  # noqa: ANN401
        """Append the new batches; return the offset of the first batch."""
        producers = topic.logs[asked.index].producers
        bases = []
        for batch in _batches.split(bytes(asked.records or b"")):
            base = producers.written(batch)
            if base is None:
                self._check(transaction, topic, asked.index, batch)
                base = self.append(topic, asked.index, batch)
            bases.append(base)
        return int(bases[0])

    def _check(
        self, transaction: str | None, topic: Topic, partition: int, batch: Batch
    ) -> None:
        if len(batch.data) > topic.number("max.message.bytes"):
            raise RefusedError(_codes.MESSAGE_TOO_LARGE)
        is_compacted = "compact" in topic.setting("cleanup.policy")
        if is_compacted and any(one.key is None for one in batch.records()):
            raise RefusedError(_codes.INVALID_RECORD)
        header, producers = batch.header, topic.logs[partition].producers
        _codes.check(producers.problem(batch))
        if producers.is_open(header.producer_id):
            if not header.is_transactional:
                raise RefusedError(_codes.INVALID_TXN_STATE)
        elif header.is_transactional:
            self._transactions.check_part(
                transaction or "",
                header.producer_id,
                header.producer_epoch,
                (topic.name, partition),
            )

    def _list_offsets(self, exchange: Exchange) -> None:
        is_committed = exchange.body.isolation_level == READ_COMMITTED

        def one(topic: str, asked: Any) -> Fields:  # noqa: ANN401  not typed
            epoch = asked.current_leader_epoch
            log = self._topics.led(exchange.node, topic, asked.partition_index, epoch)
            offset, at, epoch = _offset_for(
                log, asked.timestamp, is_committed=is_committed
            )
            return {"timestamp": at, "offset": offset, "leader_epoch": epoch}

        exchange.reply_by_partition(one)

    def _delete_records(self, exchange: Exchange) -> None:
        def one(topic: str, asked: Any) -> Fields:  # noqa: ANN401  not typed
            log = self._topics.led(exchange.node, topic, asked.partition_index)
            if not -1 <= asked.offset <= log.end:
                raise RefusedError(_codes.OFFSET_OUT_OF_RANGE)
            log.delete_before(log.end if asked.offset < 0 else asked.offset)
            return {"low_watermark": log.start}

        exchange.reply_by_partition(one)
        self._fetches.answer_waiting()

    def _offset_for_leader_epoch(self, exchange: Exchange) -> None:
        def one(topic: str, asked: Any) -> Fields:  # noqa: ANN401  not typed
            epoch = asked.current_leader_epoch
            log = self._topics.led(exchange.node, topic, asked.partition, epoch)
            epoch, end = log.end_of_epoch(asked.leader_epoch)
            return {"leader_epoch": epoch, "end_offset": end}

        exchange.reply_by_partition(one)


def _offset_for(
    log: Log, timestamp: int, *, is_committed: bool
) -> tuple[int, int, int]:
    """Return offset, time and leader epoch for a ListOffsets timestamp; -1 for none."""
    if timestamp == _EARLIEST:
        return log.start, -1, log.epochs.oldest
    if timestamp == _LATEST:
        return log.stable_end if is_committed else log.end, -1, log.epoch
    if timestamp < 0:
        return -1, -1, -1
    found = log.first_since(timestamp)
    return (-1, -1, -1) if is_committed and found[0] >= log.stable_end else found
