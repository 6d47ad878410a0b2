"""Defines the demo situation in which a program with slow handlers is killed."""

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from kafka import KafkaConsumer, TopicPartition

from safeconsumer.demo.stage import PARTITIONS, PATIENCE, SILENCE, Stage
from safeconsumer.testing.polling import PollTimeoutError

_RECORDS = 100
_KILLED_AFTER = 100  # records; the four partitions have 400 in total
_PROGRAM = "safeconsumer.demo.worker_program"


def slow_handlers(stage: Stage) -> None:
    """Kill a program at work; a record counts as delivered when its handler is done."""
    stage.produce(_RECORDS)
    stage.say("8 handlers of 50 ms each are at work")
    tally = stage.tally
    with _Process(stage) as first:
        first.until(lambda: tally.handed_out >= _KILLED_AFTER, "handlers to work")
    tally.committed(_committed(stage))
    stage.say(f"killed after {tally.handed_out} records; another process takes over")
    with _Process(stage) as second:
        second.until(
            lambda: not tally.missing or second.is_silent(),
            "the other process to handle the rest",
        )


def _committed(stage: Stage) -> dict[TopicPartition, int]:
    observer = stage.clients.consumer(KafkaConsumer, group=stage.group)
    tps = [TopicPartition(stage.topic, number) for number in range(PARTITIONS)]
    return {tp: observer.committed(tp) or 0 for tp in tps}


class _Process:
    """A program in a separate process that is killed at the end of the ``with`` block."""

    def __init__(self, stage: Stage) -> None:
        options = {
            "is_ours": stage.client.is_ours,
            "topic": stage.topic,
            "config": {
                **stage.broker.client_config,
                **stage.broker.group_config,
                "group_id": stage.group,
                "auto_offset_reset": "earliest",
            },
        }
        self._stage = stage
        self._ready_at = math.inf
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _PROGRAM, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition is met."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                message = f"waited {PATIENCE:.0f} s for {what}"
                raise PollTimeoutError(message)
            self._stage.rest(0.02)

    def is_silent(self) -> bool:
        """Return whether the program is ready and no handler has finished for a while."""
        return self._stage.tally.silence(self._ready_at) > SILENCE

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            if line == "ready\n":
                self._ready_at = time.monotonic()
            else:
                partition, offset = map(int, line.split())
                tp = TopicPartition(self._stage.topic, partition)
                self._stage.tally.delivered(tp, offset)
