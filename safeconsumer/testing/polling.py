"""Polls several consumers at the same time, as separate programs would."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# Each consumer polls on a separate thread, because a consumer that waited for its turn
# would keep the others from joining. With shorter polls, a join could take longer than
# one poll, and kafka-python 3.0 would forget the join.
POLL_MS = 500
_CHECK_EVERY = 0.01
# seconds after which a poll counts as stuck, for example in a rebalance listener
_LONGEST_POLL = 30.0


class PollTimeoutError(AssertionError):
    """The awaited condition was not met in time; the message contains its description."""


def poll_until(
    consumers: Any,  # noqa: ANN401 - kafka-python is untyped
    condition: Callable[[], object],
    *,
    silently: Any = (),  # noqa: ANN401 - kafka-python is untyped
    awaited: str = "the condition",
    timeout: float = 30.0,
) -> list[Any]:
    """
    Poll consumers until a condition is met; return the polled records.

    The call returns only when no thread polls any more, up to half a second after the
    condition is met.

    Args:
        consumers: one or several kafka-python consumers; no other thread may poll
            these.
        condition: called about 100 times a second.
        silently: additional consumers to poll, whose records are not returned.
        awaited: a description of the condition, for the error message.
        timeout: the maximum wait in seconds.

    Raises:
        PollTimeoutError: the condition was not met in time, or a consumer's ``poll()``
            did not return within half a minute after polling was stopped.
        TypeError: an argument is not a consumer, or the condition is not callable.
        Exception: a consumer's ``poll()`` raised this exception.
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


def consumers_of(given: Any) -> tuple[Any, ...]:  # noqa: ANN401 - kafka-python is untyped
    """
    Return the given consumer or consumers as a tuple.

    Raises:
        TypeError: an argument is not a consumer.
    """
    # A consumer is itself iterable (over its records), so check for a consumer first.
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
    """Polls each consumer on a separate thread until :meth:`end`."""

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
        except Exception as error:  # noqa: BLE001  poll_until() raises it again
            self.errors.append(error)
