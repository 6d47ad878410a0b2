"""
A program with slow handlers, in a process of its own so that it can be killed.

``python -m safeconsumer.demo.worker_program JSON`` works until its standard
input ends, and writes a line for all that happens: ``ready``, ``held COUNT``, and
``done PARTITION OFFSET`` for each record that was handled.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import KafkaConsumer

from safeconsumer.consumer import SafeConsumer
from safeconsumer.worker import Limits, Worker

THREADS = 8
# What the worker may hold, and so what a crash can make it do again.
HELD = 20
_POLL_RECORDS = 10
_COMMIT_MS = 100


def main() -> None:
    """Work in the way the first argument says."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    config = dict(told["config"])
    if "api_version" in config:
        config["api_version"] = tuple(config["api_version"])
    config.update(group_id=told["group"], auto_offset_reset="earliest")
    run = {"stock": _pool, "safe": _worker}[told["client"]]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    run(told["topic"], config, told["seconds"])


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def _tell(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def _handler(seconds: float) -> Callable[..., None]:
    def handle(record: Any, _context: Any = None) -> None:  # noqa: ANN401 - upstream's
        time.sleep(seconds)
        _tell(f"done {record.partition} {record.offset}")

    return handle


def _pool(topic: str, config: dict[str, Any], seconds: float) -> None:
    """Follow the usual recipe: a thread pool, and offsets committed by the consumer."""
    handle = _handler(seconds)
    consumer = KafkaConsumer(topic, auto_commit_interval_ms=_COMMIT_MS, **config)
    pool = ThreadPoolExecutor(THREADS)
    is_ready = False
    futures: list[Any] = []
    while True:
        # The first ones are long: this client forgets a join that outlasts its poll.
        batches = consumer.poll(100 if is_ready else 2000)
        if consumer.assignment() and not is_ready:
            is_ready = True
            _tell("ready")
        for records in batches.values():
            futures += [pool.submit(handle, record) for record in records]
        futures = [one for one in futures if not one.done()]
        _tell(f"held {len(futures)}")


def _worker(topic: str, config: dict[str, Any], seconds: float) -> None:
    """Let a ``Worker`` do the same."""
    consumer = SafeConsumer(
        topic,
        enable_auto_commit=False,
        log=False,
        max_poll_records=_POLL_RECORDS,
        **config,
    )
    worker = Worker(
        consumer,
        _handler(seconds),
        order="unordered",
        concurrency=THREADS,
        limits=Limits(records=HELD),
    )
    threading.Thread(target=_watch, args=(consumer, worker), daemon=True).start()
    worker.run()


def _watch(consumer: SafeConsumer, worker: Worker) -> None:
    while not consumer.assignment():
        time.sleep(0.02)
    _tell("ready")
    while True:
        stats = worker.stats()
        _tell(f"held {stats.queued + stats.running}")
        time.sleep(0.02)


if __name__ == "__main__":
    main()
