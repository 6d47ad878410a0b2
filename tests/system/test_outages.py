"""
A consumer while its only broker freezes, or is killed and comes back.

Holds under outages of one broker of three, with members that are evicted meanwhile, are
the soak's. Here is what needs a certain moment, and a group without any coordinator.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.structs import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.journal import read
from safeconsumer.audit.writer import JournalWriter
from tests.harness.brokers.java import JavaBroker
from tests.harness.polling import poll_until
from tests.harness.producing import numbered, write

pytestmark = pytest.mark.java_brokers

EACH = 20
"""Records that the partition has from the start."""

STAYS = {"session_timeout_ms": 30_000, "reconnect_backoff_max_ms": 1000}
"""
A session that outlasts every outage here, so that nobody is evicted by chance; and a
broker that is back is asked soon, however long it was away.
"""

PATIENCE = 30.0
"""Seconds: a resume may fall into an outage and into finding the broker again."""


@pytest.fixture(scope="module")
def kafka_broker() -> Iterator[JavaBroker]:
    """Start a broker of these tests' own: what others use is not to be killed."""
    with JavaBroker() as broker:
        yield broker


class Reader:
    """
    Polls a consumer of one partition, and keeps the offsets that come.

    It has read and committed 3 of 20 records, and fetched them all.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - stock or ours
        self.consumer = consumer
        self.came: list[int] = []

    def poll(self, limit: int = 500, wait_ms: int = 50) -> None:
        """Read once."""
        batches = self.consumer.poll(wait_ms, max_records=limit)
        self.came += [one.offset for batch in batches.values() for one in batch]

    def is_silent(self, polls: int) -> None:
        """Read so often, and assert that nothing came."""
        before = len(self.came)
        for _ in range(polls):
            self.poll()
        assert self.came[before:] == []

    def reads(self, offsets: Iterable[int]) -> None:
        """Read until so many came, and assert which."""
        start, wanted = len(self.came), list(offsets)
        while (missing := start + len(wanted) - len(self.came)) > 0:
            # Long: stock forgets a join that outlasts its poll.
            self.poll(missing, wait_ms=1500)
        assert self.came[start:] == wanted


@contextmanager
def frozen(broker: JavaBroker) -> Iterator[None]:
    """Stop the broker in this block: connections stay, nothing answers."""
    broker.freeze()
    try:
        yield
    finally:
        broker.unfreeze()


@contextmanager
def killed(broker: JavaBroker) -> Iterator[None]:
    """End the broker; connections break, and nobody takes new ones in this block."""
    broker.kill()
    try:
        yield
    finally:
        broker.restart()


@contextmanager
def stuck(broker: JavaBroker) -> Iterator[None]:
    """Freeze the broker, and kill it for that before it comes back."""
    broker.freeze()
    try:
        yield
    finally:
        broker.kill()
        broker.restart()


MakeConsumer = Callable[..., Any]


@pytest.fixture
def tp(
    kafka_topic: Callable[..., str], make_producer: Callable[..., KafkaProducer]
) -> TopicPartition:
    """
    Make a partition with 20 records.

    kafka-python 3.0.12's idempotent producer sends nothing more after a timeout.
    """
    topic = kafka_topic(partitions=1)
    producer = make_producer(acks="all", enable_idempotence=False)
    write(producer, numbered(topic, EACH))
    return TopicPartition(topic, 0)


def three_read(
    make_consumer: MakeConsumer,
    kind: type[KafkaConsumer],
    tp: TopicPartition,
    **config: Any,  # noqa: ANN401 - kafka-python's keys
) -> Reader:
    """Make a reader, in a group of its own, that has read 3 records."""
    group = f"{kind.__name__}-{tp.topic}"
    made = Reader(make_consumer(kind, tp.topic, group=group, **STAYS, **config))
    made.reads(range(3))
    made.consumer.commit()
    return made


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Name a folder for the journals of all members."""
    return tmp_path / "journals"


@pytest.fixture
def reader(make_consumer: MakeConsumer, tp: TopicPartition, journals: Path) -> Reader:
    """Make such a consumer with a journal."""
    return three_read(make_consumer, SafeConsumer, tp, journal=journals)


def prove(journals: Path, tp: TopicPartition) -> None:
    """Have the journals judged: all that was acknowledged came, once and not while held."""
    said = {"tp": f"{tp.topic}:{tp.partition}", "first": 0, "last": EACH - 1}
    JournalWriter(journals, member="producer").write("acked", said)
    told = [read(path) for path in sorted(journals.glob("*.journal"))]
    verdicts = check(told, Settings(is_drained=True, patience=PATIENCE)).values()
    assert verdicts
    found = [one.evidence for verdict in verdicts for one in verdict.findings]
    unjudged = {name for verdict in verdicts for name in verdict.unjudged}
    assert (found, unjudged) == ([], set())


@pytest.mark.contract("P8", "P10")
def test_what_was_fetched_comes_after_a_resume_while_the_broker_is_frozen(
    kafka_broker: JavaBroker, journals: Path, tp: TopicPartition, reader: Reader
) -> None:
    """It waits in the consumer, and needs nobody's answer."""
    reader.consumer.pause(tp)
    with frozen(kafka_broker):
        reader.is_silent(polls=5)
        assert reader.consumer.position(tp) == 3
        reader.consumer.resume(tp)
        reader.reads(range(3, EACH))
    reader.consumer.commit()
    assert reader.consumer.committed(tp) == EACH
    prove(journals, tp)


@pytest.mark.contract("P8", "P10")
def test_without_a_coordinator_nothing_comes_and_nothing_is_lost(
    kafka_broker: JavaBroker,
    make_consumer: MakeConsumer,
    journals: Path,
    tp: TopicPartition,
    reader: Reader,
) -> None:
    """
    A consumer that cannot ask whether it is a member still delivers nothing.

    As kafka-python's, and what both have fetched comes when they can ask again.
    """
    stock = three_read(make_consumer, KafkaConsumer, tp)
    with killed(kafka_broker):
        reader.consumer.pause(tp)
        reader.is_silent(polls=5)
        reader.consumer.resume(tp)
        reader.is_silent(polls=20)
        stock.is_silent(polls=20)
        assert reader.consumer.position(tp) == 3
    reader.reads(range(3, EACH))
    stock.reads(range(3, EACH))
    prove(journals, tp)


@pytest.mark.contract("P8")
@pytest.mark.parametrize("away", [frozen, stuck])
def test_a_commit_in_flight_counts_if_it_is_acknowledged(  # noqa: PLR0913 - fixtures
    kafka_broker: JavaBroker,
    make_consumer: MakeConsumer,
    journals: Path,
    tp: TopicPartition,
    reader: Reader,
    *,
    away: Callable[..., Any],
) -> None:
    """
    Nothing that was acknowledged as committed comes again, whoever reads on.

    1. The broker freezes. 2. The consumer is held, and commits; the request lies with
    the broker. 3. The broker goes on, or is killed and starts again.
    """
    reader.reads(range(3, 10))
    answers: list[Any] = []
    with away(kafka_broker):
        reader.consumer.pause(tp)
        reader.consumer.commit_async(callback=lambda _, answer: answers.append(answer))
        with pytest.raises(KafkaTimeoutError):
            reader.consumer.commit(timeout_ms=500)
        reader.is_silent(polls=5)
        assert answers == []
    poll_until(reader.consumer, lambda: answers)
    if isinstance(answers[0], Exception):
        reader.consumer.commit()
    assert reader.consumer.position(tp) == 10
    reader.consumer.close(autocommit=False)
    group = reader.consumer.config["group_id"]
    successor = make_consumer(
        SafeConsumer, tp.topic, group=group, journal=journals, **STAYS
    )
    Reader(successor).reads(range(10, EACH))
    prove(journals, tp)
