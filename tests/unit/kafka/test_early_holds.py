"""Pausing what is not assigned yet: before anything, before the first poll (P5)."""

import itertools
import re
import threading

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer.errors import NotConsumedError
from tests.harness.listing import short

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
AUDIT = TopicPartition("audit", 0)


def _scopes(consumer):
    return [str(hold.scope) for hold in consumer.holds()]


@pytest.mark.parametrize("target", [A, "orders", re.compile("ord.*")], ids=short)
def test_a_hold_before_anything_is_consumed_bites_at_assignment(safe, target):
    """Any legal target is accepted; the first look after ``assign`` finds it quiet."""
    consumer = safe()
    consumer.pause(target)
    assert consumer.quiet() == set()
    consumer.assign([A, AUDIT])
    assert consumer.quiet() == {A}


@pytest.mark.parametrize("target", [A, "orders", re.compile("ord.*")], ids=short)
def test_a_hold_before_the_first_poll_is_placed(safe, target):
    """Subscribed, but not assigned yet: upstream raises ``KeyError``."""
    consumer = safe("orders", group_id="g")
    consumer.pause(target)
    assert len(consumer.holds()) == 1
    assert consumer.quiet() == set()


@pytest.mark.parametrize("target", [AUDIT, "audit"], ids=short)
def test_what_is_not_subscribed_cannot_be_paused(safe, target):
    """It could never bite."""
    consumer = safe("orders", group_id="g")
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.pause(target)
    assert consumer.holds() == ()


@pytest.mark.parametrize(
    "target", ["orders.new", TopicPartition("orders.new", 5)], ids=short
)
def test_a_topic_that_fits_the_subscribed_pattern_counts_as_subscribed(safe, target):
    """Before it exists, too."""
    consumer = safe(group_id="g")
    consumer.subscribe(pattern="orders.*")
    consumer.pause(target)
    assert len(consumer.holds()) == 1
    with pytest.raises(NotConsumedError):
        consumer.pause("audit")


@pytest.mark.parametrize("target", [AUDIT, "audit"], ids=short)
def test_subscribe_checks_early_holds(safe, target):
    """It refuses, naming the hold and what lifts it, and changes nothing."""
    consumer = safe(group_id="g")
    consumer.pause(target, "orders")
    with pytest.raises(NotConsumedError, match=r"lift it with resume\('audit"):
        consumer.subscribe(["orders"])
    assert consumer.subscription() is None
    assert len(consumer.holds()) == 2
    consumer.resume(target)
    consumer.subscribe(["orders"])
    assert consumer.subscription() == {"orders"}


def test_subscribe_by_a_pattern_checks_early_holds(safe):
    """As upstream matches: a prefix will do."""
    consumer = safe(group_id="g")
    consumer.pause("orders.eu")
    with pytest.raises(NotConsumedError, match=r"orders\.eu"):
        consumer.subscribe(pattern="audit")
    consumer.subscribe(pattern="ord")
    assert _scopes(consumer) == ["orders.eu"]


@pytest.mark.parametrize("target", [B, "audit"], ids=short)
def test_assign_checks_early_holds(safe, target):
    """A partition must be among them, a topic have one among them."""
    consumer = safe()
    consumer.pause(target)
    with pytest.raises(NotConsumedError):
        consumer.assign([A])
    assert consumer.assignment() == set()
    assert len(consumer.holds()) == 1
    consumer.assign([A, B, AUDIT])
    assert len(consumer.quiet()) == 1


BAD_SUBSCRIPTIONS = [
    ({"topics": "audit-and-more"}, TypeError),
    ({"topics": {"orders"}}, TypeError),
    ({"topics": None}, ValueError),
    ({}, ValueError),
    ({"topics": ["audit"], "pattern": "a"}, IllegalStateError),
    ({"topics": ["audit", ""]}, ValueError),
    ({"topics": ["audit"], "listener": 3}, TypeError),
]


@pytest.mark.parametrize(("arguments", "error"), BAD_SUBSCRIPTIONS, ids=short)
def test_a_refused_subscription_is_upstreams_error_and_checks_nothing_off(
    safe, arguments, error
):
    """The next one is checked all the same."""
    consumer = safe(group_id="g")
    consumer.pause("audit")
    with pytest.raises(error) as caught:
        consumer.subscribe(**arguments)
    assert not isinstance(caught.value, NotConsumedError)
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.subscribe(["orders"])


def test_a_pause_in_the_middle_of_the_check(safe):
    """From another thread: nothing breaks, and what came in time for it is not lost."""
    consumer = safe(group_id="g")

    class Name(str):
        """A topic's name; another thread pauses whenever it is looked at."""

        __slots__ = ()

        def __eq__(self, other):
            pause = threading.Thread(target=lambda: consumer.pause(f"t{next(numbers)}"))
            pause.start()
            pause.join(20)
            return str(self) == str(other)

        __hash__ = str.__hash__

    numbers = itertools.count()
    consumer.pause("orders", "audit")
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.subscribe([Name("orders"), "logs"])
    assert next(numbers) > 0


def test_what_was_resumed_is_forgotten(safe):
    """A program that pauses and resumes before it subscribes leaves nothing behind."""
    consumer = safe()
    for number in range(5):
        with consumer.held(TopicPartition("orders", number)):
            pass
    consumer.pause("audit")
    consumer.pause_all()
    consumer.resume("audit")
    consumer.resume_all()
    assert not consumer._safe_early._keys


def test_an_early_pattern_or_consumer_hold_fits_everything(safe):
    """What they cover is decided topic by topic."""
    consumer = safe()
    consumer.pause(re.compile("nothing"))
    consumer.pause_all()
    consumer.assign([A])
    assert consumer.quiet() == {A}
