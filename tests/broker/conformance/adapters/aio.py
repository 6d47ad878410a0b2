"""aiokafka: its event loop runs on a thread of its own, as it does in an application."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from safeconsumer.testing.cases.outcomes import (
    ONE_CONSUMER,
    ONLY_PARTITIONS,
    AbsentError,
)

_TIMEOUT = 10.0
LIMITS = 200
LIMIT_STEP = 0.0002
"""
Seconds: so much longer is each time limit than the one before.
"""
_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
}


class Adapter:
    """One consumer after the other, all on one loop."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def open(self, settings: dict[str, Any]) -> None:
        if settings["carries"]:
            raise AbsentError(ONE_CONSUMER)
        self._listener = _Listener(self, settings)
        self._limited = 0
        self._await(self._open, settings)

    async def _open(self, settings: dict[str, Any]) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=settings["bootstrap"],
            group_id=settings["group"],
            auto_offset_reset="earliest",
            enable_auto_commit=settings["auto_commit"],
            fetch_max_wait_ms=round(settings["fetch_wait"] * 1000),
            metadata_max_age_ms=round(settings["metadata_age"] * 1000),
            retry_backoff_ms=50,
            session_timeout_ms=round(settings["session"] * 1000),
            heartbeat_interval_ms=round(settings["heartbeat"] * 1000),
            max_poll_interval_ms=round(settings["max_poll_interval"] * 1000),
            partition_assignment_strategy=[_ASSIGNORS[settings["protocol"]]],
        )
        await self.consumer.start()

    def close(self) -> None:
        self._await(self.consumer.stop)

    def subscribe(self, *topics: str) -> None:
        self._call(self.consumer.subscribe, list(topics), listener=self._listener)

    def subscribe_pattern(self, pattern: str) -> None:
        self._call(self.consumer.subscribe, pattern=pattern, listener=self._listener)

    def unsubscribe(self) -> None:
        self._call(self.consumer.unsubscribe)

    def assign(self, partitions: list[Any]) -> None:
        self._call(self.consumer.assign, _tps(partitions))

    def assignment(self) -> list[Any]:
        return list(self._call(self.consumer.assignment))

    def poll(self, timeout: float, limit: int) -> list[Any]:
        return self._await(self._getmany, timeout, limit)

    async def _getmany(self, seconds: float, limit: int) -> list[Any]:
        batches = await self.consumer.getmany(
            timeout_ms=round(seconds * 1000), max_records=limit
        )
        return [
            (one.topic, one.partition, one.offset)
            for batch in batches.values()
            for one in batch
        ]

    def poll_limited(self, timeout: float, limit: int) -> tuple[bool, list[Any]]:
        """Cancel it after a longer time each time, as time limits do in asyncio."""
        self._limited += 1

        async def limited() -> list[Any]:
            try:
                return await asyncio.wait_for(
                    self._getmany(timeout, limit), self._limited * LIMIT_STEP
                )
            except TimeoutError:
                return []

        return self._limited < LIMITS, self._await(limited)

    def step(self) -> list[Any]:  # it cannot be iterated over
        return self.poll(0.1, 1)

    def pause(self, partitions: list[Any], how: str = "named") -> None:  # noqa: ARG002 - all are alike
        self._call(self.consumer.pause, *_tps(partitions))

    def resume(self, partitions: list[Any]) -> None:
        self._call(self.consumer.resume, *_tps(partitions))

    def paused(self) -> list[Any]:
        return list(self._call(self.consumer.paused))

    def pause_the_rest(self, topic: str) -> None:
        async def rest() -> None:
            found = self.consumer.assignment() - self.consumer.paused()
            self.consumer.pause(*(tp for tp in found if tp.topic == topic))

        self._await(rest)

    def pause_by_another(self, partitions: list[Any]) -> None:
        self.pause(partitions)

    def pause_topic_by_another(self, topic: str) -> None:  # noqa: ARG002 - no such call
        raise AbsentError(ONLY_PARTITIONS)

    def pause_topic(self, topic: str) -> None:  # noqa: ARG002 - there is no such call
        raise AbsentError(ONLY_PARTITIONS)

    def pause_pattern(self, pattern: str) -> None:  # noqa: ARG002 - nor this one
        raise AbsentError(ONLY_PARTITIONS)

    def pause_all(self) -> None:
        raise AbsentError(ONLY_PARTITIONS)

    def resume_topic(self, topic: str) -> None:  # noqa: ARG002 - there is no such call
        raise AbsentError(ONLY_PARTITIONS)

    def resume_pattern(self, pattern: str) -> None:  # noqa: ARG002 - nor this one
        raise AbsentError(ONLY_PARTITIONS)

    def resume_all(self) -> None:
        raise AbsentError(ONLY_PARTITIONS)

    def position(self, partition: Any) -> int | None:  # noqa: ANN401 - a JSON pair
        return self._await(self.consumer.position, TopicPartition(*partition))

    def seek(self, partition: Any, offset: int) -> None:  # noqa: ANN401 - the same
        self._call(self.consumer.seek, TopicPartition(*partition), offset)

    def commit(self) -> None:
        self._await(self.consumer.commit)

    def committed(self, partition: Any) -> int | None:  # noqa: ANN401 - a JSON pair
        return self._await(self.consumer.committed, TopicPartition(*partition))

    def events(self) -> list[str]:
        return self._listener.taken()

    def _call(self, call: Callable[..., Any], *args: object, **named: object) -> Any:  # noqa: ANN401 - the call's
        async def on_the_loop() -> Any:  # noqa: ANN401 - the call's
            return call(*args, **named)

        return self._await(on_the_loop)

    def _await(self, call: Callable[..., Any], *args: object, **named: object) -> Any:  # noqa: ANN401 - the call's
        async def in_time() -> Any:  # noqa: ANN401 - the call's
            return await asyncio.wait_for(call(*args, **named), _TIMEOUT)

        return asyncio.run_coroutine_threadsafe(in_time(), self._loop).result()


class _Listener(ConsumerRebalanceListener):
    def __init__(self, adapter: Adapter, settings: dict[str, Any]) -> None:
        self._adapter = adapter
        self._is_pausing = settings["pause_on_assign"]
        self._is_pausing_the_rest = settings["pause_the_rest_on_assign"]
        self._events: list[str] = []

    def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - aiokafka's
        self._events.append("assigned")
        consumer = self._adapter.consumer
        if self._is_pausing:
            consumer.pause(*assigned)
        if self._is_pausing_the_rest:
            consumer.pause(*(set(assigned) - consumer.paused()))

    def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401, ARG002 - aiokafka's
        self._events.append("revoked")

    def taken(self) -> list[str]:
        taken, self._events = self._events, []
        return taken


def _tps(partitions: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(*one) for one in partitions]
