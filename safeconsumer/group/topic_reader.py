"""Reads single-partition topics step by step, up to their ends and beyond."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import kafka.errors as kafka_errors
from kafka import KafkaConsumer, TopicPartition

from safeconsumer._kafka.of_group.control_reader import ControlReader, topic_ids
from safeconsumer.consumer import SafeConsumer
from safeconsumer.group.control_clients import RecreatedTopic

_ASK_TIMEOUT_MS = 5_000
_CLOSE_MS = 500
# Seconds without an answer after which a fetch has failed; the broker answers an idle
# fetch every fetch_max_wait_ms.
_SILENCE = 5.0
# The number of records to read from the end if a broker cannot look up times; a few
# seconds rarely contain more.
_LAST_RECORDS = 20_000


class TopicReader:
    """
    Reads topics incrementally, and continues at its positions after every failure.

    After a failure the caller closes the reader. The next :meth:`begin` makes a new
    client, and continues at the same positions.

    Thread rules: one thread; any thread may call :meth:`wake`.

    Args:
        connect: makes the reader's client.
        recent: a topic of which only the last seconds are read; None if there is none.
        seconds: the approximate number of these seconds.

    Attributes:
        positions: the offsets below which all records that still exist were returned.
    """

    def __init__(
        self,
        connect: Callable[[], SafeConsumer],
        recent: str | None = None,
        seconds: float = 0.0,
    ) -> None:
        self._connect = connect
        self._recent = recent
        self._seconds = seconds
        self._ids: dict[str, object] = {}
        self._ends: Mapping[TopicPartition, int] = {}
        self._consumer: SafeConsumer | None = None
        self._client: ControlReader | None = None
        self._waited = 0.0
        self._epochs: dict[TopicPartition, int] = {}
        self._truncated: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}

    def begin(
        self,
        names: Sequence[str],
        *,
        query_consumer: KafkaConsumer | None = None,
        ids: Mapping[str, object] | None = None,
    ) -> tuple[RecreatedTopic, ...]:
        """
        Request the topics' ends, to read from the current positions up to them.

        Args:
            names: the topics.
            query_consumer: the consumer that requests offsets; None for the reading
                consumer, whose connection a fetch may keep busy.
            ids: the topics' ids; None for those in the query consumer's metadata.

        Returns:
            The topics that were recreated or truncated, which are read from their
            start.

        Raises:
            KafkaError: the broker does not answer, or refuses a request.
        """
        if self.replaced(ids or {}):
            self.close()  # the client's metadata describes the old topic
        is_new = self._consumer is None
        consumer = self._connected(tps := [TopicPartition(name, 0) for name in names])
        query_consumer = consumer if query_consumer is None else query_consumer
        firsts = query_consumer.beginning_offsets(tps, timeout_ms=_ASK_TIMEOUT_MS)
        ends = query_consumer.end_offsets(tps, timeout_ms=_ASK_TIMEOUT_MS)
        found = topic_ids(query_consumer, names) if ids is None else ids
        replaced = self.replaced(found)
        at = self.positions
        recreated = [
            RecreatedTopic(tp.topic, at.get(tp, 0), ends[tp])
            for tp in tps
            if tp.topic in replaced or tp in self._truncated or ends[tp] < at.get(tp, 0)
        ]
        recent = TopicPartition(self._recent, 0)
        is_anew = recent not in at or any(
            one.topic == self._recent for one in recreated
        )
        if recent in tps and (is_new or is_anew):
            last = max(firsts[recent], ends[recent] - _LAST_RECORDS)
            firsts = {
                **firsts,
                recent: _since(query_consumer, recent, self._seconds, last),
            }
        for one in recreated:
            tp = TopicPartition(one.topic, 0)
            self.positions.pop(tp, None)
            self._epochs.pop(tp, None)
            self._truncated.discard(tp)
        self._ids.update({name: one for name, one in found.items() if one is not None})
        self._ends = dict(ends)
        self._seek(firsts)
        return tuple(recreated)

    def _connected(self, tps: Sequence[TopicPartition]) -> SafeConsumer:
        if self._consumer is None:
            self._consumer = self._connect()
        if self._consumer.assignment() != set(tps):
            self._consumer.assign(tps)
        self._client = ControlReader(self._consumer)
        self._waited = 0.0
        return self._consumer

    def _seek(self, firsts: Mapping[TopicPartition, int]) -> None:
        assert self._client is not None  # noqa: S101 - it is connected
        at = self._client.positions()
        for tp, first in firsts.items():
            if first > self.positions.get(tp, 0):
                self._epochs.pop(tp, None)
            self.positions[tp] = max(self.positions.get(tp, 0), first)
            if at.get(tp) != self.positions[tp]:
                epoch = self._epochs.get(tp, -1)
                self._client.seek(tp, self.positions[tp], epoch)

    def turn(self, wait_ms: float) -> dict[str, list[Any]]:
        """
        Return the next records by topic, waiting at most this many milliseconds.

        Raises:
            KafkaError: the brokers do not answer, or refuse the fetch, or a topic was
                recreated.
        """
        # While the caller was busy with records, no fetch was pending.
        if self._consumer is None or self._client is None or self._waited > _SILENCE:
            message = f"no answer to a fetch for {_SILENCE:.0f} s"
            raise kafka_errors.KafkaTimeoutError(message)
        began = time.monotonic()
        try:
            polled = self._consumer.poll(wait_ms)
        except kafka_errors.LogTruncationError as error:
            # Records that were read are gone, and other records have their offsets. The
            # next begin() reads the whole topic.
            self._truncated.update(error.divergent_offsets)
            raise
        waited = self._waited + time.monotonic() - began
        self._waited = 0.0 if polled else min(waited, self.silence())
        # Once the client knows the new id of a recreated topic, it fetches from the old
        # topic's offset, but those records do not follow the earlier ones.
        if replaced := self.replaced(topic_ids(self._consumer, [*self._ids])):
            message = f"{', '.join(replaced)} was recreated"
            raise kafka_errors.UnknownTopicOrPartitionError(message)
        self.positions.update(self._client.positions())
        self._epochs.update(self._client.epochs())
        return {tp.topic: records for tp, records in polled.items()}

    def replaced(self, ids: Mapping[str, object | None]) -> tuple[str, ...]:
        """Return the topics whose ids differ from the known ids. Any thread may call it."""
        # An admin client's ids are text, but the ids in a consumer's metadata are not.
        return tuple(
            name
            for name, one in ids.items()
            if None not in (one, known := self._ids.get(name))
            and str(one) != str(known)
        )

    @property
    def is_complete(self) -> bool:
        """Whether the reader has reached the ends that the topics had at :meth:`begin`."""
        return all(self.positions.get(tp, 0) >= end for tp, end in self._ends.items())

    def silence(self) -> float:
        """Return the seconds since every topic's last fetch without an error."""
        return 0.0 if self._client is None else self._client.silence()

    def wake(self) -> None:
        """End the wait of a running :meth:`turn`. Any thread may call it."""
        if (client := self._client) is not None:
            client.wake()

    def close(self) -> None:
        """Close the client; the next :meth:`begin` makes a new one."""
        consumer, self._consumer, self._client = self._consumer, None, None
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)


def _since(
    consumer: KafkaConsumer, tp: TopicPartition, seconds: float, otherwise: int
) -> int:
    at_ms = int((time.time() - seconds) * 1000)
    try:
        one = consumer.offsets_for_times({tp: at_ms})[tp]
    except (kafka_errors.KafkaError, ValueError):  # the broker cannot look up times
        return otherwise
    return otherwise if one is None or one.offset < 0 else int(one.offset)


def time_of(record: Any) -> float | None:  # noqa: ANN401 - kafka-python is untyped
    """Return a record's time in seconds since the epoch; None if it has none."""
    at_ms = record.timestamp
    return None if at_ms is None or at_ms < 0 else at_ms / 1000
