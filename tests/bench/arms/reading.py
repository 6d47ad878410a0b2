"""Reads a topic from start to end, again and again, and counts the CPU it takes."""

import gc
import re
import time
from typing import Any

from kafka import TopicPartition

from tests.bench.arms.consumers import make, poll_until
from tests.bench.memory import resident_mb

# Held for no topic there is, by partition: 100 partitions per topic.
_PARTITIONS = 100
_OWNERS = ("app", "deploy", "operator", "quota")


class Reading:
    """
    A member of a group of its own that owns all partitions of one topic.

    Args:
        client: "stock" or "safe".
        config: how the broker is reached.
        topic: what is read.
        partitions: how many the topic has.
        quiet: how many of them, the last ones, are paused all the time; they have
            no records.
        by_pattern: subscribe by pattern, to topics that do not exist too.
        decoder: what a safe one reads record batches with.
    """

    def __init__(  # noqa: PLR0913 - a measurement has that many settings
        self,
        client: str,
        config: dict[str, Any],
        topic: str,
        partitions: int,
        quiet: int = 0,
        *,
        by_pattern: bool = False,
        decoder: str = "python",
    ) -> None:
        more = {"decoder": decoder} if client == "safe" else {}
        self._consumer = make(
            client,
            config,
            **more,
            group_id=f"{topic}-{client}-{quiet}-{time.monotonic_ns()}",
            fetch_max_wait_ms=25,  # the last fetch of a lap delays the next lap
            consumer_timeout_ms=20_000,
            metadata_max_age_ms=600_000,
        )
        if by_pattern:
            self._consumer.subscribe(pattern=rf"^({re.escape(topic)}$|stranger-)")
        else:
            self._consumer.subscribe([topic])
        poll_until(
            self._consumer, lambda: len(self._consumer.assignment()) == partitions
        )
        everything = [TopicPartition(topic, number) for number in range(partitions)]
        self._read_from = everything[: partitions - quiet]
        for number, tp in enumerate(everything[partitions - quiet :]):
            owner = {"owner": _OWNERS[number % 4]} if client == "safe" else {}
            self._consumer.pause(tp, **owner)

    def read(
        self, records: int, max_records: int | None = None, *, iterate: bool = False
    ) -> dict[str, float]:
        """Read so many records from the start; return seconds of CPU and of wall."""
        for tp in self._read_from:
            self._consumer.seek(tp, 0)
        cpu, wall = time.process_time(), time.monotonic()
        got = self._iterate(records) if iterate else self._poll(records, max_records)
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
        if got != records:
            message = f"{got} records instead of {records}"
            raise ValueError(message)
        return {"cpu": cpu, "wall": wall}

    def hold_strangers(self, count: int) -> dict[str, float]:
        """Place holds one by one on partitions that are not assigned here."""
        pause = self._consumer.pause
        targets = [
            TopicPartition(f"stranger-{number // _PARTITIONS}", number % _PARTITIONS)
            for number in range(count)
        ]
        gc.collect()
        before = resident_mb()
        start = time.perf_counter()
        for target in targets:
            pause(target)
        seconds = time.perf_counter() - start
        gc.collect()
        after = resident_mb()
        held = len(self._consumer.holds())
        if held != count:
            message = f"{held} holds instead of {count}"
            raise ValueError(message)
        return {"seconds": seconds, "mb": after - before}

    def close(self) -> None:
        self._consumer.close()

    def _poll(self, records: int, max_records: int | None) -> int:
        got, deadline = 0, time.monotonic() + 60
        while got < records and time.monotonic() < deadline:
            batches = self._consumer.poll(1000, max_records=max_records)
            got += sum(map(len, batches.values()))
        return got

    def _iterate(self, records: int) -> int:
        got = 0
        for _ in self._consumer:
            got += 1
            if got == records:
                break
        return got
