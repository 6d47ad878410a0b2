"""Pausing what is not assigned yet: before anything, before the first poll (P5)."""

import itertools
import re
import threading
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer.errors import NotConsumedError
from tests.harness.kafka.fixtures import Maker
from tests.harness.listing import each

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
AUDIT = TopicPartition("audit", 0)


def _scopes(consumer: object) -> list[str]:
    return [str(hold.scope) for hold in consumer.holds()]  # type: ignore[attr-defined]  # ours


@each("target", [A, "orders", re.compile("ord.*")])
def test_a_hold_before_anything_is_consumed_bites_at_assignment(
    safe: Maker, target: object
) -> None:
    """Any legal target is accepted; the first look after ``assign`` finds it quiet."""
    consumer = safe()
    consumer.pause(target)  # type: ignore[arg-type]  # one of the three
    assert consumer.quiet() == set()
    consumer.assign([A, AUDIT])
    assert consumer.quiet() == {A}


@each("target", [A, "orders", re.compile("ord.*")])
def test_a_hold_before_the_first_poll_is_placed(safe: Maker, target: object) -> None:
    """Subscribed, but not assigned yet: upstream raises ``KeyError``."""
    consumer = safe("orders", group_id="g")
    consumer.pause(target)  # type: ignore[arg-type]  # one of the three
    assert len(consumer.holds()) == 1
    assert consumer.quiet() == set()


@each("target", [AUDIT, "audit"])
def test_what_is_not_subscribed_cannot_be_paused(safe: Maker, target: object) -> None:
    """It could never bite."""
    consumer = safe("orders", group_id="g")
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.pause(target)  # type: ignore[arg-type]  # one of the two
    assert consumer.holds() == ()


@each("target", ["orders.new", TopicPartition("orders.new", 5)])
def test_a_topic_that_fits_the_subscribed_pattern_counts_as_subscribed(
    safe: Maker, target: object
) -> None:
    """Before it exists, too."""
    consumer = safe(group_id="g")
    consumer.subscribe(pattern="orders.*")
    consumer.pause(target)  # type: ignore[arg-type]  # one of the two
    assert len(consumer.holds()) == 1
    with pytest.raises(NotConsumedError):
        consumer.pause("audit")


@each("target", [AUDIT, "audit"])
def test_subscribe_checks_early_holds(safe: Maker, target: object) -> None:
    """It refuses, naming the hold and what lifts it, and changes nothing."""
    consumer = safe(group_id="g")
    consumer.pause(target, "orders")  # type: ignore[arg-type]  # one of the two
    with pytest.raises(NotConsumedError, match=r"lift it with resume\('audit"):
        consumer.subscribe(["orders"])
    assert consumer.subscription() is None
    assert len(consumer.holds()) == 2
    consumer.resume(target)  # type: ignore[arg-type]  # one of the two
    consumer.subscribe(["orders"])
    assert consumer.subscription() == {"orders"}


def test_subscribe_by_a_pattern_checks_early_holds(safe: Maker) -> None:
    """As upstream matches: a prefix will do."""
    consumer = safe(group_id="g")
    consumer.pause("orders.eu")
    with pytest.raises(NotConsumedError, match=r"orders\.eu"):
        consumer.subscribe(pattern="audit")
    consumer.subscribe(pattern="ord")
    assert _scopes(consumer) == ["orders.eu"]


@each("target", [B, "audit"])
def test_assign_checks_early_holds(safe: Maker, target: object) -> None:
    """A partition must be among them, a topic have one among them."""
    consumer = safe()
    consumer.pause(target)  # type: ignore[arg-type]  # one of the two
    with pytest.raises(NotConsumedError):
        consumer.assign([A])
    assert consumer.assignment() == set()
    assert len(consumer.holds()) == 1
    consumer.assign([A, B, AUDIT])
    assert len(consumer.quiet()) == 1


BAD_SUBSCRIPTIONS: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"topics": "audit-and-more"}, TypeError),
    ({"topics": {"orders"}}, TypeError),
    ({"topics": None}, ValueError),
    ({}, ValueError),
    ({"topics": ["audit"], "pattern": "a"}, IllegalStateError),
    ({"topics": ["audit", ""]}, ValueError),
    ({"topics": ["audit"], "listener": 3}, TypeError),
]


@each(("arguments", "error"), BAD_SUBSCRIPTIONS)
def test_a_refused_subscription_is_upstreams_error_and_checks_nothing_off(
    safe: Maker, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """The next one is checked all the same."""
    consumer = safe(group_id="g")
    consumer.pause("audit")
    with pytest.raises(error) as caught:
        consumer.subscribe(**arguments)
    assert not isinstance(caught.value, NotConsumedError)
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.subscribe(["orders"])


def test_a_pause_in_the_middle_of_the_check(safe: Maker) -> None:
    """From another thread: nothing breaks, and what came in time for it is not lost."""
    consumer = safe(group_id="g")

    class Name(str):
        """A topic's name; another thread pauses whenever it is looked at."""

        __slots__ = ()

        def __eq__(self, other: object) -> bool:
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


def test_what_was_resumed_is_forgotten(safe: Maker) -> None:
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


def test_an_early_pattern_or_consumer_hold_fits_everything(safe: Maker) -> None:
    """What they cover is decided topic by topic."""
    consumer = safe()
    consumer.pause(re.compile("nothing"))
    consumer.pause_all()
    consumer.assign([A])
    assert consumer.quiet() == {A}
