"""Defines a neutral interface with the same method names for every client."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.outcomes import NotReachedError
from safeconsumer.testing.cases.process import Process

ROUND = 0.1
"""Seconds for which a poll waits for records."""

JOINING = 3.0
"""Seconds for which a poll waits in a rebalance; longer than a rebalance takes.

kafka-python 3.0 forgets a join that outlasts its poll. One case tests that behaviour,
which must not happen in the other cases.
"""

BOUND = 20.0
"""Seconds after which an awaited condition counts as never reached."""

Condition = Callable[[], object]

How = Literal["assigned", "named"]
"""
The objects with which partitions are paused: those that the consumer's own
``assignment()`` returned, or new objects with the same names.
"""


class Record(NamedTuple):
    """The fields of a record that cases compare."""

    tp: TopicPartition
    offset: int


class Consumer:
    """
    A consumer in another process; ``log`` has all its delivered records in order.

    Other method calls are passed to the adapter in that process, see
    :class:`safeconsumer.testing.cases.adapter.Adapter`.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.log: list[Record] = []
        self.is_open = True

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return partial(self.process.call, name)

    def assignment(self) -> set[TopicPartition]:
        """Return the consumer's assignment."""
        return _tps(self.process.call("assignment"))

    def owns(
        self, wanted: Iterable[TopicPartition], what: str, limit: int = 500
    ) -> None:
        """Poll until exactly these partitions are assigned to the consumer."""
        own = set(wanted)
        until([self], lambda: self.assignment() == own, what, JOINING, limit)

    def pause(
        self, partitions: Iterable[TopicPartition], how: How = "assigned"
    ) -> None:
        """Pause partitions."""
        self.process.call("pause", partitions, how)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that the consumer reports as paused."""
        return _tps(self.process.call("paused"))

    def poll(self, timeout: float = ROUND, limit: int = 500) -> list[Record]:
        """Poll once; return at most ``limit`` records."""
        self.begin_poll(timeout, limit)
        return self.end_poll()

    def begin_poll(self, timeout: float = ROUND, limit: int = 500) -> None:
        """Start a poll; :meth:`end_poll` waits for its records."""
        self.process.begin("poll", timeout, limit)

    def end_poll(self) -> list[Record]:
        """Return the records of the poll that was started."""
        return self._logged(self.process.answer("poll"))

    def poll_limited(self, timeout: float = ROUND, limit: int = 500) -> bool:
        """
        Poll once under a time limit; return whether its signal handler raised.

        The handler raises at a point in the poll's code at which it has not raised
        before, until no such point remains.
        """
        is_over, taken = self.process.call("poll_limited", timeout, limit)
        self._logged(taken)
        return bool(is_over)

    def step(self) -> list[Record]:
        """
        Take one step of an iteration; return its record, if any, in a list.

        For a client that is not iterable, poll for one record instead.
        """
        return self._logged(self.process.call("step"))

    def _logged(self, found: list[Any]) -> list[Record]:
        taken = [
            Record(TopicPartition(topic, partition), offset)
            for topic, partition, offset in found
        ]
        self.log += taken
        return taken

    def close(self) -> None:
        """Close the consumer with the client's defaults."""
        self.begin_close()
        self.end_close()

    def begin_close(self) -> None:
        """Start to close the consumer; :meth:`end_close` waits until it is closed."""
        self.is_open = False
        self.process.begin("close")

    def end_close(self) -> None:
        """Wait until the consumer is closed."""
        self.process.answer("close")

    def offsets(self, tp: TopicPartition, since: int = 0) -> list[int]:
        """Return the offsets of a partition's delivered records, in order."""
        return [one.offset for one in self.log[since:] if one.tp == tp]

    def count(self, partitions: Iterable[TopicPartition], since: int = 0) -> int:
        """Count the delivered records of these partitions."""
        wanted = set(partitions)
        return sum(one.tp in wanted for one in self.log[since:])


def until(
    consumers: Sequence[Consumer],
    condition: Condition,
    what: str,
    timeout: float = ROUND,
    limit: int = 500,
) -> None:
    """
    Let all consumers poll at the same time until the condition is met.

    Raises:
        NotReachedError: the condition, described by ``what``, was not met in time.
    """
    if not reaches(consumers, condition, timeout=timeout, limit=limit):
        message = f"{what}: not within {BOUND:g} s"
        raise NotReachedError(message)


def reaches(
    consumers: Sequence[Consumer],
    condition: Condition,
    bound: float = BOUND,
    timeout: float = ROUND,
    limit: int = 500,
) -> bool:
    """Let all consumers poll until a condition is met; return whether it was met in time."""
    deadline = time.monotonic() + bound
    while not condition():
        if time.monotonic() > deadline:
            return False
        for one in consumers:
            one.begin_poll(timeout, limit)
        for one in consumers:
            one.end_poll()
    return True


def _tps(found: list[Any]) -> set[TopicPartition]:
    return {TopicPartition(*one) for one in found}
