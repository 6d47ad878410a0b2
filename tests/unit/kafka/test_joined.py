"""A join that waits to be applied, and what the last one changed: the objects alone."""

import time

from kafka import TopicPartition
from kafka.consumer.subscription_state import OffsetResetStrategy

from safeconsumer._kafka.pausing.joins import Joined, RebalanceWatch
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.events import RebalanceCompleted
from safeconsumer.holds.scope import partition
from tests.harness.holds.lab import LedgerLab

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def owning():
    """Return what owns both, the second one held."""
    lab = LedgerLab()
    subscription = LedgerSubscription()
    subscription.ledger = lab.ledger
    subscription.subscribe(topics=["orders"])
    subscription.assign_from_subscribed([A, B])
    lab.ledger.place([partition(B.topic, B.partition)], owner="app")
    return lab, subscription, RebalanceWatch(subscription)


def test_a_join_is_applied_while_its_generation_lasts_and_a_heartbeat_came():
    """The session may be over if none got through."""
    generation, now = object(), time.monotonic()
    joined = Joined(generation, b"", now - 5)
    assert joined.is_current(generation, now, 3)
    assert not joined.is_current(object(), now, 3)
    assert not joined.is_current(generation, now - 4, 3)


def test_what_was_lost_is_told_by_the_join_that_completes():
    """Upstream prepares again if a listener has raised."""
    lab, subscription, watch = owning()
    watch.prepared()
    subscription.assign_from_subscribed([])
    watch.gave_up(is_lost=True)
    watch.prepared()
    subscription.assign_from_subscribed([A])
    assert watch.completed(4, "me").keys() == {B}
    lab.ledger.deliver()
    told = lab.told.only(RebalanceCompleted)
    assert (told.kept, told.gained, told.revoked) == ((), (A,), ())
    assert set(told.lost) == {A, B}


def test_what_no_join_will_tell_is_returned_once():
    """Nor again by a join that completes in the end."""
    _, subscription, watch = owning()
    watch.prepared()
    assert watch.departed(watch.quiet()) == {}
    subscription.assign_from_subscribed([])
    watch.gave_up(is_lost=True)
    assert watch.departed({}).keys() == {B}
    assert watch.departed({}) == {}
    subscription.assign_from_subscribed([B])
    quiet = watch.quiet()
    subscription.assign_from_subscribed([])
    assert watch.departed(quiet).keys() == {B}  # by hand, once more
    assert watch.completed(4, "me") == {}
    subscription.assign_from_subscribed([B])
    watch.prepared()
    subscription.assign_from_subscribed([])
    assert watch.completed(5, "me").keys() == {B}


def test_a_topic_that_is_not_known_for_a_while_keeps_its_count():
    """Metadata without its partitions says nothing about them: what comes is added (W12)."""
    subscription = LedgerSubscription(offset_reset_strategy="latest")
    subscription.pass_over_nothing()
    for partitions in ([0], [], [0, 1]):
        subscription.note_partitions({"orders": partitions})
    subscription.assign_from_user([A, B])
    subscription.reset_missing_positions()
    strategies = [subscription.assignment[tp].reset_strategy for tp in (A, B)]
    assert strategies == [OffsetResetStrategy.LATEST, OffsetResetStrategy.EARLIEST]
