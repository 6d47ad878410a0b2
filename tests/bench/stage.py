"""Provides the broker, the topics and the sizes for the measurements."""

import contextlib
import itertools
import os
import random
import time
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

_PRODUCE_TIMEOUT = 120.0
_TRANSACTIONS, _ABORTED = 20, 4  # per topic; every fourth transaction is aborted
# The log cleaner compacts only closed segments, so these settings close a segment after
# 200 ms.
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
}
_CLEANED_WITHIN = 60.0
_VALUES = 500
_WORDS = 2_000
_numbers = itertools.count(1)


@frozen(kw_only=True)
class Sizes:
    """The sizes of a measurement, such as the numbers of rounds and of laps per round."""

    rounds: int = 5
    laps: int = 20
    records: int = 40_000
    seconds: float = 1.0  # the duration of laps that are limited by time
    assigned: int = 10_000  # partitions that the consumer owns in ``ten-thousand``
    strangers: int = 100_000  # holds that the consumer places in ``many-holds``
    tries: int = 200  # samples for a figure with percentiles
    scale: int = 1  # the divisor of all large sizes


BRIEF = Sizes(
    rounds=1,
    laps=1,
    records=2_000,
    seconds=0.2,
    assigned=100,
    strangers=1_000,
    tries=4,
    scale=500,
)


@frozen(kw_only=True)
class Case:
    """The properties of a topic and of its records."""

    partitions: int = 8  # the number of partitions with records
    empty: int = 0  # the number of partitions without records
    size: int = 100  # bytes of a value
    codec: str = "none"  # the producer's `compression.type`
    is_alone: bool = False  # whether each record is a batch of its own
    headers: int = 0  # the number of headers in each record
    is_transactional: bool = False  # if so, a quarter of the records is aborted
    is_compacted: bool = False  # if so, every second record is removed

    def readable(self, records):
        """Return how many of the written records a consumer will receive."""
        if self.is_transactional:
            return records - records // _ABORTED
        # An extra record in each partition closes the segment of the preceding records.
        return records // 2 + self.partitions if self.is_compacted else records


def send(producer, topic, **record):
    """Hand a record to the producer; wait while the producer's queue is full."""
    while True:
        try:
            return producer.produce(topic, **record)
        except BufferError:  # the queue is full: the broker is slower than this loop
            producer.poll(0.1)


@frozen(kw_only=True)
class Stage:
    broker: Any  # one of the test suite's broker objects
    sizes: Sizes = field(factory=Sizes)  # the sizes of the measurements
    # Each variant's environment variables, if versions of the package are compared.
    states: Mapping[str, Mapping[str, str]] = field(factory=dict)
    # Maps the contents of the last shared topic to its name.
    _shared: dict[tuple[Case, int], str] = field(factory=dict, init=False)

    def variant(self, kind, client, **settings):
        """Return the settings for a variant that uses this broker."""
        config = dict(self.broker.client_config)
        return {"kind": kind, "client": client, "config": config, **settings}

    def reader(self, client, topic, **settings):
        """Return the settings for a variant that reads a topic with one of the clients."""
        where = {"bootstrap": self.broker.bootstrap, "topic": topic}
        return self.variant("reader", client, **where, **settings)

    def topic(self, full, empty=0, records=0, size=100):
        """Create a topic with records in its first ``full`` partitions; return its name."""
        name = self._empty(full + empty)
        with self._producer() as producer:
            _write(producer, name, full, range(records), [os.urandom(size)])
        return name

    def filled(self, case, records, keys=None):
        """
        Create a topic with typical records in its partitions; return its name.

        Values consist of words, which a codec compresses to a half or a third of their
        size. Keys have eight bytes.
        """
        settings = _COMPACTED if case.is_compacted else None
        name = self._empty(case.partitions + case.empty, settings)
        many, turn = keys or records, 2 * case.partitions
        how = {
            "values": _words(case.size),
            "key": lambda number: b"%08d" % (number % many),
            "headers": [
                (f"header-{one}", b"%08d" % one) for one in range(case.headers)
            ],
        }
        if case.is_compacted:  # two successive records in a partition share a key
            how["key"] = lambda number: (
                b"%d-%d" % (number // turn, number % case.partitions)
            )
        if case.is_transactional:
            self._write_transactions(name, case, records, how)
        else:
            with self._producer(case) as producer:
                _write(producer, name, case.partitions, range(records), **how)
        if case.is_compacted:
            self._compact(name, case, records, how)
        return name

    def _empty(self, partitions, settings=None):
        name = f"bench-{os.getpid()}-{next(_numbers)}"
        self.broker.create_topic(name, partitions, settings)
        return name

    @contextlib.contextmanager
    def _producer(self, case=Case(), **settings):
        import confluent_kafka  # noqa: PLC0415 - an extra; --help works without it

        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "batch.size": 16_384,  # the default of Kafka and kafka-python
                "linger.ms": 20,
                "compression.type": case.codec,
                "queue.buffering.max.messages": 1_000_000,
                "acks": "all",
                **({"batch.num.messages": 1} if case.is_alone else {}),
                **settings,
            }
        )
        yield producer
        if producer.flush(_PRODUCE_TIMEOUT):
            message = "not all records were produced in time"
            raise TimeoutError(message)

    def _write_transactions(self, name, case, records, how):
        each = records // _TRANSACTIONS
        with self._producer(case, **{"transactional.id": name}) as producer:
            producer.init_transactions()
            for number in range(_TRANSACTIONS):
                producer.begin_transaction()
                some = range(number * each, (number + 1) * each)
                _write(producer, name, case.partitions, some, **how)
                producer.flush()  # an abort would drop unsent records
                if number % _ABORTED:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()

    def _compact(self, name, case, records, how):
        """Wait until the log cleaner has removed the older record of each key."""
        time.sleep(2 * int(_COMPACTED["segment.ms"]) / 1000)
        last = range(records, records + case.partitions)
        with self._producer() as producer:
            _write(producer, name, case.partitions, last, **how)
        deadline = time.monotonic() + _CLEANED_WITHIN
        while (left := self._counted(name, case.partitions)) != case.readable(records):
            if time.monotonic() > deadline:
                message = f"{name}: {left} records are left, not each second one"
                raise TimeoutError(message)

    def _counted(self, name, partitions):
        import confluent_kafka  # noqa: PLC0415 - as above

        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "group.id": name,  # librdkafka requires a group id
                "enable.partition.eof": True,
            }
        )
        consumer.assign(
            [confluent_kafka.TopicPartition(name, one, 0) for one in range(partitions)]
        )
        found = ended = 0
        while ended < partitions:
            came = consumer.consume(10_000, 0.1)
            ends = sum(one.error() is not None for one in came)
            found, ended = found + len(came) - ends, ended + ends
        consumer.close()
        return found

    def shared(self, case, records):
        """Return a :meth:`filled` topic; reuse the last one if it has the same records."""
        if (case, records) not in self._shared:
            self.drop_shared()
            self._shared[case, records] = self.filled(case, records)
        return self._shared[case, records]

    def drop_shared(self):
        while self._shared:
            self.drop(self._shared.popitem()[1])

    def drop(self, topic):
        """Delete the topic if the broker is real; an embedded broker ends soon anyway."""
        if self.broker.is_real:
            self.broker.delete_topic(topic)


def _write(  # noqa: PLR0913, PLR0917 - a record has many properties
    producer, topic, partitions, numbers, values, key=None, headers=()
):
    for number in numbers:
        send(
            producer,
            topic,
            value=values[number % len(values)],
            key=None if key is None else key(number),
            headers=list(headers),
            partition=number % partitions,
        )


def _words(size):
    chance = random.Random(size)  # noqa: S311 - the same records in each run
    words = [chance.randbytes(4).hex()[: chance.randint(3, 8)] for _ in range(_WORDS)]
    return [
        " ".join(chance.choices(words, k=size // 4)).encode()[:size]
        for _ in range(_VALUES)
    ]
