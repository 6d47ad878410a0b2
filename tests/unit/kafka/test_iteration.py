"""
``for record in consumer``, and what changes in the middle of a batch.

It is obeyed at once; what was not delivered comes later, once (P1, P8).
"""

import threading

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def consumer(safe: Maker) -> SafeConsumer:
    """Ten records of A are here, then ten of B."""
    made = safe(consumer_timeout_ms=100)
    assigned(made, A, B)
    answer(made, A, 0, batch(0, 10))
    answer(made, B, 0, batch(0, 10))
    return made


def _rest(consumer: SafeConsumer) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in consumer]


def _of(partition: int, *numbers: int) -> list[tuple[int, int]]:
    return [(partition, number) for number in numbers]


def test_the_position_follows_each_record(consumer: SafeConsumer) -> None:
    """What is committed is what was yielded."""
    for number in range(4):
        assert _of(0, number) == [_pair(next(consumer))]
        assert consumer.position(A) == number + 1
    assert consumer.position(B) == 0


def _pair(record: object) -> tuple[int, int]:
    return record.partition, record.offset  # type: ignore[attr-defined]  # a ConsumerRecord


def test_a_pause_in_the_middle_of_a_batch(consumer: SafeConsumer) -> None:
    """Not one more; the others flow; after the resume the very next one, without a fetch."""
    assert _of(0, 0, 1, 2) == [_pair(next(consumer)) for _ in range(3)]
    consumer.pause(A)
    assert _rest(consumer) == _of(1, *range(10))
    assert consumer.position(A) == 3
    consumer.resume(A)
    assert _rest(consumer) == _of(0, *range(3, 10))


@pytest.mark.contract("P1")
def test_a_pause_by_another_thread(consumer: SafeConsumer) -> None:
    """Once ``pause()`` has returned there, nothing more comes here."""
    next(consumer)
    other = threading.Thread(target=consumer.pause, args=(A,))
    other.start()
    other.join(10)
    assert _rest(consumer) == _of(1, *range(10))


def test_pausing_and_resuming_all_the_time(consumer: SafeConsumer) -> None:
    """Each record once, in order, whatever is parked in between."""
    got: dict[int, list[int]] = {0: [], 1: []}
    for turn in range(20):
        quiet = (A, B)[turn % 2]
        consumer.pause(quiet)
        partition, offset = _pair(next(consumer))
        consumer.resume(quiet)
        assert quiet.partition != partition
        got[partition].append(offset)
    assert got == {0: [*range(10)], 1: [*range(10)]}


def test_a_hold_that_expires_lets_the_rest_come(consumer: SafeConsumer) -> None:
    """Within one iteration, without anybody asking."""
    next(consumer)
    consumer.pause(A, B, for_=0.05)
    assert len(_rest(consumer)) == 19


@pytest.mark.parametrize(("to", "left"), [(7, range(7, 10)), (0, range(10))])
def test_a_seek_in_the_middle_of_a_batch(
    consumer: SafeConsumer, to: int, left: range
) -> None:
    """The next record of it is the one that was sought; B loses nothing."""
    next(consumer)
    next(consumer)
    consumer.seek(A, to)
    answer(consumer, A, to, batch(0, 10))  # a broker sends whole batches
    assert sorted(_rest(consumer)) == sorted(_of(0, *left) + _of(1, *range(10)))


def test_a_seek_of_another_partition_in_the_middle_of_a_batch(
    consumer: SafeConsumer,
) -> None:
    """Upstream throws its iterator away; the rest of the batch is not lost with it."""
    next(consumer)
    consumer.seek(B, 8)
    answer(consumer, B, 8, batch(0, 10))
    assert sorted(_rest(consumer)) == sorted(_of(0, *range(1, 10)) + _of(1, 8, 9))


def test_assignment_away_in_the_middle_of_a_batch(consumer: SafeConsumer) -> None:
    """Nothing of it comes any more, also after it has come back at another place."""
    next(consumer)
    consumer.assign([B])
    consumer.assign([A, B])
    consumer.seek(A, 0)
    assert _rest(consumer) == _of(1, *range(10))


def test_assignment_wider_in_the_middle_of_a_batch(consumer: SafeConsumer) -> None:
    """What stays is not disturbed."""
    new = TopicPartition("orders", 2)
    next(consumer)
    assigned(consumer, A, B, new)
    assert consumer.position(A) == 1
    assert sorted(_rest(consumer)) == sorted(_of(0, *range(1, 10)) + _of(1, *range(10)))


def test_unsubscribe_in_the_middle_of_a_batch(consumer: SafeConsumer) -> None:
    """The end of it."""
    next(consumer)
    consumer.unsubscribe()
    assert _rest(consumer) == []


def test_close_in_the_middle_of_a_batch(consumer: SafeConsumer) -> None:
    """Iteration ends, and nothing stays in memory."""
    next(consumer)
    consumer.close(autocommit=False, timeout_ms=0)
    assert _rest(consumer) == []
    assert consumer._fetcher.parked_bytes() == 0


def test_poll_in_the_middle_of_an_iteration(consumer: SafeConsumer) -> None:
    """Not how it is meant to be used; still nothing is skipped without a word."""
    first = [_pair(next(consumer)) for _ in range(2)]
    polled = offsets(consumer.poll(0))
    taken = [(number, one) for number, ones in polled.items() for one in ones]
    rest = _rest(consumer)
    everything = first + taken + rest
    assert len(everything) == len(set(everything))


def test_poll_after_a_step_of_an_iteration_gets_the_rest(
    consumer: SafeConsumer,
) -> None:
    """At once and in order, nothing skipped and nothing twice; then iteration goes on."""
    assert _of(0, 0, 1) == [_pair(next(consumer)) for _ in range(2)]
    assert offsets(consumer.poll(0, max_records=5)) == {0: [2, 3, 4, 5, 6]}
    assert consumer.position(A) == 7
    assert _rest(consumer) == _of(0, 7, 8, 9) + _of(1, *range(10))


def test_what_iteration_had_taken_is_fetched_for_again_after_a_poll(
    consumer: SafeConsumer,
) -> None:
    """The poll that has taken it leaves no partition behind for which nothing is asked."""
    next(consumer)
    consumer.poll(0)
    consumer.poll(0)
    assert {A, B} == set(consumer._fetcher._fetchable_partitions())


class BodyError(Exception):
    """Raised by the body of a loop."""


def _loop_that_raises_at(consumer: SafeConsumer, offset: int) -> None:
    for record in consumer:
        if record.offset == offset:
            raise BodyError


def test_an_exception_in_the_loop_body_loses_nothing(consumer: SafeConsumer) -> None:
    """The next loop goes on with the next record."""
    with pytest.raises(BodyError):
        _loop_that_raises_at(consumer, 3)
    assert consumer.position(A) == 4
    assert sorted(_rest(consumer)) == sorted(_of(0, *range(4, 10)) + _of(1, *range(10)))


def test_iteration_that_starts_paused_waits_and_ends(safe: Maker) -> None:
    """``consumer_timeout_ms`` counts, and nothing comes."""
    consumer = safe(consumer_timeout_ms=100, start_paused=True)
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 2))
    assert _rest(consumer) == []
    consumer.resume_all()
    assert _rest(consumer) == _of(0, 0, 1)
