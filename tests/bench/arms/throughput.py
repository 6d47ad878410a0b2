"""Reads a topic from start to end with one of the clients, key, value and offset."""

import asyncio
import importlib
import time
from collections.abc import Mapping
from typing import Any

from tests.bench.arms.clients import make
from tests.bench.memory import peak_mb

# A topic's name and the number of a partition, as kafka-python's tuple of that name.
TopicPartition = tuple[str, int]

_BOUND = 120.0
# The last fetch of a lap waits at the end of the topic and delays the next lap.
_LAST_WAIT_MS = 25
# At librdkafka's defaults a partition whose queue is full is not fetched for a second.
_TUNED = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}


class Throughput:
    """
    A consumer with all partitions of one topic assigned by hand, in no group.

    Args:
        client: one of :data:`tests.bench.cases.CLIENTS`.
        config: how kafka-python reaches the broker.
        bootstrap: the broker's address, for the others.
        topic: what is read.
        partitions: how many the topic has.
        max_records: at most so many in one call; None for one by one.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a measurement has that many settings
        self,
        client: str,
        config: dict[str, Any],
        bootstrap: str,
        topic: str,
        partitions: int,
        max_records: int | None,
    ) -> None:
        everything = [(topic, number) for number in range(partitions)]
        if client == "aiokafka":
            self._reader: Any = _Aiokafka(bootstrap, everything)
        elif client.startswith("confluent"):
            tuned = _TUNED if client.endswith("tuned") else {}
            self._reader = _Confluent(bootstrap, everything, tuned)
        else:
            self._reader = _KafkaPython(client, config, everything)
        self._max_records = max_records

    def read(self, records: int) -> dict[str, float]:
        """Read so many records; return seconds of CPU and of wall, and the peak memory."""
        cpu, wall = time.process_time(), time.monotonic()
        got = self._reader.read(records, self._max_records)
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        if got != records:
            message = f"{got} records instead of {records}"
            raise ValueError(message)
        self._reader.rest()
        return {"cpu": cpu, "wall": wall, "peak": peak_mb()}

    def close(self) -> None:
        self._reader.close()


class _KafkaPython:
    def __init__(
        self, client: str, config: dict[str, Any], assigned: list[TopicPartition]
    ) -> None:
        client, _, profile = client.partition(" ")
        base, _, decoder = client.partition("-")
        safe: dict[str, object] = {"decoder": decoder} if base == "safe" else {}
        self._is_profile = bool(profile)
        if profile:
            # not above: `regressions` runs this with packages that have none
            profiles = importlib.import_module("safeconsumer.profiles")
            safe.update(profiles.THROUGHPUT)
        settings = {"fetch_max_wait_ms": _LAST_WAIT_MS, **safe}
        self._consumer = make(
            base, config, consumer_timeout_ms=_BOUND * 1000, **settings
        )
        kafka = importlib.import_module("kafka")
        self._assigned = [kafka.TopicPartition(*tp) for tp in assigned]
        self._consumer.assign(self._assigned)

    def read(self, records: int, max_records: int | None) -> int:
        for tp in self._assigned:
            self._consumer.seek(tp, 0)
        if max_records is None:
            return self._iterate(records)
        if self._is_profile:
            max_records = None  # its own
        got, deadline = 0, time.monotonic() + _BOUND
        while got < records and time.monotonic() < deadline:
            for batch in self._consumer.poll(1000, max_records=max_records).values():
                got += _look(batch)
        return got

    def _iterate(self, records: int) -> int:
        got = 0
        for one in self._consumer:
            _ = one.key, one.value, one.offset
            got += 1
            if got == records:
                break
        return got

    def rest(self) -> None:
        """Nothing to do: nothing is fetched but by ``poll``."""

    def close(self) -> None:
        self._consumer.close()


class _Aiokafka:
    def __init__(self, bootstrap: str, assigned: list[TopicPartition]) -> None:
        aiokafka = importlib.import_module("aiokafka")
        self._assigned = [aiokafka.TopicPartition(*tp) for tp in assigned]
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._start(aiokafka, bootstrap))

    async def _start(self, aiokafka: Any, bootstrap: str) -> None:  # noqa: ANN401 - a module
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=_LAST_WAIT_MS,
        )
        await self._consumer.start()
        self._consumer.assign(self._assigned)

    def read(self, records: int, max_records: int | None) -> int:
        return self._loop.run_until_complete(self._read(records, max_records))

    async def _read(self, records: int, max_records: int | None) -> int:
        for tp in self._assigned:
            self._consumer.seek(tp, 0)
        got, deadline = 0, time.monotonic() + _BOUND
        if max_records is None:
            async for one in self._consumer:
                _ = one.key, one.value, one.offset
                got += 1
                if got == records:
                    break
        while got < records and time.monotonic() < deadline:
            batches = await self._consumer.getmany(
                timeout_ms=1000, max_records=max_records
            )
            for batch in batches.values():
                got += _look(batch)
        return got

    def rest(self) -> None:
        """Nothing to do: nothing runs while the loop does not."""

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


class _Confluent:
    def __init__(
        self,
        bootstrap: str,
        assigned: list[TopicPartition],
        tuned: Mapping[str, object],
    ) -> None:
        confluent = importlib.import_module("confluent_kafka")
        self._assigned = [confluent.TopicPartition(*tp, 0) for tp in assigned]
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"bench-{time.monotonic_ns()}",  # must be there; not used
                "enable.auto.commit": False,
                "fetch.wait.max.ms": _LAST_WAIT_MS,
                **tuned,
            }
        )

    def read(self, records: int, max_records: int | None) -> int:
        self._consumer.assign(self._assigned)
        poll, consume = self._consumer.poll, self._consumer.consume
        got, deadline = 0, time.monotonic() + _BOUND
        while max_records is None and got < records:
            one = poll(1.0)
            if one is not None:
                _ = one.key(), one.value(), one.offset()
                got += 1
            elif time.monotonic() > deadline:
                break
        while max_records and got < records and time.monotonic() < deadline:
            # With a timeout it waits for the full number.
            batch = consume(max_records, 0.0) or consume(1, 1.0)
            for one in batch:
                _ = one.key(), one.value(), one.offset()
            # Not each: the other clients' loops have no such call.
            if batch:
                _check(batch[-1])
            got += len(batch)
        return got

    def rest(self) -> None:
        """Stop fetching, which goes on in the background otherwise."""
        self._consumer.unassign()

    def close(self) -> None:
        self._consumer.close()


def _check(message: Any) -> None:  # noqa: ANN401 - confluent-kafka's
    error = message.error()
    if error is not None:
        text = f"an error instead of a record: {error}"
        raise ValueError(text)


def _look(batch: list[Any]) -> int:
    for one in batch:
        _ = one.key, one.value, one.offset
    return len(batch)
