"""Pauses and resumes single partitions of a very large assignment."""

import time
from typing import Any

from kafka import TopicPartition

from tests.bench.arms.clients import make, poll_until, wait_until

# Calls with nothing in between, for each with a poll before and behind it.
_IN_A_ROW = 20


class Assigned:
    """
    A consumer with many partitions assigned by hand, all empty.

    Args:
        client: "stock" or "safe".
        config: how the broker is reached.
        topic: a topic without records.
        partitions: how many it has.
    """

    def __init__(
        self, client: str, config: dict[str, Any], topic: str, partitions: int
    ) -> None:
        self._consumer = make(client, config)
        self._partitions = [TopicPartition(topic, one) for one in range(partitions)]
        self._consumer.assign(self._partitions)
        subscription = self._consumer._subscription
        poll_until(
            self._consumer,
            lambda: len(subscription.fetchable_partitions()) == partitions,
            timeout_ms=100,
        )
        self._at = 0

    def toggle(self, trials: int) -> dict[str, list[float]]:
        """
        Pause, poll, resume, poll; return seconds of each step, by trial.

        The embedded broker has no fetch sessions: each of its answers lists every
        partition, where a real broker lists those with records. So what has come is
        drained first, measured as ``drain``. The poll after the pause then finds no
        fetch in flight and sends one for all that flows; the poll after the resume
        finds it in flight. ``pause`` and ``resume`` are in seconds of wall, the
        others of CPU.
        """
        steps = ("drain", "pause", "poll_sending", "resume", "poll_waiting")
        taken: dict[str, list[float]] = {step: [] for step in steps}
        fetcher, poll = self._consumer._fetcher, self._consumer.poll
        pending = fetcher._nodes_with_pending_fetch_requests  # until it is handled
        for _ in range(trials):
            wait_until(lambda: not pending, lambda: time.sleep(0.01))
            tp = self._partitions[self._at % len(self._partitions)]
            self._at += 7919  # a prime: never the neighbour of the last one
            taken["drain"].append(_cpu(fetcher.fetched_records))
            taken["pause"].append(_wall(self._consumer.pause, tp))
            taken["poll_sending"].append(_cpu(poll))
            taken["resume"].append(_wall(self._consumer.resume, tp))
            taken["poll_waiting"].append(_cpu(poll))
        return taken

    def in_a_row(self, trials: int) -> dict[str, list[float]]:
        """
        Pause and resume with nothing in between; return seconds of wall, by trial.

        With no fetch in flight, whose answer would have the interpreter meanwhile.
        Many times, as the first call after anything else finds the caches cold.
        """
        pending = self._consumer._fetcher._nodes_with_pending_fetch_requests
        wait_until(lambda: not pending, lambda: time.sleep(0.01))
        taken: dict[str, list[float]] = {"pause_in_a_row": [], "resume_in_a_row": []}
        for tp in self._partitions[: trials * _IN_A_ROW]:
            taken["pause_in_a_row"].append(_wall(self._consumer.pause, tp))
            taken["resume_in_a_row"].append(_wall(self._consumer.resume, tp))
        return taken

    def close(self) -> None:
        self._consumer.close()


def _wall(call: Any, *args: object) -> float:  # noqa: ANN401 - any callable
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


def _cpu(call: Any) -> float:  # noqa: ANN401 - any callable
    start = time.process_time()
    call()
    return time.process_time() - start
