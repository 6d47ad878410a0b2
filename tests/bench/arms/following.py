"""Follows records as they are produced, one by one, as a member of a group."""

import asyncio
import importlib
import resource
import time
from collections.abc import Iterator
from typing import Any

from tests.bench.arms.clients import make
from tests.bench.memory import peak_mb, resident_mb

_BOUND = 60.0
# aiokafka has no heartbeats while its loop does not run, which is between the steps.
_SESSION_MS = 180_000


class Following:
    """
    A member that owns all of one topic, and returns each value as soon as it can.

    Args:
        client: one of :data:`tests.bench.trickle.CLIENTS`.
        config: how kafka-python reaches the broker.
        bootstrap: the broker's address, for the others.
        topic: what it subscribes to.
    """

    def __init__(
        self, client: str, config: dict[str, Any], bootstrap: str, topic: str
    ) -> None:
        group = f"{topic}-{client}-{time.monotonic_ns()}"
        if client == "aiokafka":
            self._reader: Any = _Aiokafka(bootstrap, topic, group)
        elif client == "confluent-kafka":
            self._reader = _Confluent(bootstrap, topic, group)
        else:
            self._reader = _KafkaPython(client, config, topic, group)

    def settle(self) -> dict[str, float]:
        """Wait for the assignment; return how much memory is resident then."""
        deadline = time.monotonic() + _BOUND
        while not self._reader.is_assigned():
            if time.monotonic() > deadline:
                message = "nothing was assigned"
                raise TimeoutError(message)
            for _ in self._reader.poll(0.5):
                pass
        for _ in self._reader.poll(1.0):
            pass
        return {"resident": resident_mb()}

    def drain(self, records: int) -> dict[str, float]:
        """Read what is there already; return the peak of memory."""
        for _ in self._taken(records):
            pass
        return {"peak": peak_mb()}

    def follow(self, records: int) -> dict[str, Any]:
        """
        Take so many records; each value is the time at which it was produced.

        Returns:
            Seconds from produced to returned of each, and per record, from the first
            one on: CPU, system calls that made a thread wait, polls.
        """
        delays: list[float] = []
        self._reader.polls, began = 0, None
        for value in self._taken(records):
            delays.append(time.monotonic() - int(value) / 1e9)
            if began is None:
                began = _used(self._reader)
        cpu, waits, polls = (
            (now - then) / max(1, records - 1)
            for now, then in zip(_used(self._reader), began or (), strict=True)
        )
        return {"delays": delays, "cpu": cpu, "waits": waits, "polls": polls}

    def idle(self, polls: int) -> dict[str, float]:
        """Poll so many times for a second while nothing comes; return seconds of CPU."""
        cpu, wall, came = time.process_time(), time.monotonic(), 0
        for _ in range(polls):
            came += len(list(self._reader.poll(1.0)))
        if came:
            message = f"{came} records came"
            raise ValueError(message)
        return {
            "cpu": time.process_time() - cpu,
            "wall": time.monotonic() - wall,
        }

    def close(self) -> None:
        self._reader.close()

    def _taken(self, records: int) -> Iterator[bytes]:
        got, deadline = 0, time.monotonic() + _BOUND
        while got < records:
            for value in self._reader.poll(1.0):
                got += 1
                yield value
            if time.monotonic() > deadline:
                message = f"{got} of {records} records came"
                raise TimeoutError(message)


def _used(reader: Any) -> tuple[float, int, int]:  # noqa: ANN401 - any of the three
    waits = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
    return time.process_time(), waits, reader.polls


class _KafkaPython:
    def __init__(
        self, client: str, config: dict[str, Any], topic: str, group: str
    ) -> None:
        base, _, decoder = client.partition("-")
        safe = {"decoder": decoder} if base == "safe" else {}
        self._consumer = make(
            base, config, group_id=group, session_timeout_ms=_SESSION_MS, **safe
        )
        self._consumer.subscribe([topic])
        self.polls = 0

    def is_assigned(self) -> bool:
        return bool(self._consumer.assignment())

    def poll(self, seconds: float) -> Iterator[bytes]:
        self.polls += 1
        for batch in self._consumer.poll(int(seconds * 1000)).values():
            for one in batch:
                yield one.value

    def close(self) -> None:
        self._consumer.close()


class _Aiokafka:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(bootstrap, topic, group))
        self.polls = 0

    async def _start(self, bootstrap: str, topic: str, group: str) -> None:
        aiokafka = importlib.import_module("aiokafka")
        self._consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            session_timeout_ms=_SESSION_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await self._consumer.start()

    def is_assigned(self) -> bool:
        return bool(self._consumer.assignment())

    def poll(self, seconds: float) -> Iterator[bytes]:
        self.polls += 1
        got = self._consumer.getmany(timeout_ms=int(seconds * 1000))
        for batch in self._loop.run_until_complete(got).values():
            for one in batch:
                yield one.value

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class _Confluent:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        confluent = importlib.import_module("confluent_kafka")
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "session.timeout.ms": _SESSION_MS,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([topic])
        self.polls = 0

    def is_assigned(self) -> bool:
        return bool(self._consumer.assignment())

    def poll(self, seconds: float) -> Iterator[bytes]:
        self.polls += 1
        one = self._consumer.poll(seconds)
        if one is not None:
            if one.error() is not None:
                message = f"an error instead of a record: {one.error()}"
                raise ValueError(message)
            yield one.value()

    def close(self) -> None:
        self._consumer.close()
