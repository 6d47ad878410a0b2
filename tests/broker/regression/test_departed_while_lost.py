"""Quiet partitions that left with the membership: told also if no join completes (P8)."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, TopicPartition
from kafka.errors import KafkaError

from safeconsumer import SafeConsumer
from safeconsumer.events import HeldPartitionUncommitted, RebalanceCompleted
from safeconsumer.testing import EmbeddedBroker
from tests.harness.holds.lab import Told
from tests.harness.polling import poll_until

BOTH = (TopicPartition("orders", 0), TopicPartition("orders", 1))


class LostOnce(ConsumerRebalanceListener):
    """Raises when partitions are lost for the first time."""

    def __init__(self) -> None:
        self.failures = [ValueError("once")]

    def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401 - upstream's
        pass

    def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - upstream's
        pass

    def on_partitions_lost(self, lost: Any) -> None:  # noqa: ANN401, ARG002 - upstream's
        if self.failures:
            raise self.failures.pop()


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        started.create_topic("orders", 2)
        yield started


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def consumer(broker: EmbeddedBroker, told: Told) -> Iterator[SafeConsumer]:
    """Make a member that owns both, quiet, and knows that nothing is committed."""
    made = SafeConsumer(
        **broker.client_config,
        **broker.group_config,
        group_id="g",
        hooks=(told,),
        enable_auto_commit=False,
        start_paused=True,
        auto_offset_reset="latest",
    )
    made.subscribe(["orders"], listener=LostOnce())

    def is_at_home() -> bool:
        states = tuple(made._subscription.assignment.values())
        return len(states) == 2 and all(one.position for one in states)

    try:
        poll_until(made, is_at_home)
        told.events.clear()
        yield made
    finally:
        made.close(autocommit=False)


def is_warned(told: Told) -> list[set[TopicPartition]]:
    return [set(one.partitions) for one in told.of(HeldPartitionUncommitted)]


LEAVING: dict[str, Callable[[SafeConsumer], object]] = {
    "close": lambda consumer: consumer.close(autocommit=False),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_it_is_told_if_the_consumer_leaves_before_it_is_back(
    broker: EmbeddedBroker,
    consumer: SafeConsumer,
    told: Told,
    leave: Callable[[SafeConsumer], object],
) -> None:
    """The join that would have told it never completes."""
    consumer._subscription.rebalance_listener.failures.clear()
    hold = broker.hold("JoinGroup")
    broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
    poll_until(consumer, lambda: not consumer.assignment() and bool(hold.count))
    assert is_warned(told) == []
    if leave is LEAVING["close"]:
        hold.release()
    leave(consumer)
    hold.release()
    consumer.close(autocommit=False)
    assert is_warned(told) == [set(BOTH)]


def test_it_is_told_if_a_listener_raises(
    broker: EmbeddedBroker, consumer: SafeConsumer, told: Told
) -> None:
    """By the join after it: they were lost, whoever has them now."""
    broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID")
    with pytest.raises(KafkaError, match="rebalance callback"):
        poll_until(consumer, lambda: bool(told.of(RebalanceCompleted)))
    poll_until(consumer, lambda: bool(told.of(RebalanceCompleted)))
    (one,) = told.of(RebalanceCompleted)
    assert (set(one.lost), set(one.gained), one.kept) == (set(BOTH), set(BOTH), ())
    assert is_warned(told) == [set(BOTH)]
