"""
A worker in a process of its own, to be killed and frozen: ``python -m``.

Prints ``ready`` once it owns something; its handler leaves traces in a folder.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

from safeconsumer import SafeConsumer, Worker
from tests.broker.worker.handlers import Recording


def main() -> None:
    """Work until a signal or the end of standard input."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    config = told["config"]
    if "api_version" in config:
        config["api_version"] = tuple(config["api_version"])
    consumer = SafeConsumer(
        told["topic"],
        group_id=told["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **config,
    )
    folder = Path(told["folder"])
    folder.mkdir(exist_ok=True)
    worker = Worker(consumer, Recording(folder), concurrency=4)
    threading.Thread(target=_stop_at_the_end, args=(worker,), daemon=True).start()
    worker.run()


def _stop_at_the_end(worker: Worker) -> None:
    while not worker.stats().done:
        threading.Event().wait(0.02)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()
    worker.stop()


if __name__ == "__main__":
    main()
