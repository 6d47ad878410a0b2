"""
One run of a worker, or of a loop it is compared with, in a process of its own.

``python -m tests.bench.working JSON`` prints what it took, as JSON.
"""

import json
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from safeconsumer.worker import Limits, Worker
from tests.bench.arms.consumers import make, poll_until
from tests.bench.memory import peak_mb

MIB = 1024 * 1024


def nothing(_record: Any, _context: Any = None) -> None:  # noqa: ANN401
    """Do nothing."""


async def nothing_async(_record: Any, _context: Any) -> None:  # noqa: ANN401
    """Do nothing."""


class Sleep:
    """
    A handler that waits, as one that asks another service.

    Args:
        seconds: for each record.
        slow: seconds for those of partition 0 instead, if given.
    """

    def __init__(self, seconds: float, slow: float | None = None) -> None:
        self._seconds = seconds
        self._slow = slow
        self.others = 0

    def __call__(self, record: Any, _context: Any = None) -> None:  # noqa: ANN401
        if self._slow is not None and record.partition == 0:
            time.sleep(self._slow)
            return
        self.others += 1
        if self._seconds:
            time.sleep(self._seconds)


Done = Callable[[], int]


def main() -> None:
    """Read, work, and print."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    consumer = make(
        "safe",
        told["config"],
        group_id=f"{told['topic']}-{time.monotonic_ns()}",
        decoder=told.get("decoder", "auto"),
    )
    consumer.subscribe([told["topic"]])
    poll_until(consumer, consumer.assignment, max_records=1)
    consumer.seek_to_beginning()
    sys.stdout.write(json.dumps(_measure(consumer, told)) + "\n")


def _measure(consumer: Any, told: dict[str, Any]) -> dict[str, float]:  # noqa: ANN401
    handle = _handler(told)
    began, cpu = time.monotonic(), _cpu()
    run = _plain if told["mode"] == "plain" else _worker
    done = run(consumer, handle, told)
    seconds = time.monotonic() - began
    return {
        "cpu_us": (_cpu() - cpu) / max(1, done) * 1e6,
        "per_second": done / seconds,
        "others_per_second": getattr(handle, "others", 0) / seconds,
        "peak_mb": peak_mb(),
    }


def _cpu() -> float:
    used = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(one.ru_utime + one.ru_stime for one in used)


def _handler(told: dict[str, Any]) -> Any:  # noqa: ANN401 - a handler
    if told["mode"] == "asyncio":
        return nothing_async
    if told.get("sleep") is not None or told.get("slow") is not None:
        return Sleep(told.get("sleep") or 0.0, told.get("slow"))
    return nothing


def _is_over(told: dict[str, Any], done: Done) -> Callable[[], bool]:
    # The time counts from the first record; if none comes, that is waited for a minute.
    until, is_counting = time.monotonic() + 60.0, False

    def is_over() -> bool:
        nonlocal until, is_counting
        if not is_counting and done():
            is_counting, until = True, time.monotonic() + told["seconds"]
        return done() >= told["records"] or time.monotonic() > until

    return is_over


def _plain(consumer: Any, handle: Any, told: dict[str, Any]) -> int:  # noqa: ANN401
    count = 0
    is_over = _is_over(told, lambda: count)
    while not is_over():
        for records in consumer.poll(250).values():
            for record in records:
                handle(record)
                count += 1
                if told.get("sleep") and is_over():
                    break
    consumer.close(autocommit=False)
    return count


def _worker(consumer: Any, handle: Any, told: dict[str, Any]) -> int:  # noqa: ANN401
    mode = told["mode"]
    is_order = mode in {"partition", "key", "unordered"}
    worker = Worker(
        consumer,
        handle,
        order=mode if is_order else "partition",
        executor="thread" if is_order else mode,
        concurrency=told.get("concurrency", 8),
        limits=Limits(
            records=told.get("limit_records", 10_000),
            bytes=told.get("limit_bytes", 64 * MIB),
        ),
    )
    thread = threading.Thread(target=worker.run)
    thread.start()
    # What stats() takes, fifty times a second, is not the worker's.
    held = worker._engine.held
    is_over = _is_over(told, lambda: held.done)
    while not is_over():
        time.sleep(0.02)
    done = held.done
    worker.stop(drain=False)
    thread.join()
    return done


if __name__ == "__main__":
    main()
