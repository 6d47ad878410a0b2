"""What every row measures on: a broker with topics, and how much of everything."""

import itertools
import os
import random
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

_PRODUCE_TIMEOUT = 120.0
_VALUES = 500
_WORDS = 2_000
_numbers = itertools.count(1)


@frozen(kw_only=True)
class Sizes:
    """How much is measured: rounds of fresh processes, laps in each, records of a lap."""

    rounds: int = 5
    laps: int = 20
    records: int = 40_000
    assigned: int = 10_000  # partitions that a consumer with many has
    strangers: int = 100_000  # holds of one with many
    tries: int = 200  # how often something is tried whose percentiles are told
    polls: int = 30  # how often one that has nothing polls for a second
    scale: int = 1  # what all that is large otherwise is divided by


BRIEF = Sizes(
    rounds=1,
    laps=1,
    records=2_000,
    assigned=100,
    strangers=1_000,
    tries=4,
    polls=2,
    scale=500,
)


@frozen(kw_only=True)
class Case:
    """One kind of records in one topic."""

    partitions: int = 8  # how many the topic has, all of them with records
    size: int = 100  # bytes of a value
    codec: str = "none"  # the producer's `compression.type`

    @property
    def name(self):
        return f"{self.partitions} x {self.size} B, {self.codec}"


def send(producer, topic, **record):
    """Hand a record over; wait for room where the producer's queue is full."""
    while True:
        try:
            return producer.produce(topic, **record)
        except BufferError:  # "Queue full": the broker is slower than this loop
            producer.poll(0.1)


@frozen(kw_only=True)
class Stage:
    broker: Any  # an object of any kind that the test suite runs on
    sizes: Sizes = field(factory=Sizes)  # how much is measured
    # By arm: the environment of its process, where states of the package are compared.
    states: Mapping[str, Mapping[str, str]] = field(factory=dict)

    def arm(self, kind, client, **settings):
        """Return the settings of an arm on this broker."""
        config = dict(self.broker.client_config)
        return {"kind": kind, "client": client, "config": config, **settings}

    def reader(self, client, topic, **settings):
        """Return the settings of an arm that reads a topic with one of the clients."""
        where = {"bootstrap": self.broker.bootstrap, "topic": topic}
        return self.arm("reader", client, **where, **settings)

    def topic(self, full, empty=0, records=0, size=100):
        """Make a topic with records in its first ``full`` partitions; return its name."""
        name = f"bench-{os.getpid()}-{next(_numbers)}"
        self.broker.create_topic(name, full + empty)
        self._write(name, full, records, [os.urandom(size)])
        return name

    def filled(self, case, records, keys=None):
        """
        Make a topic with records as an application's, evenly; return its name.

        Values are words, which a codec shrinks to a half or a third; keys have eight
        bytes.
        """
        name = self.topic(case.partitions)
        many = records if keys is None else keys
        self._write(name, case.partitions, records, _words(case.size), many, case.codec)
        return name

    def _write(  # noqa: PLR0913, PLR0917 - as many as records have properties
        self, topic, partitions, records, values, keys=None, codec="none"
    ):
        import confluent_kafka  # noqa: PLC0415 - of an extra, which --help does without

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "batch.size": 16_384,  # Kafka's and kafka-python's default
                "linger.ms": 20,
                "compression.type": codec,
                "queue.buffering.max.messages": 1_000_000,
                "acks": "all",
            }
        )
        for number in range(records):
            send(
                producer,
                topic,
                value=values[number % len(values)],
                key=None if keys is None else b"%08d" % (number % keys),
                partition=number % partitions,
            )
        if producer.flush(_PRODUCE_TIMEOUT):
            message = f"{topic}: not all of {records} records were produced in time"
            raise TimeoutError(message)

    def drop(self, topic):
        """Delete a topic of a real broker; an embedded one ends with the measurement."""
        if self.broker.is_real:
            self.broker.delete_topic(topic)


def _words(size):
    chance = random.Random(size)  # noqa: S311 - the same records in each run
    words = [chance.randbytes(4).hex()[: chance.randint(3, 8)] for _ in range(_WORDS)]
    return [
        " ".join(chance.choices(words, k=size // 4)).encode()[:size]
        for _ in range(_VALUES)
    ]
