"""Reads topics as if they were journals, to find records that a client lost."""

import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, ClassVar

from attrs import frozen
from kafka import TopicPartition

from safeconsumer.audit.entries import Acked, Kept
from safeconsumer.audit.reading import TopicPartition as Named
from safeconsumer.audit.spans import Spans
from safeconsumer.cli import records
from safeconsumer.group import clients
from safeconsumer.holds.explain import counted
from safeconsumer.holds.scope import partition_text
from safeconsumer.journal.format import tp_text


@frozen
class TopicJournal:
    """
    The records in partitions, as if their producers had kept a journal of them.

    Attributes:
        at: a time at which all records existed, in seconds since the epoch.
        firsts: the first offset in each partition's log.
        found: the offsets of each partition's records.
        member: the name that reports show for the source of these records.
        group: empty, because the records count for every group.
    """

    at: float
    firsts: Mapping[Named, int]
    found: Mapping[Named, Spans]
    member: ClassVar = "the topic"
    group: ClassVar = ""

    @property
    def entries(self) -> Iterator[Acked | Kept]:
        """
        Yield entries for the logs' first offsets, then for acknowledged records.

        Each access returns a new iterator.
        """
        number = 0
        for tp, first in self.firsts.items():
            number += 1
            yield Kept(n=number, at=self.at, tp=tp_text(tp), first=first)
        for tp, spans in self.found.items():
            for start, end in spans:
                number += 1
                yield Acked(
                    n=number, at=self.at, tp=tp_text(tp), first=start, last=end - 1
                )


def topic_journal(
    base: Mapping[str, Any], partitions: Iterable[Named]
) -> tuple[TopicJournal, list[str]]:
    """
    Read the committed records in topics, from the start to the current end.

    All partitions of the topics are read, because journals do not contain partitions
    that nobody read.

    Args:
        base: the kafka-python settings for the connection.
        partitions: the partitions that are named in journals.

    Reading does not create topics, so a deleted topic stays deleted.

    Returns:
        The records, and a line about each partition that does not exist or that this
        user may not see.

    Raises:
        CommandError: the broker stopped answering, or deleted records during the
            reading.
        KafkaError: the topics cannot be read.
    """
    settings = {**base, "isolation_level": "read_committed"}
    with clients.reader(settings) as consumer:
        tps, troubles = _existing(consumer, partitions)
        return _read(consumer, tps), troubles


def _existing(
    consumer: Any,  # noqa: ANN401 - kafka-python is untyped
    partitions: Iterable[Named],
) -> tuple[list[TopicPartition], list[str]]:
    # Request all topics, because a request that names one topic may create it.
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
            f"{partition_text(*tp)} does not exist: the topic has "
            f"{counted(len(numbers), 'partition')}"
            for tp in own
            if tp[1] not in numbers
        )
    return there, troubles


def _read(consumer: Any, tps: list[TopicPartition]) -> TopicJournal:  # noqa: ANN401 - kafka-python is untyped
    firsts = consumer.beginning_offsets(tps) if tps else {}
    ends = consumer.end_offsets(tps) if tps else {}
    # All records existed at this time, so the audit searches journals up to this time.
    at = time.time()
    consumer.assign(tps)
    for tp, first in firsts.items():
        # Seek explicitly, because by the time of the first poll the log may start
        # later.
        consumer.seek(tp, first)
    found: dict[Named, Spans] = {}
    for tp, several in records.read(consumer, ends):
        spans = found.setdefault(tuple(tp), Spans())
        for one in several:
            spans.add(one.offset, one.offset + 1)
    return TopicJournal(at, {tuple(tp): first for tp, first in firsts.items()}, found)
