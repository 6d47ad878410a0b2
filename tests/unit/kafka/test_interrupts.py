"""Ctrl-C and ``SystemExit`` in a deserializer: nothing hangs, is lost or comes twice."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

pytestmark = pytest.mark.timeout(120)

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TEN = batch(0, 10)
ERRORS = (KeyboardInterrupt, SystemExit)


class Interrupted(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """Raises at the n-th record it sees, once."""

    def __init__(self, at: int, error: type[BaseException]) -> None:
        self.left, self.error = at, error

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        del topic, headers
        self.left -= 1
        if self.left == -1:
            raise self.error
        return data


@pytest.fixture(params=["python", "compiled"])
def make(request: pytest.FixtureRequest, safe: Maker) -> Callable[..., SafeConsumer]:
    """``make(at, error)`` has ten records of A, then of B; the n-th interrupts."""

    def make(
        at: int,
        error: type[BaseException] = KeyboardInterrupt,
        **configs: Any,  # noqa: ANN401 - upstream's
    ) -> SafeConsumer:
        consumer = safe(
            decoder=request.param, value_deserializer=Interrupted(at, error), **configs
        )
        assigned(consumer, A, B)
        answer(consumer, A, 0, TEN)
        answer(consumer, B, 0, TEN)
        return consumer

    return make


def _everything(consumer: SafeConsumer) -> dict[int, list[int]]:
    """Poll until all twenty are here; a broker answers what is asked again."""
    got: dict[int, list[int]] = {0: [], 1: []}
    for _ in range(6):
        for number, found in offsets(consumer.poll(0, max_records=7)).items():
            got[number] += found
        for tp in consumer._fetcher._fetchable_partitions():
            at = consumer.position(tp)
            if at is not None and at < 10:
                answer(consumer, tp, at, TEN)
    return got


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("at", [0, 1, 9, 10, 13])
def test_a_poll_that_is_interrupted(
    make: Callable[..., SafeConsumer], at: int, error: type[BaseException]
) -> None:
    """At A's first record, in its middle, at its last, and the same of B."""
    consumer = make(at, error)
    with pytest.raises(error):
        consumer.poll(0)
    assert consumer.position(A) == 0
    assert consumer.position(B) == 0
    assert _everything(consumer) == {0: [*range(10)], 1: [*range(10)]}


def test_an_interrupt_behind_records_that_came(
    make: Callable[..., SafeConsumer],
) -> None:
    """In the second poll: what the first returned does not come again."""
    consumer = make(5)
    assert offsets(consumer.poll(0, max_records=4)) == {0: [0, 1, 2, 3]}
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0)
    got = _everything(consumer)
    assert got == {0: [*range(4, 10)], 1: [*range(10)]}


def test_an_interrupt_behind_records_that_went_back(
    make: Callable[..., SafeConsumer],
) -> None:
    """They stand in front of the rest of their batch, in which it comes."""
    consumer = make(5, consumer_timeout_ms=50, max_poll_records=4)
    assert next(consumer).offset == 0
    consumer.seek(B, 0)  # ends the iteration
    with pytest.raises(KeyboardInterrupt):
        consumer.poll(0, max_records=10)
    assert _everything(consumer) == {0: [*range(1, 10)], 1: [*range(10)]}


def test_an_iteration_that_is_interrupted(make: Callable[..., SafeConsumer]) -> None:
    """It goes on with the record that did it."""
    consumer = make(3, consumer_timeout_ms=50)
    with pytest.raises(KeyboardInterrupt):
        next(consumer)
    assert consumer.poll(0) == {} or consumer.position(A) == 0
    answer(consumer, A, 0, TEN)
    got = [(one.partition, one.offset) for one in consumer]
    assert [offset for number, offset in got if number == 0] == [*range(10)]


def test_what_an_interrupted_iteration_held_back_is_fetched_again(
    make: Callable[..., SafeConsumer],
) -> None:
    """The interrupt comes when its poll has returned, before it can look after that."""
    consumer = make(99, consumer_timeout_ms=50)

    def interrupted(**more: Any) -> object:  # noqa: ANN401 - upstream's
        del consumer.poll
        consumer.poll(**more)
        consumer._fetcher.hold_back = lambda _: None
        raise KeyboardInterrupt

    consumer.poll = interrupted  # type: ignore[assignment,method-assign]  # once
    with pytest.raises(KeyboardInterrupt):
        next(consumer)
    del consumer._fetcher.hold_back
    assert _everything(consumer) == {0: [*range(10)], 1: [*range(10)]}
