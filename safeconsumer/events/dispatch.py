"""Hands events to hooks, in order and under no lock, and survives hooks that raise."""

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
A function that takes one event, quickly, on any thread. Its return value is ignored; its
exceptions are counted, and the first one of each hook is logged.
"""

log = logging.getLogger("safeconsumer")


class Dispatcher:
    """
    Hands each event to every hook, even if other hooks raise.

    Attributes:
        failures: how often each hook raised, or was not called because another one
            hangs, by the ``repr`` that the hook had first.
        takeover: notes which thread is in a hook; None: no thread takes work over.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        self._hooks = tuple(hooks)
        self.failures: dict[str, int] = {}
        self.takeover: Takeover | None = None
        # by the index of the hook, since its repr may vary
        self._names: dict[int, str] = {}
        for hook in self._hooks:
            if not callable(hook):
                message = f"a hook must be callable with one event, not {hook!r}"
                raise HookTypeError(message)

    def dispatch(self, event: Event) -> BaseException | None:
        """
        Call every hook with the event, even if earlier hooks raise.

        Returns:
            The first exception that is no failure of a hook: it ends the program, as
            ``KeyboardInterrupt`` does, or a signal handler raised it. The caller raises
            it.
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
                else:  # raised once all hooks have the event
                    stop = stop or error
        return stop

    def _count(self, place: int, error: Exception) -> None:
        is_first = place not in self._names
        name = self._add_failure(place)
        if is_first:
            # The log itself may have failed: its handlers are the application's.
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


# The number of other threads' events that one call hands out, in some milliseconds:
# more would delay a poll or the network's thread.
_MAX_OF_OTHERS = 100


class Outbox:
    """
    Events that wait for the hooks, in the order in which things happened.

    One thread at a time hands them out, so that every hook gets every event once and in
    that order. A caller that comes meanwhile, on another thread or from within a hook,
    leaves its events to the thread at work, which always finds them:

    1. the caller appended its event before it tried to take the turn; 2. it did not get
       the turn, so the other thread had it at that moment; 3. that thread reads the
       queue once more after it has given the turn back.

    No lock is held while a hook runs, and no thread waits for a slow hook.

    Thread rules: any thread, under no lock.

    Args:
        dispatcher: calls the hooks.

    Attributes:
        waiting: the events, oldest first; append to it under any lock, and in a signal
            handler too.
    """

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self.waiting: deque[Event] = deque()
        # The dict has at most one entry, of the thread that hands out. ``setdefault`` takes
        # the turn in one step that neither a thread nor a signal can interrupt.
        self._turn: dict[str, list[int]] = {}

    def deliver(self) -> bool:
        """
        Hand out the waiting events, unless another call is doing so, on any thread.

        Events that other threads add meanwhile are handed out too, up to a number: a
        thread that makes events without pause has to hand out its own.

        Returns:
            Whether hooks ran here, which takes time.

        Raises:
            BaseException: an exception in a hook that ends the program, or that a signal
                handler raised, after all hooks have had the event; later events wait
                for the next call.
        """
        delivered = False
        limit = len(self.waiting) + _MAX_OF_OTHERS
        while self.waiting and limit > 0:
            mine = [threading.get_ident()]
            try:
                if self._turn.setdefault("at work", mine) is not mine:
                    break
                delivered = True
                limit -= self._hand_out(limit)
            finally:
                # Make no call here: after a call a signal handler could raise, and the
                # turn would never be given back.
                try:
                    has_turn = self._turn["at work"] is mine
                except KeyError:
                    has_turn = False
                if has_turn:
                    del self._turn["at work"]
        return delivered

    def is_at_work_here(self) -> bool:
        """Return whether this thread is handing out events, so that a hook made the call."""
        at_work = self._turn.get("at work")
        return at_work is not None and at_work[0] == threading.get_ident()

    def _hand_out(self, limit: int) -> int:
        count = 0
        while self.waiting and count < limit:
            # An event leaves the queue after the hooks have it: after an interrupt in
            # between they get it twice, and never miss it.
            stop = self._dispatcher.dispatch(self.waiting[0])
            self.waiting.popleft()
            count += 1
            if stop is not None:
                raise stop
        return count


def name_of(hook: Hook) -> str:
    """Return a hook's ``repr``, or its class if that raises."""
    try:
        return repr(hook)
    except Exception as error:
        if is_from_handler(error):
            raise
        return f"<{type(hook).__name__} without a repr>"
