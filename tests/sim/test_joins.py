"""
Joins that outlast their ``poll``, complete late, are for an older subscription, or fail.

kafka-python's ``poll`` joins only if a join is needed, which is no longer the case once
JoinGroup is sent. If that
``poll`` ends before the response arrives, no call handles the response. The member then
keeps its old assignment without heartbeats, and delivers partitions that others own.
"""

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaConnectionError, RequestTimedOutError
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import (
    COOPERATIVE,
    Listener,
    Reader,
    at,
    both_protocols,
    known,
    stock_fails,
)

FORGOTTEN = "a join that outlasts its poll is forgotten"
UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 25, 27


def ask_to_join(lab):
    """Make the next heartbeat of the test's consumer return a request to rejoin."""
    lab.cluster.fail("Heartbeat", error=REBALANCE_IN_PROGRESS, origin="test", count=1)


def held_join(lab, reader):
    """Make a poll give up on a join, and hold back the response to its JoinGroup."""
    late = lab.cluster.fail("JoinGroup", is_held=True, origin="test")
    ask_to_join(lab)
    reader.until(lambda: late.kept)
    return late


def joined(lab, kind=SafeConsumer, **settings):
    """Create a group's only member, which has read the ten records of its partition."""
    (p0,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, kind, "t", **settings)
    reader.until(lambda: len(reader.log) == 10, each=5)
    return reader, p0


def commit(reader, tp, offset):
    """Commit an offset that is not the reader's position, as another member might."""
    reader.consumer.commit({tp: at(offset)})


# A join that outlasts its poll


@stock_fails(FORGOTTEN)
@both_protocols
def test_changed_subscription_takes_effect_if_its_join_outlasts_the_poll(
    lab, kind, assignor
):
    """The next polls finish the join, and paused partitions stay paused."""
    old, new = lab.topic("t", 2), lab.topic("u", 2, records=1)
    reader = Reader(lab, kind, "t", assignor=assignor)
    reader.owns(old, each=5)
    reader.consumer.pause(*old)
    late = lab.cluster.fail("JoinGroup", is_held=True)
    reader.consumer.subscribe(["t", "u"])
    reader.until(lambda: late.kept)
    reader.is_silent()
    late.end()
    lab.sleep(1)  # the response arrives before the next poll starts
    for tp in old:
        lab.append(tp)
    reader.owns([*old, *new])
    reader.until(lambda: len(reader.log) == 2)
    reader.is_silent()
    assert all(reader.offsets(tp) == [0] for tp in new)
    assert reader.consumer.quiet() == set(old)


@stock_fails(FORGOTTEN)
@simulated(seeds=1, nightly=2)
def test_leader_gets_added_partitions_if_its_poll_ends_before_the_assignment(lab, kind):
    """New metadata triggers the join, and the leader's assignment uses that metadata."""
    reader, p0 = joined(lab, kind, metadata_max_age_ms=1000)
    late = lab.cluster.fail("SyncGroup", is_held=True)
    lab.cluster.add_partitions("t", 2)
    reader.until(lambda: late.kept)
    reader.is_silent()
    late.end()
    reader.owns([p0, TopicPartition("t", 1)])


# A join that succeeds between two polls


@simulated(seeds=1, nightly=2)
def test_member_that_polls_too_late_leaves_without_spinning_and_joins_again(lab):
    """The member leaves after ``max_poll_interval_ms``."""
    reader, p0 = joined(lab)
    held_join(lab, reader).end()
    lab.sleep(1)
    generation = lab.generation()
    lab.sleep(290)
    assert lab.members() == 1
    lab.sleep(20)
    assert lab.members() == 0
    turns, since = lab.world.turns, len(lab.history())
    lab.sleep(30)
    assert "Heartbeat" not in lab.kinds(since)
    assert lab.world.turns - turns < 100
    lab.append(p0)
    reader.until(lambda: len(reader.log) > 10)
    assert lab.generation() > generation


@stock_fails("the next poll joins again and discards the response to the first join")
@simulated(seeds=1, nightly=2)
def test_join_completed_between_two_polls_is_not_repeated(lab, kind):
    """The next poll does not repeat the join, and heartbeats continue until then."""
    reader, p0 = joined(lab, kind)
    held_join(lab, reader).end()
    lab.sleep(120)
    since, generation = len(lab.history()), lab.generation()
    lab.append(p0)
    reader.reads(p0, [10])
    assert "JoinGroup" not in lab.kinds(since)
    assert (lab.generation(), lab.members()) == (generation, 1)


# A consumer that is closed while its join waits for others


def join_behind(lab, assignor):
    """Make a member's join wait for another member, which does not poll."""
    lab.topic("t", 4, records=10)
    other = Reader(lab, SafeConsumer, "t", assignor=assignor)
    other.until(lambda: len(other.consumer.assignment()) == 4)
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor)
    for _ in range(20):
        reader.poll()
    assert "JoinGroup" in lab.kinds()[-5:]
    assert not reader.consumer.assignment()
    return other, reader


LEAVE = {
    "close": lambda consumer: consumer.close(),
    "close in half a second": lambda consumer: consumer.close(timeout_ms=500),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.contract("P22")
@pytest.mark.parametrize("leave", LEAVE)
@both_protocols
def test_member_leaves_immediately_during_a_join(lab, assignor, leave):
    """The other member gets all partitions when it polls."""
    other, reader = join_behind(lab, assignor)
    began = lab.now
    LEAVE[leave](reader.consumer)
    assert lab.now - began < 0.5
    other.until(lambda: len(other.log) == 40, seconds=5)
    assert len(other.consumer.assignment()) == 4


@pytest.mark.contract("P22")
@both_protocols
def test_member_that_has_read_records_closes_immediately_during_a_join(lab, assignor):
    """Records that the member could not commit are delivered again."""
    automatic = {"enable_auto_commit": True, "auto_commit_interval_ms": 3_600_000}
    lab.topic("t", 4, records=10)
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor, **automatic)
    reader.until(lambda: len(reader.log) == 40)
    other = Reader(lab, SafeConsumer, "t", assignor=assignor)
    while not other.consumer.assignment():
        other.poll()
        reader.poll()
    for tp in lab.partitions("t"):
        lab.append(tp, 5, first=10)
    reader.until(lambda: len(reader.log) > 40)
    ask_to_join(lab)
    for _ in range(50):
        reader.poll()
    began = lab.now
    reader.consumer.close()
    assert lab.now - began < 3
    other.until(lambda: len(other.consumer.assignment()) == 4, seconds=5)
    each = {(record.partition, record.offset) for record in reader.log + other.log}
    other.until(
        lambda: len(each | {(one.partition, one.offset) for one in other.log}) == 60
    )


@pytest.mark.contract("P22")
@pytest.mark.parametrize("is_away", [True, False], ids=["away", "silent"])
def test_close_during_a_join_waits_at_most_three_seconds_for_its_broker(lab, is_away):
    reader, _ = joined(lab)
    held_join(lab, reader)
    if is_away:
        lab.network.hosts.clear()
        lab.network.reset()
    else:
        lab.cluster.fail("LeaveGroup", is_held=True, origin="test")
    began = lab.now
    reader.consumer.close()
    assert lab.now - began < 3.1


def test_coordinator_stays_known_if_two_leave_requests_overlap(lab):
    reader, _ = joined(lab, max_poll_interval_ms=20_000, session_timeout_ms=10_000)
    held_join(lab, reader).end()
    lab.sleep(1)
    late = lab.cluster.fail("LeaveGroup", is_held=True, origin="test")
    lab.until(lambda: late.kept, 40)
    reader.consumer.unsubscribe()
    lab.sleep(5)
    late.end()
    reader.consumer.subscribe(["t"])
    reader.until(reader.consumer.assignment, seconds=60)


def test_kafka_pythons_close_during_a_join_waits_half_a_minute(lab):
    reader, _ = joined(lab, KafkaConsumer)
    held_join(lab, reader)
    began = lab.now
    reader.consumer.close()
    assert 29 < lab.now - began < 32


# A join whose subscription has changed by the time it succeeds


@simulated(seeds=1, nightly=2)
def test_manually_assigned_partition_is_read_after_a_dropped_join(lab):
    """A join for an older subscription does not delay a manual assignment."""
    names = []
    reader, p0 = joined(lab, hooks=[lambda event: names.append(event.name)])
    lab.topic("u", 1)
    late = held_join(lab, reader)
    names.clear()
    reader.consumer.subscribe(["u"])
    next_one = follow(lab, late)
    reader.until(lambda: next_one.kept)
    assert "rebalance_completed" not in names
    reader.consumer.unsubscribe()
    reader.consumer.assign([p0])
    reader.consumer.seek(p0, 0)
    reader.reads(p0, range(10))


def follow(lab, late):
    """Release the response to a join, and hold back the response to the next join."""
    late.end()
    return lab.cluster.fail("JoinGroup", is_held=True, origin="test")


@simulated(seeds=1, nightly=2)
def test_dropped_join_does_not_commit_or_revoke_again(lab):
    """Since the dropped join other members may have moved the committed offsets."""
    lab.topic("u", 1)
    names = []
    reader, _ = joined(
        lab,
        enable_auto_commit=True,
        auto_commit_interval_ms=600_000,
        hooks=[lambda event: names.append(event.name)],
    )
    listener = Listener(revoked=lambda _: names.append("revoked"))
    reader.consumer.subscribe(["t"], listener=listener)
    names.clear()
    late = held_join(lab, reader)
    commits = lab.kinds().count("OffsetCommit")
    reader.consumer.subscribe(["u"], listener=listener)
    next_one = follow(lab, late)
    reader.until(lambda: next_one.kept)
    assert names == ["revoked"]
    assert lab.kinds().count("OffsetCommit") == commits
    next_one.end()
    reader.owns([TopicPartition("u", 0)])


@both_protocols
@simulated(seeds=1, nightly=2)
def test_join_is_applied_if_the_subscription_has_only_grown_since(lab, assignor):
    """
    The next join assigns the new topics.

    Otherwise, while a program creates matching topics one after another, no join would ever
    be for the newest subscription, and no record would arrive.
    """
    names = []
    hooks = [lambda event: names.append(event.name)]
    reader, p0 = joined(lab, assignor=assignor, hooks=hooks)
    (another,) = lab.topic("u", 1)
    late = held_join(lab, reader)
    names.clear()
    reader.consumer.subscribe(["t", "u"])
    next_one = follow(lab, late)
    reader.until(lambda: next_one.kept)
    assert names == ["rebalance_completed"]
    next_one.end()
    reader.owns([p0, another])


# A join that fails, or that was missed


@pytest.mark.parametrize(
    ("kind", "api"),
    [
        (SafeConsumer, "JoinGroup"),
        (SafeConsumer, "SyncGroup"),
        pytest.param(
            KafkaConsumer,
            "SyncGroup",
            marks=known("an eager member keeps the positions of returned partitions"),
        ),
    ],
)
@simulated(seeds=1, nightly=2)
def test_membership_that_ends_during_a_join_ends_the_ownership(lab, kind, api):
    """
    Reading continues at the committed offset, because others may have owned the partition.

    The membership ends if the broker does not know the member, or if a generation started
    without the member, as after a lost SyncGroup response. In either case another member
    may have continued reading.
    """
    reader, p0 = joined(lab, kind)
    commit(reader, p0, 4)
    is_reported = api == "JoinGroup"
    how = {"error": UNKNOWN_MEMBER_ID} if is_reported else {"is_lost": True}
    lab.cluster.fail(api, count=1, **how)
    ask_to_join(lab)
    reader.until(lambda: len(reader.log) == 16, seconds=120, each=1)
    assert reader.offsets(p0)[10:] == [*range(4, 10)]


@simulated(seeds=1, nightly=2)
def test_follower_that_joins_without_a_new_generation_keeps_its_position(lab):
    lab.topic("t", 2, records=10)
    leader = lab.member(SafeConsumer, "t", name="leader")
    leader.owns(2)
    reader = Reader(lab, SafeConsumer, "t")
    reader.until(lambda: len(reader.log) == 10)
    leader.owns(1)
    (own,) = reader.consumer.assignment()
    commit(reader, own, 4)
    generation, joins = lab.generation(), lab.kinds().count("JoinGroup")
    ask_to_join(lab)
    reader.until(lambda: lab.kinds().count("JoinGroup") > joins)
    reader.is_silent()
    assert lab.generation() == generation
    lab.append(own)
    reader.until(lambda: len(reader.log) > 10)
    assert reader.offsets(own) == list(range(11))


@simulated(seeds=1, nightly=2)
def test_commit_does_not_invalidate_the_fetched_offsets_of_other_partitions(lab):
    """A gained partition gets a position although the program commits after each poll."""
    p0, p1 = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer)
    reader.consumer.assign([p0])
    reader.reads(p0, range(10))
    reader.consumer.commit()
    late = lab.cluster.fail("OffsetFetch", is_held=True)
    reader.consumer.assign([p0, p1])
    reader.until(lambda: late.kept)
    late.end()
    asked = lab.kinds().count("OffsetFetch")
    commit(reader, p0, 10)
    reader.reads(p1, range(10))
    assert lab.kinds().count("OffsetFetch") == asked


# The partitions that a member claims when it joins; a leader does not immediately
# assign them to another member


def claimed(message):
    """Return the partitions that a JoinGroup claims."""
    (protocol,) = message.body.protocols
    offered = ConsumerProtocolSubscription.decode(protocol.metadata)
    return {
        TopicPartition(owned.topic, partition)
        for owned in offered.owned_partitions or ()
        for partition in owned.partitions
    }


def end_membership(lab, _):
    """Make the next heartbeat end the membership."""
    lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER_ID, count=1)


def subscribes_again(_, reader):
    """Leave the group, and join it again."""
    reader.consumer.unsubscribe()
    reader.consumer.subscribe(["t"])


@pytest.mark.contract("P6")
@stock_fails("a cooperative member claims the partitions that it has lost")
@pytest.mark.parametrize("leave", [end_membership, subscribes_again])
def test_evicted_member_does_not_claim_partitions_in_its_next_join(lab, kind, leave):
    """
    P6: the current owner first gives up a partition, and commits.

    An hour-long churn test found this defect: a member that resumed after a freeze got
    partitions in the same generation in which their owner had to give them up. The member
    started at the last committed offset, and delivered records that the owner committed
    shortly afterwards.
    """
    tps = lab.topic("t", 2)
    reader = Reader(lab, kind, "t", assignor=COOPERATIVE)
    reader.owns(tps, each=5)
    joins = []
    lab.cluster.on_request = lambda entry, message: (
        joins.append(claimed(message)) if entry.api == "JoinGroup" else None
    )
    ask_to_join(lab)
    reader.until(lambda: joins, each=5)
    assert joins.pop() == set(tps), "a member claims what it owns"
    reader.is_silent()
    leave(lab, reader)
    reader.until(lambda: joins, each=5)
    assert joins[0] == set()


# A broker that is stopped, or silent, when a join starts


@stock_fails("poll raises the error of a pattern subscriber's metadata request")
@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "silent"])
def test_poll_does_not_raise_if_a_broker_is_down_before_a_join(lab, kind, is_cut):
    """The next polls complete the join."""
    lab.topic("t", 1, records=10)
    reader = Reader(lab, kind, request_timeout_ms=1000)
    reader.consumer.subscribe(pattern="^t$")
    reader.until(lambda: len(reader.log) == 10, each=5)
    reader.is_silent()
    joins = lab.kinds().count("JoinGroup")
    how = {"is_cut": True, "count": 1} if is_cut else {"is_held": True}
    failing = lab.cluster.fail("Metadata", **how)
    ask_to_join(lab)
    try:
        if not is_cut:
            # The client gives up on one request.
            reader.until(lambda: len(failing.kept) >= 2, each=5)
            failing.end()
        reader.until(lambda: lab.kinds().count("JoinGroup") > joins, each=5)
    except (KafkaConnectionError, RequestTimedOutError) as error:
        raise AssertionError from error


@simulated(seeds=1, nightly=2)
def test_poll_raises_the_error_of_a_commit_callback(lab):
    reader, _ = joined(lab)

    def pass_on(_, __):
        raise KafkaConnectionError

    reader.consumer.commit_async(callback=pass_on)
    with pytest.raises(KafkaConnectionError):
        reader.until(lambda: False)
