"""Polls several consumers at once, as their programs would."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# Each in a thread of its own, and no shorter: a consumer that waits for its turn while
# the others poll keeps them all from joining, and kafka-python 3.0 forgets a join that
# outlasts the poll it began in.
POLL_MS = 500
_CHECK_EVERY = 0.01
_LONGEST_POLL = 30.0  # seconds; one that takes longer hangs, as in a listener


class PollTimeoutError(AssertionError):
    """The awaited condition did not hold in time; the message names it."""


def poll_until(
    consumers: Any,  # noqa: ANN401  kafka-python is untyped
    condition: Callable[[], object],
    *,
    silently: Any = (),  # noqa: ANN401  kafka-python is untyped
    awaited: str = "the condition",
    timeout: float = 30.0,
) -> list[Any]:
    """
    Poll consumers until the condition holds; return the records that came meanwhile.

    When it returns no thread polls any more; that takes up to half a second longer.

    Args:
        consumers: a kafka-python consumer, or several; nobody else may be polling them.
        condition: asked about 100 times a second.
        silently: further ones to poll, likewise; their records are not returned.
        awaited: what the condition means, for the error.
        timeout: seconds.

    Raises:
        PollTimeoutError: the condition did not hold in time, or a consumer's ``poll()``
            does not return within half a minute after its end.
        TypeError: one of them is no consumer, or the condition cannot be called.
        Exception: what a consumer's ``poll()`` raised.
    """
    consumers, silently = consumers_of(consumers), consumers_of(silently)
    if not callable(condition):
        msg = f"the condition is a function, such as consumer.assignment: {condition!r}"
        raise TypeError(msg)
    round_ = _Round(consumers, silently)
    deadline = time.monotonic() + timeout
    try:
        while not condition():
            if round_.errors:
                raise round_.errors[0]
            if time.monotonic() > deadline:
                seen = [(c.group_metadata(), c.assignment()) for c in consumers]
                msg = f"waited {timeout} s for {awaited}; the members: {seen}"
                raise PollTimeoutError(msg)
            time.sleep(_CHECK_EVERY)
    finally:
        round_.end()
    if round_.errors:
        raise round_.errors[0]
    return round_.records


def consumers_of(given: Any) -> tuple[Any, ...]:  # noqa: ANN401  kafka-python is untyped
    """
    Return the consumers that were given, one or several.

    Raises:
        TypeError: something else was given.
    """
    # A consumer is an iterator, too: of its records.
    if _can_poll(given):
        return (given,)
    several = tuple(given) if isinstance(given, Iterable) else (given,)
    for one in several:
        if not _can_poll(one):
            msg = f"this call polls a consumer, or a list of them, not {one!r:.200}"
            raise TypeError(msg)
    return several


def _can_poll(one: object) -> bool:
    return callable(getattr(one, "poll", None)) and not isinstance(one, type)


class _Round:
    """One thread for each consumer, until the end."""

    def __init__(self, consumers: Sequence[Any], silently: Sequence[Any]) -> None:
        self.records: list[Any] = []
        self.errors: list[Exception] = []
        self._is_over = threading.Event()
        self._threads = [
            threading.Thread(target=self._poll, args=(consumer, kept), daemon=True)
            for group, kept in ((consumers, self.records), (silently, []))
            for consumer in group
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._is_over.set()
        deadline = time.monotonic() + _LONGEST_POLL
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = sum(thread.is_alive() for thread in self._threads)
        if stuck:
            msg = (
                f"poll() of {stuck} of the consumers has not returned for half a minute"
            )
            raise PollTimeoutError(msg)

    def _poll(self, consumer: Any, kept: list[Any]) -> None:  # noqa: ANN401
        try:
            while not self._is_over.is_set():
                for records in consumer.poll(POLL_MS).values():
                    kept.extend(records)
        except Exception as error:  # noqa: BLE001  raised again by whoever waits
            self.errors.append(error)
