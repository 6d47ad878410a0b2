"""When the ids of topics are asked for, and how long a fetch waits for them."""

from uuid import uuid4

import pytest
from kafka import TopicPartition
from kafka.consumer.subscription_state import TopicPartitionState

from safeconsumer._kafka.pausing.ids import PATIENCE, UNSEEN, UNSEEN_HELD, TopicIds
from safeconsumer._kafka.pausing.undelivered import Fetch, OwnedPartitionState
from tests.harness.holds.lab import ORDERS, LedgerLab

pytestmark = pytest.mark.contract("P21")

TP = TopicPartition("orders", 0)


class Desk:
    """One partition that has rested for a minute since its topic was last seen."""

    def __init__(self):
        self.lab = LedgerLab()
        self.ids = TopicIds(self.lab.ledger)
        self.state = TopicPartitionState()
        self.state.__class__ = OwnedPartitionState
        self.state.topic_id = uuid4()
        self.state.named_at = self.now
        self.lab.assign(TP)
        self.ids.answered()
        self.rest(60)

    @property
    def now(self):
        return self.lab.clock.now

    def after(self, seconds):
        self.lab.clock.now += seconds

    def rest(self, seconds):
        self.lab.hold(ORDERS)
        self.after(seconds)
        self.lab.lift(ORDERS)

    def is_doubtful(self):
        return TP in self.ids.doubtful([(TP, self.state)])

    def left_out(self):
        return set(self.ids.leave_out([(TP, self.state)]))

    def name(self):
        """Let an answer name the topic, as one about metadata does."""
        self.state.named_at = self.now
        self.ids.answered()


@pytest.fixture
def desk():
    return Desk()


def test_it_waits_for_an_answer_and_then_is_fetched(desk):
    assert desk.left_out() == {TP}
    desk.after(PATIENCE / 2)
    assert desk.left_out() == {TP}
    desk.name()
    assert desk.left_out() == set()


def test_without_an_answer_it_is_fetched_after_half_a_second(desk):
    assert desk.left_out() == {TP}
    assert desk.ids.seconds_to_wait() == pytest.approx(PATIENCE)
    desk.after(PATIENCE)
    assert desk.left_out() == set()
    assert desk.ids.seconds_to_wait() == float("inf")
    assert desk.is_doubtful()


def test_what_rests_again_within_a_second_is_fetched_at_once(desk):
    """The partition stays doubtful, and waits when a second is over."""
    desk.left_out()
    desk.name()
    desk.state.waited_since = None  # it was fetched
    desk.after(0.5)
    desk.rest(0.2)
    assert desk.left_out() == set()
    assert desk.is_doubtful()
    desk.after(0.5)
    assert desk.left_out() == {TP}


@pytest.mark.parametrize("is_held", [True, False])
def test_it_is_doubtful_when_its_topic_was_not_seen_for_a_while(desk, is_held):
    """One that flows too, as behind a slow handler, but later than one that was held."""
    if not is_held:
        desk.lab.ledger.confirm([TP], desk.lab.ledger.moves)
    desk.name()
    limit = UNSEEN_HELD if is_held else UNSEEN
    desk.after(limit / 2)
    assert not desk.is_doubtful()
    desk.after(limit * 0.51)
    assert desk.is_doubtful()


def test_the_rest_before_an_answer_does_not_count(desk):
    desk.name()
    desk.after(10)
    desk.lab.hold(ORDERS)
    desk.after(20)
    desk.name()
    desk.after(UNSEEN_HELD / 2)
    desk.lab.lift(ORDERS)
    assert desk.left_out() == set()


def test_it_rests_while_it_is_held(desk):
    """A commit asks then, and no fetch."""
    desk.name()
    desk.lab.hold(ORDERS)
    assert not desk.is_doubtful()
    desk.after(UNSEEN_HELD * 1.01)
    assert desk.is_doubtful()


def test_a_fetch_sees_the_topic_until_it_is_answered(desk):
    desk.name()
    desk.state.last_fetch = fetch = Fetch()
    desk.ids.in_flight = lambda: [fetch]
    desk.after(10)
    desk.rest(10)
    assert desk.left_out() == set()
    fetch.answered_at = desk.now
    desk.ids.in_flight = tuple
    assert desk.left_out() == set()
    desk.rest(10)
    assert desk.left_out() == {TP}


def test_a_fetch_without_an_answer_has_seen_nothing(desk):
    desk.name()
    desk.state.last_fetch = Fetch()
    desk.rest(10)
    assert desk.left_out() == {TP}


def test_a_topic_that_a_broker_does_not_know_is_asked_for_at_once(desk):
    desk.name()
    desk.ids.note_unknown_topic(desk.state)
    assert desk.left_out() == {TP}


def test_what_has_waited_once_is_fetched_next(desk):
    """Else one that rests whenever its broker is free would wait for ever."""
    assert desk.left_out() == {TP}
    desk.name()
    desk.rest(2)
    assert desk.left_out() == set()
    desk.state.waited_since = None  # it was fetched
    assert desk.left_out() == {TP}


def test_without_an_id_nothing_is_asked(desk):
    desk.state.topic_id = None
    assert desk.left_out() == set()
