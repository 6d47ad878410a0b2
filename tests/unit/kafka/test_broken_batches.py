"""
A record that cannot be read, or not be made sense of.

The error is told, again and again; nothing hangs, nothing before it is lost, and the
way past it is open.
"""

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import CorruptRecordError
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch, corrupted, offsets
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

pytestmark = pytest.mark.timeout(20)  # an endless loop ends here


class PoisonError(Exception):
    """Raised by a deserializer."""


class Picky(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """Refuses one value."""

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        del topic, headers
        if data == b"poison":
            raise PoisonError
        return data


POISON = batch(2, 2, value=b"poison")
KINDS = [
    pytest.param(POISON, PoisonError, id="deserializer"),
    pytest.param(corrupted(batch(2, 2)), CorruptRecordError, id="checksum"),
]


def _consumer(safe: Maker) -> SafeConsumer:
    consumer = safe(value_deserializer=Picky())
    assigned(consumer, A, B)
    return consumer


@pytest.mark.parametrize(("broken", "error"), KINDS)
def test_the_error_comes_after_what_stands_before_it(
    safe: Maker, broken: bytes, error: type[Exception]
) -> None:
    """And again whenever the same data is fetched again; the position stays."""
    consumer = _consumer(safe)
    answer(consumer, A, 0, batch(0, 2) + broken)
    assert offsets(consumer.poll(0)) == {0: [0, 1]}
    for _ in range(3):
        with pytest.raises(error):
            consumer.poll(0)
        assert consumer.position(A) == 2
        answer(consumer, A, 2, broken)


@pytest.mark.parametrize(("broken", "error"), KINDS)
def test_the_next_poll_after_the_error_returns(
    safe: Maker, broken: bytes, error: type[Exception]
) -> None:
    """Stock 3.0.12 never returns from it: the batch is exhausted, but not empty to it."""
    consumer = _consumer(safe)
    answer(consumer, A, 0, broken)
    consumer.seek(A, 2)
    answer(consumer, A, 2, broken)
    with pytest.raises(error):
        consumer.poll(0)
    assert consumer.poll(0) == {}


@pytest.mark.parametrize(("broken", "error"), KINDS)
def test_a_seek_leads_past_the_error(
    safe: Maker, broken: bytes, error: type[Exception]
) -> None:
    """What the application does about a poisoned record."""
    consumer = _consumer(safe)
    answer(consumer, A, 0, batch(0, 2) + broken)
    consumer.poll(0)
    with pytest.raises(error):
        consumer.poll(0)
    consumer.seek(A, 4)
    answer(consumer, A, 4, batch(4, 2))
    assert offsets(consumer.poll(0)) == {0: [4, 5]}


@pytest.mark.parametrize(("broken", "error"), KINDS)
def test_another_partition_flows_on(
    safe: Maker, broken: bytes, error: type[Exception]
) -> None:
    """What was drained of it together with the error is delivered first."""
    consumer = _consumer(safe)
    answer(consumer, B, 0, batch(0, 3))
    answer(consumer, A, 0, batch(0, 2) + broken)
    got = offsets(consumer.poll(0))
    assert got == {1: [0, 1, 2], 0: [0, 1]}
    with pytest.raises(error):
        consumer.poll(0)
    answer(consumer, B, 3, batch(3, 3))
    assert offsets(consumer.poll(0)) == {1: [3, 4, 5]}


@pytest.mark.parametrize(("broken", "error"), KINDS)
def test_a_pause_leads_around_the_error(
    safe: Maker, broken: bytes, error: type[Exception]
) -> None:
    """While the partition is paused nobody hears of it; fetched again it is back."""
    consumer = _consumer(safe)
    answer(consumer, A, 0, batch(0, 2) + broken)
    assert offsets(consumer.poll(0)) == {0: [0, 1]}
    consumer.pause(A)
    answer(consumer, B, 0, batch(0, 1))
    assert offsets(consumer.poll(0)) == {1: [0]}
    consumer.resume(A)
    assert consumer.poll(0) == {}
    answer(consumer, A, 2, broken)
    with pytest.raises(error):
        consumer.poll(0)
    assert consumer.position(A) == 2


@pytest.mark.parametrize(("broken", "error"), KINDS)
def test_iteration_raises_and_goes_on(
    safe: Maker, broken: bytes, error: type[Exception]
) -> None:
    """The records before it are yielded, then the error, then what follows a seek."""
    consumer = safe(value_deserializer=Picky(), consumer_timeout_ms=200)
    assigned(consumer, A, B)
    answer(consumer, A, 0, batch(0, 2) + broken)
    assert [_next(consumer).offset for _ in range(2)] == [0, 1]
    answer(consumer, A, 2, broken)  # the rest is fetched again, as by upstream
    with pytest.raises(error):
        _next(consumer)
    assert consumer.position(A) == 2
    consumer.seek(A, 4)
    answer(consumer, A, 4, batch(4, 2))
    assert [record.offset for record in consumer] == [4, 5]


def _next(consumer: SafeConsumer) -> ConsumerRecord:
    return next(consumer)


def test_the_ledger_is_consistent_after_an_error(safe: Maker) -> None:
    """Holds placed before and after it hold."""
    consumer = _consumer(safe)
    consumer.pause(B)
    answer(consumer, A, 0, batch(0, 2) + POISON)
    consumer.poll(0)
    with pytest.raises(PoisonError):
        consumer.poll(0)
    assert consumer.paused() == {B}
    consumer.pause(A)
    answer(consumer, B, 0, batch(0, 1))
    assert consumer.poll(0) == {}
    consumer.resume(B)
    assert offsets(consumer.poll(0)) == {1: [0]}


def test_a_deserializer_that_is_repaired_loses_nothing(safe: Maker) -> None:
    """It raised for a while: a registry was away, say."""
    consumer = _consumer(safe)
    answer(consumer, A, 0, batch(0, 2) + POISON)
    consumer.poll(0)
    with pytest.raises(PoisonError):
        consumer.poll(0)
    consumer._fetcher.config["value_deserializer"] = None
    answer(consumer, A, 2, POISON + batch(4, 1))
    assert offsets(consumer.poll(0)) == {0: [2, 3, 4]}
