"""A recreated topic meets rebalances, slow handlers, several topics and commits."""

import gc

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.errors import NotOwnedError
from tests.sim.reading import COOPERATIVE, Listener, Reader, at, both_protocols
from tests.sim.test_interrupts import OURS, THEIRS, interrupting
from tests.sim.test_recreated import (
    OLD,
    Watching,
    assigned,
    made_again,
    subscribed,
)

pytestmark = pytest.mark.contract("P21")

each_reset = pytest.mark.parametrize("reset", ["earliest", "latest"])
AUTOMATIC = {"enable_auto_commit": True, "auto_commit_interval_ms": 500}


@pytest.mark.parametrize(
    "reset", ["latest", pytest.param("earliest", marks=pytest.mark.nightly)]
)
@both_protocols
def test_who_gains_it_goes_on_at_the_commit_of_the_new_topic(lab, assignor, reset):
    """Its metadata are older than the topic; the member before it has read and committed."""
    (tp,) = lab.topic("t", records=OLD)
    idle = Watching(lab, "t", assignor=assignor, auto_offset_reset=reset, client_id="z")
    other = lab.member(SafeConsumer, "t", assignor=assignor, **AUTOMATIC)
    idle.until(lambda: other.consumer.assignment() == {tp} and other.values(tp))
    made_again(lab, 50)
    lab.append(tp, 5, first=150)
    other.consumer._cluster.request_update()
    idle.until(lambda: lab.committed(tp) == 55)
    other.stop()
    lab.append(tp, 20, first=155)
    new = {*range(155, 175)}
    idle.until(lambda: {*idle.values()} == new, seconds=60)
    idle.is_silent(seconds=2 * 300)
    assert len(idle.log) <= 2 * len(new)  # what came before it knew comes again


def test_a_commit_by_name_in_a_listener_is_refused(lab):
    """The partition is revoked: it is not among those that are compared with an answer."""
    tps = lab.topic("t", 2, records=OLD)
    reader = Watching(lab, assignor=COOPERATIVE, heartbeat_interval_ms=200)
    sent = []

    def revoked(gone):
        if gone:
            sent.append(reader.consumer.commit_async({tp: at(OLD) for tp in gone}))

    reader.consumer.subscribe(["t"], listener=Listener(revoked=revoked))
    reader.take(2 * OLD)
    reader.consumer.pause("t", owner="ops")
    reader.is_silent(seconds=2)
    made_again(lab, 25, 2)
    other = lab.member(SafeConsumer, "t", name="b", assignor=COOPERATIVE)
    reader.until(lambda: len(other.consumer.assignment()) == 1)
    (given,) = other.consumer.assignment()
    assert given in tps
    reader.until(lambda: len(other.values(given)) == 25)
    assert other.values(given) == [*range(100, 125)]
    assert [type(one.exception) for one in sent] == [NotOwnedError]


@each_reset
def test_what_was_fetched_in_doubt_counts_as_held(lab, reset):
    """Another topic was asked for less than a second ago, so this one did not wait."""
    t, u = (lab.topic(name, records=OLD)[0] for name in "tu")
    reader = Watching(lab, tps=[t, u], auto_offset_reset=reset, group_id="g")
    reader.consumer.seek_to_beginning(t, u)
    reader.take(2 * OLD)
    for tp in (t, u):
        reader.consumer.pause(tp, owner="ops")
    reader.is_silent(seconds=20)
    reader.consumer.resume(u, owner="ops")
    reader.poll(0.2)
    made_again(lab, 25)
    reader.poll(0.3)
    reader.consumer.resume(t, owner="ops")
    reader.until(lambda: {*reader.values(2 * OLD)} == {*range(100, 125)}, seconds=600)
    assert {begins for *_, begins in reader.told()} == {"earliest"}


@pytest.mark.parametrize("wait", [0.02, 0.1, 1.0])
@both_protocols
def test_short_polls_commit_before_a_join_while_something_is_held(lab, assignor, wait):
    """The commit asks for ids, which takes longer than such a poll."""
    (t,), us = lab.topic("t", 1, records=OLD), lab.topic("u", 2, records=OLD)
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 10**8}
    reader = Reader(
        lab,
        SafeConsumer,
        "t",
        "u",
        assignor=assignor,
        heartbeat_interval_ms=200,
        **automatic,
    )
    reader.until(lambda: len(reader.log) == 3 * OLD)
    reader.consumer.pause(t, owner="ops")
    reader.is_silent(seconds=3)
    other = lab.member(SafeConsumer, "t", "u", name="b", assignor=assignor)
    reader.until(other.consumer.assignment, each=wait)
    for _ in range(50):
        reader.poll(wait)
    assert other.consumer.assignment() <= {t, *us}
    assert other.records == []


@pytest.mark.parametrize(
    "is_paused", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_a_slow_handler_notices_it(lab, is_paused):
    """It has records in hand, none of its fetches is in flight, and no pause is needed."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, **AUTOMATIC)
    reader.until(lambda: reader.log, limit=5)
    if is_paused:
        reader.consumer.pause(tp)
    lab.sleep(20)
    made_again(lab, 25)
    lab.sleep(20)
    reader.consumer.resume(tp)
    reader.until(lambda: reader.values()[-1:] == [124], seconds=60)
    reader.is_silent(seconds=2 * 300)
    assert [one for one in reader.values() if one >= 100] == [*range(100, 125)]
    assert lab.committed(tp) == 25


def test_a_question_that_nobody_waits_for_any_more_holds_no_other_up(lab):
    """The partition was paused again before the answer came."""
    (tp,) = lab.topic("t", records=OLD)
    lab.topic("u")
    reader = Watching(lab, "t", "u")
    reader.take(OLD)
    for _ in range(2):
        reader.consumer.pause(tp)
        reader.is_silent(seconds=3)
        reader.consumer.resume(tp)
        reader.poll(0)
    reader.is_silent(seconds=3)
    reader.consumer.pause(tp)
    reader.is_silent(seconds=30)
    made_again(lab, 25)
    reader.is_silent(seconds=30)
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)


def test_it_is_unread_until_something_was_read(lab):
    """An automatic commit of where reading begins does not count."""
    (tp,) = lab.topic("t", records=OLD)
    reader = subscribed(lab, **AUTOMATIC)
    reader.take(OLD)
    reader.consumer.pause(tp)
    reader.is_silent(seconds=2)
    made_again(lab, 25)
    reader.consumer._cluster.request_update()
    reader.is_silent(seconds=30)
    subscription = reader.consumer._subscription
    assert (lab.committed(tp), subscription.recreated()) == (0, ["t"])
    reader.consumer.resume(tp)
    reader.reads_new(25, OLD)
    assert subscription.recreated() == []
    reader.consumer.seek(tp, 0)
    reader.consumer.commit({tp: at(20)})  # it was read
    assert lab.committed(tp) == 20


@pytest.mark.nightly
def test_nothing_is_kept_of_what_was_fetched_with_a_held_partition(lab):
    held, *others = lab.topic("t", 21)
    reader = Reader(lab, SafeConsumer, tps=[held, others[0]])
    reader.is_silent(seconds=2)
    reader.consumer.pause(held, owner="ops")
    alive = []
    for number in range(60):
        mine = [held, others[number % 20], others[(number + 1) % 20]]
        reader.consumer.assign(mine)
        reader.poll(0.6)
        if number in {19, 59}:
            gc.collect()
            states = (type(one) is OwnedPartitionState for one in gc.get_objects())
            alive.append(sum(states))  # those of other tests, too
    assert alive[1] - alive[0] < 10


@pytest.mark.contract("P18")
def test_an_answer_finds_an_assignment_that_was_cut_short(lab):
    """What raised out of it would end the loop that refreshes metadata, for good."""
    a, b = lab.topic("t", 2, records=3)
    for number in range(400):
        reader = Reader(lab, SafeConsumer, tps=[a])
        reader.until(lambda reader=reader: len(reader.log) == 3)
        it = interrupting(OURS, THEIRS + "/consumer/subscription_state.py")
        it.number = number
        it.at(number, lambda reader=reader: reader.consumer.assign([a, b]))
        states = reader.consumer._subscription.assignment.values()
        if not all(isinstance(one, OwnedPartitionState) for one in states):
            break
        reader.consumer.close()
    else:
        pytest.fail("no place of assign leaves a state of kafka-python's own")
    reader.consumer._cluster.request_update()
    lab.sleep(1)
    (u,) = lab.topic("u", records=3)
    reader.consumer.assign([a, b, u])
    reader.until(lambda: len(reader.log) == 9)


SEEKS = {
    "to an offset": (lambda consumer, tp: consumer.seek(tp, 30), 30),
    "to the beginning": (lambda consumer, tp: consumer.seek_to_beginning(tp), 0),
    "all to the beginning": (lambda consumer, _: consumer.seek_to_beginning(), 0),
}


def assigned_again(lab, tp, **settings):
    """Assign ``t`` to a reader whose metadata are older than it and its commit, of 40."""
    reader = assigned(lab, **settings)
    reader.poll(1)
    lab.topic("u")
    reader.consumer.assign([TopicPartition("u", 0)])
    made_again(lab, 50)
    reader.consumer.commit({tp: at(40)})
    reader.consumer.assign([tp])
    return reader


@each_reset
def test_the_commit_of_the_new_topic_counts(lab, reset):
    """Reading begins there again when an answer has named the topic."""
    (tp,) = lab.topic("t", records=OLD)
    reader = assigned_again(lab, tp, auto_offset_reset=reset)
    since = len(reader.log)
    for _ in range(30):
        reader.poll(1)
    assert {*reader.values(since)} == {*range(140, 150)}
    assert {begins for *_, begins in reader.told()} <= {"committed"}


@pytest.mark.parametrize(
    "reset", ["earliest", pytest.param("latest", marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("how", SEEKS)
def test_a_position_that_the_program_sets_stays(lab, reset, how):
    """It assigns again and seeks; its metadata are older than the topic and its commit."""
    (tp,) = lab.topic("t", records=OLD)
    seek, begin = SEEKS[how]
    reader = assigned_again(lab, tp, auto_offset_reset=reset)
    seek(reader.consumer, tp)
    reader.until(lambda: reader.values()[-1:] == [149])
    reader.is_silent(seconds=2 * 300)
    new = [one for one in reader.values() if one >= 100]
    assert new == [*range(100 + begin, 150)]
