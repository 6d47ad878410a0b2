"""
What a topic really has, as a journal: for what a client lost without noticing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from safeconsumer.audit.journal import Entry, Journal
from safeconsumer.audit.reading import tp_text
from safeconsumer.cli.errors import CommandError, Status
from safeconsumer.holds.scope import TopicPartition as Named

_POLL_MS = 500
_PATIENCE = 60  # polls without any progress


def topic_journal(base: Mapping[str, Any], partitions: Iterable[Named]) -> Journal:
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
        found = _offsets(consumer, tps)
    finally:
        consumer.close(autocommit=False)
    entries = (
        Entry("the topic", 0, 0.0, "acked", {"tp": tp_text(tp), "first": a, "last": b})
        for tp, offsets in found.items()
        for a, b in _runs(offsets)
    )
    return Journal(member="the topic", group="", entries=tuple(entries))


def _offsets(consumer: Any, tps: list[TopicPartition]) -> dict[Named, list[int]]:  # noqa: ANN401 - kafka-python is untyped
    found: dict[Named, list[int]] = {tp: [] for tp in tps}
    ends = consumer.end_offsets(tps)
    idle = 0
    while any(consumer.position(tp) < ends[tp] for tp in tps):
        polled = consumer.poll(_POLL_MS)
        idle = 0 if polled else idle + 1
        if idle > _PATIENCE:
            message = "the topic could not be read to its end; is the broker there?"
            raise CommandError(message, Status.UNREACHABLE)
        for tp, records in polled.items():
            found[tp] += [one.offset for one in records if one.offset < ends[tp]]
    return found


def _runs(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for offset in offsets:
        if last is not None and first is not None and offset != last + 1:
            yield first, last
            first = offset
        first = offset if first is None else first
        last = offset
    if first is not None and last is not None:
        yield first, last
