"""Plays slow handlers, a rebalance, and a crash."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from kafka import KafkaConsumer, TopicPartition

from safeconsumer.demo.stage import PATIENCE, Stage

_SECONDS = 0.05
_RECORDS = 40
# Nothing comes any more: longer than it takes a broker to notice that a member died.
_SILENCE = 10.0
# The first is killed when the group has committed so much that is not done, or when
# it has done so much of what came last: of the 240 records of its two partitions.
_AHEAD = 24
_ENOUGH = 200
_PROGRAM = "safeconsumer.demo.worker_program"


class Program:
    """One member in a process of its own; what it says goes to the tally."""

    def __init__(self, stage: Stage, name: str, topic: str) -> None:
        told = {
            "client": stage.client.name,
            "topic": topic,
            "group": stage.prefix + "group",
            "seconds": _SECONDS,
            "config": stage.member_config(),
        }
        self._stage, self._name, self._topic = stage, name, topic
        self.is_ready = False
        self.most_held = 0
        self.done = 0
        self.done_of_last = 0
        self.last_of: set[TopicPartition] = set()
        self.heard_at = time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-m", _PROGRAM, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        stage.at_end(self.kill)

    def kill(self) -> None:
        """Kill it; safe to call again."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - it was asked for
        for line in self._process.stdout:
            word, *numbers = line.split()
            if word == "ready":
                self.is_ready = True
            elif word == "held":
                self.most_held = max(self.most_held, int(numbers[0]))
            else:
                self._is_done(
                    TopicPartition(self._topic, int(numbers[0])), int(numbers[1])
                )

    def _is_done(self, tp: TopicPartition, offset: int) -> None:
        self._stage.tally.delivered(self._name, tp, offset)
        self.done += 1
        if offset >= _RECORDS:
            self.done_of_last += 1
            self.last_of |= {tp}
        self.heard_at = time.monotonic()


def slow_handlers(stage: Stage) -> None:
    """
    Let a second member join one that is full of work, and kill the first.

    What counts as delivered is what a handler has finished.
    """
    topic = stage.topic("orders", records=_RECORDS)
    first = Program(stage, "first", topic)
    stage.say("a member with slow handlers")
    _until(stage, lambda: first.done >= _RECORDS // 2, "the first to work")
    second = Program(stage, "second", topic)
    stage.say("another member joins")
    _until(stage, lambda: second.is_ready, "the second to join")
    stage.produce(records=3 * _RECORDS)
    observer = stage.consumer(KafkaConsumer)
    _until(
        stage,
        lambda: (
            first.done_of_last >= _ENOUGH or _ahead(stage, observer, first) >= _AHEAD
        ),
        "the first to go on",
    )
    first.kill()
    most = first.most_held
    stage.say(f"the first held up to {most} records, and is killed")
    second.heard_at = time.monotonic()
    _until(
        stage,
        lambda: (
            not stage.tally.missing() or time.monotonic() - second.heard_at > _SILENCE
        ),
        "the second to do the rest",
        3 * PATIENCE,
    )
    missing = stage.tally.missing()
    most = max(most, second.most_held)
    stage.say(f"{missing} never handled; up to {most} records held")


def _ahead(stage: Stage, observer: KafkaConsumer, program: Program) -> int:
    """
    Return how many records the group has committed that nobody is done with.

    Of the partitions whose last records this program works on.
    """
    at = {tp: observer.committed(tp) or 0 for tp in tuple(program.last_of)}
    # Counted after that: what is done meanwhile is not ahead.
    done = {tp: 4 * _RECORDS - stage.tally.missing(tp) for tp in at}
    return sum(max(0, at[tp] - done[tp]) for tp in at)


def _until(
    stage: Stage,
    condition: Callable[[], bool],
    what: str,
    patience: float = PATIENCE,
) -> None:
    def turn() -> None:
        stage.rest(0.02)
        stage.show(None)

    stage.until(condition, what, turn, patience)
