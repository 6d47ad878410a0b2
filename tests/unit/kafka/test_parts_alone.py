"""Parts of a consumer, each alone."""

import time

import pytest
from kafka import TopicPartition
from kafka.consumer.subscription_state import OffsetResetStrategy
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.commits import OwnedOffsets
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.joins import Joined, RebalanceWatch
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.events import RebalanceCompleted
from safeconsumer.holds.scope import partition
from tests.harness.holds.lab import LedgerLab
from tests.harness.kafka.fetches import assigned
from tests.harness.kafka.offline import offline, silent_broker

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def client():
    """Make a client of upstream's that reaches no broker."""
    with silent_broker() as address:
        client = KafkaNetClient(bootstrap_servers=address, api_version=(2, 3))
        yield client
        client.close()


def test_upstreams_pause_of_a_subscription_is_the_applications_hold():
    """One place where holds live."""
    with offline(SafeConsumer) as consumer:
        assigned(consumer, A)
        consumer._subscription.pause(A)
        assert [(str(hold.scope), hold.owner) for hold in consumer.holds()] == [
            ("orders:0", "app")
        ]
        consumer._subscription.resume(A)
        assert consumer.holds() == ()


def test_positions_are_compared_with_a_cluster_of_upstreams(client):
    """A program's own client has one, which does not count its changes."""
    state = LedgerSubscription()
    state.assign_from_user([A])
    fetcher = PauseSafeFetcher(client, state)
    client._manager.cluster.leader_epoch_for_partition = lambda _: 2
    for _ in range(2):
        state.seek(A, OffsetAndMetadata(0, "", 1))
        fetcher.maybe_validate_positions()
        assert state.assignment[A].awaiting_validation


@pytest.mark.parametrize(
    ("assigned_to", "subscribed", "is_dropped"),
    [
        (["a"], {"a"}, False),
        (["a"], {"a", "b", "c"}, False),  # it has only grown
        (["a"], {"a", "c"}, False),  # what is gone was assigned to others
        (["a", "b"], {"a", "c"}, True),
        ([], {"c"}, False),
        (["a"], set(), True),  # a pattern whose topics are not known yet
        (["a"], None, True),
    ],
)
def test_a_join_is_dropped_for_what_it_assigns(
    client,
    assigned_to,
    subscribed,
    is_dropped,
):
    """It was for topics a and b; what is subscribed since is another matter."""
    state = LedgerSubscription()
    state.subscribe(topics=["a", "b"])
    coordinator = PauseSafeCoordinator(client, state, group_id="g")
    coordinator._joined_subscription = {"a", "b"}
    state.subscription = subscribed
    assignment = ConsumerProtocolAssignment(0, [(one, [0]) for one in assigned_to], b"")
    dropped = coordinator._is_for_older_subscription(assignment.encode())
    assert dropped == is_dropped
    coordinator.close(autocommit=False, timeout_ms=0)


def test_a_join_whose_membership_has_ended_is_dropped(client):
    """By an answer that came after the one to SyncGroup: no ValueError, and one more join."""
    state = LedgerSubscription()
    state.subscribe(topics=["a"])
    coordinator = PauseSafeCoordinator(client, state, group_id="g")
    coordinator._joined_subscription = {"a"}
    coordinator.reset_generation()  # what upstream then hands on is of no generation
    coordinator.rejoin_needed = coordinator.rejoining = False
    assignment = ConsumerProtocolAssignment(0, [("a", [0])], b"").encode()
    completing = coordinator._on_join_complete_async(-1, "", None, assignment)
    with pytest.raises(StopIteration):
        completing.send(None)
    assert not state.assigned_partitions()
    assert coordinator.need_rejoin()
    assert coordinator.rejoining  # what prepares a join is not done again
    coordinator.close(autocommit=False, timeout_ms=0)


class Generation:
    """A generation that is or is not lost."""

    def __init__(self, *, lost=False):
        self._is_lost = lost

    def is_lost(self):
        return self._is_lost


@pytest.mark.contract("P17")
@pytest.mark.parametrize("is_assigned_again", [False, True])
def test_a_commit_of_a_listener_is_refused_once_the_next_generation_begins(
    *, is_assigned_again
):
    """Another member may have read on and committed meanwhile: progress would go back."""
    ours = OwnedPartitionState()
    asked_in = Generation()
    offsets = OwnedOffsets(
        {A: OffsetAndMetadata(5, "", -1)}, {}, asked_in, revoked={A: ours}
    )
    now = {A: OwnedPartitionState()} if is_assigned_again else {}
    assert offsets.refusal({}, asked_in) is None
    assert "orders:0" in str(offsets.refusal(now, Generation()))
    assert "orders:0" in str(offsets.refusal(now, Generation(lost=True)))


@pytest.mark.contract("P17")
def test_a_commit_is_refused_once_its_ownership_or_the_membership_ends():
    ours = OwnedPartitionState()
    offsets = OwnedOffsets(
        {A: OffsetAndMetadata(5, "", -1)}, {A: ours}, Generation(), revoked={}
    )
    assert offsets.refusal({A: ours}, Generation()) is None
    assert "orders:0" in str(offsets.refusal({A: OwnedPartitionState()}, Generation()))
    assert "orders:0" in str(offsets.refusal({A: ours}, Generation(lost=True)))


def owning():
    """Return what owns both, the second one held."""
    lab = LedgerLab()
    subscription = LedgerSubscription()
    subscription.ledger = lab.ledger
    subscription.subscribe(topics=["orders"])
    subscription.assign_from_subscribed([A, B])
    lab.ledger.place([partition(B.topic, B.partition)], owner="app")
    return lab, subscription, RebalanceWatch(subscription)


def test_a_join_is_applied_while_its_generation_lasts_and_a_heartbeat_came():
    """The session may be over if none got through."""
    generation, now = object(), time.monotonic()
    joined = Joined(generation, b"", now - 5)
    assert joined.is_current(generation, now, 3)
    assert not joined.is_current(object(), now, 3)
    assert not joined.is_current(generation, now - 4, 3)


def test_an_event_names_what_was_lost_once_a_join_completes():
    """Upstream prepares again if a listener has raised."""
    lab, subscription, watch = owning()
    watch.prepared()
    subscription.assign_from_subscribed([])
    watch.gave_up(is_lost=True)
    watch.prepared()
    subscription.assign_from_subscribed([A])
    assert watch.completed(4, "me").keys() == {B}
    lab.ledger.deliver()
    told = lab.told.only(RebalanceCompleted)
    assert (told.kept, told.gained, told.revoked) == ((), (A,), ())
    assert set(told.lost) == {A, B}


def test_partitions_that_depart_without_a_join_are_returned_once():
    """Nor again by a join that completes in the end."""
    _, subscription, watch = owning()
    watch.prepared()
    assert watch.departed(watch.quiet()) == {}
    subscription.assign_from_subscribed([])
    watch.gave_up(is_lost=True)
    assert watch.departed({}).keys() == {B}
    assert watch.departed({}) == {}
    subscription.assign_from_subscribed([B])
    quiet = watch.quiet()
    subscription.assign_from_subscribed([])
    assert watch.departed(quiet).keys() == {B}  # by hand, once more
    assert watch.completed(4, "me") == {}
    subscription.assign_from_subscribed([B])
    watch.prepared()
    subscription.assign_from_subscribed([])
    assert watch.completed(5, "me").keys() == {B}


def test_a_topic_that_is_not_known_for_a_while_keeps_its_count():
    """Metadata without its partitions says nothing about them: what comes is added (W12)."""
    subscription = LedgerSubscription(offset_reset_strategy="latest")
    subscription.pass_over_nothing()
    for partitions in ([0], [], [0, 1]):
        subscription.note_partitions({"orders": partitions})
    subscription.assign_from_user([A, B])
    subscription.reset_missing_positions()
    strategies = [subscription.assignment[tp].reset_strategy for tp in (A, B)]
    assert strategies == [OffsetResetStrategy.LATEST, OffsetResetStrategy.EARLIEST]
