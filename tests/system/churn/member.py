"""
One worker in a process of its own: ``python -m tests.system.churn.member JSON``.

It leaves when its standard input ends. What it did is in its journal.
"""

import json
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from kafka import KafkaProducer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import SafeConsumer, Worker
from safeconsumer.audit.handling import Handling, skips_hook
from safeconsumer.audit.writer import JournalWriter
from safeconsumer.worker import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Reject,
    Retry,
    RetryLater,
)
from tests.system.churn import settings

_WORK = 0.08  # seconds at most, mostly: so that something is queued most of the time
_LONG = 0.5  # and of one in two hundred
_LATER_EVERY = 100


class Handler:
    """Works for a moment, and fails as the record says."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._put_off: set[tuple[int, int]] = set()

    def __call__(self, record: Any, context: Any) -> None:  # noqa: ANN401 - upstream's
        number = int(record.value)
        is_long = self._chance.random() < 1 / 200
        time.sleep(self._chance.uniform(0.0, _LONG if is_long else _WORK))
        at = record.partition, record.offset
        if number % _LATER_EVERY == 0 and at not in self._put_off:
            self._put_off.add(at)
            raise RetryLater(self._chance.uniform(0.0, 0.3))
        match settings.fails(number):
            case "reject":
                raise Reject(record.value.decode())
            case "always":
                raise ValueError(record.value.decode())
            case int() as times if context.attempt <= times:
                raise ConnectionError(record.value.decode())


class Holder:
    """Pauses what is assigned here now and then, as a program does."""

    def __init__(self, consumer: SafeConsumer, chance: random.Random) -> None:
        self._consumer = consumer
        self._chance = chance

    def run(self, over: threading.Event) -> None:
        """Place and lift holds until told to end; then none stands."""
        while not over.wait(self._chance.uniform(1.0, 5.0)):
            owned = sorted(self._consumer.assignment())
            targets: list[TopicPartition | str] = [settings.TOPIC, *owned]
            target = self._chance.choice(targets)
            with self._consumer.held(target, owner="app"):
                over.wait(self._chance.uniform(0.2, 2.0))


def main() -> None:
    """Work until told to leave."""
    told: dict[str, Any] = json.loads(sys.argv[1])
    chance = random.Random(told["seed"])  # noqa: S311 - to be repeated
    journal = JournalWriter(
        Path(told["journals"]), member=told["name"], group=settings.GROUP
    )
    strategy = CooperativeStickyAssignor if told["is_cooperative"] else None
    consumer = SafeConsumer(
        settings.TOPIC,
        **settings.MEMBER,
        **told["client"],
        partition_assignment_strategy=(strategy or RangePartitionAssignor,),
        control=settings.CONTROL,
        journal=journal,
    )
    handling = Handling(journal, order="key")
    worker = Worker(
        consumer,
        handling.around(Handler(chance)),
        order="key",
        concurrency=4,
        limits=Limits(records=200),
        retry=Retry(attempts=3, first=0.05, most=0.5),
        dead_letter=DeadLetter(
            handling.letters(KafkaProducer(**told["client"])),
            settings.LETTERS,
            max_ratio=None,
            max_consecutive=None,
        ),
        drain=Drain(revoke=5.0, shutdown=10.0),
        commit=Commit(every=0.5),
        on_event=skips_hook(journal),
    )
    handling.watch(worker.running)
    _work(worker, Holder(consumer, chance))


def _work(worker: Worker, holder: Holder) -> None:
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()
        worker.stop()

    threading.Thread(target=listen, daemon=True).start()
    holding = threading.Thread(target=holder.run, args=(over,), daemon=True)
    holding.start()
    try:
        worker.run()
    finally:
        over.set()
        holding.join()


if __name__ == "__main__":
    main()
