"""Ends the wait of a ``poll``, and no other wait."""

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
    Is asked for on any thread, and ends the waits of the poll under way, or the next.

    A poll waits in four places: for the coordinator, a join and committed offsets, which
    are coroutines on the IO thread, and for a fetch (:class:`FetchWait`).

    1. The caller sets ``is_asked``, and then ends the waits that are registered.
    2. A wait registers itself, and then looks at ``is_asked``. So one of the two sees
       the other.
    3. The poll gives up what it waits for, as if its time were over, and takes the
       question back at its end. What it waited for goes on, and the next poll uses it.

    Thread rules: :meth:`ask` on any thread and in a signal handler; it takes no lock.

    Attributes:
        is_asked: whether the poll under way, or the next, is to end.
        poller: the thread of the poll under way.
    """

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        self.is_asked = False
        self.poller: int | None = None
        self._net = net
        self._waits: list[Future] = []

    def ask(self) -> None:
        """End the poll under way, or the next."""
        self.is_asked = True
        for wait in tuple(self._waits):
            end_soon(self._net, wait)

    def is_polling_here(self) -> bool:
        """Tell whether a poll is under way on this thread."""
        return self.poller == threading.get_ident()

    @contextlib.contextmanager
    def ending(self, wait: Future) -> Generator[None, None, None]:
        """Have this wait ended meanwhile; on the IO thread."""
        self._waits.append(wait)
        try:
            if self.is_asked:
                end(wait)
            yield
        finally:
            self._waits.remove(wait)


class FetchWait:
    """
    A poll's wait for an answer to a fetch, which a lifted hold ends, too.

    Thread rules: the polling thread; :meth:`end` on any, and in a signal handler.
    """

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._net = net
        self._ended = InterruptibleEvent()

    def begin(self) -> None:
        """Have :meth:`end` count from now on."""
        self._ended = InterruptibleEvent()

    def end(self) -> None:
        """End the wait under way, or the next since :meth:`begin`; takes no lock."""
        self._ended.set()

    def for_any(self, futures: Sequence[Future], timeout_ms: float | None) -> None:
        """
        Wait until one of them is done; without any, for the time or :meth:`end`.

        Raises:
            Exception: the network's loop has ended, or ends meanwhile, by this error.
        """
        ended = self._ended

        def listen() -> None:
            for future in futures:
                future.add_both(lambda _: ended.set())

        # On the IO thread: if a handler raised in the middle of upstream's add_both(),
        # the lock of that future would stay taken.
        if futures and not ended.is_set():
            call_soon(self._net, listen)
        wait_on(self._net, ended, None if timeout_ms is None else timeout_ms / 1000)


class WakingManager:
    """
    Upstream's manager of connections, for one coordinator, whose polls can be woken.

    Args:
        manager: upstream's.
        wakeup: who asks.
    """

    def __init__(self, manager: Any, wakeup: Wakeup) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._manager = manager
        self._wakeup = wakeup
        self._is_of_poll = False
        self._is_kept = False

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - upstream's
        return getattr(self._manager, name)

    @property
    def is_asked(self) -> bool:
        """Whether the poll under way, or the next, is to end."""
        return self._wakeup.is_asked

    def of_poll(self, call: Callable[..., Coroutine[Any, Any, T]]) -> Any:  # noqa: ANN401 - a coroutine function
        """Make the waits of a coroutine function a poll's, if this thread polls now."""
        if not self._wakeup.is_polling_here():
            return call

        async def marked(*args: object) -> T:
            value: T = await _Marked(self, call(*args))
            return value

        return marked

    def call_soon(self, call: Callable[..., Any], *args: object) -> Future:
        """Have a coroutine begun soon; as upstream's, with a future of ours."""
        future: Future = self._manager.call_soon(call, *args)
        if type(future) is LoopFuture:
            future.__class__ = InterruptibleFuture
        return future

    @contextlib.contextmanager
    def kept(self) -> Generator[None, None, None]:
        """Have nothing given up meanwhile: a join is prepared, or a listener runs."""
        self._is_kept = True
        try:
            yield
        finally:
            self._is_kept = False

    @property
    def wait_for(self) -> Callable[[Future, float | None], Awaitable[Any]]:
        """Upstream's method, for coroutines; a poll that calls it itself can be woken."""
        return self.of_poll(self._wait_for)  # type: ignore[no-any-return]  # it is one

    async def _wait_for(self, future: Future, timeout_ms: float | None) -> Any:  # noqa: ANN401 - what it gives
        if not self._is_of_poll or self._is_kept:
            return await await_for(self._manager, future, timeout_ms)
        ended = Future()
        future.add_both(lambda _: end(ended))
        with self._wakeup.ending(ended):
            await await_for(self._manager, ended, timeout_ms)
        if not future.is_done:  # as if its time were over, and no earlier than that
            return await await_for(self._manager, future, 0)
        return await await_for(self._manager, future, None)


class InterruptibleFuture(LoopFuture):
    """
    A future to which callbacks are added on a thread that signals interrupt.

    Upstream 3.0.12 takes the lock without ``with``: what a signal handler raises there
    leaves it taken, and the IO thread, which is to resolve it, waits for ever.

    It is adopted by ``__class__``.
    """

    __slots__ = ()

    def add_callback(
        self,
        f: Callable[..., object],
        *args: Any,  # noqa: ANN401 - f's own
        **kwargs: Any,  # noqa: ANN401
    ) -> "InterruptibleFuture":
        """Call a function with the value, now or when it is there."""
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
        """Call a function with the exception, now or when it is there."""
        call = functools.partial(f, *args, **kwargs)
        if not self._waits(call, self._errbacks) and self.exception is not None:
            _call(call, self.exception)
        return self

    def _waits(
        self, call: Callable[[Any], object], waiting: list[Callable[[Any], object]]
    ) -> bool:
        with self._lock:
            if not self.is_done:
                waiting.append(call)
            return not self.is_done


def _call(callback: Callable[[Any], object], value: object) -> None:
    try:
        callback(value)
    except Exception as error:
        if is_from_handler(error):
            raise
        log.exception("Error processing callback")  # upstream's words, too


class _Marked:
    # Awaits a coroutine, and marks the manager whenever a step of it runs: a wait that
    # begins meanwhile is its own, and not that of another coroutine of the coordinator.

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
                self._waking._is_of_poll = True
                try:
                    awaited = step(given)
                except StopIteration as end_of_it:
                    return end_of_it.value
                finally:
                    self._waking._is_of_poll = False
                try:
                    given, step = (yield awaited), self._coroutine.send
                except Exception as error:  # noqa: BLE001 - the coroutine's to handle
                    given, step = error, self._coroutine.throw
        finally:
            self._coroutine.close()


def end(wait: Future) -> None:
    """End a wait that has not ended; on the IO thread."""
    if not wait.is_done:
        wait.success(None)


def end_soon(net: Any, wait: Future) -> None:  # noqa: ANN401 - kafka-python is untyped
    """End a wait; on any thread, and in a signal handler."""
    if not wait.is_done:
        # The loop may have ended, and with it the wait.
        with contextlib.suppress(RuntimeError, kafka_errors.KafkaError):
            call_soon(net, lambda: end(wait))
