"""What every row measures on: a broker with topics, and how much of everything."""

import itertools
import os
from typing import Any

import confluent_kafka
from attrs import field, frozen

_PRODUCE_TIMEOUT = 120.0
_numbers = itertools.count(1)


@frozen(kw_only=True)
class Sizes:
    """How much is measured; the defaults are the real thing."""

    rounds: int = 5
    laps: int = 20
    records: int = 40_000
    assigned: int = 10_000
    trials: int = 1
    strangers: int = 100_000
    toggled: int = 20_000
    resumes: int = 200
    resume_wait_ms: int = 5000
    stock_bound: float = 20.0
    idle_polls: int = 30
    imports: int = 15


SMOKE = Sizes(
    rounds=1,
    laps=1,
    records=1_600,
    assigned=200,
    trials=1,
    strangers=500,
    toggled=400,
    resumes=4,
    resume_wait_ms=1000,
    stock_bound=1.0,
    idle_polls=2,
    imports=1,
)


def send(producer: confluent_kafka.Producer, topic: str, **record: Any) -> None:  # noqa: ANN401 - a record's parts
    """Hand a record over; wait for room where the producer's queue is full."""
    while True:
        try:
            return producer.produce(topic, **record)
        except BufferError:  # "Queue full": the broker is slower than this loop
            producer.poll(0.1)


@frozen(kw_only=True)
class Stage:
    """
    A broker and the sizes.

    Attributes:
        broker: an object of any kind that the test suite runs on.
        sizes: how much is measured.
    """

    broker: Any
    sizes: Sizes = field(factory=Sizes)

    def arm(self, kind: str, client: str, **settings: object) -> dict[str, object]:
        """Return the settings of an arm on this broker."""
        config = dict(self.broker.client_config)
        return {"kind": kind, "client": client, "config": config, **settings}

    def topic(
        self, full: int, empty: int = 0, records: int = 0, size: int = 100
    ) -> str:
        """
        Make a topic with records in its first ``full`` partitions; return its name.

        Args:
            full: how many partitions get records, evenly.
            empty: how many more there are.
            records: how many records in all.
            size: bytes of each value.
        """
        name = f"bench-{os.getpid()}-{next(_numbers)}"
        self.broker.create_topic(name, full + empty)
        # Batches of kafka-python's own default size.
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "batch.size": 16_384,
                "linger.ms": 20,
                "queue.buffering.max.messages": 1_000_000,
                "acks": "all",
            }
        )
        value = os.urandom(size)
        for number in range(records):
            send(producer, name, value=value, partition=number % full)
        if producer.flush(_PRODUCE_TIMEOUT):
            message = f"{name}: not all of {records} records were produced in time"
            raise TimeoutError(message)
        return name

    def drop(self, topic: str) -> None:
        """Delete a topic of a real broker; an embedded one ends with the measurement."""
        if self.broker.is_real:
            self.broker.delete_topic(topic)
