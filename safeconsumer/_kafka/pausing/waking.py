"""Interrupts the waits of a ``poll``, but no other waits."""

import contextlib
import functools
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, TypeVar

import kafka.errors as kafka_errors
from kafka.future import Future

from safeconsumer._interrupts import is_from_handler
from safeconsumer._kafka.fixes.waits import wait_on
from safeconsumer._kafka.network import LoopFuture, await_for, call_soon
from safeconsumer._waits import InterruptibleEvent

log = logging.getLogger(Future.__module__)

T = TypeVar("T")


class Wakeup:
    """
    A request, from any thread, that the current or the next poll stop waiting.

    A poll waits, in coroutines on the IO thread, for the coordinator, a join and
    committed offsets; and for a fetch (:class:`FetchWait`).

    1. The caller sets ``is_asked``, and then ends the registered waits.
    2. A wait registers itself, and then reads ``is_asked``. Therefore the caller finds
       the wait, or the wait finds ``is_asked`` set, or both.
    3. The poll gives up, as after its timeout, and clears ``is_asked`` at its end. The
       request that it was waiting for stays pending for the next poll.

    Thread rules: any thread and a signal handler may call :meth:`ask`; it takes no
    lock.

    Attributes:
        is_asked: whether such a request is pending.
        poller: the thread that is currently polling.
    """

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        self.is_asked = False
        self.poller: int | None = None
        self._net = net
        self._waits: list[Future] = []

    def ask(self) -> None:
        """End the current poll, or the next one if no poll is running."""
        self.is_asked = True
        for wait in tuple(self._waits):
            end_soon(self._net, wait)

    def is_polling_here(self) -> bool:
        """Return whether this thread is in a poll."""
        return self.poller == threading.get_ident()

    @contextlib.contextmanager
    def registered(self, wait: Future) -> Generator[None, None, None]:
        """Let a wake-up end this wait in the ``with`` block; the IO thread calls this."""
        self._waits.append(wait)
        try:
            if self.is_asked:
                end(wait)
            yield
        finally:
            self._waits.remove(wait)


class FetchWait:
    """
    A poll's wait for the response to a fetch, which a lifted hold also ends.

    Thread rules: only the polling thread, except that any thread and a signal handler
    may call :meth:`end`.
    """

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._net = net
        self._ended = InterruptibleEvent()

    def begin(self) -> None:
        """Forget earlier calls of :meth:`end`."""
        self._ended = InterruptibleEvent()

    def end(self) -> None:
        """End the current wait, or the next one after :meth:`begin`; takes no lock."""
        self._ended.set()

    def for_any(self, futures: Sequence[Future], timeout_ms: float | None) -> None:
        """
        Wait until a future is done, the timeout has passed, or :meth:`end` is called.

        Raises:
            Exception: the network's loop has ended with this error, or ends with it
                during the wait.
        """
        ended = self._ended

        def listen() -> None:
            for future in futures:
                future.add_both(lambda _: ended.set())

        # listen() runs on the IO thread. If it ran on this thread and a signal handler
        # raised inside upstream's add_both(), the future's lock would stay held.
        if futures and not ended.is_set():
            call_soon(self._net, listen)
        wait_on(self._net, ended, None if timeout_ms is None else timeout_ms / 1000)


class WakingManager:
    """
    Upstream's connection manager, for a coordinator whose polls can be woken.

    Args:
        manager: upstream's manager.
        wakeup: the request to wake a poll.
    """

    def __init__(self, manager: Any, wakeup: Wakeup) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._manager = manager
        self._wakeup = wakeup
        self._is_poll_step = False
        self._is_unwakeable = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - upstream's
        return getattr(self._manager, name)

    @property
    def is_asked(self) -> bool:
        """Whether a wake-up is pending."""
        return self._wakeup.is_asked

    def wakeable(self, call: Callable[..., Coroutine[Any, Any, T]]) -> Any:  # noqa: ANN401 - a coroutine function
        """Let a wake-up end a coroutine function's waits, if this thread is polling."""
        if not self._wakeup.is_polling_here():
            return call

        async def marked(*args: object) -> T:
            value: T = await _WakeableCoroutine(self, call(*args))
            return value

        return marked

    def call_soon(self, call: Callable[..., Any], *args: object) -> Future:
        """Start a coroutine soon, as upstream does, but return a future of our class."""
        future: Future = self._manager.call_soon(call, *args)
        if type(future) is LoopFuture:
            future.__class__ = InterruptibleFuture
        return future

    @contextlib.contextmanager
    def unwakeable(self) -> Generator[None, None, None]:
        """Prevent wake-ups from ending a join's or listener's wait in the ``with`` block."""
        self._is_unwakeable = True
        try:
            yield
        finally:
            self._is_unwakeable = False

    @property
    def wait_for(self) -> Callable[[Future, float | None], Awaitable[Any]]:
        """Upstream's method; a coroutine of a poll that calls it directly can be woken."""
        return self.wakeable(self._wait_for)  # type: ignore[no-any-return]  # it is one

    async def _wait_for(self, future: Future, timeout_ms: float | None) -> Any:  # noqa: ANN401 - the future's value
        if not self._is_poll_step or self._is_unwakeable:
            return await await_for(self._manager, future, timeout_ms)
        ended = Future()
        future.add_both(lambda _: end(ended))
        with self._wakeup.registered(ended):
            await await_for(self._manager, ended, timeout_ms)
        if not future.is_done:  # a wake-up arrived; raises as after a timeout
            return await await_for(self._manager, future, 0)
        return await await_for(self._manager, future, None)


class InterruptibleFuture(LoopFuture):
    """
    A future to which a thread can add callbacks even if signals may interrupt it.

    Upstream 3.0.12 acquires the future's lock without ``with``. If a signal handler
    raises, the lock stays held, and the IO thread, which resolves the future, waits
    forever.

    To convert upstream's future, set its ``__class__`` to this class.
    """

    __slots__ = ()

    def add_callback(
        self,
        f: Callable[..., object],
        *args: Any,  # noqa: ANN401 - f's own
        **kwargs: Any,  # noqa: ANN401
    ) -> "InterruptibleFuture":
        """Call a function with the value, either now or once the future has a value."""
        call = functools.partial(f, *args, **kwargs)
        if not self._waits(call, self._callbacks) and self.exception is None:
            _call(call, self.value)
        return self

    def add_errback(
        self,
        f: Callable[..., object],
        *args: Any,  # noqa: ANN401 - f's own
        **kwargs: Any,  # noqa: ANN401
    ) -> "InterruptibleFuture":
        """Call a function with the exception, either now or once the future has failed."""
        call = functools.partial(f, *args, **kwargs)
        if not self._waits(call, self._errbacks) and self.exception is not None:
            _call(call, self.exception)
        return self

    def _waits(
        self, call: Callable[[Any], object], waiting: list[Callable[[Any], object]]
    ) -> bool:
        with self._lock:
            if not self.is_done:
                # No call is allowed here, because a signal handler could interrupt it
                # and would then wait for this lock.
                waiting += [call]
            return not self.is_done


def _call(callback: Callable[[Any], object], value: object) -> None:
    try:
        callback(value)
    except Exception as error:
        if is_from_handler(error):
            raise
        log.exception("Error processing callback")  # upstream's text, too


class _WakeableCoroutine:
    # Awaits a coroutine, and marks the manager while a step of the coroutine runs. A
    # wait that starts during such a step thus belongs to this coroutine, and not to
    # another coroutine of the coordinator.

    def __init__(
        self, waking: WakingManager, coroutine: Coroutine[Any, Any, Any]
    ) -> None:
        self._waking = waking
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[Any], Any] = self._coroutine.send
        given: Any = None
        try:
            while True:
                self._waking._is_poll_step = True
                try:
                    awaited = step(given)
                except StopIteration as end_of_it:
                    return end_of_it.value
                finally:
                    self._waking._is_poll_step = False
                try:
                    given, step = (yield awaited), self._coroutine.send
                except Exception as error:  # noqa: BLE001 - the coroutine's to handle
                    given, step = error, self._coroutine.throw
        finally:
            self._coroutine.close()


def end(wait: Future) -> None:
    """End a wait, unless it has ended already; the IO thread calls this."""
    if not wait.is_done:
        wait.success(None)


def end_soon(net: Any, wait: Future) -> None:  # noqa: ANN401 - kafka-python is untyped
    """End a wait; any thread and a signal handler may call this."""
    if not wait.is_done:
        # If the loop has ended, the wait has ended, too.
        with contextlib.suppress(RuntimeError, kafka_errors.KafkaError):
            call_soon(net, lambda: end(wait))
