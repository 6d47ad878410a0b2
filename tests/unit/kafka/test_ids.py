"""Tests when topic ids are requested, and how long a fetch waits for them."""

import math
from uuid import uuid4

import pytest
from kafka import TopicPartition
from kafka.consumer.subscription_state import TopicPartitionState

from safeconsumer._kafka.pausing.ids import PATIENCE, UNSEEN, UNSEEN_HELD, TopicIds
from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState
from tests.harness.holds.lab import ORDERS, LedgerLab

pytestmark = pytest.mark.contract("P21")

TP = TopicPartition("orders", 0)


class Resting:
    """A partition that was paused for a minute since a response last named its topic."""

    def __init__(self):
        self.lab = LedgerLab()
        self.ids = TopicIds(self.lab.ledger)
        self.state = TopicPartitionState()
        self.state.__class__ = OwnedPartitionState
        self.state.topic_id = uuid4()
        self.state.named_at = self.now
        self.lab.assign(TP)
        self.ids.answered(self.now, is_proof=True)
        self.hold_for(60)

    @property
    def now(self):
        return self.lab.clock.now

    def after(self, seconds):
        self.lab.clock.now += seconds

    def hold_for(self, seconds):
        self.lab.hold(ORDERS)
        self.after(seconds)
        self.lab.lift(ORDERS)

    def is_doubtful(self):
        return TP in self.ids.doubtful([(TP, self.state)])

    def left_out(self):
        return set(self.ids.leave_out([(TP, self.state)]))

    def name(self):
        """Let a response, such as a metadata response, name the topic."""
        self.state.named_at = self.now
        self.ids.answered(self.now, is_proof=True)


@pytest.fixture
def one():
    return Resting()


def test_partition_waits_for_a_response_before_its_fetch(one):
    assert one.left_out() == {TP}
    one.after(PATIENCE / 2)
    assert one.left_out() == {TP}
    one.name()
    assert one.left_out() == set()


def test_response_without_a_proof_ends_the_wait_only_after_half_a_second(one):
    assert one.left_out() == {TP}
    one.after(PATIENCE / 2)
    one.ids.answered(one.now, is_proof=False)
    assert one.left_out() == {TP}
    one.after(PATIENCE / 2)
    one.ids.answered(one.now, is_proof=False)
    assert one.ids.seconds_to_wait() == math.inf
    assert one.left_out() == set()


def test_partition_is_fetched_without_a_response_after_half_a_second(one):
    assert one.left_out() == {TP}
    assert one.ids.seconds_to_wait() == pytest.approx(PATIENCE)
    one.after(PATIENCE)
    assert one.left_out() == set()
    assert one.ids.seconds_to_wait() == float("inf")
    assert one.is_doubtful()


def test_partition_held_again_within_a_second_is_fetched_immediately(one):
    """The topic id stays doubtful, and the next fetch after that second has to wait."""
    one.left_out()
    one.name()
    one.state.waited_since = None  # as after a fetch
    one.after(0.5)
    one.hold_for(0.2)
    assert one.left_out() == set()
    assert one.is_doubtful()
    one.after(0.5)
    assert one.left_out() == {TP}


@pytest.mark.parametrize("is_held", [True, False])
def test_topic_id_is_doubtful_if_no_response_has_named_the_topic_for_a_while(
    one, is_held
):
    """The topic id becomes doubtful later if the partition was not held."""
    if not is_held:
        one.lab.ledger.confirm([TP], one.lab.ledger.moves)
    one.name()
    limit = UNSEEN_HELD if is_held else UNSEEN
    one.after(limit / 2)
    assert not one.is_doubtful()
    one.after(limit * 0.51)
    assert one.is_doubtful()


def test_time_under_a_hold_before_the_latest_response_does_not_count(one):
    one.name()
    one.after(10)
    one.lab.hold(ORDERS)
    one.after(20)
    one.name()
    one.after(UNSEEN_HELD / 2)
    one.lab.lift(ORDERS)
    assert one.left_out() == set()


def test_topic_id_of_a_held_partition_becomes_doubtful(one):
    """A commit for the partition then requests the topic's id."""
    one.name()
    one.lab.hold(ORDERS)
    assert not one.is_doubtful()
    one.after(UNSEEN_HELD * 1.01)
    assert one.is_doubtful()


def test_fetch_in_flight_proves_that_the_topic_exists(one):
    one.name()
    one.state.last_fetch = fetch = Fetch()
    one.ids.in_flight = lambda: [fetch]
    one.after(10)
    one.hold_for(10)
    assert one.left_out() == set()
    fetch.answered_at = one.now
    one.ids.in_flight = tuple
    assert one.left_out() == set()
    one.hold_for(10)
    assert one.left_out() == {TP}


def test_unanswered_fetch_does_not_prove_that_the_topic_exists(one):
    one.name()
    one.state.last_fetch = Fetch()
    one.hold_for(10)
    assert one.left_out() == {TP}


def test_id_of_a_topic_that_a_broker_did_not_know_is_requested_immediately(one):
    one.name()
    one.ids.note_unknown_topic(one.state)
    assert one.left_out() == {TP}


def test_partition_that_has_waited_once_is_fetched_without_another_wait(one):
    """Otherwise a partition that is held each time its broker is idle would wait forever."""
    assert one.left_out() == {TP}
    one.name()
    one.hold_for(2)
    assert one.left_out() == set()
    one.state.waited_since = None  # as after a fetch
    assert one.left_out() == {TP}


def test_topic_without_an_id_does_not_cause_a_request(one):
    one.state.topic_id = None
    assert one.left_out() == set()
