"""
What a topic really has, as a journal: for what a client lost without noticing.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from safeconsumer.audit.journal import Entry
from safeconsumer.audit.reading import TopicPartition as Named
from safeconsumer.audit.reading import tp_text
from safeconsumer.audit.spans import Spans
from safeconsumer.cli.errors import CommandError, Status

_POLL_MS = 500
_PATIENCE = 60  # polls without any progress


class TopicJournal:
    """
    The records that partitions have, as if their producers had written a journal.

    What stands without a gap between takes sixteen bytes, however long it is.

    Args:
        at: when it was looked, seconds since the epoch: what was found was there then.

    Attributes:
        member: of whom it is said to be.
        group: of none; it counts for every group.
    """

    member = "the topic"
    group = ""

    def __init__(self, at: float) -> None:
        self._at = at
        self._found: dict[Named, Spans] = {}

    def add(self, tp: Named, offsets: Sequence[int]) -> None:
        """
        Take note of records, in order, at least one.
        """
        known = self._found.setdefault(tp, Spans())
        if offsets[-1] - offsets[0] == len(offsets) - 1:
            known.add(offsets[0], offsets[-1] + 1)
            return
        for one in offsets:
            known.add(one, one + 1)

    @property
    def entries(self) -> Iterator[Entry]:
        """
        What was acknowledged to whoever wrote it; may be asked for again.
        """
        number = 0
        for tp, spans in self._found.items():
            for start, end in spans:
                number += 1
                said = {"tp": tp_text(tp), "first": start, "last": end - 1}
                yield Entry(self.member, number, self._at, "acked", said)


def topic_journal(base: Mapping[str, Any], partitions: Iterable[Named]) -> TopicJournal:
    """
    Read partitions from their beginning to the end they have now, committed records.

    Raises:
        CommandError: the broker stopped answering.
        KafkaError: the topics cannot be read.
    """
    tps = [TopicPartition(*tp) for tp in partitions]
    consumer = KafkaConsumer(
        **base,
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    try:
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        found = _read(consumer, tps)
    finally:
        consumer.close(autocommit=False)
    return found


def _read(consumer: Any, tps: list[TopicPartition]) -> TopicJournal:  # noqa: ANN401 - kafka-python is untyped
    ends = consumer.end_offsets(tps)
    positions = dict.fromkeys(tps, -1)
    idle = 0
    # When the records were there at the latest: they are looked for until then only.
    found = TopicJournal(time.time())
    left = set(tps)
    while left:
        polled = consumer.poll(_POLL_MS)
        for tp, records in polled.items():
            offsets = [one.offset for one in records if one.offset < ends[tp]]
            if offsets:
                found.add(tuple(tp), offsets)
        now = {tp: consumer.position(tp) for tp in left}
        idle = 0 if any(now[tp] != positions[tp] for tp in left) else idle + 1
        if idle > _PATIENCE:
            message = "the topic could not be read to its end; is the broker there?"
            raise CommandError(message, Status.UNREACHABLE)
        positions |= now
        left = {tp for tp in left if now[tp] < ends[tp]}
        _let_go(consumer, left)
    return found


def _let_go(consumer: Any, left: set[TopicPartition]) -> None:  # noqa: ANN401 - kafka-python is untyped
    # What is read to its end and still written to must not keep the others waiting.
    done = consumer.assignment() - consumer.paused() - left
    if done:
        consumer.pause(*done)
