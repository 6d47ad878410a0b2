"""Reads what topics really have as a journal, to find what a client lost unnoticed."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from safeconsumer.audit.entries import Acked, Kept
from safeconsumer.audit.reading import TopicPartition as Named
from safeconsumer.audit.spans import Spans
from safeconsumer.cli import records
from safeconsumer.group.clients import BOOTSTRAP_MS
from safeconsumer.holds.explain import counted
from safeconsumer.journal.format import tp_text


class TopicJournal:
    """
    The records that partitions have, as if their producers had written a journal.

    A run of offsets without gaps takes sixteen bytes, however long it is.

    Args:
        at: when the topics were read, in seconds since the epoch: the records existed
            then.

    Attributes:
        member: the name under which the records are reported.
        group: no group; the records count for every group.
    """

    member = "the topic"
    group = ""

    def __init__(self, at: float) -> None:
        self._at = at
        self._found: dict[Named, Spans] = {}
        self._begins: dict[Named, int] = {}

    def begins(self, tp: Named, offset: int) -> None:
        """Note where the log of a partition begins."""
        self._begins[tp] = offset

    def add(self, tp: Named, offsets: Sequence[int]) -> None:
        """Note records of a partition, in order, at least one."""
        known = self._found.setdefault(tp, Spans())
        if offsets[-1] - offsets[0] == len(offsets) - 1:
            known.add(offsets[0], offsets[-1] + 1)
            return
        for one in offsets:
            known.add(one, one + 1)

    @property
    def entries(self) -> Iterator[Acked | Kept]:
        """
        Return the acknowledgements that the producers would have; may be called again.

        Before them stands where logs begin.
        """
        number = 0
        for tp, first in self._begins.items():
            number += 1
            yield Kept(n=number, at=self._at, tp=tp_text(tp), first=first)
        for tp, spans in self._found.items():
            for start, end in spans:
                number += 1
                yield Acked(
                    n=number, at=self._at, tp=tp_text(tp), first=start, last=end - 1
                )


def topic_journal(
    base: Mapping[str, Any], partitions: Iterable[Named]
) -> tuple[TopicJournal, list[str]]:
    """
    Read topics from their beginning to their present end, committed records only.

    All their partitions are read: one that nobody read is in no journal.

    Args:
        base: how to reach the broker.
        partitions: the partitions that journals name.

    Nothing is made on the cluster: a topic that is gone stays gone.

    Returns:
        The records; and which partitions do not exist, or are not shown to this user.

    Raises:
        CommandError: the broker stopped answering, or deleted records meanwhile.
        KafkaError: the topics cannot be read.
    """
    consumer = KafkaConsumer(
        **{"bootstrap_timeout_ms": BOOTSTRAP_MS, **base},
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",  # to go on elsewhere would pass over records
        isolation_level="read_committed",
        allow_auto_create_topics=False,
    )
    try:
        tps, troubles = _looked_up(consumer, partitions)
        found = _read(consumer, tps)
    finally:
        consumer.close(autocommit=False)
    return found, troubles


def _looked_up(
    consumer: Any,  # noqa: ANN401 - kafka-python is untyped
    partitions: Iterable[Named],
) -> tuple[list[TopicPartition], list[str]]:
    # It lists all topics: asking for one by its name may create it.
    known = consumer.topics()
    there: list[TopicPartition] = []
    troubles: list[str] = []
    for topic, own in groupby(sorted(partitions), lambda tp: tp[0]):
        if topic not in known:
            troubles.append(
                f"the topic {topic} does not exist, or is not shown to this user"
            )
            continue
        numbers = consumer.partitions_for_topic(topic)
        there += (TopicPartition(topic, number) for number in sorted(numbers))
        troubles += (
            f"{tp_text(tp)} does not exist: the topic has "
            f"{counted(len(numbers), 'partition')}"
            for tp in own
            if tp[1] not in numbers
        )
    return there, troubles


def _read(consumer: Any, tps: list[TopicPartition]) -> TopicJournal:  # noqa: ANN401 - kafka-python is untyped
    firsts = consumer.beginning_offsets(tps) if tps else {}
    ends = consumer.end_offsets(tps) if tps else {}
    # The time at which the records existed at the latest: they are searched until then.
    found = TopicJournal(time.time())
    consumer.assign(tps)
    for tp, first in firsts.items():
        found.begins(tuple(tp), first)
        # At this offset: a beginning that is asked for later may lie behind it.
        consumer.seek(tp, first)
    for tp, several in records.read(consumer, ends):
        found.add(tuple(tp), [one.offset for one in several])
    return found
