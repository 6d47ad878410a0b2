"""
Defines fixtures with brokers, clients and checks for tests of Kafka consumers.

A project loads the fixtures with ``pytest_plugins = ["safeconsumer.testing.fixtures"]``
in its top ``conftest.py``, or with ``-p safeconsumer.testing.fixtures``. kafka-python
is imported only when a test uses a fixture that needs it.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from safeconsumer.testing.clients import Clients

BOOTSTRAP_VARIABLE = "SAFECONSUMER_TEST_BOOTSTRAP"


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[Any]:
    """
    Provide a broker for the whole session.

    If the variable ``SAFECONSUMER_TEST_BOOTSTRAP`` is set, the broker is the cluster at
    that address. Otherwise, the broker is an
    :class:`~safeconsumer.testing.EmbeddedBroker`, whose injected faults are cleared
    when a test fails. Override the fixture to use another broker. The fixture may
    return anything that :func:`~safeconsumer.testing.broker_of` accepts, such as
    ``"host:9092"`` or a ``KafkaContainer`` of testcontainers.
    """
    bootstrap = os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap:
        from safeconsumer.testing.existing import ExistingCluster  # noqa: PLC0415

        yield ExistingCluster(bootstrap)
        return
    from safeconsumer.testing.embedded import EmbeddedBroker  # noqa: PLC0415

    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def kafka_clients(kafka_broker: Any) -> Iterator["Clients"]:  # noqa: ANN401
    """Provide the object that creates clients for the other fixtures and closes them."""
    from safeconsumer.testing.clients import Clients  # noqa: PLC0415  when used
    from safeconsumer.testing.existing import broker_of  # noqa: PLC0415  when used

    clients = Clients(broker_of(kafka_broker))
    yield clients
    clients.close()


@pytest.fixture
def kafka_topic(kafka_clients: "Clients") -> Callable[..., str]:
    """Create topics; ``kafka_topic(partitions=4)`` returns a unique topic name."""
    return kafka_clients.topic


@pytest.fixture
def make_consumer(kafka_clients: "Clients") -> Callable[..., Any]:
    """
    Create consumers with ``make_consumer(cls, *topics, group=None, **config)``.

    A consumer reads from the earliest record, does not auto-commit, and is closed at
    the end; ``config`` overrides the defaults.
    """
    return kafka_clients.consumer


@pytest.fixture
def make_producer(kafka_clients: "Clients") -> Callable[..., Any]:
    """Create producers with ``make_producer(**config)``; they are closed at the end."""
    return kafka_clients.producer


@pytest.fixture
def force_rebalance(kafka_clients: "Clients") -> Callable[..., list[Any]]:
    """
    Cause two rebalances: ``force_rebalance(group, topics, *consumers, timeout=30)``.

    A ghost member joins the group and leaves it again while the call polls the given
    consumers. When the call returns, the consumers have a stable assignment again; the
    result is the list of records that they received. Pass all members of the group, as
    arguments or as one list. Pass no consumers if other threads poll the members; in
    this case, the call returns when the ghost member has received a partition and left
    again. Other keywords configure the ghost member, for example its assignor if no
    consumers are passed.

    Raises:
        TypeError: an argument is not a consumer.
        ValueError: a consumer belongs to another group.
    """

    def force(
        group: str,
        topics: str | list[str],
        *consumers: Any,  # noqa: ANN401  kafka-python is untyped
        timeout: float = 30.0,
        **config: Any,  # noqa: ANN401  kafka-python's own keys, passed on
    ) -> list[Any]:
        from kafka import KafkaConsumer  # noqa: PLC0415  when used

        from safeconsumer.testing.ghost import Ghost, strategies  # noqa: PLC0415
        from safeconsumer.testing.polling import consumers_of  # noqa: PLC0415

        members = [one for given in consumers for one in consumers_of(given)]
        _check_group(group, members)
        ghost_consumer = kafka_clients.consumer(
            KafkaConsumer,
            group=group,
            **{"client_id": "ghost", **strategies(members), **config},
        )
        names = [topics] if isinstance(topics, str) else topics
        ghost = Ghost(ghost_consumer, names, members, timeout)
        return ghost.join() + ghost.leave()

    return force


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """
    End the embedded broker's injected faults after a failed test.

    The test's clients are closed after that, which may require a working broker.
    """
    report: Any = yield
    if call.excinfo is not None and not report.skipped:
        _heal(getattr(item, "funcargs", {}).get("kafka_broker"))
    return report


def _heal(broker: object) -> None:
    from safeconsumer.testing.embedded import EmbeddedBroker  # noqa: PLC0415  when used
    from safeconsumer.testing.errors import BrokerCommandError  # noqa: PLC0415

    if isinstance(broker, EmbeddedBroker):
        with suppress(BrokerCommandError):  # the test may have stopped the broker
            broker.heal()


def _check_group(group: str, members: Sequence[Any]) -> None:
    for one in members:
        config = getattr(one, "config", None)
        its = config.get("group_id", group) if isinstance(config, dict) else group
        if its != group:
            message = (
                f"the rebalance is of group {group!r}, a consumer given of {its!r}"
            )
            raise ValueError(message)
