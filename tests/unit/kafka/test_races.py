"""
Tests calls that occur between two lines of the fetcher or of the iteration.

Simulated threads switch only where they wait, so these tests replace a method to act
between two lines. ``tests/sim`` has all other tests of races.
"""

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import OffsetOutOfRangeError
from kafka.future import Future

from safeconsumer._kafka.pausing.stamps import Stamped
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.signals import TimeLimitError

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
TEN = batch(0, 10)


@pytest.fixture(params=["python", "compiled"])
def consumer(safe, request):
    """Return a consumer that has ten records of A and ten of B in its buffers."""
    made = safe(consumer_timeout_ms=20, decoder=request.param)
    assigned(made, A, B)
    answer(made, A, 0, TEN)
    answer(made, B, 0, TEN)
    return made


def after_drain(consumer, call):
    """Make ``call`` run right after the next poll has drained its records."""
    fetcher = consumer._fetcher
    fetch = fetcher.fetch_records

    def fetch_records(*args, **more):
        found = fetch(*args, **more)
        del fetcher.fetch_records
        call()
        return found

    fetcher.fetch_records = fetch_records


@pytest.mark.timeout(30)  # if the wait does not end, it lasts an hour
def test_resume_between_the_first_drain_and_the_wait_ends_the_wait(safe):
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A, B)
    answer(consumer, A, 0, TEN)
    assert consumer.poll(0) == {}
    fetcher = consumer._fetcher
    fetcher._fetch_futures.append(Future())
    send = fetcher.send_fetches

    def resume_and_send():
        fetcher.send_fetches = send
        consumer.resume(A)
        return send()

    fetcher.send_fetches = resume_and_send
    assert offsets(consumer.poll(3_600_000, max_records=1)) == {0: [0]}


def test_records_of_an_interrupted_iteration_are_delivered_without_a_fetch(consumer):
    """The interrupt occurs right after the iteration's poll has returned."""

    def interrupted(**more):
        del consumer.poll
        consumer.poll(**more)
        raise KeyboardInterrupt

    consumer.poll = interrupted
    with pytest.raises(KeyboardInterrupt):
        next(consumer)
    assert {consumer.position(tp) for tp in (A, B)} == {0}
    assert offsets(consumer.poll(0)) == {0: [*range(10)], 1: [*range(10)]}


def test_records_are_delivered_once_if_their_parking_is_interrupted(consumer):
    """A signal handler raises an error, and the next poll puts all records back again."""
    assert next(consumer).offset == 0
    buffers = consumer._fetcher.buffers
    park = buffers.park

    def park_and_raise(*args):
        del buffers.park
        park(*args)
        raise KeyboardInterrupt

    buffers.park = park_and_raise
    consumer.pause(A)
    with pytest.raises(KeyboardInterrupt):
        for _ in consumer:
            pass
    consumer.resume(A)
    came = [record.offset for record in consumer if record.partition == 0]
    assert came == [*range(1, 10)]


def test_iteration_does_not_undo_a_seek(consumer):
    """Another thread seeks between the iteration's drain and its first record."""
    after_drain(consumer, lambda: consumer.seek(A, 7))
    assert next(consumer).partition == 1
    assert consumer.position(A) == 7


def test_wrapped_step_that_raises_does_not_undo_a_seek(consumer, monkeypatch):
    """A step reads a record, another thread seeks, and then a time limit raises an error."""
    upstream = KafkaConsumer.__next__

    def traced(self):
        upstream(self)
        self._subscription.seek(A, 7)
        raise TimeLimitError

    monkeypatch.setattr(KafkaConsumer, "__next__", traced)
    with pytest.raises(TimeLimitError):
        next(consumer)
    assert consumer.position(A) == 7


def test_seek_that_ends_an_iteration_raises_the_exception_of_its_generator(
    consumer,
):
    """If the garbage collector closed the iterator, Python would swallow the exception."""

    def steps():
        try:
            yield
        finally:
            raise TimeLimitError

    consumer._iterator = steps()
    next(consumer)
    with pytest.raises(TimeLimitError):
        consumer.seek(B, 3)


def test_offset_reset_waits_for_the_preceding_records(safe):
    """A pause has put records back, and the reset must not move the position before them."""
    consumer = safe(auto_offset_reset="earliest")
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 5))
    after_drain(consumer, lambda: consumer.pause(A))
    assert consumer.poll(0) == {}
    answer(consumer, A, 5, b"", error=OffsetOutOfRangeError.errno)
    consumer.resume(A)
    after_drain(consumer, lambda: consumer.pause(A))
    assert consumer.poll(0) == {}
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [0, 1, 2, 3, 4]}
    state = consumer._subscription.assignment[A]
    assert (state.position.offset, state.awaiting_reset) == (5, False)
    assert consumer.poll(0) == {}
    assert (state.position, state.awaiting_reset) == (None, True)


def test_reset_offset_is_used_only_for_the_reset_that_requested_it(consumer):
    """A seek and a second reset come before the response to the first reset."""
    answered = consumer._fetcher._reset_offset_if_needed
    state = consumer._subscription.assignment[A]
    asked = []
    for _ in range(2):
        consumer.seek(A, 3)
        consumer.seek_to_beginning(A)
        asked.append(Stamped.of(state.reset_strategy, state))
    answered(A, asked[0], 5)
    assert (state.position, state.awaiting_reset) == (None, True)
    answered(A, asked[1], 7)
    assert consumer.position(A) == 7


def test_decoded_records_that_are_dropped_are_fetched_and_delivered_again(consumer):
    """Other deserializers can then decode the records; undecoded responses are kept."""
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    consumer._fetcher.drop_decoded()
    consumer._fetcher.drop_decoded()  # a second call has nothing to drop
    assert offsets(consumer.poll(0)) == {1: [*range(10)]}
    answer(consumer, A, 3, TEN)
    assert offsets(consumer.poll(0)) == {0: [*range(3, 10)]}
