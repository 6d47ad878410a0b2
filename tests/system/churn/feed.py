"""The records: written at a rate, journaled when acknowledged; and the dead letters."""

import random
import threading
from collections import Counter
from typing import Any, Self

import confluent_kafka

from safeconsumer.audit.writer import JournalWriter
from tests.system.churn.settings import LETTERS, PARTITIONS, TOPIC, Settings, fails
from tests.system.soak.acknowledged import Acknowledged

_BURST = 0.25  # seconds
_FLUSH = 60.0
_KEYS = 5 * PARTITIONS
_WITHOUT_KEY = 0.05
_LIMIT = 30.0

At = tuple[int, int]


class Feed:
    """
    Writes records until left, and waits for what is on its way. A context manager.

    Attributes:
        doomed: partition and offset of what must become a dead letter.
        acknowledged: what was written.
        lost: how many were refused, or not answered.
    """

    def __init__(self, settings: Settings, bootstrap: str) -> None:
        self._rate = settings.rate
        self._chance = random.Random(f"feed {settings.seed}")  # noqa: S311 - no secret
        journal = JournalWriter(settings.journals, member="producer")
        self.acknowledged = Acknowledged(journal)
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed")
        self._number = 0
        self.doomed: set[At] = set()
        self.lost = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_BURST):
            for _ in range(round(self._rate * _BURST)):
                self._send()
            self._producer.poll(0)
            self.acknowledged.tell()
        self.lost += self._producer.flush(_FLUSH)
        self.acknowledged.tell()

    def _send(self) -> None:
        self._number += 1
        number = self._number
        key = self._chance.randrange(_KEYS)
        name = None if self._chance.random() < _WITHOUT_KEY else b"k%d" % key

        def answered(error: object, message: Any) -> None:  # noqa: ANN401 - its own type
            self._answered(number, error, message)

        self._producer.produce(
            TOPIC,
            b"%d" % number,
            key=name,
            partition=key % PARTITIONS,
            on_delivery=answered,
        )

    def _answered(self, number: int, error: object, message: Any) -> None:  # noqa: ANN401 - its own type
        if error is not None:
            self.lost += 1
            return
        partition, offset = message.partition(), message.offset()
        if isinstance(fails(number), str):
            self.doomed.add((partition, offset))
        self.acknowledged.note(TOPIC, partition, offset)


def letters(bootstrap: str) -> Counter[At]:
    """Return how many dead letters there are, by the partition and offset of the record."""
    reading = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "churn-reader"}
    )
    tp = confluent_kafka.TopicPartition(LETTERS, 0, 0)
    found: Counter[At] = Counter()
    try:
        _, end = reading.get_watermark_offsets(tp, timeout=_LIMIT)
        reading.assign([tp])
        while found.total() < end:
            message = reading.poll(_LIMIT)
            if message is None or message.error() is not None:
                why = f"{found.total()} of {end} dead letters could be read"
                raise RuntimeError(why)
            said = dict(message.headers())
            at = (said[f"dead-letter-{name}"] for name in ("partition", "offset"))
            partition, offset = map(int, at)
            found[partition, offset] += 1
    finally:
        reading.close()
    return found
