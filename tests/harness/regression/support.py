"""What the regression tests share: records, reading in rounds, and waiting with a bound."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import TopicPartition

from tests.harness.waiting import looks, reaches, wait_for

BOUND = 20.0
"""Seconds after which something awaited is taken for something that never comes."""

ROUND = 0.05
"""Seconds that one round of reading waits for records."""

Condition = Callable[[], object]
Offsets = dict[TopicPartition, list[int]]


class Reader:
    """
    Takes records from a consumer in rounds, by ``poll()`` or by iteration.

    ``log`` has every record that the application was given, in order.

    Args:
        consumer: of either client.
        how: "poll" or "iterate".
        patience: seconds that a round lasts while a join is awaited.
    """

    def __init__(
        self,
        consumer: Any,  # noqa: ANN401 - either client
        how: str = "poll",
        patience: float = ROUND,
    ) -> None:
        self.consumer = consumer
        self.how = how
        self.patience = patience
        self.log: list[ConsumerRecord] = []

    def round(self, timeout: float = ROUND, limit: int = 500) -> list[ConsumerRecord]:
        """Read once, for at most ``timeout`` seconds without a record."""
        if self.how == "poll":
            batches = self.consumer.poll(timeout * 1000, max_records=limit)
            taken = [record for batch in batches.values() for record in batch]
            self.log += taken
            return taken
        return self._iterate(timeout, limit)

    def _iterate(self, timeout: float, limit: int) -> list[ConsumerRecord]:
        self.consumer.config["consumer_timeout_ms"] = timeout * 1000
        taken = []
        while len(taken) < limit:
            record = next(self.consumer, None)
            if record is None:
                break
            taken.append(record)
            self.log.append(record)
        return taken

    def rounds(self, count: int, limit: int = 500) -> list[ConsumerRecord]:
        """Read ``count`` rounds; return what they gave."""
        return [record for _ in range(count) for record in self.round(limit=limit)]

    def until(
        self,
        condition: Condition,
        bound: float = BOUND,
        timeout: float = ROUND,
        limit: int = 500,
    ) -> list[ConsumerRecord]:
        """
        Read until the condition holds; return what came meanwhile.

        Raises:
            NotReachedError: it does not hold within ``bound`` seconds.
        """
        taken: list[ConsumerRecord] = []
        assigned = self.consumer.assignment
        for _ in looks(condition, f"{condition}", bound, seen=assigned):
            taken += self.round(timeout, limit)
        return taken

    def until_joined(self, condition: Condition) -> list[ConsumerRecord]:
        """Read until a join that nobody's heartbeat asked for has come about."""
        return self.until(condition, timeout=self.patience, limit=1)

    def reaches(self, condition: Condition, bound: float = BOUND) -> bool:
        """
        Read until the condition holds, and tell whether it did within the bound.

        For what the test asserts; :meth:`until` is for what it needs first.
        """
        return reaches(condition, bound, self.round)

    def take(self, count: int, bound: float = BOUND) -> list[ConsumerRecord]:
        """Read exactly ``count`` records."""
        taken: list[ConsumerRecord] = []

        def is_all() -> bool:
            return len(taken) >= count

        for _ in looks(is_all, f"{count} records", bound, seen=taken.__len__):
            taken.extend(self.round(limit=count - len(taken)))
        return taken

    def owns(self, partitions: Iterable[TopicPartition]) -> Condition:
        """Return the condition that exactly these partitions are assigned."""
        wanted = set(partitions)
        return lambda: self.consumer.assignment() == wanted

    def drain(
        self, expected: Mapping[TopicPartition, Iterable[int]], bound: float = BOUND
    ) -> None:
        """
        Read until the expected offsets came; assert that they came once, in order.

        Also that nothing else came of these partitions, and where they stand now.
        """
        wanted = {tp: list(offsets) for tp, offsets in expected.items()}
        total = sum(map(len, wanted.values()))
        start = len(self.log)

        def missing() -> int:
            return total - _count(self.log[start:], wanted)

        def turn() -> None:
            # Iteration would wait for silence after the last record of a round.
            self.round(limit=500 if self.how == "poll" else missing())

        reaches(lambda: missing() <= 0, bound, turn)
        assert offsets_of(self.log[start:], wanted) == wanted
        ends = {tp: offsets[-1] + 1 for tp, offsets in wanted.items() if offsets}
        assert {tp: self.consumer.position(tp) for tp in ends} == ends


def _count(records: Iterable[ConsumerRecord], among: Iterable[TopicPartition]) -> int:
    wanted = set(among)
    return sum(partition_of(record) in wanted for record in records)


def partition_of(record: ConsumerRecord) -> TopicPartition:
    """Return the partition that a record is of."""
    return TopicPartition(record.topic, record.partition)


def offsets_of(
    records: Iterable[ConsumerRecord], partitions: Iterable[TopicPartition]
) -> Offsets:
    """Return the offsets of these partitions' records, in the order of delivery."""
    found: Offsets = {tp: [] for tp in partitions}
    for record in records:
        if partition_of(record) in found:
            found[partition_of(record)].append(record.offset)
    return found


def delivered(
    records: Iterable[ConsumerRecord], partitions: Iterable[TopicPartition]
) -> int:
    """Count the records of these partitions."""
    return _count(records, partitions)


def positions(
    consumer: Any,  # noqa: ANN401 - either client
    partitions: Iterable[TopicPartition],
) -> dict[TopicPartition, int | None]:
    """Return where the consumer stands in each partition."""
    return {tp: consumer.position(tp, timeout_ms=5000) for tp in partitions}


def wait_until(condition: Condition, bound: float = BOUND) -> None:
    """
    Wait for a condition that other threads bring about.

    Raises:
        NotReachedError: it does not hold within ``bound`` seconds.
    """
    wait_for(condition, f"{condition}", bound)
