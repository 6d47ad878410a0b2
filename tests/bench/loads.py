"""Topics full of records that look like those of an application."""

import random

import confluent_kafka

from tests.bench.cases import Case
from tests.bench.stage import Stage, send

_TIMEOUT = 120.0
_VALUES = 500
_WORDS = 2_000
_HEADERS = [("trace-id", b"4bf92f3577b34da6a3ce929d0e0e4736"), ("source", b"orders")]


def fill(stage: Stage, case: Case, records: int, keys: int | None = None) -> str:
    """
    Make a topic with so many records, evenly over its partitions; return its name.

    Values are words, which a codec shrinks to a half or a third; keys have eight
    bytes. Batches hold up to 16 KiB, the default of Kafka's and of kafka-python's
    producer.

    Args:
        stage: the broker.
        case: the kind of records.
        records: how many.
        keys: how many different keys there are; None for one per record.
    """
    topic = stage.topic(case.partitions)
    values = _values(case.size)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": stage.broker.bootstrap,
            "batch.size": 16_384,
            "linger.ms": 20,
            "compression.type": case.codec,
            "queue.buffering.max.messages": 1_000_000,
            "acks": "all",
        }
    )
    for number in range(records):
        send(
            producer,
            topic,
            value=values[number % _VALUES],
            key=b"%08d" % (number if keys is None else number % keys),
            partition=number % case.partitions,
            headers=_HEADERS if case.headers else None,
        )
    if producer.flush(_TIMEOUT):
        message = f"{topic}: not all of {records} records were produced in time"
        raise TimeoutError(message)
    return topic


def _values(size: int) -> list[bytes]:
    chance = random.Random(size)  # noqa: S311 - the same records in each run
    words = [chance.randbytes(4).hex()[: chance.randint(3, 8)] for _ in range(_WORDS)]
    return [
        " ".join(chance.choices(words, k=size // 4)).encode()[:size]
        for _ in range(_VALUES)
    ]
