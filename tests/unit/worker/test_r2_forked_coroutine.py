"""
A coroutine handler forks, and its child gives way to the loop before it ends.

Worker's docs: "A process that a handler forks ends with that call of the handler, ... and
handles nothing else." The child has the copy of the loop with all its tasks, so while its own
coroutine awaits, the handlers of other records go on in it, with their effects, again.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from kafka import KafkaProducer

from safeconsumer import SafeConsumer, Worker
from safeconsumer.testing import EmbeddedBroker


def test_a_child_of_a_coroutine_handles_no_other_record(tmp_path: Path) -> None:
    log = tmp_path / "effects"
    log.touch()
    begun = asyncio.Event()
    children: list[int] = []

    def effect(what: str) -> None:
        with log.open("a") as file:
            file.write(f"{what}\n")

    async def handle(record: Any, _context: Any) -> None:
        if record.value == b"other":
            begun.set()
            for _ in range(200):
                await asyncio.sleep(0)
            effect("other")
            return
        await begun.wait()
        child = os.fork()
        if child == 0:
            for _ in range(1000):
                await asyncio.sleep(0)
            raise SystemExit(0)
        children.append(child)

    with EmbeddedBroker() as broker:
        broker.create_topic("t", 1)
        producer = KafkaProducer(**broker.client_config)
        for value in (b"other", b"forks"):
            producer.send("t", value, partition=0).get(10)
        producer.close()
        consumer = SafeConsumer(
            "t",
            **broker.client_config,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        worker = Worker(
            consumer, handle, executor="asyncio", order="unordered", concurrency=2
        )

        import threading
        import time

        def stop() -> None:
            until = time.monotonic() + 15
            while worker.stats().done < 2 and time.monotonic() < until:
                time.sleep(0.1)
            worker.stop()

        threading.Thread(target=stop).start()
        report = worker.run()
    assert report.done == 2
    until = time.monotonic() + 10
    left = children
    while left and time.monotonic() < until:
        left = [one for one in left if os.waitpid(one, os.WNOHANG)[0] == 0]
        time.sleep(0.1)
    for one in left:
        os.kill(one, 9)
        os.waitpid(one, 0)
    assert not left
    assert log.read_text().split() == ["other"]
