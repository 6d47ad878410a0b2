"""
Each private name of kafka-python that we rely on is there, listed and really used.
"""

import inspect
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import TopicPartitionState
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import TopicPartition

from safeconsumer._kafka import compat
from tests.contract.upstream_names import (
    is_upstreams,
    listed_names,
    own_names,
    private_uses,
    uses,
)
from tests.kafka.offline import offline

BATCH = bytes(DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1024).build())


@pytest.fixture(scope="module")
def stock() -> Iterator[KafkaConsumer]:
    """
    Make a live consumer of upstream's.
    """
    with offline(KafkaConsumer) as consumer:
        yield consumer


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [*compat.METHODS, *compat.RECEIVING_METHODS],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_method_is_there_with_its_parameters(
    owner: type, name: str, parameters: tuple[str, ...]
) -> None:
    """
    We call it, or override it and are called with them.
    """
    found = tuple(inspect.signature(getattr(owner, name)).parameters)
    assert found[: len(parameters)] == parameters


@pytest.mark.parametrize(
    ("owner", "name"), [*compat.COROUTINES, *compat.RECEIVING_COROUTINES]
)
def test_a_coroutine_is_one(owner: type, name: str) -> None:
    """
    We await it on the IO thread.
    """
    assert inspect.iscoroutinefunction(getattr(owner, name))


@pytest.mark.parametrize("kind", compat.ATTRIBUTES, ids=lambda kind: kind.__name__)
def test_attributes_are_there_on_live_objects(kind: type, stock: KafkaConsumer) -> None:
    """
    On those that a real constructor made.
    """
    parts = [
        stock,
        stock._subscription,
        stock._fetcher,
        stock._coordinator,
        stock._net,
        stock._manager,
        stock._cluster,
        TopicPartitionState(),
        Fetcher.PartitionRecords(0, TopicPartition("t", 0), MemoryRecords(BATCH)),
        MemoryRecords(BATCH).next_batch(),
    ]
    (live,) = [part for part in parts if type(part) is kind]
    missing = [name for name in compat.ATTRIBUTES[kind] if not hasattr(live, name)]
    assert missing == []


@pytest.mark.parametrize("name", sorted(listed_names()))
def test_a_listed_name_is_used(name: str) -> None:
    """
    No entry is stale: the guard refuses no kafka-python for nothing.
    """
    assert name in {use.name for use in uses()}


def test_every_private_name_of_upstream_is_listed() -> None:
    """
    Else a kafka-python without it would fail in ``poll`` and not at construction.
    """
    unlisted = {
        use.name: use.place
        for use in private_uses()
        if is_upstreams(use) and use.name not in listed_names()
    }
    assert unlisted == {}


def test_every_private_name_is_upstreams_or_ours() -> None:
    """
    Neither means: misspelt, or gone.
    """
    unknown = {
        use.name: use.place
        for use in private_uses()
        if not is_upstreams(use) and use.name not in own_names()
    }
    assert unknown == {}
