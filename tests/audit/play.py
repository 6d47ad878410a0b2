"""
A short play whose journals are worth a picture: ``python -m tests.audit.play --help``.

Members in processes of their own pause at random by all levels while they are frozen,
killed and replaced. The same seed gives the same faults at the same times; what members
pause depends on what they own then.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import CommitFailedError

from safeconsumer import SafeConsumer
from safeconsumer.audit.recorded import Recorded, holds_hook
from safeconsumer.audit.writer import JournalWriter
from safeconsumer.testing import EmbeddedBroker

GROUP, TOPIC = "billing", "orders"
_FAULTS = (3.0, 6.0)
_FROZEN = (3.0, 7.0)
_HELD = (4.0, 10.0)
_FLOWING = (1.0, 4.0)


class Stock:
    """
    The stock consumer, as a program uses it that wants more than partitions paused.
    """

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._held: dict[Any, set[TopicPartition]] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the consumer's
        return getattr(self._consumer, name)

    def pause(self, target: Any, owner: str) -> None:  # noqa: ARG002, ANN401 - as ours
        own = {tp for tp in self._consumer.assignment() if _covers(target, tp)}
        self._held[target] = own
        self._consumer.pause(*own)

    def resume(self, target: Any, owner: str) -> None:  # noqa: ARG002, ANN401 - as ours
        own = self._held.pop(target) & self._consumer.assignment()
        self._consumer.resume(*own)


class Ours:
    """
    Ours, with everything paused by the scope that journals have for it.
    """

    def __init__(self, consumer: SafeConsumer) -> None:
        self._consumer = consumer

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the consumer's
        return getattr(self._consumer, name)

    def pause(self, target: Any, owner: str) -> None:  # noqa: ANN401 - what pause() takes
        if target == "@all":
            self._consumer.pause_all(owner=owner)
        else:
            self._consumer.pause(target, owner=owner)

    def resume(self, target: Any, owner: str) -> None:  # noqa: ANN401 - as above
        if target == "@all":
            self._consumer.resume_all(owner=owner)
        else:
            self._consumer.resume(target, owner=owner)


def _covers(target: Any, tp: TopicPartition) -> bool:  # noqa: ANN401 - as pause() takes
    if isinstance(target, re.Pattern):
        return target.fullmatch(tp.topic) is not None
    return target in {tp, tp.topic, "@all"}


def member(client: str, bootstrap: str, name: str, seed: int, folder: Path) -> None:
    journal = JournalWriter(folder, member=name, group=GROUP)
    config = {
        "bootstrap_servers": bootstrap,
        "group_id": GROUP,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 2000,
        "heartbeat_interval_ms": 200,
    }
    raw = (
        Stock(KafkaConsumer(**config))
        if client == "stock"
        else Ours(SafeConsumer(**config, hooks=[holds_hook(journal)]))
    )
    consumer = Recorded(raw, journal)
    consumer.subscribe([TOPIC])
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not secret
    held, until = None, time.monotonic() + chance.uniform(*_FLOWING)
    while True:
        if consumer.poll(timeout_ms=100):
            # Who was thrown out meanwhile cannot commit; the next owner begins before.
            with suppress(CommitFailedError):
                consumer.commit()
        if time.monotonic() < until or not consumer.assignment():
            continue
        if held is None:
            held = _target(chance, sorted(consumer.assignment()))
            consumer.pause(held, owner="app")
            until = time.monotonic() + chance.uniform(*_HELD)
        else:
            consumer.resume(held, owner="app")
            held, until = None, time.monotonic() + chance.uniform(*_FLOWING)


def _target(chance: random.Random, assigned: list[TopicPartition]) -> Any:  # noqa: ANN401 - what pause() takes
    choices = (chance.choice(assigned), TOPIC, re.compile("ord.*"), "@all")
    return chance.choices(choices, (3, 3, 2, 1))[0]


class Play:
    """
    Starts members, and lets them suffer.
    """

    def __init__(self, client: str, bootstrap: str, seed: int, folder: Path) -> None:
        self._start = [client, "--bootstrap", bootstrap, "--journals", str(folder)]
        self._seed = seed
        self._chance = random.Random(f"faults {seed}")  # noqa: S311 - to be repeated
        self._journal = JournalWriter(folder, member="nemesis", group=GROUP)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        for name in ("m1", "m2", "m3"):
            self._begin(name)
        time.sleep(5)
        number = 0
        while time.monotonic() < end:
            number += 1
            fault = self._chance.choice((self._frozen, self._killed, self._joined))
            fault(number)
            time.sleep(self._chance.uniform(*_FAULTS))
        for one in self._processes.values():
            one.kill()
            one.wait()

    def _begin(self, name: str) -> None:
        self._seed += 1
        program = [sys.executable, "-m", "tests.audit.play", "--seed", str(self._seed)]
        self._processes[name] = subprocess.Popen(  # noqa: S603 - our own program
            [*program, "--member", name, *self._start]
        )

    def _struck(
        self, number: int, kind: str, name: str, back: Callable[[], object]
    ) -> None:
        seconds = round(self._chance.uniform(*_FROZEN), 1)
        said = {"id": number, "kind": kind, "targets": [name], "seconds": seconds}
        self._journal.write("fault", said)
        time.sleep(seconds)
        back()
        self._journal.write("heal", {"id": number})

    def _frozen(self, number: int) -> None:
        name = self._chance.choice(("m1", "m2", "m3"))
        pid = self._processes[name].pid
        os.kill(pid, signal.SIGSTOP)
        self._struck(number, "freeze", name, lambda: os.kill(pid, signal.SIGCONT))

    def _killed(self, number: int) -> None:
        name = self._chance.choice(("m1", "m2", "m3"))
        self._end(name)
        self._struck(number, "kill -9", name, lambda: self._begin(name))

    def _joined(self, number: int) -> None:
        self._begin("m4")
        self._struck(number, "join", "m4", lambda: self._end("m4"))

    def _end(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()


def _produce(bootstrap: str, partitions: int, ended: threading.Event) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    while not ended.wait(0.25):
        for number in range(partitions):
            producer.send(TOPIC, b"record", partition=number)
    producer.close()


def play(arguments: argparse.Namespace) -> None:
    ended = threading.Event()
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, arguments.partitions)
        writing = threading.Thread(
            target=_produce, args=(broker.bootstrap, arguments.partitions, ended)
        )
        writing.start()
        try:
            Play(
                arguments.client,
                broker.bootstrap,
                arguments.seed,
                arguments.journals,
            ).run(arguments.seconds)
        finally:
            ended.set()
            writing.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("client", choices=("stock", "safe"))
    parser.add_argument("--journals", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--member", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.member:
        member(
            arguments.client,
            arguments.bootstrap,
            arguments.member,
            arguments.seed,
            arguments.journals,
        )
    else:
        play(arguments)


if __name__ == "__main__":
    main()
