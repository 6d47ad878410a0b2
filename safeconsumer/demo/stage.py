"""Provides what a client needs in a situation: a topic, a group, programs and a tally."""

import itertools
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import kafka.errors as kafka_errors
from attrs import frozen
from kafka import KafkaConsumer, TopicPartition

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.consumer import SafeConsumer
from safeconsumer.demo.tally import Tally
from safeconsumer.testing.clients import Clients
from safeconsumer.testing.embedded import EmbeddedBroker
from safeconsumer.testing.existing import ExistingCluster
from safeconsumer.testing.ghost import Ghost
from safeconsumer.testing.polling import poll_until

# The prefix of topic and group names, by which leftovers can be recognized.
RUN = f"safeconsumer-demo-{uuid.uuid4().hex[:6]}"
TOPIC, GROUP = "-orders", "-group"
PARTITIONS = 4

# The maximum wait for a broker or a group, in seconds. On the demo's brokers a
# rebalance takes 1 to 3 s, and an eviction one session timeout more.
PATIENCE = 30.0
# Seconds without a record after which no more records are expected. A resumed partition
# delivers within fetch.max.wait.ms (500), a round trip and a poll.
SILENCE = 2.0
# The timeout of the first poll in milliseconds. It is long because kafka-python forgets
# a join that outlasts its poll. A broker may wait 3 s for more members of a new group
# (group.initial.rebalance.delay.ms). The poll returns with the first records.
_JOIN_MS = 5000
# The maximum records per poll, small enough that a pause comes in the middle of a
# batch.
_AT_ONCE = 10
# With these settings, records that are produced together to a partition form one batch,
# which is fetched as a whole.
_ONE_BATCH = {"linger_ms": 20, "batch_size": 1 << 20}


_NUMBERS = itertools.count(1)

Broker = EmbeddedBroker | ExistingCluster


@frozen
class Client:
    """One of the two consumer classes that the demo compares."""

    title: str
    make: Callable[..., Any]
    is_ours: bool = False


def _make_safe(*topics: str, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - kafka-python's
    return SafeConsumer(*topics, log=False, **configs)


STOCK = Client("KafkaConsumer", KafkaConsumer)
SAFE = Client("SafeConsumer", _make_safe, is_ours=True)


class CancelledError(Exception):
    """The demo was requested to stop."""


@frozen(kw_only=True)
class Stage:
    """
    A client's topic, group and tally in a situation; :func:`staged` creates it.

    Attributes:
        client: the consumer class that is tested in the situation.
        broker: the broker that the client uses.
        topic: the client's own topic, with four partitions.
        group: the client's own group.
        tally: judges the deliveries.
        say: prints a line about the run.
        cancelled: set by another thread to stop the run at the next poll.
        clients: creates consumers and producers, and closes them at the end.
    """

    client: Client
    broker: Broker
    topic: str
    group: str
    say: Callable[[str], object]
    cancelled: InterruptibleEvent
    clients: Clients
    tally: Tally

    def produce(self, records: int) -> None:
        """Write ``records`` records to each partition, and await the acknowledgements."""
        producer = self.clients.producer(**_ONE_BATCH)
        sent = [
            producer.send(self.topic, b"record", partition=number)
            for number in range(PARTITIONS)
            for _ in range(records)
        ]
        for future in sent:
            written = future.get(timeout=PATIENCE)
            tp = TopicPartition(written.topic, written.partition)
            self.tally.produced(tp, written.offset)

    def program(self, **configs: Any) -> "Program":  # noqa: ANN401 - kafka-python's
        """Create and subscribe a group member whose deliveries are judged."""
        make, group = self.client.make, self.group
        consumer = self.clients.consumer(make, self.topic, group=group, **configs)
        return Program(self, consumer)

    def ghost(self, program: "Program") -> Ghost:
        """Create another member of the same class, whose deliveries are not judged."""
        consumer = self.clients.consumer(self.client.make, group=self.group)
        return Ghost(consumer, [self.topic], [program], PATIENCE)

    def check(self) -> None:
        """Raise :class:`CancelledError` if the demo was cancelled."""
        if self.cancelled.is_set():
            raise CancelledError

    def rest(self, seconds: float) -> None:
        """Wait without polling, like a busy program."""
        self.cancelled.wait(seconds)
        self.check()


@contextmanager
def staged(
    client: Client,
    broker: Broker,
    tally: Tally,
    say: Callable[[str], object],
    cancelled: InterruptibleEvent,
) -> Iterator[Stage]:
    """Create a stage for a client, and close its consumers and producers afterwards."""
    name = f"{RUN}-{next(_NUMBERS)}"
    clients = Clients(broker)
    broker.create_topic(name + TOPIC, PARTITIONS)
    stage = Stage(
        client=client,
        broker=broker,
        topic=name + TOPIC,
        group=name + GROUP,
        say=say,
        cancelled=cancelled,
        clients=clients,
        tally=tally,
    )
    try:
        yield stage
    finally:
        clients.close()


class Program:
    """
    A program that polls and commits, and whose deliveries are judged.

    Attributes:
        consumer: the program's consumer.
        before_poll: called before each poll.
    """

    def __init__(self, stage: Stage, consumer: Any) -> None:  # noqa: ANN401 - either client
        self.consumer = consumer
        self.before_poll: Callable[[], object] = lambda: None
        self._stage = stage
        self._at_once: int | None = None

    def poll(self, timeout_ms: int) -> dict[TopicPartition, list[Any]]:
        """Poll once; called by :func:`poll_until` and :class:`Ghost`."""
        self._stage.check()
        self.before_poll()
        if not self._stage.client.is_ours and not self.consumer.assignment():
            timeout_ms = max(timeout_ms, _JOIN_MS)
        batches: dict[TopicPartition, list[Any]] = self.consumer.poll(
            timeout_ms, max_records=self._at_once
        )
        for tp, records in batches.items():
            for record in records:
                self._stage.tally.delivered(tp, record.offset)
        if batches:
            self._commit(
                {tp: records[-1].offset + 1 for tp, records in batches.items()}
            )
        return batches

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        # A commit during a rebalance is refused; then the next owner reads the records
        # again.
        with suppress(kafka_errors.KafkaError):
            self.consumer.commit(timeout_ms=1000)
            self._stage.tally.committed(offsets)

    def assignment(self) -> set[TopicPartition]:
        """Return a copy of the consumer's assignment."""
        return set(self.consumer.assignment())

    def group_metadata(self) -> Any:  # noqa: ANN401 - kafka-python's
        """Return the consumer's group metadata."""
        return self.consumer.group_metadata()

    # ------------------------------------------------------------ waits

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Poll until the condition is met."""
        poll_until(self, condition, awaited=what, timeout=PATIENCE)

    def read(self, records: int) -> None:
        """Join the group, get every partition, and read at least ``records`` records."""
        tally = self._stage.tally
        self._at_once = _AT_ONCE
        self.until(
            lambda: self.owns(PARTITIONS) and tally.handed_out >= records,
            f"all partitions and {records} records",
        )
        self._at_once = None

    def read_of_each(self) -> None:
        """Join the group, and read the first records of every partition."""
        self._at_once = _AT_ONCE
        self.until(
            lambda: len(self._stage.tally.begun) == PARTITIONS,
            "the first records of every partition",
        )
        self._at_once = None

    def owns(self, partitions: int) -> bool:
        """Return whether this number of partitions is assigned to the consumer."""
        return len(self.assignment()) == partitions

    def linger(self) -> None:
        """Poll until no record has arrived for a while, so that all leaks are counted."""
        self._until_silence(SILENCE / 2, lambda: False)

    def drain(self) -> None:
        """Poll until every record has been delivered or no record has arrived for a while."""
        self._until_silence(SILENCE, lambda: not self._stage.tally.missing)

    def _until_silence(self, seconds: float, is_over: Callable[[], bool]) -> None:
        silence, began = self._stage.tally.silence, time.monotonic()
        self.until(lambda: is_over() or silence(began) > seconds, "an end of records")
