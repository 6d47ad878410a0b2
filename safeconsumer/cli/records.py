"""Reads partitions up to fixed end offsets."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError

from safeconsumer.cli.errors import CommandError
from safeconsumer.cli.statuses import Status

_POLL_MS = 500
_MAX_IDLE_POLLS = 60  # polls without progress after which reading fails


class StoppedError(Exception):
    """Reading was stopped before the end."""


def read(
    consumer: Any,  # noqa: ANN401 - kafka-python is untyped
    ends: Mapping[TopicPartition, int],
    is_over: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[TopicPartition, Sequence[Any]]]:
    """
    Yield the partitions' records, several at a time, in order within each partition.

    Args:
        consumer: a consumer that starts at its current positions, with only these
            partitions assigned.
        ends: the offset at which reading ends, by partition.
        is_over: called between two fetches; reading stops if it returns True.

    Raises:
        StoppedError: ``is_over`` returned True before the end.
        CommandError: the broker stopped answering, or deleted records during the
            reading.
        KafkaError: a partition cannot be read.
    """
    positions = {tp: _position(consumer, tp) for tp in ends}
    left = {tp for tp, at in positions.items() if at < ends[tp]}
    idle = 0
    while left:
        if is_over():
            raise StoppedError
        try:
            polled = consumer.poll(_POLL_MS)
        except OffsetOutOfRangeError as error:
            message = "records were deleted while their topic was read: run it again"
            raise CommandError(message) from error
        for tp, records in polled.items():
            if wanted := [one for one in records if one.offset < ends[tp]]:
                yield tp, wanted
        now = {tp: _position(consumer, tp) for tp in left}
        idle = 0 if any(now[tp] != positions[tp] for tp in left) else idle + 1
        if idle > _MAX_IDLE_POLLS:
            message = (
                f"{min(left).topic} could not be read to its end; is the broker up?"
            )
            raise CommandError(message, Status.UNREACHABLE)
        positions |= now
        left = {tp for tp in left if now[tp] < ends[tp]}
        # A partition that has been read to its end but is still written to must not
        # delay the other partitions.
        if done := consumer.assignment() - consumer.paused() - left:
            consumer.pause(*done)


def _position(consumer: Any, tp: TopicPartition) -> int:  # noqa: ANN401 - kafka-python is untyped
    # position() is None until a broker has returned the first offset, which polls wait
    # for.
    at = consumer.position(tp, timeout_ms=0)
    return -1 if at is None else int(at)
