"""The neutral interface: the calls of every client, under the same names."""

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.outcomes import NotReachedError
from safeconsumer.testing.cases.process import Process

ROUND = 0.1
"""Seconds that a poll waits for records."""

JOINING = 3.0
"""Seconds that a poll waits in a rebalance: longer than one takes.

kafka-python 3.0 forgets a join that outlasts its poll; one case tests that, and it must
not happen in the others.
"""

BOUND = 20.0
"""Seconds after which an awaited condition counts as never reached."""

Condition = Callable[[], object]

How = Literal["assigned", "named"]
"""
How partitions are paused: the objects that the consumer's own ``assignment()`` returned,
or others that are made of their names.
"""


class Record(NamedTuple):
    """The parts of a record that are compared."""

    tp: TopicPartition
    offset: int


class Consumer:
    """
    A consumer in another process; ``log`` has every record that it returned, in order.

    Its other calls are those of the adapter in that process: see
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
        """Return its assignment."""
        return _tps(self.process.call("assignment"))

    def owns(
        self, wanted: Iterable[TopicPartition], what: str, limit: int = 500
    ) -> None:
        """Read until exactly these partitions are assigned to it."""
        own = set(wanted)
        until([self], lambda: self.assignment() == own, what, JOINING, limit)

    def pause(
        self, partitions: Iterable[TopicPartition], how: How = "assigned"
    ) -> None:
        """Pause partitions."""
        self.process.call("pause", partitions, how)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that it names as paused."""
        return _tps(self.process.call("paused"))

    def poll(self, timeout: float = ROUND, limit: int = 500) -> list[Record]:
        """Read once; return at most ``limit`` records."""
        self.begin_poll(timeout, limit)
        return self.end_poll()

    def begin_poll(self, timeout: float = ROUND, limit: int = 500) -> None:
        """Let it begin to read; :meth:`end_poll` waits for the records."""
        self.process.begin("poll", timeout, limit)

    def end_poll(self) -> list[Record]:
        """Return the records of the poll that was begun."""
        return self._logged(self.process.answer("poll"))

    def poll_limited(self, timeout: float = ROUND, limit: int = 500) -> bool:
        """
        Read once while a time limit's signal handler raises; return whether it did.

        The handler raises at a place of the poll where it has not raised before, if any.
        """
        is_over, taken = self.process.call("poll_limited", timeout, limit)
        self._logged(taken)
        return bool(is_over)

    def step(self) -> list[Record]:
        """
        Take one step of an iteration; return its record, or none if none comes.

        A client that cannot be iterated over polls for one record.
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
        """Close it as the client does by default."""
        self.begin_close()
        self.end_close()

    def begin_close(self) -> None:
        """Let it begin to close; :meth:`end_close` waits for the end."""
        self.is_open = False
        self.process.begin("close")

    def end_close(self) -> None:
        """Wait until it is closed."""
        self.process.answer("close")

    def offsets(self, tp: TopicPartition, since: int = 0) -> list[int]:
        """Return the offsets that came of a partition, in order."""
        return [one.offset for one in self.log[since:] if one.tp == tp]

    def count(self, partitions: Iterable[TopicPartition], since: int = 0) -> int:
        """Count the records that came of these partitions."""
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
    Let all of them poll, at the same time, until the condition holds.

    Raises:
        NotReachedError: the condition, named ``what``, does not hold in time.
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
    """Let all of them poll until the condition holds; return whether it did in time."""
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
