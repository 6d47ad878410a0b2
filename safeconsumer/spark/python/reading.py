"""
Reads ranges of offsets in an executor, without losing a record.

A range is complete when its client's *position* has reached the end of the range, even
if the last records were compacted away or aborted. If a client makes no progress for too
long, the read fails instead of ending early. The process keeps clients
between tasks, because creating a client takes 200 ms.
"""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import kafka.errors as kafka_errors
from attrs import evolve, frozen
from kafka import TopicPartition

from safeconsumer._kafka.of_group.control_reader import topic_ids
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors.base import DataLostError, StreamStalledError
from safeconsumer.holds.scope import partition_text
from safeconsumer.spark.python.settings import Settings

_POLL_MS = 1_000
_CLOSE_MS = 200
# The maximum number of idle clients in a process; queries with different settings use
# different clients.
_MOST_KEPT = 4
_GONE = (
    kafka_errors.LogTruncationError,
    kafka_errors.NoOffsetForPartitionError,
    kafka_errors.OffsetOutOfRangeError,
)

log = logging.getLogger("safeconsumer.spark")


@frozen
class Range:
    """
    Offsets of one partition, which one task reads.

    Attributes:
        topic: the topic.
        partition: the number of the partition.
        start: the first offset.
        end: the offset after the last offset.
        topic_id: the topic's id when the batch was planned; empty if the id was not
            known.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    def __str__(self) -> str:
        """Return the partition in human-readable form."""
        return partition_text(self.topic, self.partition)


def lose(settings: Settings, what: str) -> None:
    """
    Log a loss of records, or raise an error.

    Raises:
        DataLostError: a loss must fail the query.
    """
    if settings.holds.fails_on_loss:
        message = (
            f"{what}. Records may have been lost; set failOnDataLoss=false to go on "
            "without them"
        )
        raise DataLostError(message)
    log.warning("failOnDataLoss=false: %s", what)


def read(settings: Settings, wanted: Range) -> Iterator[list[Any]]:
    """
    Yield the records of a range, in lists of at most ``max.poll.records``.

    Raises:
        DataLostError: records of the range were deleted, and a loss must fail the
            query.
        StreamStalledError: the broker sent nothing for too long.
    """
    kept = KeptClient.take(settings, wanted)
    with ExitStack() as closing:
        closing.callback(kept.close)
        reading = RangeReading(settings, wanted, kept.consumer)
        while not reading.is_over:
            if rows := reading.turn():
                yield rows
        if kept.has_other(wanted):
            what = f"{wanted}: its topic was recreated after the batch was planned"
            lose(settings, what)
            return
        closing.pop_all()
    kept.give_back(evolve(wanted, start=reading.position))


class RangeReading:
    """
    Reads one range step by step.

    Thread rules: only one thread may use this.

    Args:
        settings: the settings of the stream.
        wanted: the range.
        consumer: a consumer that is assigned only this partition, at the start of the
            range.

    Attributes:
        position: the offset below which all records were returned.
    """

    def __init__(self, settings: Settings, wanted: Range, consumer: Any) -> None:  # noqa: ANN401 - tests have others
        self._settings = settings
        self._wanted = wanted
        self._consumer = consumer
        self._tp = TopicPartition(wanted.topic, wanted.partition)
        self._moved_at = time.monotonic()
        self.position = wanted.start

    @property
    def is_over(self) -> bool:
        """Whether all records of the range were returned."""
        return self.position >= self._wanted.end

    def turn(self) -> list[Any]:
        """Return the next records; an empty list if no records have arrived yet."""
        left = self._wanted.end - self.position
        most = min(left, self._settings.fetching["max_poll_records"])
        wait_ms = min(_POLL_MS, self._settings.patience * 1000)
        try:
            polled = self._consumer.poll(wait_ms, max_records=most)
        except _GONE:
            self._pass_over()
            return []
        before, self.position = self.position, self._consumer.position(self._tp)
        if self.position > before:
            self._moved_at = time.monotonic()
        elif time.monotonic() - self._moved_at >= self._settings.patience:
            message = (
                f"{self._wanted}: no record came at offset {self.position} for "
                f"{self._settings.patience:g} s; the batch was planned up to "
                f"{self._wanted.end}"
            )
            raise StreamStalledError(message)
        # If offsets of the range are missing, the poll also returns records beyond its
        # end.
        rows: list[Any] = polled.get(self._tp, [])
        while rows and rows[-1].offset >= self._wanted.end:
            rows.pop()
        return rows

    def _pass_over(self) -> None:
        first = self._consumer.beginning_offsets([self._tp])[self._tp]
        end = self._consumer.end_offsets([self._tp])[self._tp]
        lose(
            self._settings,
            f"{self._wanted}: offset {self.position} was to be read; the log has "
            f"{first} to {end}",
        )
        is_cut = end <= self.position
        self.position = (
            self._wanted.end
            if is_cut
            else min(self._wanted.end, max(first, self.position))
        )
        self._consumer.seek(self._tp, self.position)
        self._moved_at = time.monotonic()


class KeptClient:
    """
    A client that the process keeps between tasks, with its fetched records.

    The client continues at its position only if the topic's id is the same, because a
    topic that was deleted and recreated has other records at the same offsets.

    Thread rules: only one thread may use this; Spark runs one task at a time in a
    Python process.
    """

    _idle: "dict[tuple[str, Range], KeptClient]" = {}  # noqa: RUF012 - of the process

    def __init__(self, settings: Settings, key: str) -> None:
        self._key = key
        self.consumer = SafeConsumer(
            log=False,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            **settings.connection,
            **settings.fetching,
        )

    @classmethod
    def take(cls, settings: Settings, wanted: Range) -> "KeptClient":
        """Return a client whose position is the range's start."""
        configs = {**settings.connection, **settings.fetching}
        key = json.dumps(configs, sort_keys=True, default=str)
        same = cls._idle.pop((key, _place(wanted)), None)
        if same is not None:
            return same
        kept = cls._same_topics(key, wanted) or cls(settings, key)
        tp = TopicPartition(wanted.topic, wanted.partition)
        with kept.closed_on_error():
            kept.consumer.assign([tp])
            kept.consumer.seek(tp, wanted.start)
        return kept

    @classmethod
    def _same_topics(cls, key: str, wanted: Range) -> "KeptClient | None":
        found = next((at for at in cls._idle if at[0] == key), None)
        if found is None:
            return None
        kept = cls._idle.pop(found)
        with kept.closed_on_error():
            if not kept.has_other(wanted):
                return kept
        # after a seek to the same position the client would keep the old topic's
        # records
        kept.close()
        return None

    @contextmanager
    def closed_on_error(self) -> Iterator[None]:
        """Close the client if the block raises."""
        with ExitStack() as closing:
            closing.callback(self.close)
            yield
            closing.pop_all()

    def has_other(self, wanted: Range) -> bool:
        """Return whether the topic's id differs from that of the plan."""
        known = topic_ids(self.consumer, [wanted.topic])[wanted.topic]
        if known is None or not wanted.topic_id:
            return False
        return str(known) != wanted.topic_id

    def give_back(self, rest: Range) -> None:
        """Keep the client for the next task, which may begin at the end of this range."""
        if not rest.topic_id:  # a broker before 2.8 does not report topic ids
            self.close()
            return
        self._idle[self._key, _place(rest)] = self
        while len(self._idle) > _MOST_KEPT:
            self._idle.pop(next(iter(self._idle))).close()

    def close(self) -> None:
        """Close the client."""
        self.consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)


def _place(one: Range) -> Range:
    return evolve(one, end=0)
