"""confluent-kafka, which is librdkafka: its two kinds of classic protocol, and KIP-848."""

import signal
import time
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from safeconsumer.testing.cases.limits import TimeLimitError
from safeconsumer.testing.cases.outcomes import (
    ONE_CONSUMER,
    ONLY_PARTITIONS,
    AbsentError,
)

_TIMEOUT = 10.0
NO_PAUSED = "no call tells what is paused"
LIMITS = 200
LIMIT_STEP = 0.0002
"""
Seconds: so much longer is each time limit than the one before.
"""


class Adapter:
    """One consumer after the other."""

    def open(self, settings: dict[str, Any]) -> None:
        if settings["carries"]:
            raise AbsentError(ONE_CONSUMER)
        self._incremental = settings["protocol"] != "range"
        self._pausing = settings["pause_on_assign"]
        self._limited = 0
        if settings["pause_the_rest_on_assign"]:
            raise AbsentError(NO_PAUSED)
        self._events: list[str] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": settings["bootstrap"],
                # There must be one, also where it is not used.
                "group.id": settings["group"] or f"none-{time.monotonic_ns()}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": settings["auto_commit"],
                "fetch.wait.max.ms": round(settings["fetch_wait"] * 1000),
                "topic.metadata.refresh.interval.ms": round(
                    settings["metadata_age"] * 1000
                ),
                "max.poll.interval.ms": round(settings["max_poll_interval"] * 1000),
                **_protocol(settings),
            }
        )

    def close(self) -> None:
        self.consumer.close()

    def subscribe(self, *topics: str) -> None:
        self.consumer.subscribe(
            list(topics),
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._revoked,
        )

    def subscribe_pattern(self, pattern: str) -> None:
        self.subscribe(f"^{pattern}")

    def unsubscribe(self) -> None:
        self.consumer.unsubscribe()

    def assign(self, partitions: list[Any]) -> None:
        self.consumer.assign(_tps(partitions))

    def assignment(self) -> list[Any]:
        return [(one.topic, one.partition) for one in self.consumer.assignment()]

    def poll(self, timeout: float, limit: int) -> list[Any]:
        """
        Wait for the first record, and take what is there besides.

        An error in its place is what librdkafka has to tell, such as a topic that is
        not there yet; applications log it and go on.
        """
        taken: list[Any] = []
        one = self.consumer.poll(timeout)
        while one is not None:
            if one.error():
                self._events.append(f"told {one.error().name()}")
            else:
                taken.append((one.topic(), one.partition(), one.offset()))
            if len(taken) == limit:
                break
            one = self.consumer.poll(0)
        return taken

    def poll_limited(self, timeout: float, limit: int) -> tuple[bool, list[Any]]:  # noqa: ARG002 - it gives one
        """Let a signal handler raise after a longer time each time: C has no places."""
        self._limited += 1
        one = None
        before = signal.signal(signal.SIGALRM, _raise)
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, self._limited * LIMIT_STEP)
                one = self.consumer.poll(timeout)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeLimitError:
            pass
        finally:
            signal.signal(signal.SIGALRM, before)
        is_record = one is not None and not one.error()
        taken = [(one.topic(), one.partition(), one.offset())] if is_record else []
        return self._limited < LIMITS, taken

    def step(self) -> list[Any]:  # it cannot be iterated over
        return self.poll(0.1, 1)

    def pause(self, partitions: list[Any], how: str = "named") -> None:  # noqa: ARG002 - all are alike
        self.consumer.pause(_tps(partitions))

    def resume(self, partitions: list[Any]) -> None:
        self.consumer.resume(_tps(partitions))

    def paused(self) -> list[Any]:
        raise AbsentError(NO_PAUSED)

    def pause_the_rest(self, topic: str) -> None:  # noqa: ARG002 - there is no such call
        raise AbsentError(NO_PAUSED)

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
        (found,) = self.consumer.position(_tps([partition]))
        return found.offset if found.offset >= 0 else None

    def seek(self, partition: Any, offset: int) -> None:  # noqa: ANN401 - the same
        self.consumer.seek(TopicPartition(*partition, offset))

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def committed(self, partition: Any) -> int | None:  # noqa: ANN401 - a JSON pair
        (found,) = self.consumer.committed(_tps([partition]), timeout=_TIMEOUT)
        return found.offset if found.offset >= 0 else None

    def events(self) -> list[str]:
        taken, self._events = self._events, []
        return taken

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._events.append("assigned")
        if self._pausing:
            if self._incremental:
                consumer.incremental_assign(partitions)
            else:
                consumer.assign(partitions)
            consumer.pause(partitions)

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._events.append("revoked")


def _raise(*_: object) -> None:
    raise TimeLimitError


def _protocol(settings: dict[str, Any]) -> dict[str, Any]:
    if settings["protocol"] == "consumer":
        # Session, heartbeat and assignor are the broker's to say.
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": settings["protocol"],
        "session.timeout.ms": round(settings["session"] * 1000),
        "heartbeat.interval.ms": round(settings["heartbeat"] * 1000),
    }


def _tps(partitions: list[Any]) -> list[TopicPartition]:
    return [TopicPartition(*one) for one in partitions]
