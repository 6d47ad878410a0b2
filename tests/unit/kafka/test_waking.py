"""
A waiting ``poll`` sees a lifted hold at once, and an expired one in time (P10).
"""

import signal
import statistics
import threading
import time
from collections.abc import Callable

import pytest
from kafka import TopicPartition
from kafka.future import Future

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing import fetcher as fetcher_module
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

ROUNDS = 7
WOKEN_WITHIN = 0.050  # seconds, from the contract
BEFORE_IT_ASKS_AGAIN = fetcher_module._LONGEST_WAIT * 0.9

Result = dict[int, list[int]]


def _parked(safe: Maker, *, in_flight: bool) -> SafeConsumer:
    """
    Make a consumer that is paused, with data parked, and perhaps a fetch under way.
    """
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A, B)
    answer(consumer, A, 0, batch(0, ROUNDS))
    assert consumer.poll(0) == {}
    if in_flight:
        consumer._fetcher._fetch_futures.append(Future())
    return consumer


class Waiting:
    """
    A poll of 5 s under way on another thread.
    """

    def __init__(self, consumer: SafeConsumer) -> None:
        self.result: Result = {}
        self.returned_at = 0.0
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
        self.result = offsets(consumer.poll(5000, max_records=1))
        self.returned_at = time.monotonic()

    def seconds_after(self, act: Callable[[], object]) -> float:
        start = time.monotonic()
        act()
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self.returned_at - start


@pytest.mark.contract("P10")
@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "fetching"])
def test_a_resume_on_another_thread_ends_the_wait(
    safe: Maker, *, in_flight: bool
) -> None:
    """
    Parked data comes within 50 ms, whether a fetch is under way or nothing is.
    """
    consumer = _parked(safe, in_flight=in_flight)
    seconds = []
    for number in range(ROUNDS):
        waiting = Waiting(consumer)
        seconds.append(waiting.seconds_after(lambda: consumer.resume(A)))
        assert waiting.result == {0: [number]}
        consumer.pause(A)
    assert statistics.median(seconds) <= WOKEN_WITHIN, seconds


@pytest.mark.parametrize("in_flight", [False, True], ids=["idle", "fetching"])
def test_an_expiry_ends_the_wait_and_never_early(
    safe: Maker, *, in_flight: bool
) -> None:
    """
    No timer thread: the wait itself is capped.
    """
    consumer = _parked(safe, in_flight=in_flight)
    consumer.pause(A, owner="timed", for_=0.3)
    consumer.resume(A)
    start = time.monotonic()
    assert offsets(consumer.poll(5000, max_records=1)) == {0: [0]}
    assert 0.29 <= time.monotonic() - start < 2.5  # long before the poll would end
    assert consumer.paused() == {B}


def test_a_hold_that_does_not_expire_keeps_the_wait_long(safe: Maker) -> None:
    """
    A paused poll blocks for the time asked.
    """
    consumer = _parked(safe, in_flight=False)
    fetcher = consumer._fetcher
    ask, waits = fetcher._until_expiry, []

    def asked(timeout_ms: float | None) -> float | None:
        waits.append(ask(timeout_ms))
        return waits[-1]

    fetcher._until_expiry = asked
    start = time.monotonic()
    assert consumer.poll(400) == {}
    assert time.monotonic() - start >= 0.4
    assert 390 < max(waits) <= 400  # how late it returns is the machine's business


def test_a_paused_poll_does_not_spin(safe: Maker) -> None:
    """
    Less than 5 % of one processor.
    """
    consumer = _parked(safe, in_flight=False)
    consumer.poll(0)
    start, used = time.monotonic(), time.thread_time()
    consumer.poll(1000)
    assert time.thread_time() - used <= 0.05 * (time.monotonic() - start)


@pytest.mark.parametrize("place", ["before the wait", "on the IO thread"])
def test_a_resume_between_drain_and_wait_is_not_missed(safe: Maker, place: str) -> None:
    """
    The second drain sees it at once, whichever thread was quicker.
    """
    consumer = _parked(safe, in_flight=True)
    fetcher = consumer._fetcher
    ask, send = fetcher._until_expiry, fetcher._send_fetches_async

    def resume_and_ask(timeout_ms: float | None) -> float | None:
        consumer.resume(A)
        return ask(timeout_ms)

    async def resume_and_send() -> object:
        consumer.resume(A)
        return await send()

    if place == "before the wait":
        fetcher._until_expiry = resume_and_ask
    else:
        fetcher._send_fetches_async = resume_and_send
    start = time.monotonic()
    assert offsets(consumer.poll(60_000, max_records=1)) == {0: [0]}
    assert time.monotonic() - start < BEFORE_IT_ASKS_AGAIN


def test_an_answer_between_drain_and_wait_is_not_missed(safe: Maker) -> None:
    """
    It came when nobody waited, so nobody was woken: the count of answers tells.

    1. The first drain finds nothing. 2. The answer comes, and is the last thing that is
    in flight. 3. The wait would begin.
    """
    consumer = safe()
    assigned(consumer, A)
    fetcher = consumer._fetcher
    fetcher._fetch_futures.append(Future())  # another broker's, which never answers
    ask = fetcher._until_expiry

    def answer_and_ask(timeout_ms: float | None) -> float | None:
        fetcher._until_expiry = ask
        answer(consumer, A, 0, batch(0, 1))
        fetcher._clear_pending_fetch_request(0, None)
        return ask(timeout_ms)

    fetcher._until_expiry = answer_and_ask
    start = time.monotonic()
    assert offsets(consumer.poll(60_000)) == {0: [0]}
    assert time.monotonic() - start < BEFORE_IT_ASKS_AGAIN


def test_fetches_have_been_sent_when_a_woken_poll_returns(safe: Maker) -> None:
    """
    The application may pause next, and what it paused must not be fetched then.

    1. A poll waits for the IO thread, which is busy. 2. Another thread ends the wait.
    3. The poll does not return before its turn on the IO thread has come.
    """
    consumer = _parked(safe, in_flight=True)
    fetcher = consumer._fetcher
    send, order = fetcher._send_fetches_async, []
    is_busy, go_on = threading.Event(), threading.Event()

    def keep_busy() -> None:
        is_busy.set()
        assert go_on.wait(10)

    async def note_and_send() -> object:
        order.append("sent")
        return await send()

    fetcher._send_fetches_async = note_and_send
    consumer._net.call_soon_threadsafe(keep_busy)
    assert is_busy.wait(10)
    waiting = Waiting(consumer)

    def resume_and_go_on() -> None:
        consumer.resume(A)
        waiting._thread.join(0.1)
        order.append("poll waits" if waiting._thread.is_alive() else "poll returned")
        go_on.set()

    waiting.seconds_after(resume_and_go_on)
    assert order == ["poll waits", "sent"]
    assert waiting.result == {0: [0]}


def test_an_error_in_sending_is_raised_by_the_poll(safe: Maker) -> None:
    """
    As it was while the poll sent by itself, and the next poll goes on.
    """
    consumer = _parked(safe, in_flight=True)
    fetcher = consumer._fetcher
    send = fetcher._send_fetches_async

    async def fail() -> object:
        fetcher._send_fetches_async = send
        message = "no request could be made"
        raise RuntimeError(message)

    fetcher._send_fetches_async = fail
    with pytest.raises(RuntimeError, match="no request could be made"):
        consumer.poll(60_000)
    consumer.resume(A)
    assert offsets(consumer.poll(0, max_records=1)) == {0: [0]}


def test_a_poll_without_a_limit_ends_when_the_io_thread_does(
    safe: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Nobody is there to wake it, so it asks for itself, and raises what ended the loop.
    """
    consumer = _parked(safe, in_flight=True)
    monkeypatch.setattr(fetcher_module, "_LONGEST_WAIT", 0.1)
    net = consumer._net

    def crash() -> None:
        net._exception = MemoryError("the loop has crashed")

    crashed = threading.Timer(0.05, crash)
    crashed.start()
    try:
        with pytest.raises(MemoryError, match="the loop has crashed"):
            consumer.poll(60_000)
    finally:
        crashed.join()
        net._exception = None


def test_close_on_another_thread_ends_the_wait(safe: Maker) -> None:
    """
    A poll of 60 s returns, though no answer comes any more.
    """
    consumer = _parked(safe, in_flight=True)
    fetcher = consumer._fetcher
    ask, waits = fetcher._until_expiry, threading.Event()

    def asked(timeout_ms: float | None) -> float | None:
        waits.set()
        return ask(timeout_ms)

    fetcher._until_expiry = asked
    closer = threading.Thread(target=lambda: waits.wait(10) and fetcher.close())
    closer.start()
    start = time.monotonic()
    records, _ = fetcher.fetch_records(timeout_ms=60_000)
    closer.join()
    assert records == {}
    assert time.monotonic() - start < BEFORE_IT_ASKS_AGAIN


@pytest.mark.contract("P1")
def test_a_pause_on_another_thread_during_the_wait_is_obeyed(safe: Maker) -> None:
    """
    The final check comes after the wait; what was taken goes back.
    """
    consumer = safe()
    assigned(consumer, A, B)
    consumer._fetcher._fetch_futures.append(Future())
    waiting = Waiting(consumer)

    def pause_and_answer() -> None:
        consumer.pause(A)
        answer(consumer, A, 0, batch(0, 1))
        answer(consumer, B, 0, batch(0, 1))
        consumer._fetcher.wake()

    waiting.seconds_after(pause_and_answer)
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

    before = signal.signal(signal.SIGUSR1, interrupt)
    timer = threading.Timer(0.05, signal.pthread_kill, (_ident(), signal.SIGUSR1))
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            fetcher._wait_for_lift(None) or consumer.poll(20_000)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    fetcher.wake()
    fetcher.wake()
    assert consumer.poll(0) == {}


def _ident() -> int:
    return threading.main_thread().ident or 0
