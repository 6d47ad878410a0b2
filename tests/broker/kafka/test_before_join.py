"""The say before a join: it ends the poll, takes nothing, and is asked at each join."""

from collections.abc import Callable
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

from safeconsumer import SafeConsumer
from safeconsumer._kafka.facade import Facade
from tests.harness.polling import collect, poll_until
from tests.harness.producing import produce

pytestmark = pytest.mark.any_broker


class NotYet(Exception):  # noqa: N818 - a signal
    """What the tests raise before a join."""


class Say:
    """Refuses so many joins, and counts how often it was asked."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.refuses:
            self.refuses -= 1
            raise NotYet


@pytest.fixture
def member(
    kafka_topic: Callable[..., str], make_consumer: Callable[..., Any]
) -> SafeConsumer:
    """Make a member of a group that has not polled yet."""
    topic = kafka_topic(partitions=2)
    consumer: SafeConsumer = make_consumer(SafeConsumer, topic, group=f"g-{topic}")
    return consumer


def test_a_refused_join_ends_the_poll_at_once(member: SafeConsumer) -> None:
    """However long its timeout; the next poll asks again, and joins once it may."""
    membership, say = Facade(member), Say(refuses=3)
    membership.ask_before_join(say)
    assert membership.is_lost()
    for _ in range(3):
        with pytest.raises(NotYet):
            member.poll(600_000)
        assert not membership.is_joining()
    poll_until(member, member.assignment)
    assert not membership.is_lost()
    assert say.asked >= 4
    assert set(membership.epochs()) == member.assignment()


def test_a_refused_join_takes_nothing(
    member: SafeConsumer, make_producer: Callable[..., Any]
) -> None:
    """Records that are there wait for the poll that is let through."""
    membership, say = Facade(member), Say()
    membership.ask_before_join(say)
    poll_until(member, member.assignment)
    (topic,) = member.subscription()
    before, asked = membership.epochs(), say.asked
    produce(make_producer(), topic, 5, 5)
    say.refuses = 2
    member._coordinator.request_rejoin()
    for _ in range(2):
        with pytest.raises(NotYet):
            member.poll(10_000)
    got: dict[Any, list[int]] = {}
    poll_until(member, lambda: sum(map(len, got.values())) >= 10, got=got)
    assert [[*range(5)], [*range(5)]] == sorted(got.values())
    assert say.asked > asked + 2
    assert before is membership.epochs()
    assert member.assignment() == membership.revokes_on_join()


def test_a_lost_generation_is_counted(member: SafeConsumer) -> None:
    """And every partition is owned anew afterwards."""
    membership = Facade(member)
    poll_until(member, member.assignment)
    before, losses = dict(membership.epochs()), membership.losses
    member._coordinator.reset_generation()
    assert membership.is_lost()
    assert losses + 1 == membership.losses
    collected: dict[Any, list[int]] = {}
    poll_until(member, lambda: not membership.is_lost() and bool(member.assignment()))
    collect(collected, member.poll(0))
    after = membership.epochs()
    assert before.keys() == after.keys()
    assert all(after[tp] > before[tp] for tp in after)


def test_a_cooperative_join_revokes_nothing_as_it_begins(
    kafka_topic: Callable[..., str], make_consumer: Callable[..., Any]
) -> None:
    """Only what is no longer subscribed to."""
    topic = kafka_topic(partitions=2)
    consumer = make_consumer(
        SafeConsumer,
        topic,
        group=f"g-{topic}",
        partition_assignment_strategy=[CooperativeStickyAssignor],
    )
    membership = Facade(consumer)
    poll_until(consumer, consumer.assignment)
    assert membership.is_cooperative
    assert not membership.revokes_on_join()
    consumer.subscribe([kafka_topic(partitions=1)])
    assert consumer.assignment() == membership.revokes_on_join()
