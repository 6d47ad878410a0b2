"""What belongs to an ended ownership is thrown away, and told with its size (P9, P14)."""

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import FetchesPurged
from tests.harness.holds.lab import Told
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TEN = batch(0, 10)


@pytest.fixture
def consumer(safe: Maker) -> SafeConsumer:
    """With two partitions assigned."""
    made = safe()
    assigned(made, A, B)
    return made


def _away_and_back(consumer: SafeConsumer) -> None:
    consumer.assign([B])
    consumer.assign([A, B])
    consumer.seek(A, 0)


def _purged(told: Told) -> list[tuple[object, int, int | None, int]]:
    return [
        (one.partitions, one.fetches, one.records, one.bytes)
        for one in told.of(FetchesPurged)
    ]


def test_a_completed_fetch(consumer: SafeConsumer, told: Told) -> None:
    """Answered, not parsed: records and bytes are told from its headers."""
    answer(consumer, A, 0, TEN)
    _away_and_back(consumer)
    assert consumer.poll(0) == {}
    assert _purged(told) == [((A,), 1, 10, len(TEN))]


def test_a_half_read_batch(consumer: SafeConsumer, told: Told) -> None:
    """What was delivered of it is not counted."""
    answer(consumer, A, 0, TEN)
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    _away_and_back(consumer)
    assert consumer.poll(0) == {}
    assert _purged(told) == [((A,), 1, 7, len(TEN))]


def test_a_parked_batch(consumer: SafeConsumer, told: Told) -> None:
    """Half read, then paused."""
    answer(consumer, A, 0, TEN)
    consumer.poll(0, max_records=4)
    consumer.pause(A)
    consumer.poll(0)
    _away_and_back(consumer)
    consumer.resume(A)
    assert consumer.poll(0) == {}
    assert _purged(told) == [((A,), 1, 6, len(TEN))]


def test_a_parked_answer(consumer: SafeConsumer, told: Told) -> None:
    """It came while the partition was paused."""
    consumer.pause(A)
    answer(consumer, A, 0, TEN)
    consumer.poll(0)
    _away_and_back(consumer)
    consumer.resume(A)
    assert consumer.poll(0) == {}
    assert _purged(told) == [((A,), 1, 10, len(TEN))]


@pytest.mark.contract("P9")
def test_an_answer_in_flight(consumer: SafeConsumer, told: Told) -> None:
    """It arrives after the partition has come back, at the very same offset."""
    answer(consumer, A, 0, TEN)
    late = consumer._fetcher._completed_fetches.pop()
    _away_and_back(consumer)
    assert consumer.poll(0) == {}
    consumer._fetcher._completed_fetches.append(late)
    assert consumer.poll(0) == {}
    consumer.poll(0)
    assert _purged(told) == [((A,), 1, 10, len(TEN))]
    answer(consumer, A, 0, TEN)
    assert offsets(consumer.poll(0)) == {0: [*range(10)]}


def test_several_at_once_are_one_event(consumer: SafeConsumer, told: Told) -> None:
    """One per purge."""
    answer(consumer, A, 0, TEN)
    consumer.poll(0, max_records=1)
    answer(consumer, B, 0, batch(0, 5))
    consumer.unsubscribe()
    assigned(consumer, A, B)
    assert consumer.poll(0) == {}
    assert _purged(told) == [((A, B), 2, 14, len(TEN) + len(batch(0, 5)))]


def test_what_stays_keeps_its_data(consumer: SafeConsumer, told: Told) -> None:
    """Buffered and parked, whatever else departs."""
    consumer.pause(B)
    answer(consumer, B, 0, TEN)
    answer(consumer, A, 0, TEN)
    assert offsets(consumer.poll(0, max_records=2)) == {0: [0, 1]}
    _away_and_back(consumer)
    consumer.resume(B)
    assert offsets(consumer.poll(0)) == {1: [*range(10)]}
    assert _purged(told) == [((A,), 1, 8, len(TEN))]


def test_records_that_went_back_are_purged_too(
    consumer: SafeConsumer, told: Told
) -> None:
    """Taken by ``poll``, given back by its final check, then the partition departs."""
    answer(consumer, A, 0, TEN)
    drain = consumer._fetcher.fetch_records

    def pause_late(*args: object, **more: object) -> object:
        result = drain(*args, **more)
        consumer.pause(A)
        return result

    consumer._fetcher.fetch_records = pause_late
    assert consumer.poll(0, max_records=3) == {}
    consumer._fetcher.fetch_records = drain
    _away_and_back(consumer)
    consumer.resume(A)
    assert consumer.poll(0) == {}
    assert _purged(told) == [((A,), 1, 10, len(TEN))]


def test_an_error_of_an_ended_ownership_is_forgotten(consumer: SafeConsumer) -> None:
    """It was about data that nobody will read here."""
    answer(consumer, B, 0, batch(0, 1))
    answer(consumer, A, 0, b"", error=29)  # TOPIC_AUTHORIZATION_FAILED
    assert offsets(consumer.poll(0)) == {1: [0]}
    consumer.assign([B])
    assert consumer.poll(0) == {}


def test_sizes_of_what_has_departed_are_forgotten(consumer: SafeConsumer) -> None:
    """A member that sees many partitions come and go keeps nothing of them."""
    answer(consumer, A, 0, TEN)
    answer(consumer, B, 0, TEN)
    consumer.poll(0)
    assert set(consumer._fetcher._sizes) == {A, B}
    consumer.assign([B])
    consumer.poll(0)
    assert set(consumer._fetcher._sizes) == {B}


def test_what_is_buffered_at_the_end_is_purged_too(
    consumer: SafeConsumer, told: Told
) -> None:
    """Half read, parked, and answers that nobody has looked at; once."""
    answer(consumer, A, 0, TEN)
    consumer.poll(0, max_records=3)
    consumer.pause(B)
    answer(consumer, B, 0, TEN)
    consumer.poll(0, max_records=1)
    answer(consumer, A, 10, batch(10, 5))
    consumer.close(autocommit=False, timeout_ms=0)
    size = 2 * len(TEN) + len(batch(10, 5))
    assert _purged(told) == [((A, B), 3, 6 + 10 + 5, size)]
    consumer.close(autocommit=False, timeout_ms=0)
    assert len(told.of(FetchesPurged)) == 1


def test_a_close_in_the_middle_of_a_poll_tells_what_it_purges(
    consumer: SafeConsumer, told: Told
) -> None:
    """The poll under way throws the data away when it ends, and its event is told."""
    answer(consumer, A, 0, TEN)
    once = consumer._poll_once

    def closed(*args: object, **more: object) -> object:
        records = once(*args, **more)
        consumer.close(autocommit=False, timeout_ms=0)
        return records

    consumer._poll_once = closed  # type: ignore[assignment]  # for this one test
    consumer.poll(0, max_records=3)
    assert [one[2] for one in _purged(told)] == [7]
