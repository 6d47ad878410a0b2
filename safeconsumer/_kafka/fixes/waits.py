"""Lets signal handlers safely interrupt calls that wait for kafka-python's IO thread."""

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from safeconsumer._kafka.fork import forked_error
from safeconsumer._kafka.network import (
    NetworkSelector,
    call_soon,
    longest_wait,
    loop_error,
    wait_timeout_error,
)
from safeconsumer._waits import InterruptibleEvent

log = logging.getLogger(NetworkSelector.__module__)


class InterruptibleSelector(NetworkSelector):
    """
    An IO loop whose callers wait in such a way that signal handlers may interrupt them.

    kafka-python 3.0.12 waits for a ``threading.Event``. If a signal handler raises
    during that wait, the event's lock may stay held, so that the IO thread and every
    later call wait forever; or the wait raises a ``RuntimeError``. See
    :class:`InterruptibleEvent`.

    To convert upstream's loop, set its ``__class__`` to this class.
    """

    def run(self, coro: Any, *args: Any, **limit: float | None) -> Any:  # noqa: ANN401 - upstream's
        """
        Run a coroutine on the IO thread, and return its value, as upstream's method does.

        Args:
            coro: the coroutine, or a function that returns it.
            args: the arguments of that function.
            limit: kafka-python 3.1's argument ``timeout_ms``, the coroutine's time
                limit.

        Raises:
            KafkaTimeoutError: only with kafka-python 3.1: the coroutine is still
                running some seconds after its time limit.
            ForkedConsumerError: the loop runs in the parent process, from which this
                process was forked.
            Exception: the coroutine's exception, or the error that has ended the loop.
        """
        _refuse_child(self)
        here = threading.current_thread()
        if self._closed or self._exception or self._io_thread in {None, here}:
            return super().run(coro, *args, **limit)
        ended, state = InterruptibleEvent(), _state()

        def begin() -> None:
            call_soon(self, lambda: self._run(ended, state, coro, *args))

        _wait(self, begin, ended, state, longest_wait(self, **limit))
        if not ended.is_set():
            raise wait_timeout_error(self, coro, **limit)
        return state["value"]

    async def _run(
        self,
        ended: InterruptibleEvent,
        state: dict[str, Any],
        coro: Any,  # noqa: ANN401 - upstream's
        *args: Any,  # noqa: ANN401 - upstream's
    ) -> None:
        try:
            state["value"] = await self._invoke(coro, *args)
        except BaseException as error:  # noqa: BLE001 - the caller's
            if state["exception"] is None:  # else the loop has ended
                state["exception"] = error
            elif not isinstance(error, GeneratorExit):
                log.warning("%s is ignored after %s", error, state["exception"])
        finally:
            ended.set()


def wait_on(net: Any, ended: InterruptibleEvent, seconds: float | None) -> None:  # noqa: ANN401 - untyped
    """
    Wait until an event is set, for at most some seconds; None means no limit.

    Raises:
        ForkedConsumerError: the loop runs in the parent process, from which this
            process was forked.
        Exception: the error that has ended the loop, or ends it during the wait.
    """
    _refuse_child(net)

    def begin() -> None:
        error = loop_error(net)
        if isinstance(error, BaseException):  # the loop had ended before this wait
            raise error

    _wait(net, begin, ended, _state(), seconds)


def _state() -> dict[str, Any]:
    return {"value": None, "exception": None}


def _wait(
    net: Any,  # noqa: ANN401 - kafka-python is untyped
    begin: Callable[[], None],
    ended: InterruptibleEvent,
    state: dict[str, Any],
    seconds: float | None = None,
) -> None:
    # When the loop ends, it sets the event and stores its error in the state. A context
    # manager written in Python would not suffice: if a signal handler raised during its
    # entry, the loop would keep this waiter.
    try:
        # The lock is entered in C, so no signal handler can raise between the entry and
        # the block.
        with net._pending_waiters_lock:
            net._pending_waiters[ended] = state
        begin()
        ended.wait(seconds)
    finally:
        with net._pending_waiters_lock:
            # No call is made while the lock is held. After a call, a signal handler may
            # run. If it waited for the loop, it would wait forever for this lock, which
            # its own thread holds.
            if ended in net._pending_waiters:
                del net._pending_waiters[ended]
    if state["exception"] is not None:
        raise state["exception"]


def adopt_network(net: NetworkSelector) -> None:
    """Let signal handlers interrupt threads that later wait for a client's loop."""
    if type(net) is NetworkSelector:
        net.__class__ = InterruptibleSelector
        net._safe_process = os.getpid()


def _refuse_child(net: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    # This check comes before any lock of the loop is taken, because one of the parent's
    # threads may have held such a lock at the time of the fork.
    if getattr(net, "_safe_process", None) not in {None, os.getpid()}:
        raise forked_error()
