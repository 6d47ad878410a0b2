"""Delivers events to hooks in order, without a lock held, even if hooks raise."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable

from safeconsumer._interrupts import is_from_handler
from safeconsumer.errors.base import HookTypeError
from safeconsumer.events.base import Event
from safeconsumer.events.takeover import Takeover

Hook = Callable[[Event], object]
"""
A function that is called with one event on any thread, and must be quick. Its return
value is ignored; its exceptions are counted, and the first one of each hook is logged.
"""

log = logging.getLogger("safeconsumer")


class Dispatcher:
    """
    Delivers each event to every hook, even if other hooks raise.

    Attributes:
        failures: how many times each hook has raised, or was not called because another
            hook hangs; the key is the hook's first ``repr``.
        takeover: tracks which threads are in hooks; None if no thread can take over.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._hooks = tuple(hooks)
        self.failures: dict[str, int] = {}
        self.takeover: Takeover | None = None
        # the key is the hook's index, because a repr may vary
        self._names: dict[int, str] = {}
        for hook in self._hooks:
            if not callable(hook):
                message = f"a hook must be callable with one event, not {hook!r}"
                raise HookTypeError(message)

    def dispatch(self, event: Event) -> BaseException | None:
        """
        Call every hook with the event, even if earlier hooks raise.

        Returns:
            The first exception that does not count as a hook's failure, or None. Such
            an exception ends the program, like ``KeyboardInterrupt``, or was raised by
            a signal handler. The caller must raise this exception.
        """
        stop: BaseException | None = None
        for place, hook in enumerate(self._hooks):
            takeover = self.takeover
            try:
                if takeover is None or getattr(hook, "is_essential", False):
                    hook(event)
                elif takeover.hook is None:
                    takeover.call(hook, event)
                else:
                    self._add_failure(place)
            except BaseException as error:  # noqa: BLE001 - a hook's failure must not stop poll
                if isinstance(error, Exception) and not is_from_handler(error):
                    self._count(place, error)
                else:  # raised when all hooks have received the event
                    stop = stop or error
        return stop

    def _count(self, place: int, error: Exception) -> None:
        is_first = place not in self._names
        name = self._add_failure(place)
        if is_first:
            # Logging itself may fail, because log handlers belong to the application.
            try:
                log.error(
                    "hook %s failed; it is called again, but not logged again",
                    name,
                    exc_info=error,
                )
            except Exception as failed:
                if is_from_handler(failed):
                    raise

    def _add_failure(self, place: int) -> str:
        name = self._names.setdefault(place, name_of(self._hooks[place]))
        self.failures[name] = self.failures.get(name, 0) + 1
        return name


# The number of other threads' events that one call delivers. It takes a few
# milliseconds; more would delay a poll or the network thread.
_MAX_OF_OTHERS = 100


class Outbox:
    """
    The events that wait for the hooks, in chronological order.

    One thread at a time delivers the events, so that every hook gets every event once
    and in order. If another thread or a hook calls :meth:`deliver` in the meantime, it
    leaves its events to the delivering thread, which always finds them:

    1. The other call's event is appended before the call tries to start delivering.
    2. If the call does not succeed, the delivering thread has not stopped yet.
    3. After the delivering thread has stopped, it checks the queue again.

    No lock is held while a hook runs, and no thread waits for a slow hook.

    Thread rules: any thread may call the methods, but not while it holds a lock.

    Args:
        dispatcher: calls the hooks.

    Attributes:
        waiting: the events, oldest first; callers may append to this queue under any
            lock and in a signal handler.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.waiting: deque[Event] = deque()
        # The dict has at most one entry: that of the delivering thread. ``setdefault``
        # adds the entry atomically with respect to other threads and signal handlers.
        self._delivering: dict[str, list[int]] = {}

    def deliver(self) -> bool:
        """
        Deliver the waiting events, unless another call on any thread is doing so.

        Events that other threads add in the meantime are also delivered, up to a limit.
        So a thread that emits events all the time must deliver its own.

        Returns:
            Whether this call has called hooks.

        Raises:
            BaseException: a hook raised an exception that ends the program, or a signal
                handler raised in a hook. All hooks have received the event by then;
                later events wait for the next call.
        """
        delivered = False
        limit = len(self.waiting) + _MAX_OF_OTHERS
        while self.waiting and limit > 0:
            mine = [threading.get_ident()]
            try:
                if self._delivering.setdefault("at work", mine) is not mine:
                    break
                delivered = True
                limit -= self._hand_out(limit)
            finally:
                # There must be no call here: if a signal handler raised after the call,
                # the entry would never be removed.
                try:
                    is_mine = self._delivering["at work"] is mine
                except KeyError:
                    is_mine = False
                if is_mine:
                    del self._delivering["at work"]
        return delivered

    def is_at_work_here(self) -> bool:
        """Return whether this thread is delivering events, that is, a hook made this call."""
        at_work = self._delivering.get("at work")
        return at_work is not None and at_work[0] == threading.get_ident()

    def _hand_out(self, limit: int) -> int:
        count = 0
        while self.waiting and count < limit:
            # An event is removed from the queue only after the hooks have received it.
            # If a signal handler raises in between, hooks get the event twice, but
            # never miss it.
            stop = self._dispatcher.dispatch(self.waiting[0])
            self.waiting.popleft()
            count += 1
            if stop is not None:
                raise stop
        return count


def name_of(hook: Hook) -> str:
    """Return a hook's ``repr``, or the name of its class if ``repr`` raises."""
    try:
        return repr(hook)
    except Exception as error:
        if is_from_handler(error):
            raise
        return f"<{type(hook).__name__} without a repr>"
