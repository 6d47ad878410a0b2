"""Lets signal handlers interrupt the calls that wait for kafka-python's IO thread."""

import logging
import threading
from typing import Any

from safeconsumer._kafka.network import HAS_BACKENDS, NetworkSelector
from safeconsumer._waits import InterruptibleEvent

log = logging.getLogger(NetworkSelector.__module__)


class InterruptibleSelector(NetworkSelector):
    """
    A loop whose callers wait for a coroutine in a way that signal handlers may interrupt.

    kafka-python 3.0.12 waits for a ``threading.Event``. If a handler raises in there, the
    lock of that stays taken, the IO thread waits for it for ever, and so does every later
    call; or ``RuntimeError`` comes out. See :class:`InterruptibleEvent`.

    It is adopted by ``__class__``.
    """

    def run(self, coro: Any, *args: Any) -> Any:  # noqa: ANN401 - upstream's
        """Run a coroutine on the IO thread, and return its value; as upstream's."""
        here = threading.current_thread()
        if self._closed or self._exception or self._io_thread in {None, here}:
            return super().run(coro, *args)
        ended = InterruptibleEvent()
        state: dict[str, Any] = {"value": None, "exception": None}
        try:
            with self._pending_waiters_lock:  # in C, as is with
                self._pending_waiters[ended] = state
            self.call_soon_threadsafe(lambda: self._run(ended, state, coro, *args))
            ended.wait()
        finally:
            with self._pending_waiters_lock:
                self._pending_waiters.pop(ended, None)
        if state["exception"] is not None:
            raise state["exception"]
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


def adopt_network(net: NetworkSelector) -> None:
    """Let signal handlers interrupt the waits for a client's loop, from the next on."""
    if type(net) is NetworkSelector and not HAS_BACKENDS:
        net.__class__ = InterruptibleSelector
