"""
A consumer while its only broker freezes, or is killed and comes back.

Holds under outages of one broker of three, with members that are evicted meanwhile, are
the soak's. Here is what needs a certain moment, and a group without any coordinator.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import KafkaTimeoutError
from kafka.structs import TopicPartition

from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.journal import read
from safeconsumer.audit.writer import JournalWriter
from tests.harness.brokers.java import JavaBroker
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import Reader

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


@pytest.fixture
def lab(
    kafka_broker: JavaBroker, make_producer: Callable[..., KafkaProducer]
) -> Iterator[Lab]:
    """
    Give the test its topics and consumers, and close them all.

    kafka-python 3.0.12's idempotent producer sends nothing more after a timeout.
    """
    producer = make_producer(
        acks="all", enable_idempotence=False, reconnect_backoff_max_ms=1000
    )
    made = Lab(kafka_broker, producer, [])
    try:
        yield made
    finally:
        made.close()


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


def three_read(lab: Lab, client: str, **config: Any) -> Reader:  # noqa: ANN401 - kafka-python's keys
    """Make a consumer that has read and committed 3 of 20 records, and fetched them all."""
    _, (tp,) = lab.topic_with(EACH, 1)
    made = lab.reader(client, tp.topic, group=lab.name("g"), **STAYS, **config)
    made.until_joined(made.owns([tp]))
    made.take(3 - len(made.log))
    made.consumer.commit()
    return made


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Name a folder for the journals of all members."""
    return tmp_path / "journals"


@pytest.fixture
def reader(lab: Lab, journals: Path) -> Reader:
    """Make such a consumer with a journal."""
    return three_read(lab, "safe", journal=journals)


def its_partition(reader: Reader) -> TopicPartition:
    """Return the only partition that is assigned to it."""
    (tp,) = reader.consumer.assignment()
    return tp


def prove(lab: Lab, journals: Path, tp: TopicPartition) -> None:
    """Have the journals judged: all that was acknowledged came, once and not while held."""
    said = {"tp": f"{tp.topic}:{tp.partition}", "first": 0, "last": lab.end(tp) - 1}
    JournalWriter(journals, member="producer").write("acked", said)
    told = [read(path) for path in sorted(journals.glob("*.journal"))]
    verdicts = check(told, Settings(is_drained=True, patience=PATIENCE)).values()
    assert verdicts
    found = [one.evidence for verdict in verdicts for one in verdict.findings]
    unjudged = {name for verdict in verdicts for name in verdict.unjudged}
    assert (found, unjudged) == ([], set())


@pytest.mark.contract("P8", "P10")
def test_what_was_fetched_comes_after_a_resume_while_the_broker_is_frozen(
    lab: Lab, journals: Path, reader: Reader
) -> None:
    """It waits in the consumer, and needs nobody's answer."""
    tp = its_partition(reader)
    reader.consumer.pause(tp)
    with frozen(lab.broker):
        reader.rounds(5)
        assert reader.consumer.position(tp) == 3
        reader.consumer.resume(tp)
        reader.drain(lab.rest({tp: 3}))
    reader.consumer.commit()
    assert reader.consumer.committed(tp) == EACH
    prove(lab, journals, tp)


@pytest.mark.contract("P8", "P10")
def test_without_a_coordinator_nothing_comes_and_nothing_is_lost(
    lab: Lab, journals: Path, reader: Reader
) -> None:
    """
    A consumer that cannot ask whether it is a member still delivers nothing.

    As kafka-python's, and what both have fetched comes when they can ask again.
    """
    tp = its_partition(reader)
    stock = three_read(lab, "stock")
    with killed(lab.broker):
        reader.consumer.pause(tp)
        assert reader.rounds(5) == stock.rounds(5) == []
        reader.consumer.resume(tp)
        assert reader.rounds(20) == stock.rounds(20) == []
        assert reader.consumer.position(tp) == 3
    for one in (reader, stock):
        one.drain(lab.rest({its_partition(one): 3}))
    prove(lab, journals, tp)


@pytest.mark.contract("P8")
@pytest.mark.parametrize("away", [frozen, stuck])
def test_a_commit_in_flight_counts_if_it_is_acknowledged(
    lab: Lab, journals: Path, reader: Reader, away: Callable[..., Any]
) -> None:
    """
    Nothing that was acknowledged as committed comes again, whoever reads on.

    1. The broker freezes. 2. The consumer is held, and commits; the request lies with
    the broker. 3. The broker goes on, or is killed and starts again.
    """
    tp = its_partition(reader)
    reader.take(7)
    answers: list[Any] = []
    with away(lab.broker):
        reader.consumer.pause(tp)
        reader.consumer.commit_async(callback=lambda _, answer: answers.append(answer))
        with pytest.raises(KafkaTimeoutError):
            reader.consumer.commit(timeout_ms=500)
        reader.rounds(5)
        assert answers == []
    reader.until(lambda: answers)
    if isinstance(answers[0], Exception):
        reader.consumer.commit()
    assert reader.consumer.position(tp) == 10
    reader.consumer.close(autocommit=False)
    group = reader.consumer.config["group_id"]
    successor = lab.reader("safe", tp.topic, group=group, journal=journals, **STAYS)
    successor.drain(lab.rest({tp: 10}))
    prove(lab, journals, tp)
