"""Tests owners, targets, lifetimes and blocks through a consumer's public calls."""

import itertools
import logging
import re
import threading
from contextlib import nullcontext

import pytest
from kafka import TopicPartition
from kafka.errors import IllegalStateError

from safeconsumer import ALL, Lifetime
from safeconsumer.errors import HoldSettingError, JournalError, NotConsumedError
from tests.harness.kafka.fetches import assigned
from tests.harness.listing import short
from tests.harness.waiting import end_of

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
AUDIT = TopicPartition("audit", 0)


@pytest.fixture
def consumer(safe):
    """Return a consumer with three assigned partitions."""
    made = safe()
    assigned(made, A, B, AUDIT)
    return made


def _names(holds):
    return [(str(hold.scope), hold.owner) for hold in holds]


def test_pause_and_resume_without_targets_do_nothing(consumer, event_log):
    """``pause(*assignment())`` without an assignment must never pause everything."""
    consumer.pause(A)
    event_log.events.clear()
    consumer.pause()
    assert consumer.resume() == ()
    assert consumer.quiet() == {A}
    assert event_log.events == []


@pytest.mark.contract("P2")
def test_resume_all_lifts_every_hold_of_its_owner(consumer):
    """P3: the call lifts holds on partitions, topics, patterns and the whole consumer."""
    consumer.pause_all()
    consumer.pause(A, "orders", re.compile("ord.*"))
    consumer.pause_all(owner="ops")
    consumer.pause(A, owner="ops")
    left = consumer.resume_all()
    assert _names(left) == [("@all", "ops"), ("orders:0", "ops")]
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
def test_text_or_scope_of_a_hold_is_a_valid_target(consumer, text, same, covers):
    """P3: a text target uses the notation of the command line."""
    consumer.pause(text)
    assert consumer.quiet() == covers
    (hold,) = consumer.holds()
    assert str(hold.scope) == text
    consumer.pause(same)
    assert len(consumer.holds()) == 1
    assert consumer.resume(hold.scope, owner=hold.owner) == ()
    assert consumer.quiet() == set()


@pytest.mark.contract("P3")
def test_text_with_ranges_stands_for_each_of_its_partitions(consumer):
    consumer.pause("orders:0-1")
    assert _names(consumer.holds()) == [("orders:0", "app"), ("orders:1", "app")]
    with consumer.held("audit:0,0-0", owner="ops"):
        assert consumer.quiet() == {A, B, AUDIT}
    assert consumer.resume("orders:0-1") == ()
    assert consumer.quiet() == set()


class Number:
    """An integer class from another library, like numpy's."""

    def __init__(self, value):
        self._value = value

    def __index__(self):
        return self._value

    def __hash__(self):
        return hash(self._value)

    def __eq__(self, other):
        return self._value == other


def test_integers_of_other_libraries_are_valid_partition_numbers(consumer):
    tp = TopicPartition("orders", Number(0))
    consumer.pause(tp)
    assert consumer.quiet() == {A}
    assert str(consumer.holds()[0].scope) == "orders:0"
    consumer.resume(tp)
    assert consumer.holds() == ()


def test_partition_objects_that_the_program_creates_get_plain_pauses(consumer):
    """Pausing the objects from ``assignment()`` one by one pauses whole topics (P3)."""
    consumer.pause(*(TopicPartition(*tp) for tp in consumer.assignment()))
    assert {hold.owner for hold in consumer.holds()} == {"app"}
    consumer.resume(*consumer.assignment())
    for tp in consumer.assignment():
        consumer.pause(tp)
    whole = [("audit", "app (all)"), ("orders", "app (all)")]
    assert [one for one in _names(consumer.holds()) if one[1] != "app"] == whole


def test_lifetime_in_a_call_takes_precedence_over_the_default(safe):
    consumer = safe(default_lifetime=Lifetime.WHILE_ASSIGNED)
    assigned(consumer, A, B)
    consumer.pause(A)
    consumer.pause(B, lifetime=Lifetime.UNTIL_RESUMED)
    consumer.assign([AUDIT])
    consumer.assign([A, B])
    assert consumer.quiet() == {B}


@pytest.mark.parametrize("log", [True, False])
def test_log_setting_decides_whether_events_are_logged_in_addition_to_hooks(
    safe, event_log, caplog, log
):
    with caplog.at_level(logging.DEBUG, logger="safeconsumer"):
        safe(hooks=(event_log,), log=log).pause("orders")
    assert ("hold_placed" in caplog.text) == log
    assert [event.name for event in event_log.events] == ["hold_placed"]


@pytest.mark.parametrize("target", [A, "orders", "re:ord.*", ALL], ids=short)
def test_resume_returns_the_holds_that_still_cover_its_target(consumer, target):
    consumer.pause(target)
    consumer.pause(A, owner="ops")
    consumer.pause_all(owner="pump")
    still = [("@all", "pump"), ("orders:0", "ops")]
    assert sorted(_names(consumer.resume(target))) == still
    consumer.resume_all(owner="pump")
    assert _names(consumer.resume(target)) == still[1:]
    assert consumer.resume(A, owner="ops") == consumer.resume(target) == ()


# ------------------------------------------------------------ blocks


def test_block_outlasts_a_new_assignment_whatever_the_default_lifetime(safe):
    consumer = safe(default_lifetime=Lifetime.WHILE_ASSIGNED)
    assigned(consumer, A)
    with consumer.held(A):
        assigned(consumer, B)
        assigned(consumer, A, B)
        assert consumer.quiet() == {A}
    assert consumer.quiet() == set()


def test_block_without_targets_or_with_a_bad_target_does_not_start(consumer):
    """A block without targets would hold nothing."""
    with (
        pytest.raises(HoldSettingError, match=r"held\(safeconsumer.ALL\)"),
        consumer.held(*set()),
    ):
        pytest.fail("the block ran with nothing held")
    with pytest.raises(NotConsumedError), consumer.held(A, "unknown"):
        pytest.fail("the block ran without one of its targets")
    assert consumer.holds() == ()


def test_block_lifts_only_its_own_hold(consumer):
    """The application's hold and the hold of an enclosing block stay."""
    consumer.pause(A)
    with consumer.held("orders", reason="batch"):
        with consumer.held("orders"):
            assert consumer.quiet() == {A, B}
        assert consumer.quiet() == {A, B}
        (reason,) = {hold.reason for hold in consumer.holds() if hold.owner != "app"}
        assert reason == "batch"
    assert consumer.quiet() == {A}


@pytest.mark.contract("P7")
def test_block_with_the_applications_owner_does_not_end_a_whole_pause(consumer):
    """Only a resume ends a whole pause, and the end of a block is not a resume."""
    consumer.pause(*(tp for tp in consumer.assignment() if tp.topic == "orders"))
    with consumer.held(AUDIT, owner="app"):
        assert consumer.quiet() == {A, B, AUDIT}
    assert consumer.quiet() == consumer.paused(owner="app (all)") == {A, B}


def test_block_with_an_owner_may_be_lifted_by_that_name(consumer):
    with consumer.held(A, owner="ops", for_=60):
        assert _names(consumer.holds()) == [("orders:0", "ops")]
        consumer.resume(A, owner="ops")
        assert consumer.quiet() == set()


def _pause_by_ops(consumer):
    consumer.pause("orders", owner="ops")
    return nullcontext()


BEFORE_A_BLOCK = {
    "pause": _pause_by_ops,
    "block": lambda consumer: consumer.held("orders", owner="ops"),
}


@pytest.mark.contract("P3")
@pytest.mark.parametrize("before", BEFORE_A_BLOCK.values(), ids=BEFORE_A_BLOCK)
def test_block_is_refused_if_its_owner_already_holds_the_target(
    consumer, event_log, before
):
    """The end of the block would lift a hold that the block did not place."""
    with before(consumer):
        held = consumer.holds()
        event_log.events.clear()
        with (
            pytest.raises(HoldSettingError, match=r"'ops' .*already holds orders"),
            consumer.held(AUDIT, "orders", owner="ops", reason="another one"),
        ):
            pytest.fail("the block ran")
        assert (consumer.holds(), event_log.events) == (held, [])
        with consumer.held(AUDIT, A, owner="ops"):
            assert consumer.quiet() == {A, B, AUDIT}
        assert consumer.quiet() == {A, B}


@pytest.mark.contract("P3")
def test_second_of_two_blocks_that_start_simultaneously_is_refused(consumer):
    """
    Neither thread finds an existing hold of the owner, so both start a block.

    To simulate this, the second block starts inside the first block's ``pause()``.
    """
    place = consumer.pause

    def pause(*targets, **more):
        consumer.pause = place
        with pytest.raises(HoldSettingError), consumer.held(A, owner="ops"):
            pytest.fail("the second block ran")
        place(*targets, **more)

    consumer.pause = pause
    with consumer.held(A, owner="ops"):
        assert consumer.quiet() == {A}
        consumer.resume(A, owner="ops")
        with pytest.raises(HoldSettingError), consumer.held(A, owner="ops"):
            pytest.fail("the end of the first block would lift the second one's hold")
    assert consumer.quiet() == set()


def test_hold_is_removed_if_its_block_fails_to_start(consumer):
    """``pause()`` may raise after it placed the hold, for example if the disk is full."""
    place = consumer.pause

    def pause(*targets, **more):
        place(*targets, **more)
        raise JournalError

    consumer.pause = pause
    with pytest.raises(JournalError), consumer.held(A, "orders"):
        pytest.fail("the block ran")
    assert (consumer.holds(), consumer.quiet()) == ((), set())


@pytest.mark.parametrize("end", ["end", "refusal"])
def test_owner_may_start_another_block_after_the_first_block_is_over(consumer, end):
    if end == "end":
        with consumer.held(A, owner="ops"):
            pass
    else:
        with pytest.raises(NotConsumedError), consumer.held(A, "unknown", owner="ops"):
            pytest.fail("the block ran without one of its targets")
    with consumer.held(A, owner="ops"):
        assert consumer.quiet() == {A}


# ------------------------------------------------------------ before an assignment (P5)


@pytest.mark.parametrize("target", [A, "orders", re.compile("ord.*")], ids=short)
def test_hold_placed_before_the_assignment_takes_effect_on_assignment(safe, target):
    consumer = safe()
    consumer.pause(target, re.compile("nothing"))
    assert consumer.quiet() == set()
    consumer.assign([A, AUDIT])
    assert consumer.quiet() == {A}


@pytest.mark.parametrize(
    ("subscription", "target", "is_placed"),
    [
        ({"topics": ["orders"]}, A, True),
        ({"topics": ["orders"]}, "orders", True),
        ({"topics": ["orders"]}, re.compile("ord.*"), True),
        ({"topics": ["orders"]}, AUDIT, False),
        ({"topics": ["orders"]}, "audit", False),
        ({"pattern": "orders.*"}, "orders.new", True),
        ({"pattern": "orders.*"}, TopicPartition("orders.new", 5), True),
        ({"pattern": "orders.*"}, "audit", False),
    ],
    ids=short,
)
def test_pause_of_a_subscribed_topic_before_the_first_poll_is_placed(
    safe, subscription, target, is_placed
):
    """The topic need not exist yet; a target outside the subscription is refused."""
    consumer = safe(group_id="g")
    consumer.subscribe(**subscription)
    if is_placed:
        consumer.pause(target)
    else:
        with pytest.raises(NotConsumedError, match="audit"):
            consumer.pause(target)
    assert len(consumer.holds()) == is_placed
    assert consumer.quiet() == set()


@pytest.mark.parametrize("target", [AUDIT, "audit"], ids=short)
def test_subscribe_refuses_to_leave_out_a_paused_topic(safe, target):
    """The error names the hold and the call that lifts it, and nothing changes."""
    consumer = safe(group_id="g")
    consumer.pause(target, "orders")
    for other in ({"topics": ["orders"]}, {"pattern": "ord"}):
        with pytest.raises(NotConsumedError, match=r"lift it with resume\('audit"):
            consumer.subscribe(**other)
    assert consumer.subscription() is None
    assert len(consumer.holds()) == 2
    consumer.resume(target)
    # Upstream matches the pattern against the start of a topic name.
    consumer.subscribe(pattern="ord")
    assert _names(consumer.holds()) == [("orders", "app")]


@pytest.mark.parametrize("target", [B, "audit"], ids=short)
def test_assign_refuses_to_leave_out_a_paused_partition(safe, target):
    consumer = safe()
    consumer.pause(target)
    with pytest.raises(NotConsumedError):
        consumer.assign([A])
    assert consumer.assignment() == set()
    assert len(consumer.holds()) == 1
    consumer.assign([A, B, AUDIT])
    assert len(consumer.quiet()) == 1


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topics": "audit-and-more"}, TypeError),
        ({"topics": {"orders"}}, TypeError),
        ({"topics": None}, ValueError),
        ({}, ValueError),
        ({"topics": ["audit"], "pattern": "a"}, IllegalStateError),
        ({"topics": ["audit", ""]}, ValueError),
        ({"topics": ["audit"], "listener": 3}, TypeError),
    ],
    ids=short,
)
def test_wrong_subscription_raises_upstreams_error_and_the_next_one_is_checked(
    safe, arguments, error
):
    consumer = safe(group_id="g")
    consumer.pause("audit")
    with pytest.raises(error) as caught:
        consumer.subscribe(**arguments)
    assert not isinstance(caught.value, NotConsumedError)
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.subscribe(["orders"])


def test_pause_on_another_thread_during_the_check_does_not_raise(safe):
    """Only holds that were placed before the check started are checked."""
    consumer = safe(group_id="g")

    class Name(str):
        """A topic name; comparing it runs a pause on another thread."""

        __slots__ = ()

        def __eq__(self, other):
            pause = threading.Thread(target=lambda: consumer.pause(f"t{next(numbers)}"))
            pause.start()
            end_of(pause)
            return str(self) == str(other)

        __hash__ = str.__hash__

    numbers = itertools.count()
    consumer.pause("orders", "audit")
    with pytest.raises(NotConsumedError, match="audit"):
        consumer.subscribe([Name("orders"), "logs"])
    assert next(numbers) > 0


@pytest.mark.contract("P5", "P6")
def test_hold_placed_before_subscribing_is_checked_only_at_the_first_subscription(safe):
    """A later subscription may omit the hold's topic, and the hold stays."""
    consumer = safe(group_id="g")
    consumer.pause("audit")
    consumer.subscribe(["audit", "orders"])
    consumer.subscribe(["orders"])
    assert consumer.subscription() == {"orders"}
    assert _names(consumer.holds()) == [("audit", "app")]


def test_lifted_holds_are_not_kept_for_the_subscription_check(safe):
    consumer = safe()
    for number in range(5):
        with consumer.held(TopicPartition("orders", number)):
            pass
    consumer.pause("audit")
    consumer.pause_all()
    consumer.resume("audit")
    consumer.resume_all()
    assert not consumer._safe_hold_calls.early._keys


def test_partition_derived_from_an_assigned_partition_is_a_plain_target(consumer):
    """``_replace`` keeps the class of the objects that ``assignment()`` returns."""
    (audit,) = consumer.assignment() - {A, B}
    consumer.pause(audit._replace(topic="orders", partition=1))
    assert [str(one.scope) for one in consumer.holds()] == ["orders:1"]
