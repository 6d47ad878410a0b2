"""
kafka-python, 2.3 and 3.0, and the drop-in for it.
"""

import importlib
from importlib import metadata
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition

from tests.conformance.adapters.refusal import (
    ONE_CONSUMER,
    ONLY_PARTITIONS,
    AbsentError,
)

_ASSIGNORS = {
    "range": ("kafka.coordinator.assignors.range", "RangePartitionAssignor"),
    "cooperative-sticky": (
        "kafka.coordinator.assignors.cooperative_sticky",
        "CooperativeStickyAssignor",
    ),
}


class Adapter:
    """
    One consumer after the other, of ``kafka`` or of ``safeconsumer``.
    """

    def versions(self) -> dict[str, str]:
        return {"kafka-python": metadata.version("kafka-python")}

    def open(self, settings: dict[str, Any]) -> None:
        self._listener = _Listener(self, pausing=settings["pause_on_assign"])
        config = {
            "bootstrap_servers": settings["bootstrap"].split(","),
            "group_id": settings["group"],
            "auto_offset_reset": "earliest",
            "enable_auto_commit": settings["auto_commit"],
            "fetch_max_wait_ms": round(settings["fetch_wait"] * 1000),
            "metadata_max_age_ms": round(settings["metadata_age"] * 1000),
            "retry_backoff_ms": 50,
            "session_timeout_ms": round(settings["session"] * 1000),
            "heartbeat_interval_ms": round(settings["heartbeat"] * 1000),
            "max_poll_interval_ms": round(settings["max_poll_interval"] * 1000),
            "partition_assignment_strategy": [_assignor(settings["protocol"])],
        }
        self.consumer = self.make(config, settings)

    def make(self, config: dict[str, Any], settings: dict[str, Any]) -> KafkaConsumer:
        if settings["carries"]:
            raise AbsentError(ONE_CONSUMER)
        return KafkaConsumer(**config)

    def close(self) -> None:
        self.consumer.close()

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(topics, listener=self._listener)

    def subscribe_pattern(self, pattern: str) -> None:
        self.consumer.subscribe(pattern=pattern, listener=self._listener)

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def assign(self, partitions: list[Any]) -> None:
        self.consumer.assign(_tps(partitions))

    def assignment(self) -> list[Any]:
        return list(self.consumer.assignment())

    def poll(self, timeout: float, limit: int) -> list[Any]:
        batches = self.consumer.poll(timeout * 1000, max_records=limit)
        return [
            (one.topic, one.partition, one.offset)
            for batch in batches.values()
            for one in batch
        ]

    def pause(self, partitions: list[Any]) -> None:
        self.consumer.pause(*_tps(partitions))

    def resume(self, partitions: list[Any]) -> None:
        self.consumer.resume(*_tps(partitions))

    def paused(self) -> list[Any]:
        return list(self.consumer.paused())

    def pause_topic(self, topic: str) -> None:  # noqa: ARG002 - there is no such call
        raise AbsentError(ONLY_PARTITIONS)

    def pause_pattern(self, pattern: str) -> None:  # noqa: ARG002 - nor this one
        raise AbsentError(ONLY_PARTITIONS)

    def pause_all(self) -> None:
        raise AbsentError(ONLY_PARTITIONS)

    def position(self, partition: Any) -> int | None:  # noqa: ANN401 - a JSON pair
        return self.consumer.position(TopicPartition(*partition))

    def seek(self, partition: Any, offset: int) -> None:  # noqa: ANN401 - the same
        self.consumer.seek(TopicPartition(*partition), offset)

    def commit(self) -> None:
        self.consumer.commit()

    def committed(self, partition: Any) -> int | None:  # noqa: ANN401 - a JSON pair
        return self.consumer.committed(TopicPartition(*partition))

    def events(self) -> list[str]:
        return self._listener.taken()


class _Listener(ConsumerRebalanceListener):
    def __init__(self, adapter: Adapter, *, pausing: bool) -> None:
        self._adapter = adapter
        self._pausing = pausing
        self._events: list[str] = []

    def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - upstream's
        self._events.append("assigned")
        if self._pausing:
            self._adapter.pause(list(assigned))

    def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401, ARG002 - upstream's
        self._events.append("revoked")

    def taken(self) -> list[str]:
        taken, self._events = self._events, []
        return taken


def _assignor(name: str) -> type:
    module, kind = _ASSIGNORS[name]
    return getattr(importlib.import_module(module), kind)


def _tps(partitions: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(*one) for one in partitions]
