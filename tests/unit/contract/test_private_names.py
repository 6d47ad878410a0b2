"""Each name of kafka-python's inside that we rely on is there, listed and really used."""

import inspect
from collections.abc import Iterator

import pytest
from kafka import KafkaConsumer
from kafka.consumer.fetcher import Fetcher
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState
from kafka.coordinator.base import Generation
from kafka.coordinator.heartbeat import Heartbeat
from kafka.net.manager import KafkaConnectionManager
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import TopicPartition

from safeconsumer._kafka import compat
from safeconsumer._kafka.decoding.records import CompiledRecords
from tests.harness.kafka.offline import offline
from tests.harness.listing import each
from tests.unit.contract.upstream_names import (
    ELSEWHERE,
    Use,
    held_by,
    is_listed,
    is_private,
    listed,
    must_be_listed,
    own_names,
    upstreams,
    used_names,
    uses,
)

BATCH = bytes(DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1024).build())


@pytest.fixture(scope="module")
def stock() -> Iterator[KafkaConsumer]:
    """Make a live consumer of upstream's."""
    with offline(KafkaConsumer) as consumer:
        yield consumer


@each(
    ("owner", "name", "parameters"),
    [*compat.METHODS, *compat.RECEIVING_METHODS],
)
def test_a_method_is_there_with_its_parameters(
    owner: type, name: str, parameters: tuple[str, ...]
) -> None:
    """We call it, or override it and are called with them."""
    found = tuple(inspect.signature(getattr(owner, name)).parameters)
    assert found[: len(parameters)] == parameters


@each(("owner", "name"), [*compat.COROUTINES, *compat.RECEIVING_COROUTINES])
def test_a_coroutine_is_one(owner: type, name: str) -> None:
    """We await it on the IO thread."""
    assert inspect.iscoroutinefunction(getattr(owner, name))


@each("kind", compat.ATTRIBUTES)
def test_attributes_are_there_on_live_objects(kind: type, stock: KafkaConsumer) -> None:
    """On those that a real constructor made."""
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
    live = [part for part in parts if type(part) is kind] or [compat.SAMPLES[kind]()]
    missing = [name for name in compat.ATTRIBUTES[kind] if not hasattr(live[0], name)]
    assert missing == []


@each("kind", compat.FIELDS)
def test_fields_are_those_that_we_give(kind: type) -> None:
    """And in this order: we make such tuples, too."""
    assert kind._fields == compat.FIELDS[kind]  # type: ignore[attr-defined]  # a namedtuple


def test_every_listed_name_is_used() -> None:
    """No entry is stale: the guard refuses no kafka-python for nothing."""
    assert {name for _, name in listed()} - used_names() == set()


def test_every_name_of_upstreams_is_listed(stock: KafkaConsumer) -> None:
    """
    Else a kafka-python without it would fail in ``poll`` and not at construction.

    List what is found here in ``compat``; or in ``ELSEWHERE`` of ``upstream_names``, if
    it is an attribute of something of ours that is only called the same.
    """
    held = held_by(stock)
    unlisted = {
        (use.name, kind and kind.__name__): use.place
        for use in uses()
        for kind in must_be_listed(use, held)
        if not is_listed(use.name, kind)
    }
    assert unlisted == {}


@each(
    ("of", "name", "kind"),
    [
        ("self._generation", "is_lost", Generation),
        ("self.heartbeat", "poll", Heartbeat),
        ("self._subscription", "assign_from_subscribed", SubscriptionState),
        ("consumer._manager", "wait_for", KafkaConnectionManager),
        ("consumer", "_fetcher", KafkaConsumer),
        ("part", "next_fetch_offset", None),
        ("completed", "fetched_offset", None),
        ("state", "has_valid_position", None),
    ],
)
def test_a_name_that_looks_public_is_found(
    of: str, name: str, kind: type | None, stock: KafkaConsumer
) -> None:
    """By what it is an attribute of, or, where that says nothing, by itself."""
    use = Use(name=name, place="", of=of, within=None)
    assert must_be_listed(use, held_by(stock)) == {kind}


@each(
    ("name", "kinds"),
    [
        ("next_fetch_offset", {CompiledRecords}),
        ("records_left", set()),
        ("_append", set()),
    ],
)
def test_a_name_of_our_own_class_is_looked_up_in_its_parents(
    name: str, kinds: set[type], stock: KafkaConsumer
) -> None:
    """It must be listed if upstream's part of the class has it."""
    use = Use(name=name, place="", of="self", within=CompiledRecords)
    assert must_be_listed(use, held_by(stock)) == kinds


def test_a_documented_call_need_not_be_listed(stock: KafkaConsumer) -> None:
    """Of a consumer; the same name of a part inside is not documented."""
    held = held_by(stock)
    documented = Use(name="position", place="", of="consumer", within=None)
    inside = Use(name="position", place="", of="consumer._subscription", within=None)
    assert must_be_listed(documented, held) == set()
    assert must_be_listed(inside, held) == {SubscriptionState}


def test_names_that_mean_something_else_are_used_and_upstreams() -> None:
    """No exception is stale, and none hides a name that is listed."""
    assert ELSEWHERE.keys() - (upstreams() & used_names()) == set()
    assert set(filter(is_listed, ELSEWHERE)) == set()


def test_every_private_name_is_upstreams_or_ours() -> None:
    """Neither means: misspelt, or gone."""
    unknown = {
        use.name: use.place
        for use in uses()
        if is_private(use.name) and use.name not in upstreams() | own_names()
    }
    assert unknown == {}
