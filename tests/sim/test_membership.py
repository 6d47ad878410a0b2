"""Members that are evicted or fenced, or that leave or return."""

import pytest
from kafka import KafkaConsumer
from kafka.errors import CommitFailedError, FencedInstanceIdError, KafkaError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.events import HeldPartitionUncommitted, RebalanceCompleted
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Listener, Reader, known, stock_fails

ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS = 22, 25, 27
FENCED_INSTANCE_ID = 82


# Lost memberships


@pytest.mark.contract("P11")
@pytest.mark.parametrize("is_paused", [False, True])
@stock_fails("it calls the coordinator without a backoff once a heartbeat is due")
def test_poll_does_not_spin_while_a_heartbeat_is_unanswered(lab, kind, *, is_paused):
    """P11: the poll waits for ``retry_backoff_ms``."""
    (tp,) = lab.topic("t", 1)
    # A fetch response would also end the poll's wait, so the broker delays it.
    reader = Reader(lab, kind, "t", fetch_max_wait_ms=25_000)
    reader.owns([tp], each=5)
    if is_paused:
        reader.consumer.pause(tp)
    late = lab.cluster.fail("Heartbeat", is_held=True)
    reader.until(lambda: late.kept)
    reader.is_silent()  # the next heartbeat is due by then
    turns = lab.world.turns
    reader.is_silent(seconds=10)
    assert (lab.world.turns - turns) / 10 < 100


# Held partitions that a member gives up without a commit (P8)


def static_member(lab, **settings):
    """Create a static member that has read all of a partition."""
    (tp,) = lab.topic("t", 1, records=10)
    static = {"group_instance_id": "static", **settings}
    reader = Reader(lab, SafeConsumer, "t", **static)
    reader.until(lambda: len(reader.log) == 10)
    return reader, tp


def goes_on(lab, reader, tp):
    """Assert that the reader is a member again, and that it reads records."""
    reader.owns([tp], seconds=90, each=1)
    lab.append(tp)
    reader.until(lambda: len(reader.log) > 10)


def uncommitted(events):
    """Return the partitions of each warning about held, uncommitted partitions."""
    found = [one for one in events if isinstance(one, HeldPartitionUncommitted)]
    return [set(one.partitions) for one in found]


def quiet_member(lab, events, listener):
    """Create a member that owns two quiet partitions, and knows that they have no commit."""
    tps = lab.topic("t", 2)
    settings = {"start_paused": True, "auto_offset_reset": "latest"}
    reader = Reader(lab, SafeConsumer, hooks=(events.append,), **settings)
    reader.consumer.subscribe(["t"], listener=listener)
    reader.owns(tps)
    reader.is_silent()
    events.clear()
    return reader, tps


LEAVING = {
    "close": lambda consumer: consumer.close(autocommit=False),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
}


@pytest.mark.contract("P8")
@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
@simulated(seeds=1, nightly=2)
def test_uncommitted_partitions_are_reported_if_no_join_completes(lab, leave):
    """P8: the consumer leaves before it rejoins, so no join reports the partitions."""
    events = []
    reader, tps = quiet_member(lab, events, Listener())
    late = lab.cluster.fail("JoinGroup", is_held=True)
    lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER_ID, count=1)
    reader.until(lambda: late.kept and not reader.consumer.assignment())
    assert uncommitted(events) == []
    leave(reader.consumer)
    late.end()
    reader.consumer.close(autocommit=False)
    assert uncommitted(events) == [set(tps)]


@pytest.mark.contract("P8")
@simulated(seeds=1, nightly=2)
def test_uncommitted_partitions_are_reported_after_a_listener_raised(lab):
    """P8: the next join reports the partitions as lost."""
    events = []
    failures = [ValueError("once")]

    def raise_once(_):
        if failures:
            raise failures.pop()

    reader, tps = quiet_member(lab, events, Listener(lost=raise_once))

    def completed():
        return [one for one in events if isinstance(one, RebalanceCompleted)]

    lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER_ID, count=1)
    with pytest.raises(KafkaError, match="rebalance callback"):
        reader.until(completed)
    reader.until(completed, seconds=90, each=1)
    (one,) = completed()
    assert (set(one.lost), set(one.gained), one.kept) == (set(tps), set(tps), ())
    assert uncommitted(events) == [set(tps)]


# Static members, and commits of leaving members


@pytest.mark.contract("P11")
@pytest.mark.parametrize(
    "kind",
    [
        SafeConsumer,
        pytest.param(KafkaConsumer, marks=known("its heartbeat loop only stops")),
    ],
)
def test_fenced_static_member_raises_in_every_later_poll(lab, kind):
    """P11: another member has taken over the ``group_instance_id``."""
    tps = lab.topic("t", 2)
    reader = Reader(lab, kind, "t", group_instance_id="static")
    reader.owns(tps, each=5)
    lab.cluster.fail("Heartbeat", error=FENCED_INSTANCE_ID, count=1)
    lab.sleep(5)
    raised = 0
    for _ in range(4):
        try:
            reader.poll()
        except FencedInstanceIdError:
            raised += 1
    assert raised == 4


@pytest.mark.contract("P11")
def test_static_member_fenced_by_a_commit_response_raises(lab):
    """P11: the commit belongs to the current membership."""
    reader, _ = static_member(lab)
    lab.cluster.fail("OffsetCommit", error=FENCED_INSTANCE_ID, count=1)
    with pytest.raises(FencedInstanceIdError):
        reader.consumer.commit()


@pytest.mark.parametrize("is_automatic", [True, False])
@stock_fails("the commit is sent after the member has left its group")
def test_commit_just_before_unsubscribe_is_sent_as_a_member(lab, kind, *, is_automatic):
    """After ``unsubscribe()`` the broker would refuse the commit."""
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, kind, "t", enable_auto_commit=is_automatic)
    reader.until(lambda: len(reader.log) == 10, each=5)
    if not is_automatic:
        reader.consumer.commit_async()
    reader.consumer.unsubscribe()
    lab.sleep(5)
    assert lab.committed(tp) == 10


@simulated(seeds=1, nightly=2)
def test_response_to_an_old_commit_does_not_fence_the_new_member(lab):
    """
    A static member that subscribed again used to be fenced permanently by its own old commit.

    That commit was sent with the ``group_instance_id``, but without a member id. The broker
    knows another member with that instance id, which is the new membership.
    """
    reader, tp = static_member(lab)
    failed = []
    lab.cluster.fail("OffsetCommit", error=FENCED_INSTANCE_ID, count=1)
    late = lab.cluster.fail("OffsetCommit", delay=1.0)
    reader.consumer.commit_async(callback=lambda _, answer: failed.append(answer))
    reader.consumer.unsubscribe()
    reader.until(lambda: failed)
    late.end()
    assert isinstance(failed[0], CommitFailedError)
    lab.cluster.fail("OffsetCommit", error=FENCED_INSTANCE_ID, count=1)
    with pytest.raises(CommitFailedError):
        reader.consumer.commit({tp: OffsetAndMetadata(10, "", -1)})
    reader.consumer.subscribe(["t"])
    goes_on(lab, reader, tp)


@simulated(seeds=1, nightly=2)
def test_response_to_an_old_heartbeat_does_not_fence_the_new_member(lab):
    """The response arrives after the static member has subscribed again."""
    reader, tp = static_member(lab)
    lab.cluster.fail("Heartbeat", error=FENCED_INSTANCE_ID, count=1)
    late = lab.cluster.fail("Heartbeat", is_held=True, count=1)
    reader.until(lambda: late.kept)
    reader.consumer.unsubscribe()
    reader.consumer.subscribe(["t"])
    late.end()
    lab.sleep(1)
    goes_on(lab, reader, tp)


@simulated(seeds=1, nightly=2)
def test_join_of_an_earlier_membership_does_not_start_heartbeats(lab):
    """
    A heartbeat without a member id would fence the new member.

    1. A static member joins.
    2. It unsubscribes and subscribes again.
    3. A broker before 2.5 answers SyncGroup without the name of the protocol.
    4. The member does not poll while several heartbeats would be due.
    """
    reader, tp = static_member(lab, api_version=(2, 3))
    late = lab.cluster.fail("SyncGroup", is_held=True)
    lab.cluster.fail("Heartbeat", error=REBALANCE_IN_PROGRESS, count=1)
    reader.until(lambda: late.kept)
    reader.consumer.unsubscribe()
    reader.consumer.subscribe(["t"])
    late.end()
    before = len(lab.history())
    lab.sleep(10)
    assert "Heartbeat" not in lab.kinds(before)
    goes_on(lab, reader, tp)


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("api", ["JoinGroup", "SyncGroup"])
@simulated(seeds=1, nightly=2)
def test_join_response_of_an_earlier_membership_is_not_used(lab, api, *, static):
    (tp,) = lab.topic("t", 1, records=10)
    name = {"group_instance_id": "static"} if static else {}
    reader = Reader(lab, SafeConsumer, "t", **name)
    reader.owns([tp])
    late = lab.cluster.fail(api, is_held=True)
    lab.cluster.fail("Heartbeat", error=REBALANCE_IN_PROGRESS, count=1)
    reader.until(lambda: late.kept)
    reader.consumer.unsubscribe()
    reader.consumer.subscribe(["t"])
    lab.world.call_later(0.3, late.end)
    reader.poll(1.5)
    reader.owns([tp], seconds=90, each=1)
    reader.until(lambda: len(reader.log) >= 10)
    assert lab.members(GROUP) >= 1
