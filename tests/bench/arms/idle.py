"""Polls while everything is paused."""

import time
from typing import Any

from tests.bench.arms.clients import make, poll_until, wait_until
from tests.harness.regression.wire import Wire


class Idle:
    """
    A member of a group whose partitions, with records, are all paused.

    Args:
        client: "stock" or "safe".
        config: how the broker is reached, and the group's timeouts.
        topic: what it owns.
        partitions: how many the topic has.
    """

    def __init__(
        self, client: str, config: dict[str, Any], topic: str, partitions: int
    ) -> None:
        group = f"{topic}-{client}-{time.monotonic_ns()}"
        self._consumer = make(client, config, group_id=group)
        self._wire = Wire(self._consumer)
        self._consumer.subscribe([topic])
        poll_until(
            self._consumer,
            lambda: self._wire.count("Fetch") >= 2,
            max_records=1,
        )
        if len(self._consumer.assignment()) != partitions:
            message = "not all partitions are assigned"
            raise ValueError(message)
        self._consumer.pause(*self._consumer.assignment())
        fetcher = self._consumer._fetcher
        wait_until(
            lambda: not fetcher.in_flight_fetches(), lambda: self._consumer.poll(10)
        )
        self._consumer.poll(10)

    def poll(self, polls: int) -> dict[str, float]:
        """Poll so many times for a second each."""
        fetches, records = self._wire.count("Fetch"), 0
        cpu, wall = time.process_time(), time.monotonic()
        for _ in range(polls):
            records += sum(map(len, self._consumer.poll(1000).values()))
        return {
            "cpu": time.process_time() - cpu,
            "wall": time.monotonic() - wall,
            "fetches": self._wire.count("Fetch") - fetches,
            "records": records,
        }

    def close(self) -> None:
        self._consumer.close()
