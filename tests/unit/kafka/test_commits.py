"""What is known of commits, and a join that waits to be applied: the objects alone."""

import time

from kafka import TopicPartition
from kafka.consumer.subscription_state import OffsetResetStrategy
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.pausing.commits import KnownCommits
from safeconsumer._kafka.pausing.joins import Joined, RebalanceWatch
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.events import RebalanceCompleted
from safeconsumer.holds.scope import partition
from tests.harness.holds.lab import LedgerLab

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


def test_what_has_no_committed_offset_for_sure() -> None:
    """Only what the broker said, in this ownership; nothing if a producer may commit."""
    commits = KnownCommits()
    assert commits.without(frozenset({A, B})) == frozenset()
    commits.lack([A, B])
    assert commits.without(frozenset({A, B})) == {A, B}
    commits.has([A])
    assert commits.without(frozenset({A, B})) == {B}
    commits.forget_all_but([A])
    assert commits.without(frozenset({A, B})) == frozenset()
    commits.lack([A, B])
    commits.elsewhere()
    assert commits.without(frozenset({A, B})) == frozenset()


def test_a_question_is_asked_anew_after_a_commit_or_in_another_ownership() -> None:
    """Else the one that is on its way is waited for."""
    commits = KnownCommits()
    asked = frozenset({A, B})
    assert commits.is_outdated(asked, ("one",), [])
    assert not commits.is_outdated(asked, ("one",), [asked])
    commits.answered({A: at(1)})
    assert commits.is_outdated(asked, ("one",), [asked])
    assert commits.is_outdated(asked, ("two",), [asked])
    assert commits.is_outdated(asked, ("two",), [])  # upstream has it no more


def test_a_join_is_applied_while_its_generation_lasts_and_a_heartbeat_came() -> None:
    """The session may be over if none got through."""
    generation, now = object(), time.monotonic()
    joined = Joined(generation, b"", now - 5)
    assert joined.is_current(generation, now, 3)
    assert not joined.is_current(object(), now, 3)
    assert not joined.is_current(generation, now - 4, 3)


def test_what_was_lost_is_told_by_the_join_that_completes() -> None:
    """Upstream prepares again if a listener has raised."""
    lab = LedgerLab()
    lab.ledger.assign([A, B])
    lab.ledger.place([partition(B.topic, B.partition)], owner="app")
    watch = RebalanceWatch(lab.ledger)
    watch.prepared()
    lab.ledger.assign([])
    watch.lost()
    watch.prepared()
    lab.ledger.assign([A])
    assert watch.completed(4, "me") == {B}
    lab.ledger.deliver()
    (told,) = lab.told.of(RebalanceCompleted)
    assert (told.kept, told.gained, told.revoked) == ((), (A,), ())
    assert set(told.lost) == {A, B}


def test_what_no_join_will_tell_is_returned_once() -> None:
    """Nor again by a join that completes in the end."""
    lab = LedgerLab()
    lab.ledger.assign([A, B])
    lab.ledger.place([partition(B.topic, B.partition)], owner="app")
    watch = RebalanceWatch(lab.ledger)
    watch.prepared()
    assert watch.departed(frozenset({B})) == frozenset()
    lab.ledger.assign([])
    watch.lost()
    assert watch.departed(frozenset()) == {B}
    assert watch.departed(frozenset()) == frozenset()
    lab.ledger.assign([B])
    lab.ledger.assign([])
    assert watch.departed(frozenset({B})) == {B}  # by hand, once more
    assert watch.completed(4, "me") == frozenset()
    lab.ledger.assign([B])
    watch.prepared()
    lab.ledger.assign([])
    assert watch.completed(5, "me") == {B}


def test_a_topic_that_is_not_known_for_a_while_keeps_its_count() -> None:
    """Metadata without its partitions says nothing about them: what comes is added (W12)."""
    subscription = LedgerSubscription(offset_reset_strategy="latest")
    subscription.pass_over_nothing()
    for partitions in ([0], [], [0, 1]):
        subscription.note_partitions({"orders": partitions})
    subscription.assign_from_user([A, B])
    subscription.reset_missing_positions()
    strategies = [subscription.assignment[tp].reset_strategy for tp in (A, B)]
    assert strategies == [OffsetResetStrategy.LATEST, OffsetResetStrategy.EARLIEST]
