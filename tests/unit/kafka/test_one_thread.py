"""One thread polls, in the process that made the consumer (P12)."""

import os
import signal
import threading

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer import ConcurrentPollError, ForkedConsumerError, SafeConsumer
from safeconsumer.holds.view import PartitionSet
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

A = TopicPartition("orders", 0)


class Polling:
    """A poll under way on another thread."""

    def __init__(self, consumer: SafeConsumer, timeout_ms: int) -> None:
        self.result: dict[int, list[int]] | None = None
        self._entered = threading.Event()
        fetch = consumer._fetcher.fetch_records

        def entered(*args: object, **more: object) -> object:
            self._entered.set()
            return fetch(*args, **more)

        consumer._fetcher.fetch_records = entered
        self._thread = threading.Thread(target=self._run, args=(consumer, timeout_ms))
        self._thread.start()
        assert self._entered.wait(10)

    def _run(self, consumer: SafeConsumer, timeout_ms: int) -> None:
        self.result = offsets(consumer.poll(timeout_ms))

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()


def test_a_second_poll_at_the_same_time_is_refused(safe: Maker) -> None:
    """A clear error for the second thread; the first one goes on and gets its records."""
    consumer = safe()
    assigned(consumer, A)
    consumer.pause(A)
    polling = Polling(consumer, 15_000)
    with pytest.raises(ConcurrentPollError, match="two threads") as caught:
        consumer.poll(0)
    assert isinstance(caught.value, IllegalStateError)
    answer(consumer, A, 0, batch(0, 3))
    consumer.resume(A)
    polling.join()
    assert polling.result == {0: [0, 1, 2]}
    assert consumer.poll(0) == {}


def test_iteration_while_another_thread_polls_is_refused(safe: Maker) -> None:
    """It polls, too."""
    consumer = safe()
    assigned(consumer, A)
    consumer.pause(A)
    polling = Polling(consumer, 15_000)
    with pytest.raises(ConcurrentPollError):
        next(consumer)
    answer(consumer, A, 0, batch(0, 1))
    consumer.resume(A)
    polling.join()
    assert polling.result == {0: [0]}


def test_iteration_on_two_threads_is_refused(safe: Maker) -> None:
    """The generator is under way on the other one."""
    consumer = safe(consumer_timeout_ms=15_000)
    assigned(consumer, A)
    consumer.pause(A)
    entered, seen = threading.Event(), []
    fetch = consumer._fetcher.fetch_records

    def enter(*args: object, **more: object) -> object:
        entered.set()
        return fetch(*args, **more)

    consumer._fetcher.fetch_records = enter
    thread = threading.Thread(target=lambda: seen.append(next(consumer).offset))
    thread.start()
    assert entered.wait(10)
    with pytest.raises(ConcurrentPollError):
        next(consumer)
    answer(consumer, A, 0, batch(0, 1))
    consumer.resume(A)
    thread.join(20)
    assert seen == [0]


def test_polls_one_after_another_may_be_on_any_thread(safe: Maker) -> None:
    """Only at the same time is too much."""
    consumer = safe()
    assigned(consumer, A)
    consumer.poll(0)
    answer(consumer, A, 0, batch(0, 2))
    polling = Polling(consumer, 0)
    polling.join()
    assert polling.result == {0: [0, 1]}


def test_a_poll_that_raised_does_not_bar_the_next_one(safe: Maker) -> None:
    """Whatever happened in it."""
    consumer = safe()
    assigned(consumer, A)
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            consumer.poll(-1)
    answer(consumer, A, 0, batch(0, 1))
    assert offsets(consumer.poll(0)) == {0: [0]}


def test_a_poll_in_the_middle_of_a_step_is_refused(safe: Maker) -> None:
    """
    Another thread is between two records; a poll there would move what it stands on.

    1. This thread takes a record from its iteration and is stopped within the step.
    2. Another thread polls, and is told. 3. The step ends as if nothing had been.
    """
    consumer = safe()
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 3))
    told: list[object] = []

    def poll() -> None:
        try:
            told.append(consumer.poll(0))
        except ConcurrentPollError as error:
            told.append(str(error))

    quiet, is_armed = consumer._safe_ledger.quiet, threading.Event()

    def stopped() -> PartitionSet:
        if is_armed.is_set():
            is_armed.clear()
            other = threading.Thread(target=poll)
            other.start()
            other.join(20)
        return quiet()

    consumer._safe_ledger.quiet = stopped  # type: ignore[method-assign]  # each record asks
    assert next(consumer).offset == 0
    is_armed.set()
    assert next(consumer).offset == 1
    assert not is_armed.is_set()
    (refusal,) = told
    assert "two threads" in str(refusal)
    assert next(consumer).offset == 2


CALLS = {
    "poll": lambda consumer: consumer.poll(0),
    "iterate": next,
    "iterate anew": iter,
    "commit": lambda consumer: consumer.commit(),
    "subscribe": lambda consumer: consumer.subscribe(["orders"]),
    "assign": lambda consumer: consumer.assign([A]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "close": lambda consumer: consumer.close(autocommit=False),
    "commit_async": lambda consumer: consumer.commit_async(),
    "committed": lambda consumer: consumer.committed(A),
    "position": lambda consumer: consumer.position(A),
    "topics": lambda consumer: consumer.topics(),
    "end_offsets": lambda consumer: consumer.end_offsets([A]),
}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("call", CALLS)
def test_a_forked_consumer_says_so(safe: Maker, call: str) -> None:
    """Its threads stayed behind; without the check the child would wait for ever."""
    consumer = safe(group_id="g")
    consumer.assign([A])
    assert _told_by_child(consumer, call) == ForkedConsumerError.__name__


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_consumer_forked_in_the_middle_of_an_iteration_says_so(safe: Maker) -> None:
    """What the parent had taken is the parent's to deliver; the parent goes on."""
    consumer = safe()
    assigned(consumer, A)
    answer(consumer, A, 0, batch(0, 3))
    assert next(consumer).offset == 0
    assert _told_by_child(consumer, "iterate") == ForkedConsumerError.__name__
    assert next(consumer).offset == 1


def _told_by_child(consumer: SafeConsumer, call: str) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        _report(consumer, call, write)
    os.close(write)
    with os.fdopen(read) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def _report(consumer: SafeConsumer, call: str, write: int) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)  # a child that waits for threads it has not got dies here
    answer = "nothing raised"
    try:
        CALLS[call](consumer)
    except BaseException as error:  # noqa: BLE001 - the child only reports
        answer = type(error).__name__
    os.write(write, answer.encode())
    os._exit(0)
