"""A broker in a container that these tests alone use: they freeze and kill it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from kafka import KafkaProducer

from tests.harness.brokers import choice
from tests.harness.regression.lab import Lab
from tests.harness.worker.fixtures import lab as worker_lab  # noqa: F401 - a fixture
from tests.system.containers.outages import How, Outage

if TYPE_CHECKING:
    from tests.harness.brokers.container import ContainerBroker


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator["ContainerBroker"]:
    """Start a broker of these tests' own: what others use is not to be killed."""
    with choice.start(choice.Kind.DOCKER) as broker:
        yield broker


@pytest.fixture
def producer(make_producer: Callable[..., KafkaProducer]) -> KafkaProducer:
    """
    Make a producer that waits for the disk and survives a delivery timeout.

    kafka-python 3.0.12's idempotent producer sends nothing more after one.
    """
    return make_producer(
        acks="all", enable_idempotence=False, reconnect_backoff_max_ms=1000
    )


@pytest.fixture
def freeze(kafka_broker: "ContainerBroker") -> Outage:
    """Make an outage by freezing."""
    return Outage(kafka_broker, How.FREEZE)


@pytest.fixture
def kill(kafka_broker: "ContainerBroker") -> Outage:
    """Make an outage by a crash."""
    return Outage(kafka_broker, How.KILL)


@pytest.fixture(params=[How.FREEZE, How.KILL])
def outage(kafka_broker: "ContainerBroker", request: pytest.FixtureRequest) -> Outage:
    """Make an outage of each kind, or of those that the test asks for."""
    return Outage(kafka_broker, request.param)


@pytest.fixture
def lab(kafka_broker: "ContainerBroker", producer: KafkaProducer) -> Iterator[Lab]:
    """Give the test its topics, consumers and members, and close them all."""
    made = Lab(kafka_broker, producer, [])
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """Make a folder for the journals of all members."""
    return tmp_path / "journals"
