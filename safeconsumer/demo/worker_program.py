"""
Defines a program with slow handlers that runs in its own process and can be killed.

``python -m safeconsumer.demo.worker_program JSON`` works until its standard input is
closed. The program writes ``ready`` when partitions are assigned, and ``PARTITION
OFFSET`` for each handled record.
"""

import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer

from safeconsumer.consumer import SafeConsumer
from safeconsumer.worker import Worker

_THREADS = 8
_SECONDS = 0.05
# The default is five seconds, which is too long for a demo.
_COMMIT_MS = 100


def main() -> None:
    """Work with the client and the settings from the command line."""
    options: dict[str, Any] = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    run = _worker if options["is_ours"] else _pool
    run(options["topic"], options["config"])


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def _write_line(line: str) -> None:
    os.write(1, line.encode() + b"\n")


class _Ready(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python ships no type information
    def on_partitions_assigned(self, assigned: object) -> None:
        if assigned:
            _write_line("ready")

    def on_partitions_revoked(self, revoked: object) -> None:
        """Ignore revoked partitions."""


def _handle(record: Any, _context: Any = None) -> None:  # noqa: ANN401 - upstream's
    time.sleep(_SECONDS)
    _write_line(f"{record.partition} {record.offset}")


def _pool(topic: str, config: dict[str, Any]) -> None:
    """Handle records in the usual way: in a thread pool, with the consumer's auto-commit."""
    consumer = KafkaConsumer(auto_commit_interval_ms=_COMMIT_MS, **config)
    consumer.subscribe([topic], listener=_Ready())
    pool = ThreadPoolExecutor(_THREADS)
    while True:
        # The first poll must be longer than the join, because KafkaConsumer forgets a
        # join that outlasts its poll.
        batches = consumer.poll(100 if consumer.assignment() else 5000)
        for records in batches.values():
            for record in records:
                pool.submit(_handle, record)


def _worker(topic: str, config: dict[str, Any]) -> None:
    """Handle records with a ``Worker``."""
    consumer = SafeConsumer(enable_auto_commit=False, log=False, **config)
    consumer.subscribe([topic], listener=_Ready())
    Worker(consumer, _handle, order="unordered", concurrency=_THREADS).run()


if __name__ == "__main__":
    main()
