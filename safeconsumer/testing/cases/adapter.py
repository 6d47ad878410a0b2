"""Adapts any consumer class with kafka-python's methods to the cases."""

import importlib
import inspect
import re
from collections.abc import Iterable
from types import FrameType
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition

from safeconsumer.testing.cases.limits import Limit
from safeconsumer.testing.cases.member import found
from safeconsumer.testing.cases.outcomes import (
    ONE_CONSUMER,
    ONLY_PARTITIONS,
    AbsentError,
)

_STEP_MS = 100

_ASSIGNORS = {
    "range": ("kafka.coordinator.assignors.range", "RangePartitionAssignor"),
    "cooperative-sticky": (
        "kafka.coordinator.assignors.cooperative_sticky",
        "CooperativeStickyAssignor",
    ),
}


class Adapter:
    """
    Creates one consumer after another, all of the same class.

    Args:
        consumer: the class as ``module:Class``, or a function that takes the same keys.
    """

    consumer: Any

    def __init__(self, consumer: str) -> None:
        self._make = found(consumer)

    def open(self, settings: dict[str, Any]) -> None:
        """Create the consumer that all other calls use."""
        self._listener = _Listener(self, settings)
        self._limit = Limit(self._may_hit)
        config = {
            "bootstrap_servers": settings["bootstrap"].split(","),
            "group_id": settings["group"],
            "auto_offset_reset": "earliest",
            "enable_auto_commit": settings["auto_commit"],
            "consumer_timeout_ms": _STEP_MS,
            "fetch_max_wait_ms": round(settings["fetch_wait"] * 1000),
            "metadata_max_age_ms": round(settings["metadata_age"] * 1000),
            "retry_backoff_ms": 50,
            "session_timeout_ms": round(settings["session"] * 1000),
            "heartbeat_interval_ms": round(settings["heartbeat"] * 1000),
            "max_poll_interval_ms": round(settings["max_poll_interval"] * 1000),
            "partition_assignment_strategy": [_assignor(settings["protocol"])],
        }
        if settings["api_version"]:
            config["api_version"] = tuple(settings["api_version"])
        if settings["carries"]:
            config.update(self._carrying())
        self.consumer = self._make(**config)

    def _carrying(self) -> dict[str, str]:
        if "pause_handover" not in inspect.signature(self._make).parameters:
            raise AbsentError(ONE_CONSUMER)
        return {"pause_handover": "assignor"}

    def close(self) -> None:
        """Close the consumer with the client's defaults."""
        self.consumer.close()

    def subscribe(self, *topics: str) -> None:
        """Subscribe to topics."""
        self.consumer.subscribe(list(topics), listener=self._listener)

    def subscribe_pattern(self, pattern: str) -> None:
        """Subscribe to the topics that match a pattern."""
        self.consumer.subscribe(pattern=pattern, listener=self._listener)

    def unsubscribe(self) -> None:
        """Unsubscribe from all topics."""
        self.consumer.unsubscribe()

    def assign(self, partitions: list[Any]) -> None:
        """Assign partitions manually."""
        self.consumer.assign(_tps(partitions))

    def assignment(self) -> list[Any]:
        """Return the consumer's assignment."""
        return list(self.consumer.assignment())

    def poll(self, timeout: float, limit: int) -> list[Any]:
        """Poll once; return the topic, partition and offset of each record."""
        return _rows(self.consumer.poll(timeout * 1000, max_records=limit))

    def poll_limited(self, timeout: float, limit: int) -> tuple[bool, list[Any]]:
        """
        Poll once under a time limit; return whether it ended the poll, and any records.

        The limit interrupts each such poll at a new point in the code.
        """
        batches: dict[Any, Any] = {}

        def poll() -> None:
            nonlocal batches
            batches = self.consumer.poll(timeout * 1000, max_records=limit)

        return self._limit.ends(poll), _rows(batches)

    def _may_hit(self, _: FrameType) -> bool:
        return True

    def step(self) -> list[Any]:
        """Take one iteration step; return the record's topic, partition and offset."""
        if not hasattr(self.consumer, "__next__"):
            return self.poll(_STEP_MS / 1000, 1)
        some = [one for one in [next(self.consumer, None)] if one is not None]
        return [(one.topic, one.partition, one.offset) for one in some]

    def pause(self, partitions: list[Any], how: str = "named") -> None:
        """Pause partitions, with new objects or with those that ``assignment()`` returned."""
        wanted = _tps(partitions)
        if how == "assigned":
            assigned = {tp: tp for tp in self.consumer.assignment()}
            wanted = [assigned.get(tp, tp) for tp in wanted]
        self.consumer.pause(*wanted)

    def resume(self, partitions: list[Any]) -> None:
        """Resume partitions."""
        self.consumer.resume(*_tps(partitions))

    def paused(self) -> list[Any]:
        """Return the partitions that the consumer reports as paused."""
        return list(self.consumer.paused())

    def pause_the_rest(self, topic: str) -> None:
        """Pause those assigned partitions of a topic that are not in paused()."""
        rest = self.consumer.assignment() - self.consumer.paused()
        self.consumer.pause(*(tp for tp in rest if tp.topic == topic))

    def pause_by_another(self, partitions: list[Any]) -> None:
        """Pause partitions as another owner, if the class supports owners."""
        self.consumer.pause(*_tps(partitions), **self._another_owner())

    def pause_topic_by_another(self, topic: str) -> None:
        """Pause a topic as another owner."""
        self._taking_more_than_partitions().pause(topic, **self._another_owner())

    def resume_topic_by_another(self, topic: str) -> None:
        """Resume a topic that another owner has paused."""
        self._taking_more_than_partitions().resume(topic, **self._another_owner())

    def _another_owner(self) -> dict[str, str]:
        knows = "owner" in inspect.signature(self.consumer.pause).parameters
        return {"owner": "operator"} if knows else {}

    def pause_topic(self, topic: str) -> None:
        """Pause a topic."""
        self._taking_more_than_partitions().pause(topic)

    def pause_pattern(self, pattern: str) -> None:
        """Pause the topics that match a pattern."""
        self._taking_more_than_partitions().pause(re.compile(pattern))

    def pause_all(self) -> None:
        """Pause all partitions, even those that are assigned later."""
        self._taking_more_than_partitions().pause_all()

    def resume_topic(self, topic: str) -> None:
        """Resume a topic."""
        self._taking_more_than_partitions().resume(topic)

    def resume_pattern(self, pattern: str) -> None:
        """Resume the topics that match a pattern."""
        self._taking_more_than_partitions().resume(re.compile(pattern))

    def resume_all(self) -> None:
        """End :meth:`pause_all`."""
        self._taking_more_than_partitions().resume_all()

    def _taking_more_than_partitions(self) -> Any:  # noqa: ANN401  any consumer
        if not hasattr(self.consumer, "pause_all"):
            raise AbsentError(ONLY_PARTITIONS)
        return self.consumer

    def position(self, partition: Any) -> int | None:  # noqa: ANN401  a JSON pair
        """Return the position of a partition."""
        position: int | None = self.consumer.position(TopicPartition(*partition))
        return position

    def seek(self, partition: Any, offset: int) -> None:  # noqa: ANN401  a JSON pair
        """Set the position of a partition."""
        self.consumer.seek(TopicPartition(*partition), offset)

    def commit(self) -> None:
        """Commit the positions."""
        self.consumer.commit()

    def committed(self, partition: Any) -> int | None:  # noqa: ANN401  a JSON pair
        """Return the committed offset of a partition."""
        committed: int | None = self.consumer.committed(TopicPartition(*partition))
        return committed

    def events(self) -> list[str]:
        """Return the calls to the rebalance listener since the last call of this method."""
        return self._listener.taken()


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python is untyped
    def __init__(self, adapter: Adapter, settings: dict[str, Any]) -> None:
        self._adapter = adapter
        self._is_pausing = settings["pause_on_assign"]
        self._is_pausing_the_rest = settings["pause_the_rest_on_assign"]
        self._events: list[str] = []

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._events.append("assigned")
        if self._is_pausing:
            self._adapter.pause(list(assigned))
        if self._is_pausing_the_rest:
            paused = self._adapter.consumer.paused()
            self._adapter.pause([tp for tp in assigned if tp not in paused])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:  # noqa: ARG002  upstream's
        self._events.append("revoked")

    def taken(self) -> list[str]:
        taken, self._events = self._events, []
        return taken


def _assignor(name: str) -> Any:  # noqa: ANN401  a class of kafka-python
    module, kind = _ASSIGNORS[name]
    return getattr(importlib.import_module(module), kind)


def _rows(batches: Any) -> list[Any]:  # noqa: ANN401  records by partition
    return [
        (one.topic, one.partition, one.offset)
        for batch in batches.values()
        for one in batch
    ]


def _tps(partitions: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(*one) for one in partitions]
