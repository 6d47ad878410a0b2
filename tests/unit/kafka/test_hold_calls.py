"""Owners, layers, lifetimes, blocks, and what the consumer says about them."""

import logging
import re
from datetime import timedelta

import pytest
from kafka import TopicPartition

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


def test_resume_answers_with_what_still_holds(consumer):
    """Empty means that it flows."""
    consumer.pause(A)
    consumer.pause("orders", owner="ops", reason="deploy")
    consumer.pause_all(owner="pump")
    still = consumer.resume(A)
    assert [(str(hold.scope), hold.owner) for hold in still] == [
        ("orders", "ops"),
        ("@all", "pump"),
    ]
    consumer.resume_all(owner="pump")
    assert consumer.resume("orders", owner="ops") == ()
    assert consumer.quiet() == set()


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


def test_paused_names_what_is_held_and_assigned(consumer):
    """
    ``resume(*paused())`` leaves none of the application's plain pauses (P3).

    1. Two partitions are paused. 2. One leaves. 3. ``resume(*paused())``. 4. It comes
    back, and flows, as it does on stock.
    """
    consumer.pause(A, B)
    consumer.pause(AUDIT, owner="ops")
    assigned(consumer, A)
    assert consumer.paused() == {A}
    consumer.resume(*consumer.paused())
    assert _holds(consumer) == [("audit:0", "ops")]
    assigned(consumer, A, B)
    assert consumer.paused() == set()


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
    consumer._safe_lifetime = Lifetime.WHILE_ASSIGNED
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


def test_the_paused_partitions_are_upstreams_kind(consumer):
    """Named tuples with ``topic`` and ``partition``, in a set of the caller's own."""
    consumer.pause(A)
    mine = consumer.paused()
    assert all(isinstance(tp, TopicPartition) for tp in mine)
    mine.clear()
    assert consumer.paused() == {A}


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


def test_a_block_holds_and_lifts(consumer):
    """Under an owner of its own, so that it lifts nobody else's hold."""
    consumer.pause(A)
    with consumer.held("orders", reason="batch"):
        assert consumer.quiet() == {A, B}
        (reason,) = {hold.reason for hold in consumer.holds() if hold.owner != "app"}
        assert reason == "batch"
    assert consumer.quiet() == {A}


def test_blocks_nest(consumer):
    """The inner one does not lift the outer one's hold."""
    with consumer.held(A):
        with consumer.held(A):
            assert consumer.quiet() == {A}
        assert consumer.quiet() == {A}
    assert consumer.quiet() == set()


def test_a_block_with_an_owner_is_that_owners(consumer):
    """It may be lifted early by that name."""
    with consumer.held(A, owner="ops", for_=60):
        assert _holds(consumer) == [("orders:0", "ops")]
        consumer.resume(A, owner="ops")
        assert consumer.quiet() == set()


@pytest.mark.contract("P4")
def test_a_strict_consumer_refuses_what_is_not_assigned(safe):
    """``strict_pause=True``: also what is subscribed, and patterns that cover nothing."""
    consumer = safe(strict_pause=True)
    for target in (A, "orders", re.compile("ord.*")):
        with pytest.raises(NotConsumedError):
            consumer.pause(target)
    assigned(consumer, A)
    for target in (B, "audit", re.compile("aud.*")):
        with pytest.raises(NotConsumedError):
            consumer.pause(A, target)
    assert consumer.holds() == ()
    consumer.pause(A, "orders", re.compile("ord.*"))
    assert len(consumer.holds()) == 3


def test_a_strict_consumer_can_start_paused(safe):
    """Nothing can be assigned yet; the two are no contradiction."""
    consumer = safe(start_paused=True, strict_pause=True)
    assigned(consumer, A)
    assert consumer.quiet() == {A}


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


@pytest.mark.parametrize("target", ["orders", "re:ord.*", ALL], ids=short)
def test_resume_names_what_still_holds_a_part(consumer, target):
    """Empty means that all of it flows (P3)."""
    consumer.pause(target)
    consumer.pause(A, owner="ops")
    assert [str(hold.scope) for hold in consumer.resume(target)] == ["orders:0"]
    consumer.resume(A, owner="ops")
    assert consumer.resume(target) == ()


def test_each_pattern_that_covers_nothing_is_named(consumer, told):
    """And nothing else is: a topic is no pattern."""
    told.events.clear()
    consumer.pause("re:ord.*", "re:typo.*", "audit")
    warning = told.only(PatternCoversNothing)
    assert [str(hold.scope) for hold in warning.holds] == ["re:typo.*"]
    placed = told.only(HoldsPlaced)
    assert placed.topics == ("audit", "orders")


def test_a_target_given_twice_is_one_hold(consumer, told):
    """In the event as in ``holds()``."""
    told.events.clear()
    consumer.pause(A, "orders:0", for_=100)
    placed = told.only(HoldsPlaced)
    assert len(placed.holds) == len(consumer.holds()) == 1
