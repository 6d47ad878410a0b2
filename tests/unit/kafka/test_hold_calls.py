"""Owners, layers, lifetimes, blocks, and what the consumer says about them."""

import itertools
import logging
import re
import threading
from datetime import timedelta

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer import ALL, Lifetime
from safeconsumer.errors import HoldSettingError, NotConsumedError
from safeconsumer.events import HoldsPlaced, PatternCoversNothing
from tests.harness.kafka.fetches import assigned
from tests.harness.listing import short

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
AUDIT = TopicPartition("audit", 0)


@pytest.fixture
def consumer(safe):
    """With three partitions assigned."""
    made = safe()
    assigned(made, A, B, AUDIT)
    return made


def _holds(consumer):
    return [(str(hold.scope), hold.owner) for hold in consumer.holds()]


def test_pause_and_resume_without_targets_do_nothing(consumer, told):
    """``pause(*assignment())`` with nothing assigned must never pause everything."""
    consumer.pause(A)
    told.events.clear()
    consumer.pause()
    assert consumer.resume() == ()
    assert consumer.quiet() == {A}
    assert told.events == []


@pytest.mark.contract("P2")
def test_resume_all_lifts_every_hold_of_its_owner(consumer):
    """As its name says: of partitions, topics, patterns and the whole (P3)."""
    consumer.pause_all()
    consumer.pause(A, "orders", re.compile("ord.*"))
    consumer.pause_all(owner="ops")
    consumer.pause(A, owner="ops")
    left = consumer.resume_all()
    assert [(str(hold.scope), hold.owner) for hold in left] == [
        ("@all", "ops"),
        ("orders:0", "ops"),
    ]
    assert consumer.resume_all(owner="ops") == ()
    assert consumer.quiet() == set()


@pytest.mark.parametrize(
    ("text", "same", "covers"),
    [
        ("orders:1", B, {B}),
        ("orders", "orders", {A, B}),
        ("re:ord.*", re.compile("ord.*"), {A, B}),
        ("@all", ALL, {A, B, AUDIT}),
    ],
    ids=short,
)
def test_text_is_scope_notation(consumer, text, same, covers):
    """As on the command line; a hold's scope is a target, too (P3)."""
    consumer.pause(text)
    assert consumer.quiet() == covers
    (hold,) = consumer.holds()
    assert str(hold.scope) == text
    consumer.pause(same)
    assert len(consumer.holds()) == 1
    assert consumer.resume(hold.scope, owner=hold.owner) == ()
    assert consumer.quiet() == set()


class Number:
    """An integer of somebody else's, like numpy's."""

    def __init__(self, value):
        self._value = value

    def __index__(self):
        return self._value

    def __hash__(self):
        return hash(self._value)

    def __eq__(self, other):
        return self._value == other


def test_integers_of_other_libraries_are_partitions(consumer):
    tp = TopicPartition("orders", Number(0))
    consumer.pause(tp)
    assert consumer.quiet() == {A}
    assert str(consumer.holds()[0].scope) == "orders:0"
    consumer.resume(tp)
    assert consumer.holds() == ()


def test_a_pause_of_all_that_assignment_returned_is_one_of_its_topics(consumer):
    """By the objects, in one call or in several; made anew they are plain pauses (P3)."""
    consumer.pause(*(TopicPartition(*tp) for tp in consumer.assignment()))
    assert {owner for _, owner in _holds(consumer)} == {"app"}
    consumer.resume(*consumer.assignment())
    for tp in consumer.assignment():
        consumer.pause(tp)
    whole = [("audit", "app (all)"), ("orders", "app (all)")]
    assert [one for one in _holds(consumer) if one[1] != "app"] == whole
    consumer.resume("nothing")
    assert {owner for _, owner in _holds(consumer)} == {"app"}
    assert consumer.quiet() == {A, B, AUDIT}


def test_an_assignment_asked_for_in_a_held_block_stays(consumer):
    """A block holds to its end, whatever lifetime is the default."""
    consumer._safe_hold_calls._lifetime = Lifetime.WHILE_ASSIGNED
    with consumer.held(A):
        assigned(consumer, B)
        assigned(consumer, A, B)
        assert consumer.quiet() == {A}
    assert consumer.quiet() == set()


def test_a_block_without_targets_is_refused(consumer):
    """It would hold nothing and say nothing; nor does one with a bad target begin."""
    with (
        pytest.raises(HoldSettingError, match=r"held\(safeconsumer.ALL\)"),
        consumer.held(*set[TopicPartition]()),
    ):
        pytest.fail("the block ran with nothing held")
    with pytest.raises(NotConsumedError), consumer.held(A, "unknown"):
        pytest.fail("the block ran without one of its targets")
    assert consumer.holds() == ()


def test_explain_says_who_why_and_until_when(consumer):
    """One line per hold, narrowest first; none for what flows."""
    consumer.pause(A, reason="queue is full", for_=3600)
    consumer.pause("orders", owner="ops", lifetime=Lifetime.WHILE_ASSIGNED)
    first, second = consumer.explain(A)
    assert re.fullmatch(
        r"orders:0 held by app, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ, "
        r"because queue is full, until a join leaves it out, "
        r"at most until \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ",
        first,
    )
    assert second.startswith("orders held by ops, since ")
    assert second.endswith("while assigned here")
    assert consumer.explain(AUDIT) == ()


def test_a_timedelta_is_a_duration(consumer):
    consumer.pause(A, for_=timedelta(minutes=1))
    (hold,) = consumer.holds()
    assert hold.expires_at is not None
    assert hold.expires_at - hold.placed_at == pytest.approx(60.0)


def test_a_block_lifts_its_own_hold_only(consumer):
    """Neither the application's nor that of a block around it."""
    consumer.pause(A)
    with consumer.held("orders", reason="batch"):
        with consumer.held("orders"):
            assert consumer.quiet() == {A, B}
        assert consumer.quiet() == {A, B}
        (reason,) = {hold.reason for hold in consumer.holds() if hold.owner != "app"}
        assert reason == "batch"
    assert consumer.quiet() == {A}


def test_a_block_with_an_owner_is_that_owners(consumer):
    """It may be lifted early by that name."""
    with consumer.held(A, owner="ops", for_=60):
        assert _holds(consumer) == [("orders:0", "ops")]
        consumer.resume(A, owner="ops")
        assert consumer.quiet() == set()


def test_the_default_lifetime(safe):
    """Of holds placed without one; what is said wins."""
    consumer = safe(default_lifetime=Lifetime.WHILE_ASSIGNED)
    assigned(consumer, A, B)
    consumer.pause(A)
    consumer.pause(B, lifetime=Lifetime.UNTIL_RESUMED)
    consumer.assign([AUDIT])
    consumer.assign([A, B])
    assert consumer.quiet() == {B}


def test_hooks_are_added_to_the_log(safe, told, caplog):
    """``log=False`` is what ends it."""
    for log in (True, False):
        caplog.clear()
        with caplog.at_level(logging.DEBUG, logger="safeconsumer"):
            safe(hooks=(told,), log=log).pause("orders")
        assert ("hold_placed" in caplog.text) == log
    assert [event.name for event in told.events] == ["hold_placed"] * 2


@pytest.mark.parametrize("target", [A, "orders", "re:ord.*", ALL], ids=short)
def test_resume_returns_what_still_holds_a_part_of_its_target(consumer, target):
    """Nothing if all of it flows (P3)."""
    consumer.pause(target)
    consumer.pause(A, owner="ops")
    consumer.pause_all(owner="pump")
    still = consumer.resume(target)
    names = [(str(hold.scope), hold.owner) for hold in still]
    assert sorted(names) == [("@all", "pump"), ("orders:0", "ops")]
    consumer.resume_all(owner="pump")
    assert [hold.owner for hold in consumer.resume(target)] == ["ops"]
    assert consumer.resume(A, owner="ops") == consumer.resume(target) == ()


def test_a_pause_tells_of_each_target_once_and_of_patterns_that_cover_nothing(
    consumer, told
):
    """A topic that is not assigned is no such pattern."""
    told.events.clear()
    consumer.pause("re:ord.*", "re:typo.*", "audit", A, "orders:0", for_=100)
    warning = told.only(PatternCoversNothing)
    assert [str(hold.scope) for hold in warning.holds] == ["re:typo.*"]
    placed = told.only(HoldsPlaced)
    assert placed.topics == ("audit", "orders")
    assert len(placed.holds) == len(consumer.holds()) == 4


# Holds that are placed before anything is assigned (P5)


@pytest.mark.parametrize("target", [A, "orders", re.compile("ord.*")], ids=short)
def test_a_hold_from_before_the_assignment_is_in_force_with_it(safe, target):
    """Any legal target is accepted; the first look after ``assign`` finds it quiet."""
    consumer = safe()
    consumer.pause(target, re.compile("nothing"))
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
    """It could never take effect."""
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
    assert _holds(consumer) == [("orders.eu", "app")]


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
    assert not consumer._safe_hold_calls.early._keys
