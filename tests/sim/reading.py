"""A consumer that the test polls itself, and what a test asks about it."""

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest
from kafka import (
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    KafkaConsumer,
    TopicPartition,
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from tests.sim.lab import GROUP, Lab
from tests.sim.world import NotYetError

EAGER, COOPERATIVE = RangePartitionAssignor, CooperativeStickyAssignor

both_ways = pytest.mark.parametrize("how", ["poll", "iterate"])
both_protocols = pytest.mark.parametrize(
    "assignor", [EAGER, COOPERATIVE], ids=["eager", "cooperative"]
)


def known(reason: str) -> pytest.MarkDecorator:
    """
    Mark what kafka-python's own consumer fails.

    If it no longer does, what works around that can go: see its table in design/.
    """
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=reason)


def stock_fails(reason: str) -> pytest.MarkDecorator:
    """Play a test with both clients; kafka-python's own fails it."""
    both = [
        pytest.param(SafeConsumer, id="ours"),
        pytest.param(KafkaConsumer, id="stock", marks=known(reason)),
    ]
    return pytest.mark.parametrize("kind", both)


def at(offset: int) -> OffsetAndMetadata:
    """Return what is committed for an offset."""
    return OffsetAndMetadata(offset, "", -1)


class Listener(ConsumerRebalanceListener):
    """Calls functions, each with the set of partitions."""

    def __init__(
        self,
        assigned: Callable[[set[TopicPartition]], object] = len,
        revoked: Callable[[set[TopicPartition]], object] = len,
        lost: Callable[[set[TopicPartition]], object] | None = None,
    ) -> None:
        self._assigned, self._revoked = assigned, revoked
        self._lost = lost or revoked

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self._assigned(set(assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self._revoked(set(revoked))

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        self._lost(set(lost))


class Awaiting(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """Awaits what a function returns, before the member rejoins."""

    def __init__(self, revoked: Callable[[set[TopicPartition]], Any]) -> None:
        self._revoked = revoked
        self.answered = 0

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        await self._revoked(set(revoked))
        self.answered += 1

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Nothing to do."""


class Reader:
    """
    Polls a consumer in the test's own thread, and keeps all that it gave.

    Args:
        lab: where.
        kind: a class of consumers.
        topics: what it subscribes to.
        tps: what is assigned to it by hand instead.
        how: "poll" or "iterate".
        assignor: how its group shares partitions.
        settings: Kafka's own.

    Attributes:
        consumer: the consumer.
        log: its records, in order.
    """

    def __init__(
        self,
        lab: Lab,
        kind: Any,  # noqa: ANN401 - a class of consumers
        *topics: str,
        tps: Iterable[TopicPartition] = (),
        how: str = "poll",
        assignor: type = EAGER,
        **settings: Any,  # noqa: ANN401 - Kafka's own
    ) -> None:
        self.lab = lab
        self.how = how
        self.log: list[Any] = []
        base = {
            "group_id": None if tps else GROUP,
            "client_id": "reader",
            "partition_assignment_strategy": [assignor],
        }
        self.consumer = kind(*topics, **lab.settings(**{**base, **settings}))
        if tps:
            self.consumer.assign(list(tps))

    def poll(self, seconds: float = 0.1, limit: int = 500) -> list[Any]:
        """Read once; return what came."""
        if self.how == "poll":
            batches = self.consumer.poll(seconds * 1000, max_records=limit)
            taken = [one for batch in batches.values() for one in batch]
        else:
            taken = self._iterated(seconds, limit)
        self.log += taken
        return taken

    def _iterated(self, seconds: float, limit: int) -> list[Any]:
        self.consumer.config["consumer_timeout_ms"] = seconds * 1000
        taken: list[Any] = []
        while len(taken) < limit:
            record = next(self.consumer, None)
            if record is None:
                break
            taken.append(record)
        return taken

    def until(
        self,
        condition: Callable[[], Any],
        seconds: float = 30.0,
        limit: int = 500,
        each: float = 0.1,
    ) -> None:
        """
        Read until a condition is true.

        Args:
            condition: it is asked before each round.
            seconds: virtual seconds until this has failed.
            limit: how many records a round gives at most.
            each: virtual seconds that a round waits for records.

        Raises:
            NotYetError: it did not become true in time.
        """
        end = self.lab.now + seconds
        while not condition():
            if self.lab.now > end:
                text = f"not within {seconds:g} virtual seconds; it owns "
                raise NotYetError(text + f"{self.consumer.assignment()}")
            self.poll(each, limit)

    def owns(self, tps: Iterable[TopicPartition], **more: Any) -> None:  # noqa: ANN401 - as until()
        """Read until exactly these are assigned."""
        wanted = set(tps)
        self.until(lambda: self.consumer.assignment() == wanted, **more)

    def take(self, count: int) -> list[Any]:
        """Read exactly so many records more."""
        start, end = len(self.log), self.lab.now + 30
        while (missing := start + count - len(self.log)) > 0:
            assert self.lab.now < end, f"{missing} of {count} records never came"
            self.poll(limit=missing)
        return self.log[start:]

    def reads(self, tp: TopicPartition, offsets: Iterable[int]) -> None:
        """Read until so many records came of a partition, and assert which."""
        wanted, start = list(offsets), len(self.log)
        self.until(lambda: len(self.offsets(tp, start)) >= len(wanted))
        assert self.offsets(tp, start) == wanted

    def is_silent(
        self, *, of: Iterable[TopicPartition] | None = None, seconds: float = 5.0
    ) -> None:
        """Read for a time, and assert that nothing came of these partitions, or at all."""
        start, end = len(self.log), self.lab.now + seconds
        while self.lab.now < end:
            self.poll(1.0)
        tps = None if of is None else set(of)
        came = [one for one in self.log[start:] if tps is None or _tp(one) in tps]
        assert came == []

    def offsets(self, tp: TopicPartition, since: int = 0) -> list[int]:
        return [one.offset for one in self.log[since:] if _tp(one) == tp]


def _tp(record: Any) -> TopicPartition:  # noqa: ANN401 - kafka-python's
    return TopicPartition(record.topic, record.partition)
