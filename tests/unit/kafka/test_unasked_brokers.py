"""A broker that could not be asked for records is asked again."""

from collections.abc import Iterator
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import SaslAuthenticationFailedError

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.fixtures import Maker

A = TopicPartition("orders", 0)


@pytest.fixture
def consumer(safe: Maker, monkeypatch: pytest.MonkeyPatch) -> Iterator[SafeConsumer]:
    """Make a consumer of one partition, whose leader is broker 2."""
    made = safe()
    assigned(made, A)
    cluster = made._fetcher._manager.cluster
    monkeypatch.setattr(cluster, "leader_for_partition", lambda _: 2)
    monkeypatch.setattr(cluster, "leader_epoch_for_partition", lambda _: -1)
    return made


@pytest.mark.contract("P10")
def test_a_broker_that_refuses_the_login_is_named_by_each_poll(
    consumer: SafeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python 3.0.12 raises once, and then returns nothing for ever."""
    manager = consumer._fetcher._manager

    def refuse(*_: object, **__: object) -> None:
        message = "wrong password"
        raise SaslAuthenticationFailedError(message)

    monkeypatch.setattr(manager.cluster, "broker_metadata", lambda _: object())
    monkeypatch.setattr(manager, "send", refuse)
    for _ in range(3):
        with pytest.raises(SaslAuthenticationFailedError, match="wrong password"):
            consumer.poll(0)
    assert consumer._fetcher._nodes_with_pending_fetch_requests == set()


@pytest.mark.contract("P10")
def test_a_leader_that_the_metadata_does_not_have_is_waited_for(
    consumer: SafeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It is asked once metadata knows it: kafka-python 3.0.12 never asks it again.

    1. Metadata is read while broker 2 starts. 2. The old leader's answer says that the
    partition has moved there (KIP-951). 3. Metadata knows it.
    """
    fetcher, known = consumer._fetcher, set[int]()
    cluster = fetcher._manager.cluster
    asked_for: list[Any] = []
    monkeypatch.setattr(cluster, "broker_metadata", lambda node: node in known or None)
    monkeypatch.setattr(cluster, "request_update", lambda: asked_for.append("metadata"))
    assert fetcher._create_fetch_requests() == {}
    assert consumer.poll(0) == {}
    assert asked_for
    known.add(2)
    assert list(fetcher._create_fetch_requests()) == [2]
