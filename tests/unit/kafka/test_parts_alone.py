"""Tests the coordinator, the fetcher, the subscription and commits separately."""

import time

import pytest
from kafka import TopicPartition
from kafka.consumer.subscription_state import OffsetResetStrategy
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.commits import OwnedOffsets
from safeconsumer._kafka.pausing.coordinator import Joined, PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.events import HeldPartitionUncommitted
from safeconsumer.holds.scope import partition
from tests.harness.holds.lab import LedgerLab
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.offline import offline, silent_broker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIVE = {A: OffsetAndMetadata(5, "", -1)}


@pytest.fixture
def client():
    """Return an upstream client that cannot reach any broker."""
    with silent_broker() as address:
        client = KafkaNetClient(bootstrap_servers=address, api_version=(2, 3))
        yield client
        client.close()


@pytest.fixture
def subscription():
    made = LedgerSubscription(offset_reset_strategy="latest")
    made.subscribe(topics=["a", "b"])
    return made


@pytest.fixture
def coordinator(client, subscription):
    """Return a coordinator of a member that has joined for the topics a and b."""
    made = PauseSafeCoordinator(client, subscription, group_id="g")
    made._joined_subscription = {"a", "b"}
    yield made
    made.close(autocommit=False, timeout_ms=0)


def test_pause_through_upstreams_subscription_is_a_hold_of_the_application():
    with offline(SafeConsumer) as consumer:
        assigned(consumer, A)
        consumer._subscription.pause(A)
        assert [(str(hold.scope), hold.owner) for hold in consumer.holds()] == [
            ("orders:0", "app")
        ]
        consumer._subscription.resume(A)
        assert consumer.holds() == ()


def test_positions_are_compared_with_upstreams_cluster_metadata(client):
    """The program's own client has upstream's cluster metadata, which has no versions."""
    state = LedgerSubscription()
    state.assign_from_user([A])
    fetcher = PauseSafeFetcher(client, state)
    client._manager.cluster.leader_epoch_for_partition = lambda _: 2
    for _ in range(2):
        state.seek(A, OffsetAndMetadata(0, "", 1))
        fetcher.maybe_validate_positions()
        assert state.assignment[A].awaiting_validation


def test_committed_offset_sets_the_position_of_a_partition_that_waits_for_a_reset(
    monkeypatch,
):
    """kafka-python does this, too; the poll that requested the reset does not raise."""

    async def answer(_partitions, _timeout_ms=None):
        return FIVE

    with offline(SafeConsumer) as consumer:
        consumer.assign([A])
        consumer._subscription.request_offset_reset(A)
        coordinator = consumer._coordinator
        monkeypatch.setattr(coordinator, "fetch_committed_offsets_async", answer)
        assert consumer._net.run(coordinator.refresh_committed_offsets_if_needed_async)
        assert consumer._subscription.assignment[A].position.offset == 5


# ------------------------------------------------------------ joins


@pytest.mark.parametrize(
    ("assigned_to", "subscribed", "is_dropped"),
    [
        (["a"], {"a"}, False),
        (["a"], {"a", "b", "c"}, False),  # topics were only added
        (["a"], {"a", "c"}, False),  # the removed topic is assigned to other members
        (["a", "b"], {"a", "c"}, True),
        ([], {"c"}, False),
        (["a"], set(), True),  # a pattern whose topics are not known yet
        (["a"], None, True),
    ],
)
def test_join_is_dropped_if_it_assigns_topics_that_are_no_longer_subscribed(
    coordinator, subscription, assigned_to, subscribed, is_dropped
):
    subscription.subscription = subscribed
    assignment = ConsumerProtocolAssignment(0, [(one, [0]) for one in assigned_to], b"")
    dropped = coordinator._is_for_older_subscription(assignment.encode())
    assert dropped == is_dropped


def test_join_is_dropped_if_its_membership_has_ended(coordinator, subscription):
    """A late SyncGroup response does not raise a ValueError, and another join follows."""
    coordinator.reset_generation()
    coordinator.rejoin_needed = coordinator.rejoining = False
    assignment = ConsumerProtocolAssignment(0, [("a", [0])], b"").encode()
    completing = coordinator._on_join_complete_async(-1, "", None, assignment)
    with pytest.raises(StopIteration):
        completing.send(None)
    assert not subscription.assigned_partitions()
    assert coordinator.need_rejoin()
    assert coordinator.rejoining  # the next join is not prepared a second time


def test_join_is_current_while_its_generation_is_current_and_its_session_valid():
    """Without a successful heartbeat, the session may have expired in the meantime."""
    generation, now = object(), time.monotonic()
    joined = Joined(generation, b"", now - 5)
    assert joined.is_current(generation, now, 3)
    assert not joined.is_current(object(), now, 3)
    assert not joined.is_current(generation, now - 4, 3)


# ------------------------------------------------------------ commits


class Generation:
    """A generation with a fixed answer to ``is_lost()``."""

    def __init__(self, *, lost=False):
        self._is_lost = lost

    def is_lost(self):
        return self._is_lost


@pytest.mark.contract("P17")
@pytest.mark.parametrize("is_assigned_again", [False, True])
def test_commit_in_a_listener_is_refused_once_the_next_generation_starts(
    *, is_assigned_again
):
    """Another member may have committed since, so the commit could undo progress."""
    asked_in = Generation()
    offsets = OwnedOffsets(FIVE, {}, asked_in, revoked={A: OwnedPartitionState()})
    now = {A: OwnedPartitionState()} if is_assigned_again else {}
    assert offsets.refusal({}, asked_in) is None
    assert "orders:0" in str(offsets.refusal(now, Generation()))
    assert "orders:0" in str(offsets.refusal(now, Generation(lost=True)))


@pytest.mark.contract("P17")
def test_commit_is_refused_once_its_ownership_or_the_membership_ends():
    ours = OwnedPartitionState()
    offsets = OwnedOffsets(FIVE, {A: ours}, Generation(), revoked={})
    assert offsets.refusal({A: ours}, Generation()) is None
    assert "orders:0" in str(offsets.refusal({A: OwnedPartitionState()}, Generation()))
    assert "orders:0" in str(offsets.refusal({A: ours}, Generation(lost=True)))


@pytest.mark.contract("P8")
def test_held_partition_that_departs_without_a_committed_offset_is_reported_once(
    coordinator, subscription
):
    """The join, a call that interrupts the join, or ``assign`` reports the partition."""
    lab = LedgerLab()
    subscription.ledger = coordinator.ledger = lab.ledger
    lab.hold(partition(B.topic, B.partition))

    def reported():
        lab.ledger.deliver()
        found = lab.log.of(HeldPartitionUncommitted)
        lab.log.events.clear()
        return [one.partitions for one in found]

    def own(*tps):
        subscription.subscription = {"orders"}
        subscription.assign_from_subscribed(tps)
        for state in subscription.assignment.values():
            state.has_commit = False

    own(A, B)
    coordinator._note_held()  # as when a join is prepared
    own()
    with coordinator.reassigning():
        pass
    assert reported() == [(B,)]
    with coordinator.reassigning():
        own(B)
    assert reported() == []
    with coordinator.reassigning():
        own()
    assert reported() == [(B,)]
    own(A, B)
    coordinator._note_held()
    own(A)
    coordinator._warn_uncommitted()  # the join completes
    assert reported() == [(B,)]


def test_topic_keeps_its_partition_count_after_a_response_without_its_partitions(
    subscription,
):
    """A partition that appears later therefore counts as added (W12)."""
    subscription.unsubscribe()
    subscription.skip_no_record({})
    for partitions in ([0], [], [0, 1]):
        subscription.note_partitions({"orders": partitions})
    subscription.assign_from_user([A, B])
    subscription.reset_missing_positions()
    strategies = [subscription.assignment[tp].reset_strategy for tp in (A, B)]
    assert strategies == [OffsetResetStrategy.LATEST, OffsetResetStrategy.EARLIEST]


def test_deleted_topics_of_a_pattern_are_forgotten_while_a_worker_runs(subscription):
    """A program may create and delete a topic for each of its runs."""
    subscription.unsubscribe()
    subscription.subscribe(pattern="run-")
    subscription.skip_no_record({})
    for number in range(100):
        subscription.note_missing_topics({f"run-{number}": {0}}, is_of_all=True)
    assert [*subscription._first_seen] == ["run-99"]
    subscription.note_partitions({"run-98": {0}})  # from a join with older metadata
    assert {*subscription._first_seen} == {"run-98", "run-99"}
