"""Runs both decoders on the same data and compares all their results."""

import warnings
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords

from safeconsumer._kafka.decoding.decoders import choose

TP = TopicPartition("orders", 3)
_MOST_TAKES = 40


@frozen
class Aborted:
    """An entry in the list of aborted transactions of a Fetch response."""

    producer_id: int
    first_offset: int


@frozen(kw_only=True)
class Case:
    """A Fetch response and the way in which it is read."""

    data: bytes
    fetch_offset: int = 0
    # the number of records that each ``take`` requests; the last number is repeated
    takes: Sequence[int | None] = (None,)
    # The number of ``take`` calls; the records that remain after them are dropped.
    drained_after: int = _MOST_TAKES
    check_crcs: bool = True
    committed: bool = False
    aborted: Sequence[Aborted] = ()
    metrics: bool = True
    key_deserializer: Any = None
    value_deserializer: Any = None


@frozen
class Aggregator:
    """Records the values that upstream's fetch metrics would add up."""

    values: list[tuple[Any, ...]] = field(factory=list)

    def record(self, *what):
        self.values.append(what)


def compared(case):
    """
    Return the results of both decoders, and fail if the results differ.

    Upstream also deserializes records before the fetch offset, and raises a deserializer's
    ``TypeError`` with a different message.
    """
    stock = story(choose("python").records, case)
    if case.value_deserializer is case.key_deserializer is None or (
        case.fetch_offset == 0
    ):
        upstream = story(Fetcher.PartitionRecords, case)
        assert _without_texts(stock) == _without_texts(upstream), case
    ours = story(choose("compiled").records, case)
    for number, (one, other) in enumerate(zip(stock, ours, strict=False)):
        assert one == other, f"step {number} of {case}"
    assert stock == ours, case
    return stock


def _without_texts(steps):
    """Return the results without the messages of type errors."""
    return [one[:2] if one[:2] == ("raised", TypeError) else one for one in steps]


def story(kind, case):
    """Return the results of reading a response with one decoder, also after errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about deserializers that take two arguments
        return _story(kind, case)


def records_of(steps):
    """Return the fields of all records in the results, without their types."""
    return [
        tuple(value for _, value in fields)
        for step in steps
        if step[0] == "taken"
        for _, fields, _ in step[1]
    ]


def errors_of(steps):
    """Return the classes of all errors in the results."""
    return [step[1] for step in steps if step[0] == "raised"]


def _story(kind, case):
    aggregator = Aggregator()
    drained = []
    try:
        part = _opened(kind, case, aggregator, drained)
    except Exception as error:  # noqa: BLE001 - compared with the other decoder's error
        return [("raised", type(error), str(error))]
    steps = []
    for number in range(min(case.drained_after, _MOST_TAKES)):
        if not part:
            break
        steps.append(_take(part, case.takes[min(number, len(case.takes) - 1)]))
        steps.append(
            (part.next_fetch_offset, part.leader_epoch, bool(part), part.records_read)
        )
        if steps[-2] == ("taken", []) and part:
            break  # an error ended the partition's data
    part.drain()
    steps.append((aggregator.values, len(drained), bool(part), part.records_read))
    part.drain()
    steps.append((aggregator.values, len(drained)))
    return steps


def _opened(kind, case, aggregator, drained):
    return kind(
        case.fetch_offset,
        TP,
        MemoryRecords(case.data),
        key_deserializer=case.key_deserializer,
        value_deserializer=case.value_deserializer,
        check_crcs=case.check_crcs,
        isolation_level=IsolationLevel.READ_COMMITTED
        if case.committed
        else IsolationLevel.READ_UNCOMMITTED,
        aborted_transactions=list(case.aborted),
        metric_aggregator=aggregator if case.metrics else None,
        on_drain=drained.append,
    )


def _take(part, n):
    try:
        return "taken", [_seen(record) for record in part.take(n)]
    except Exception as error:  # noqa: BLE001 - compared with the other decoder's error
        return "raised", type(error), str(error)


def _seen(record):
    headers = [(type(one), *map(type, one)) for one in record.headers or ()]
    return type(record), [(type(one), one) for one in record], headers
