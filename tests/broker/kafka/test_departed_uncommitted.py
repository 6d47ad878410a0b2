"""A quiet partition that departs without a commit, with ``latest``: a warning (P8)."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import HeldPartitionUncommitted
from tests.harness.holds.lab import Told
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.fixtures import Maker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

DEPARTURES: dict[str, Callable[[SafeConsumer], object]] = {
    "close": lambda consumer: consumer.close(autocommit=False, timeout_ms=0),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "assign": lambda consumer: consumer.assign([B]),
}


@pytest.mark.parametrize("depart", DEPARTURES.values(), ids=DEPARTURES)
def test_it_is_told_however_it_departs(
    safe: Maker, told: Told, depart: Callable[[SafeConsumer], object]
) -> None:
    """After a manual ``assign``, where no join tells it; only of what was quiet; once."""
    consumer = safe(group_id="g", auto_offset_reset="latest")
    assigned(consumer, A, B)
    consumer._coordinator.commits.lack([A, B])
    consumer.pause(A)
    depart(consumer)
    consumer.close(autocommit=False, timeout_ms=0)
    assert [one.partitions for one in told.of(HeldPartitionUncommitted)] == [(A,)]


def test_nothing_is_told_of_a_committed_one(safe: Maker, told: Told) -> None:
    """Whoever takes it over starts there."""
    consumer = safe(group_id="g", auto_offset_reset="latest")
    assigned(consumer, A)
    consumer._coordinator.commits.lack([A])
    consumer.pause(A)
    consumer._coordinator.commits.has([A])
    consumer.close(autocommit=False, timeout_ms=0)
    assert told.of(HeldPartitionUncommitted) == []


BY_PRODUCERS: dict[str, Callable[[SafeConsumer], object]] = {
    "marked_offsets": lambda consumer: consumer.marked_offsets(
        {A: OffsetAndMetadata(5, "", -1)}
    ),
    "group_metadata": lambda consumer: consumer.group_metadata(),
}


@pytest.mark.parametrize("give", BY_PRODUCERS.values(), ids=BY_PRODUCERS)
@pytest.mark.parametrize("handover", ["off", "offsets"])
def test_nothing_is_said_of_what_a_producer_may_have_committed(
    safe: Maker, told: Told, give: Callable[[SafeConsumer], object], handover: str
) -> None:
    """Its transactions do not pass the consumer: it does not know."""
    consumer = safe(group_id="g", auto_offset_reset="latest", pause_handover=handover)
    assigned(consumer, A)
    consumer._coordinator.commits.lack([A])
    consumer.pause(A)
    give(consumer)
    consumer.close(autocommit=False, timeout_ms=0)
    assert told.of(HeldPartitionUncommitted) == []


def test_nothing_is_said_where_nobody_has_asked(safe: Maker, told: Told) -> None:
    """The application set the position: what is committed was no question."""
    consumer = safe(group_id="g", auto_offset_reset="latest")
    assigned(consumer, A)
    consumer.pause(A)
    consumer.close(autocommit=False, timeout_ms=0)
    assert told.of(HeldPartitionUncommitted) == []


@pytest.mark.any_broker
@pytest.mark.parametrize("is_committed", [True, False])
def test_only_the_brokers_answer_counts(
    kafka_topic: Callable[..., str],
    make_consumer: Callable[..., Any],
    told: Told,
    *,
    is_committed: bool,
) -> None:
    """It closes before anything was asked; the next one asks for a position."""
    tp = TopicPartition(kafka_topic(partitions=1), 0)
    settings: dict[str, Any] = {
        "group": f"g-{tp.topic}",
        "auto_offset_reset": "latest",
        "hooks": (told,),
    }
    first = make_consumer(SafeConsumer, **settings)
    first.assign([tp])
    if is_committed:
        first.commit({tp: OffsetAndMetadata(5, "", -1)})
    first.pause(tp)
    first.close()
    assert told.of(HeldPartitionUncommitted) == []
    second = make_consumer(SafeConsumer, **settings)
    second.assign([tp])
    second.pause(tp)
    second.position(tp)
    second.close(autocommit=False)
    expected = [] if is_committed else [(tp,)]
    assert [one.partitions for one in told.of(HeldPartitionUncommitted)] == expected
