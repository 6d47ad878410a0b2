"""Arms that pause and resume: one of ten thousand, while polling, all the time, or all."""

import random
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from kafka import TopicPartition

from tests.bench.arms.consumers import make, poll_until, wait_until
from tests.harness.regression.wire import Wire

_EVERY = 10
# Calls with nothing in between, for each with a poll before and behind it.
_IN_A_ROW = 20
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_HEAD = 12  # base offset and length stand before what the length counts


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

    def toggle(self) -> dict[str, float]:
        """
        Pause, poll, resume, poll; return seconds of each step.

        The embedded broker has no fetch sessions: each of its answers lists every
        partition, where a real broker lists those with records. So what has come is
        drained first, measured as ``drain``. The poll after the pause then finds no
        fetch in flight and sends one for all that flows; the poll after the resume
        finds it in flight. ``pause`` and ``resume`` are in seconds of wall, the
        others of CPU.
        """
        self._wait_for_no_fetch()
        tp = self._partitions[self._at % len(self._partitions)]
        self._at += 7919  # a prime: never the neighbour of the last one
        return {
            "drain": _cpu(self._fetcher.fetched_records),
            "pause": _wall(self._consumer.pause, tp),
            "poll_sending": _cpu(self._consumer.poll),
            "resume": _wall(self._consumer.resume, tp),
            "poll_waiting": _cpu(self._consumer.poll),
        }

    def in_a_row(self) -> dict[str, list[float]]:
        """
        Pause and resume with nothing in between; return seconds of wall.

        With no fetch in flight, whose answer would have the interpreter meanwhile.
        Many times, as the first call after anything else finds the caches cold.
        """
        self._wait_for_no_fetch()
        taken: dict[str, list[float]] = {"pause_in_a_row": [], "resume_in_a_row": []}
        for tp in self._partitions[:_IN_A_ROW]:
            taken["pause_in_a_row"].append(_wall(self._consumer.pause, tp))
            taken["resume_in_a_row"].append(_wall(self._consumer.resume, tp))
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
        self._wire = Wire(self._consumer)
        self._consumer.subscribe([topic])
        poll_until(
            self._consumer, lambda: self._wire.count("Fetch") >= 2, max_records=1
        )
        if self._consumer.assignment() != set(self._partitions):
            message = "not all partitions are assigned"
            raise ValueError(message)
        self._consumer.pause(*self._partitions)
        wait_until(
            lambda: not self._fetcher.in_flight_fetches(),
            lambda: self._consumer.poll(10),
        )
        self._consumer.poll(10)

    def poll(self, polls: int) -> dict[str, float]:
        """Poll so many times for a second each."""
        fetches = self._wire.count("Fetch")
        cpu, wall = time.process_time(), time.monotonic()
        records = sum(
            len(batch)
            for _ in range(polls)
            for batch in self._consumer.poll(1000).values()
        )
        return {
            "cpu": time.process_time() - cpu,
            "wall": time.monotonic() - wall,
            "fetches": self._wire.count("Fetch") - fetches,
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


class Toggling(_Pausing):
    """Pauses another partition at each turn, and counts what is fetched for it."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401 - JSON values
        super().__init__(**settings)
        self._wire = Wire(self._consumer)
        self._consumer.assign(self._partitions)
        self._paused: deque[TopicPartition] = deque()

    def run(self, how: str, records: int, bound: float) -> dict[str, float]:
        """
        Read so many records, or until the bound; return bytes and records.

        Args:
            how: "poll" or "iterate", pausing in turn the partition that delivered
                last and resuming the one paused before; "all" pauses all, polls
                without a wait, and resumes all.
            records: how many there are.
            bound: seconds.
        """
        turn = self._turn_all if how == "all" else self._turn_one
        start, got = time.monotonic(), 0
        for delivered in self._iterated() if how == "iterate" else self._polled():
            got += len(delivered)
            if got >= records or time.monotonic() - start > bound:
                break
            turn(delivered)
        return {
            "delivered": got,
            "fetched": self._wire.bytes_fetched(),
            "produced": self._bytes_seen(),
            "seconds": time.monotonic() - start,
        }

    def _polled(self) -> Iterator[list[Any]]:
        while True:
            batches = self._consumer.poll(200, max_records=_EVERY)
            yield [record for batch in batches.values() for record in batch]

    def _iterated(self) -> Iterator[list[Any]]:
        self._consumer.config["consumer_timeout_ms"] = 200
        while True:
            ten: list[Any] = []
            while len(ten) < _EVERY:
                record = next(self._consumer, None)
                if record is None:
                    break
                ten.append(record)
            yield ten

    def _turn_one(self, delivered: list[Any]) -> None:
        if self._paused:
            self._consumer.resume(self._paused.popleft())
        if delivered:  # else what is left is in the paused one
            last = TopicPartition(delivered[-1].topic, delivered[-1].partition)
            self._consumer.pause(last)
            self._paused.append(last)

    def _turn_all(self, _: list[Any]) -> None:
        self._consumer.pause(*self._partitions)
        if self._consumer.poll(0):
            message = "records of paused partitions"
            raise ValueError(message)
        self._consumer.resume(*self._partitions)

    def _bytes_seen(self) -> int:
        """
        Return the bytes of all batches that came, each counted once.

        With every record delivered that is what was produced.
        """
        batches = {}
        for name, response in list(self._wire.answered):
            if name != "Fetch":
                continue
            for topic in response.responses:
                for one in topic.partitions:
                    for base, size in _whole_batches(one.records or b""):
                        batches[one.partition_index, base] = size
        return sum(batches.values())


def _whole_batches(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + _HEAD <= len(data):
        size = _HEAD + _LENGTH.unpack_from(data, at + 8)[0]
        if at + size <= len(data):
            yield _OFFSET.unpack_from(data, at)[0], size
        at += size
