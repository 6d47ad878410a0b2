"""The neutral interface: what every client can do, in the same words."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.outcomes import NotReachedError
from safeconsumer.testing.cases.process import Process

ROUND = 0.1
"""Seconds that a poll waits for records."""

JOINING = 3.0
"""Seconds that a poll waits in a rebalance: longer than one takes.

kafka-python 3.0 forgets a join that outlasts its poll; one case is about that, and in
all others it must not happen to it.
"""

BOUND = 20.0
"""Seconds after which something awaited is taken for something that never comes."""

Condition = Callable[[], object]

How = Literal["assigned", "named"]
"""
How partitions are paused: the objects that the consumer's own ``assignment()`` returned,
or others that are made of their names.
"""


class Record(NamedTuple):
    """What is compared of a record."""

    tp: TopicPartition
    offset: int


class Consumer:
    """A consumer in another process. ``log`` has every record it gave, in order."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.log: list[Record] = []
        self.is_open = True

    def subscribe(self, *topics: str) -> None:
        """Subscribe to topics."""
        self.process.call("subscribe", topics=topics)

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to the topics that match, present and future ones."""
        self.process.call("subscribe_pattern", pattern=pattern)

    def unsubscribe(self) -> None:
        """Subscribe to nothing."""
        self.process.call("unsubscribe")

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Assign partitions by hand."""
        self.process.call("assign", partitions=list(partitions))

    def assignment(self) -> set[TopicPartition]:
        """Return what is assigned to it."""
        return _tps(self.process.call("assignment"))

    def poll(self, timeout: float = ROUND, limit: int = 500) -> list[Record]:
        """Read once; return at most ``limit`` records."""
        self.begin_poll(timeout, limit)
        return self.end_poll()

    def begin_poll(self, timeout: float = ROUND, limit: int = 500) -> None:
        """Let it begin to read; :meth:`end_poll` waits for the records."""
        self.process.begin("poll", timeout=timeout, limit=limit)

    def end_poll(self) -> list[Record]:
        """Return what the poll that was begun gave."""
        return self._logged(self.process.answer("poll"))

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

    def pause(
        self, partitions: Iterable[TopicPartition], how: How = "assigned"
    ) -> None:
        """Pause partitions."""
        self.process.call("pause", partitions=list(partitions), how=how)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Resume partitions."""
        self.process.call("resume", partitions=list(partitions))

    def paused(self) -> set[TopicPartition]:
        """Return what it calls paused."""
        return _tps(self.process.call("paused"))

    def pause_topic(self, topic: str) -> None:
        """Pause a topic."""
        self.process.call("pause_topic", topic=topic)

    def pause_pattern(self, pattern: str) -> None:
        """Pause the topics that match, present and future ones."""
        self.process.call("pause_pattern", pattern=pattern)

    def pause_all(self) -> None:
        """Pause whatever is assigned, now and later."""
        self.process.call("pause_all")

    def resume_topic(self, topic: str) -> None:
        """Resume a topic."""
        self.process.call("resume_topic", topic=topic)

    def resume_pattern(self, pattern: str) -> None:
        """Resume the topics that match."""
        self.process.call("resume_pattern", pattern=pattern)

    def resume_all(self) -> None:
        """Resume whatever :meth:`pause_all` paused."""
        self.process.call("resume_all")

    def position(self, tp: TopicPartition) -> int | None:
        """Return the offset of the next record."""
        position: int | None = self.process.call("position", partition=tp)
        return position

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at this offset."""
        self.process.call("seek", partition=tp, offset=offset)

    def commit(self) -> None:
        """Commit where it is."""
        self.process.call("commit")

    def committed(self, tp: TopicPartition) -> int | None:
        """Return what its group committed."""
        committed: int | None = self.process.call("committed", partition=tp)
        return committed

    def events(self) -> list[str]:
        """Return what the group gave and took since the last call: "assigned", "revoked"."""
        events: list[str] = self.process.call("events")
        return events

    def cpu(self) -> float:
        """Return the seconds of CPU that its process has used."""
        seconds: float = self.process.call("cpu")
        return seconds

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

    def has_more_than(self, count: int) -> bool:
        """Tell whether it gave more than ``count`` records, of whatever partition."""
        return len(self.log) > count

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
        NotReachedError: it does not, within the bound; ``what`` names it.
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
    """Let all of them poll until the condition holds, and tell whether it did in time."""
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
