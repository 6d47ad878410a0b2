"""Reads single-partition topics in small steps, up to their ends and beyond."""

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
# Seconds without an answer after which a fetch counts as failed; the broker answers
# even an idle fetch every fetch_max_wait_ms.
_SILENCE = 5.0
# The number of last records to read if a broker cannot look up offsets by time; a few
# seconds rarely contain more records.
_LAST_RECORDS = 20_000


class TopicReader:
    """
    Reads topics in small steps, and resumes at its positions after every failure.

    After a failure, the caller closes the reader. The next :meth:`begin` creates a new
    client that resumes at the same positions.

    Thread rules: only one thread may use this; any thread may call :meth:`wake`.

    Args:
        connect: creates the reader's client.
        recent: the topic that is read only from ``seconds`` ago; None if there is none.
        seconds: roughly how far back ``recent`` is read.

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
        Look up the topics' end offsets, and prepare to read from the current positions.

        Args:
            names: the topics.
            query_consumer: the consumer that requests offsets; None to use the reading
                consumer, whose connection may be busy with a fetch.
            ids: the topics' ids; None to use the ids in the query consumer's metadata.

        Returns:
            The topics that were recreated or truncated; these are read from their
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
        is_unread = recent not in at or any(
            one.topic == self._recent for one in recreated
        )
        if recent in tps and (is_new or is_unread):
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
        Return the next records by topic, waiting for at most ``wait_ms`` milliseconds.

        Raises:
            KafkaError: the brokers do not answer or refuse the fetch, or a topic was
                recreated.
        """
        # Only the time inside poll() counts, because no fetch is pending while the
        # caller processes records.
        if self._consumer is None or self._client is None or self._waited > _SILENCE:
            message = f"no answer to a fetch for {_SILENCE:.0f} s"
            raise kafka_errors.KafkaTimeoutError(message)
        began = time.monotonic()
        try:
            polled = self._consumer.poll(wait_ms)
        except kafka_errors.LogTruncationError as error:
            # Records that were read are gone, and new records have their offsets, so
            # the next begin() reads the whole topic.
            self._truncated.update(error.divergent_offsets)
            raise
        waited = self._waited + time.monotonic() - began
        self._waited = 0.0 if polled else min(waited, self.silence())
        # Once the client knows a recreated topic's new id, it fetches from the offset
        # that it had reached in the old topic. The records there do not continue the
        # old topic, so they are not returned.
        if replaced := self.replaced(topic_ids(self._consumer, [*self._ids])):
            message = f"{', '.join(replaced)} was recreated"
            raise kafka_errors.UnknownTopicOrPartitionError(message)
        self.positions.update(self._client.positions())
        self._epochs.update(self._client.epochs())
        return {tp.topic: records for tp, records in polled.items()}

    def replaced(self, ids: Mapping[str, object | None]) -> tuple[str, ...]:
        """Return the topics whose ids have changed. Any thread may call this method."""
        # Ids from an admin client are strings, but ids from a consumer's metadata are
        # not.
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
        """Return the seconds since all topics were last fetched without an error."""
        return 0.0 if self._client is None else self._client.silence()

    def age(self) -> float:
        """
        Return the age of the last responses in seconds.

        The reader has received everything that brokers had acknowledged so long ago.
        """
        return 0.0 if self._client is None else self._client.age()

    def wake(self) -> None:
        """Make a running :meth:`turn` stop waiting. Any thread may call this method."""
        if (client := self._client) is not None:
            client.wake()

    def close(self) -> None:
        """Close the client; the next :meth:`begin` creates a new one."""
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
    """Return a record's time in seconds since the epoch; None without a timestamp."""
    at_ms = record.timestamp
    return None if at_ms is None or at_ms < 0 else at_ms / 1000
