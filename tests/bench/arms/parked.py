"""Resumes from another thread while ``poll`` waits, with data parked for it."""

import random
import threading
import time
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from tests.bench.arms.clients import make, poll_until


class Parked:
    """
    A consumer of one partition with records that is paused, with data parked.

    Args:
        client: "stock" or "safe".
        config: how the broker is reached.
        topic: its partition 0 has records, partition 1 none.
        flowing: consume partition 1 too, so that ``poll`` waits for a fetch.
    """

    def __init__(
        self, client: str, config: dict[str, Any], topic: str, *, flowing: bool
    ) -> None:
        self._consumer = make(client, config)
        self._tp = TopicPartition(topic, 0)
        others = [TopicPartition(topic, 1)] if flowing else []
        self._consumer.assign([self._tp, *others])
        fetcher = self._consumer._fetcher
        poll_until(
            self._consumer,
            lambda: fetcher._next_partition_records or fetcher._completed_fetches,
            max_records=1,
        )
        self._park()

    def resume(self, tries: int, wait_ms: int) -> dict[str, list[float]]:
        """
        Return the seconds from the call of ``resume`` to the end of ``poll``.

        A try that brings nothing counts as the whole time of the poll.

        Args:
            tries: how often.
            wait_ms: the poll's timeout.
        """
        taken = []
        for _ in range(tries):
            other = _Resumer(self._consumer, self._tp)
            other.start()
            records = self._consumer.poll(wait_ms, max_records=1)
            end = time.perf_counter()
            other.join()
            taken.append(end - other.called_at if records else wait_ms / 1000)
            self._park()
        return {"seconds": taken}

    def close(self) -> None:
        self._consumer.close()

    def _park(self) -> None:
        self._consumer.pause(self._tp)
        for _ in range(3):
            if self._consumer.poll(0):
                message = "records of a paused partition"
                raise ValueError(message)


class _Resumer(threading.Thread):
    def __init__(self, consumer: KafkaConsumer, tp: TopicPartition) -> None:
        super().__init__()
        self._consumer = consumer
        self._tp = tp
        self.called_at = 0.0

    def run(self) -> None:
        # Sometime within the wait: at all phases of whatever runs in turns there.
        time.sleep(random.uniform(0.02, 0.15))  # noqa: S311 - no secret
        self.called_at = time.perf_counter()
        self._consumer.resume(self._tp)
