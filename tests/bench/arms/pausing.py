"""Arms that pause and resume: one of ten thousand, while a poll waits, or all."""

import random
import threading
import time
from typing import Any

from kafka import TopicPartition

from tests.bench.arms.consumers import make, poll_until, wait_until


class _Pausing:
    """
    A consumer of one topic.

    Args:
        client: "stock" or "safe".
        config: how the broker is reached.
        topic: what is read.
        partitions: how many the topic has.
        more: of the consumer's configuration.
    """

    def __init__(
        self,
        client: str,
        config: dict[str, Any],
        topic: str,
        partitions: int,
        **more: object,
    ) -> None:
        self._consumer = make(client, config, **more)
        self._fetcher = self._consumer._fetcher
        self._partitions = [TopicPartition(topic, one) for one in range(partitions)]

    def close(self) -> None:
        self._consumer.close()


class Assigned(_Pausing):
    """Has very many partitions assigned by hand, all empty."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - JSON values
        super().__init__(**settings)
        self._consumer.assign(self._partitions)
        subscription = self._consumer._subscription
        poll_until(
            self._consumer,
            lambda: len(subscription.fetchable_partitions()) == len(self._partitions),
            timeout_ms=100,
        )
        self._at = 0

    def toggle(self) -> dict[str, float | list[float]]:
        """
        Pause, poll, resume, poll; return seconds of each step.

        The embedded broker has no fetch sessions: each of its answers lists every
        partition, where a real broker lists those with records. So what has come is
        drained first, measured as ``drain``. The poll after the pause then finds no
        fetch in flight and sends one for all that flows; the poll after the resume
        finds it in flight. ``pause`` and ``resume`` are in seconds of wall, the
        others of CPU. ``in_a_row`` is many times with nothing in between, as the first
        call after anything else finds the caches cold, and with no fetch in flight,
        whose answer would have the interpreter meanwhile.
        """
        self._wait_for_no_fetch()
        pause, resume = self._consumer.pause, self._consumer.resume
        tp = self._partitions[self._at % len(self._partitions)]
        self._at += 7919  # a prime: never the neighbour of the last one
        taken: dict[str, float | list[float]] = {
            "drain": _cpu(self._fetcher.fetched_records),
            "pause": _wall(pause, tp),
            "poll_sending": _cpu(self._consumer.poll),
            "resume": _wall(resume, tp),
            "poll_waiting": _cpu(self._consumer.poll),
        }
        self._wait_for_no_fetch()
        both = [
            (_wall(pause, one), _wall(resume, one)) for one in self._partitions[:20]
        ]
        taken["pause_in_a_row"], taken["resume_in_a_row"] = map(
            list, zip(*both, strict=True)
        )
        return taken

    def _wait_for_no_fetch(self) -> None:
        pending = self._fetcher._nodes_with_pending_fetch_requests
        wait_until(lambda: not pending, lambda: time.sleep(0.01))


def _wall(call: Any, *args: object) -> float:  # noqa: ANN401 - any callable
    start = time.perf_counter()
    call(*args)
    return time.perf_counter() - start


def _cpu(call: Any) -> float:  # noqa: ANN401 - any callable
    start = time.process_time()
    call()
    return time.process_time() - start


class Idle(_Pausing):
    """A member of a group whose partitions, with records, are all paused."""

    def __init__(self, client: str, topic: str, **settings: Any) -> None:  # noqa: ANN401 - JSON values
        group = f"{topic}-{client}-{time.monotonic_ns()}"
        super().__init__(client=client, topic=topic, group_id=group, **settings)
        self._consumer.subscribe([topic])
        everything = set(self._partitions)
        poll_until(
            self._consumer,
            lambda: self._consumer.assignment() == everything,
            max_records=1,
        )
        self._consumer.pause(*self._partitions)
        wait_until(
            lambda: not self._fetcher.in_flight_fetches(),
            lambda: self._consumer.poll(10),
        )
        self._consumer.poll(10)

    def poll(self, polls: int) -> dict[str, float]:
        """Poll so many times for a second each."""
        cpu, wall = time.process_time(), time.monotonic()
        batches = (self._consumer.poll(1000).values() for _ in range(polls))
        records = sum(len(batch) for some in batches for batch in some)
        return {
            "cpu": time.process_time() - cpu,
            "wall": time.monotonic() - wall,
            "records": records,
        }


class Parked(_Pausing):
    """
    Has one partition with records, paused, with data parked.

    Args:
        flowing: consume the other, empty partition too, so that ``poll`` waits for a
            fetch.
        settings: of any arm here.
    """

    def __init__(self, *, flowing: bool, **settings: Any) -> None:  # noqa: ANN401 - JSON values
        super().__init__(**settings, partitions=2)
        self._tp = self._partitions[0]
        self._consumer.assign(self._partitions if flowing else [self._tp])
        fetcher = self._fetcher
        poll_until(
            self._consumer,
            lambda: fetcher._next_partition_records or fetcher._completed_fetches,
            max_records=1,
        )
        self._park()

    def resume(self, tries: int, wait_ms: int) -> dict[str, list[float]]:
        """
        Return the seconds from ``resume`` on another thread to the end of ``poll``.

        A try that brings nothing counts as the whole time of the poll.

        Args:
            tries: how often.
            wait_ms: the poll's timeout.
        """
        taken = []
        for _ in range(tries):
            called: list[float] = []
            other = threading.Thread(target=self._resume_soon, args=(called,))
            other.start()
            records = self._consumer.poll(wait_ms, max_records=1)
            end = time.perf_counter()
            other.join()
            taken.append(end - called[0] if records else wait_ms / 1000)
            self._park()
        return {"seconds": taken}

    def _resume_soon(self, called: list[float]) -> None:
        # Sometime within the wait: at all phases of whatever runs in turns there.
        time.sleep(random.uniform(0.02, 0.15))  # noqa: S311 - no secret
        called.append(time.perf_counter())
        self._consumer.resume(self._tp)

    def _park(self) -> None:
        self._consumer.pause(self._tp)
        for _ in range(3):
            if self._consumer.poll(0):
                message = "records of a paused partition"
                raise ValueError(message)
