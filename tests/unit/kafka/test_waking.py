"""A waiting ``poll`` sees a lifted hold at once, and an expired one in time (P10)."""

import signal
import threading
import time
from collections.abc import Callable

import pytest
from kafka import TopicPartition
from kafka.future import Future

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker
from tests.harness.waiting import wait_for

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

ROUNDS = 7
AN_HOUR = 3_600_000  # ms: what is not woken is ended by the test's own limit

Result = dict[int, list[int]]


def _parked(safe: Maker, *, in_flight: bool) -> SafeConsumer:
    """Make a consumer that is paused, with data parked, and perhaps a fetch under way."""
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A, B)
    answer(consumer, A, 0, batch(0, ROUNDS))
    assert consumer.poll(0) == {}
    if in_flight:
        consumer._fetcher._fetch_futures.append(Future())
    return consumer


class Waiting:
    """A poll of an hour under way on another thread."""

    def __init__(self, consumer: SafeConsumer) -> None:
        self.result: Result = {}
        self._waits = threading.Event()
        self._watch(consumer)
        self._thread = threading.Thread(target=self._poll, args=(consumer,))
        self._thread.start()
        assert self._waits.wait(10)

    def _watch(self, consumer: SafeConsumer) -> None:
        # both ways to wait begin by asking how long
        fetcher = consumer._fetcher
        ask = type(fetcher)._until_expiry

        def asked(timeout_ms: float | None) -> float | None:
            self._waits.set()
            return ask(fetcher, timeout_ms)

        fetcher._until_expiry = asked

    def _poll(self, consumer: SafeConsumer) -> None:
        self.result = offsets(consumer.poll(AN_HOUR, max_records=1))

    def ends_after(self, act: Callable[[], object]) -> None:
        act()
        self._thread.join(90)
        assert not self._thread.is_alive()


@pytest.mark.contract("P10")
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "fetching"])
def test_a_resume_on_another_thread_ends_the_wait(
    safe: Maker, *, in_flight: bool
) -> None:
    """Parked data comes, whether a fetch is under way or nothing is."""
    consumer = _parked(safe, in_flight=in_flight)
    consumer._fetcher.config["retry_backoff_ms"] = AN_HOUR  # it is woken, or waits on
    for number in range(ROUNDS):
        waiting = Waiting(consumer)
        waiting.ends_after(lambda: consumer.resume(A))
        assert waiting.result == {0: [number]}
        consumer.pause(A)


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "fetching"])
def test_an_expiry_ends_the_wait_and_never_early(
    safe: Maker, *, in_flight: bool
) -> None:
    """No timer thread: the wait itself is capped."""
    consumer = _parked(safe, in_flight=in_flight)
    start = time.monotonic()
    consumer.pause(A, owner="timed", for_=0.3)
    consumer.resume(A)
    assert offsets(consumer.poll(AN_HOUR, max_records=1)) == {0: [0]}
    assert time.monotonic() - start >= 0.299
    assert consumer.paused() == {B}


def test_a_hold_that_does_not_expire_keeps_the_wait_long(safe: Maker) -> None:
    """A paused poll blocks for the time asked."""
    consumer = _parked(safe, in_flight=False)
    fetcher = consumer._fetcher
    ask, waits = fetcher._until_expiry, []

    def asked(timeout_ms: float) -> float | None:
        waits.append((timeout_ms, ask(timeout_ms)))
        return waits[-1][1]

    fetcher._until_expiry = asked
    start = time.monotonic()
    assert consumer.poll(400) == {}
    assert time.monotonic() - start >= 0.4
    # How late it returns, and begins to wait, is the machine's business.
    assert waits
    assert all(wait == given <= 400 for given, wait in waits)


def test_a_resume_just_before_the_wait_is_not_missed(safe: Maker) -> None:
    """Between the first drain and the wait: the second drain must see it at once."""
    consumer = _parked(safe, in_flight=True)
    fetcher = consumer._fetcher
    send = fetcher.send_fetches

    def resume_and_send() -> object:
        fetcher.send_fetches = send
        consumer.resume(A)
        return send()

    fetcher.send_fetches = resume_and_send
    assert offsets(consumer.poll(AN_HOUR, max_records=1)) == {0: [0]}


@pytest.mark.contract("P1")
def test_a_pause_on_another_thread_during_the_wait_is_obeyed(safe: Maker) -> None:
    """The final check comes after the wait; what was taken goes back."""
    consumer = safe()
    assigned(consumer, A, B)
    consumer._fetcher._fetch_futures.append(Future())
    waiting = Waiting(consumer)

    def pause_and_answer() -> None:
        consumer.pause(A)
        answer(consumer, A, 0, batch(0, 1))
        answer(consumer, B, 0, batch(0, 1))
        consumer._fetcher.wake()

    waiting.ends_after(pause_and_answer)
    assert waiting.result == {1: [0]}
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [0]}


def test_a_wake_takes_no_lock_and_an_interrupt_leaves_none(safe: Maker) -> None:
    """
    Later polls wait and wake as ever.

    1. A poll waits with nothing in flight. 2. A handler wakes it and raises. 3. Later
    polls wait and wake as ever.
    """
    consumer = safe()
    fetcher = consumer._fetcher

    def interrupt(*_: object) -> None:
        fetcher.wake()
        raise KeyboardInterrupt

    def interrupt_the_wait() -> None:
        wait_for(lambda: fetcher._alarm is not None, "a wait")
        signal.pthread_kill(_ident(), signal.SIGUSR1)

    fetcher.config["retry_backoff_ms"] = 60_000  # only the signal ends this wait
    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=interrupt_the_wait)
    try:
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            fetcher._wait_for_lift(None)
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    fetcher.wake()
    fetcher.wake()
    assert consumer.poll(0) == {}


def _ident() -> int:
    return threading.main_thread().ident or 0
