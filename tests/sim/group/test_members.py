"""Holds of a group reach every member, and those that come later."""

import itertools
from collections import Counter

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.errors import ControlTopicError
from safeconsumer.group import topics
from safeconsumer.group.wire import ControlKey, encode_key
from tests.sim.group.operating import CONTROL, Operator
from tests.sim.lab import GROUP
from tests.sim.playing import simulated

QUICK = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000}


def member(lab, name, **settings):
    """Start a member that obeys the control topics."""
    return lab.member(SafeConsumer, "t", name=name, **{"control": CONTROL, **settings})


def latecomer(lab):
    """Start a member that owns a partition, and whose control topics cannot be read."""
    away = [
        lab.cluster.fail(api, is_held=True, client_id="b-control")
        for api in ("ListOffsets", "Fetch")
    ]
    b = member(lab, "b")
    lab.until(lambda: len(b.consumer.assignment()) == 1)
    (owned,) = b.consumer.assignment()
    lab.until(lambda: b.consumer._subscription.delivered_position(owned) is not None)
    return b, away


def read(*members):
    """Return how many records came to members."""
    return sum(len(one.records) for one in members)


@pytest.mark.contract("G1")
@simulated(seeds=1, nightly=4)
def test_a_hold_reaches_two_members_and_a_third_that_comes_later(lab):
    """G1: for every member, now and in the future, until it is lifted."""
    operator = Operator(lab)
    partitions = lab.topic("t", 4, records=5)
    members = [member(lab, "a"), member(lab, "b")]
    lab.until(lambda: read(*members) == 20)
    operator.hold()
    began = lab.now
    lab.until(
        lambda: all(m.consumer.quiet() == m.consumer.assignment() for m in members)
    )
    assert lab.now - began < 1.0
    for tp in partitions:
        lab.append(tp, 10, first=5)
    lab.sleep(10)
    members.append(member(lab, "c"))
    lab.sleep(20)
    assert read(*members) == 20
    operator.lift()
    lab.until(lambda: read(*members) >= 60)
    for one in members:
        one.stop()
    assert lab.running() == []


@pytest.mark.contract("G2")
@simulated(seeds=1, nightly=4)
def test_a_hold_that_a_new_owner_reads_late_is_obeyed_from_the_start(lab):
    """G2: acknowledged before the partition was assigned, it lets no record through."""
    operator = Operator(lab)
    partitions = lab.topic("t", 2, records=5)
    a = member(lab, "a")
    lab.until(lambda: len(a.records) == 10)
    operator.hold()
    lab.until(lambda: a.consumer.quiet() == a.consumer.assignment())
    b, away = latecomer(lab)
    for tp in partitions:
        lab.append(tp, 10, first=5)
    lab.sleep(15)
    for one in away:
        one.end()
    lab.sleep(15)
    assert read(a, b) == 10
    operator.lift()
    lab.until(lambda: read(a, b) >= 30)
    a.stop()
    b.stop()


@pytest.mark.contract("G3")
@simulated(seeds=1, nightly=4)
def test_no_member_lifts_what_an_operator_holds(lab):
    """G3: resume() says what remains."""
    operator = Operator(lab)
    (tp,) = lab.topic("t", records=5)
    a = member(lab, "a")
    lab.until(lambda: len(a.records) == 5)
    operator.hold()
    lab.until(lambda: len(a.consumer.holds()) == 1)
    a.consumer.pause(tp)
    (left,) = a.consumer.resume(tp)
    a.consumer.resume_all("app")
    assert left.owner == "operator:alice"
    lab.append(tp, 5, first=5)
    lab.sleep(20)
    assert len(a.records) == 5
    (line,) = a.consumer.explain(tp)
    assert "operator:alice" in line
    operator.lift()
    lab.until(lambda: len(a.records) == 10)
    a.stop()


@pytest.mark.contract("G4")
@simulated(seeds=1, nightly=4)
def test_what_cannot_be_read_is_passed_over_and_what_is_newer_holds(lab):
    """G4: nothing raises into poll; the last record of a key counts."""
    operator = Operator(lab)
    (tp,) = lab.topic("t", records=5)
    a = member(lab, "a")
    lab.until(lambda: len(a.records) == 5)
    key = encode_key(ControlKey(GROUP, "bob", "t"))
    garbage = [(b"garbage-%d" % number, b"\xff" * 20) for number in range(50)]
    operator.write(*garbage, (key, b'{"v":9}'))
    lab.until(lambda: a.consumer.quiet() == {tp})
    assert a.consumer._safe_control._state.skipped == 50
    b = member(lab, "b")
    lab.append(tp, 5, first=5)
    lab.sleep(20)
    assert (len(a.records), len(b.records)) == (5, 0)
    operator.write((key, None))
    lab.until(lambda: read(a, b) >= 10)
    a.stop()
    b.stop()


@pytest.mark.contract("G4")
@simulated(seeds=1)
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_loses_holds_with_time_is_refused(lab, policy):
    """G4: by the constructor, which says what to do."""
    lab.cluster.create_topic("ops", 1, {"cleanup.policy": policy})
    lab.cluster.create_topic("status", 1, topics.HOLDS_SETTINGS)
    with pytest.raises(ControlTopicError, match=r"set cleanup\.policy=compact"):
        SafeConsumer(**lab.settings(group_id=GROUP, control=CONTROL))
    lab.sleep(60)
    assert lab.running() == []


@pytest.mark.contract("G6")
@simulated(seeds=1)
@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_it_expires_late_by_the_skew_and_never_early(lab, ahead):
    """G6: by the broker's time, however wrong the member's own clock is."""
    operator = Operator(lab)
    (tp,) = lab.topic("t", records=5)
    a = member(lab, "a", poll_ms=100)
    lab.step_clock(a.process, ahead)
    lab.until(lambda: len(a.records) == 5)
    began = lab.now
    operator.hold(for_=20.0)
    acknowledged = lab.now
    lab.until(lambda: a.consumer.quiet() == {tp})
    lab.append(tp, 5, first=5)
    lab.until(lambda: len(a.records) == 10, 200)
    assert lab.now - began >= 20.0
    assert lab.now - acknowledged <= 20.0 + CONTROL.clock_skew + 1.0
    a.stop()


@pytest.mark.contract("G8")
@simulated(seeds=1, nightly=4)
def test_who_does_not_answer_is_not_called_quiet(lab):
    """G8: an operator sees that one of two obeys, and which partitions are not known."""
    operator = Operator(lab)
    lab.topic("t", 2, records=5)
    a, b = member(lab, "a"), member(lab, "b")
    a.owns(1)
    b.owns(1)
    lab.until(lambda: read(a, b) >= 10)
    assert not operator.quietness().is_reached
    lab.freeze(b.process)
    operator.hold()
    lab.until(lambda: a.consumer.quiet() == a.consumer.assignment())
    (unknown,) = b.consumer.assignment()
    lab.sleep(5)
    seen = operator.quietness()
    assert not seen.is_reached
    assert seen.sentence().startswith("1 of 2 members quiet")
    assert f"t:{unknown.partition}" in seen.sentence()
    lab.thaw(b.process)
    lab.sleep(10)
    assert operator.quietness().is_reached
    a.stop()
    b.stop()


@simulated(seeds=1, nightly=4)
def test_an_idle_member_asks_for_nothing_but_fetches_and_reports(lab):
    """One idle fetch at a time, one report each interval, and metadata now and then."""
    Operator(lab)
    lab.topic("t", 4)
    a = member(lab, "a")
    a.owns(4)
    lab.sleep(10)
    since = len(lab.cluster.requests)
    lab.sleep(30)
    asked = Counter(
        one.api
        for one in [*lab.cluster.requests][since:]
        if one.client_id == "a-control"
    )
    assert asked.keys() <= {"Fetch", "Produce", "Metadata", "DescribeConfigs"}
    assert 9 <= asked["Produce"] <= 11  # status_interval is 3 s
    assert asked["Fetch"] <= 61  # fetch_max_wait_ms is 500
    a.stop()


@pytest.mark.contract("W8")
@simulated(seeds=1, nightly=4)
@pytest.mark.parametrize("is_answered", [True, False])
def test_closing_takes_no_longer_than_it_was_given(lab, *, is_answered):
    """Its threads, its clients and leaving the group share one deadline."""
    Operator(lab)
    lab.topic("t", 4)
    consumer = SafeConsumer("t", **lab.settings(group_id=GROUP, control=CONTROL))
    while not consumer.assignment():
        consumer.poll(100)
    if not is_answered:
        lab.cluster.fail("*", is_held=True)
    began = lab.now
    consumer.close(autocommit=False, timeout_ms=500)
    assert lab.now - began <= 0.6
    lab.sleep(60)
    assert lab.running() == []


@simulated(seeds=1)
def test_a_missing_status_topic_is_asked_for_seldom(lab, caplog):
    """A member that begins before it is made; once it is there, it reports."""
    lab.topic("t", 1)
    lab.cluster.create_topic("ops", 1, topics.HOLDS_SETTINGS)
    a = member(lab, "a")
    a.owns(1)
    since = len(lab.cluster.requests)
    caplog.clear()
    lab.sleep(40)
    assert lab.kinds(since).count("Metadata") < 10
    complaints = [one for one in caplog.records if one.name.startswith("kafka.")]
    assert len(complaints) <= 4  # two looks, and upstream logs an error at each
    lab.cluster.create_topic("status", 1, topics.STATUS_SETTINGS)
    since = len(lab.cluster.requests)
    lab.until(lambda: "Produce" in lab.kinds(since))
    a.stop()


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "settings", [{}, {"group_instance_id": "a"}], ids=["dynamic", "static"]
)
@simulated(seeds=1, nightly=5)
def test_a_killed_member_that_was_quiet_stays_quiet(lab, settings):
    """Until its partitions are moved; then what counts is what their next owner reports."""
    operator = Operator(lab)
    lab.topic("t", 4, records=5)
    quick = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 1000}
    a, b = member(lab, "a", **quick, **settings), member(lab, "b", **quick)
    for one in (a, b):
        one.owns(2)
    operator.hold()
    operator.wait_until_quiet()
    lab.kill(a.process)
    seen, is_held_again = [], False
    with operator.looking() as looking:
        began = lab.now
        while lab.now < began + 80:
            if lab.now > began + 16 and not is_held_again:
                operator.hold("t")  # the dead one had applied the first
                is_held_again = True
                lab.sleep(1)
            view = looking.look(GROUP)
            if view.facts.state == "Stable":
                owners = {one.owner for one in view.partitions}
                seen.append((owners, view.verdict.words))
            lab.sleep(1)
    first, *between, last = [one for one, _ in itertools.groupby(seen)]
    assert (first, last) == (({"a", "b"}, "quiet"), ({"b"}, "quiet"))
    # Kafka says that it is stable 0.1 s before its member reports what it got.
    assert between in ([], [({"b"}, "unknown")])
    b.stop()


@simulated(seeds=1)
def test_a_static_member_that_starts_again_is_quiet_when_it_has_reported(lab):
    operator = Operator(lab)
    lab.topic("t", 2, records=5)
    a = member(lab, "a", group_instance_id="a")
    a.owns(2)
    operator.hold()
    operator.wait_until_quiet()
    lab.kill(a.process)
    lab.sleep(2)
    again = member(lab, "a", group_instance_id="a")
    again.owns(2)
    operator.wait_until_quiet(seconds=5)
    with operator.looking() as looking:
        began = lab.now
        while lab.now < began + 70:
            assert looking.look(GROUP).verdict.words == "quiet"
            lab.sleep(5)
    again.stop()


# ---------------------------------------------------------------- a program's own pauses

PAUSES = {
    "the rest": lambda it: it.pause(*(it.assignment() - it.paused())),
    "the rest, listed": lambda it: it.pause(
        *[tp for tp in it.assignment() if tp not in it.paused()]
    ),
    "unless paused": lambda it: None if it.paused() else it.pause(*it.assignment()),
}


def gains_nothing(lab, mine, other):
    """Let the other member go; what this one gains by it, and has, stays quiet."""
    before = len(mine.records)
    other.stop()
    mine.owns(4)
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=5)
    lab.sleep(10)
    assert len(mine.records) == before


@pytest.mark.contract("P3", "P7", "G1")
@pytest.mark.parametrize(
    ("pause", "held"),
    [
        ("the rest", "one"),
        ("the rest, listed", "topic"),
        pytest.param("unless paused", "one", marks=pytest.mark.nightly),
    ],
)
@simulated(seeds=1, nightly=3)
def test_an_operators_hold_opens_no_leak_in_the_programs_pause(lab, pause, held):
    """Nothing flows while it is paused, nor once the hold is lifted."""
    operator = Operator(lab)
    lab.topic("t", 4, records=5)
    a, b = member(lab, "a"), member(lab, "b")
    a.owns(2)
    b.owns(2)
    lab.until(lambda: len(a.records) + len(b.records) >= 20)
    first = min(a.consumer.assignment())
    scope = f"t:{first.partition}" if held == "one" else "t"
    operator.hold(scope)
    lab.until(lambda: first in a.consumer.quiet())
    assert a.consumer.paused() == set()
    a.call(PAUSES[pause])
    gains_nothing(lab, a, b)
    operator.lift(scope)
    lab.sleep(10)
    assert a.consumer.quiet() == a.consumer.paused() == set(lab.partitions("t"))
    before = len(a.records)
    a.call(lambda consumer: consumer.resume(*consumer.paused()))
    lab.until(lambda: len(a.records) >= before + 20)
    assert a.consumer.quiet() == set()
    a.stop()


@pytest.mark.contract("P3", "P7", "G2")
@simulated(seeds=1, nightly=3)
def test_a_program_can_pause_before_the_control_topics_are_read(lab):
    """A closed gate is no pause of the program: it names all that it owns."""
    Operator(lab)
    lab.topic("t", 4, records=5)
    b = member(lab, "b")
    lab.until(lambda: len(b.records) == 20)
    away = [
        lab.cluster.fail(api, is_held=True, client_id="a-control")
        for api in ("ListOffsets", "Fetch")
    ]
    a = member(lab, "a")
    a.owns(2)
    assert a.consumer.quiet() == a.consumer.assignment()
    assert a.consumer.paused() == set()
    a.call(PAUSES["the rest"])
    for one in away:
        one.end()
    lab.until(lambda: not a.consumer._safe_ledger.control_gates())
    gains_nothing(lab, a, b)
    a.call(lambda consumer: consumer.resume(*consumer.paused()))
    lab.until(lambda: len(a.records) >= 20)
    a.stop()
