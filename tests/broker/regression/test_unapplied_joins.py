"""
A join that has succeeded while no ``poll`` was under way, and is not applied yet.

And one that is never applied, because the subscription is another by then. Only ours
has these states; kafka-python forgets such a join.
"""

import time
from typing import Any

import pytest
from kafka import OffsetAndMetadata
from kafka.coordinator.base import MemberState
from kafka.errors import (
    BrokerResponseError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka.structs import TopicPartition

from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import Reader, wait_until
from tests.harness.regression.wire import Wire

pytestmark = pytest.mark.any_broker

# Seconds. Before the cure the IO thread came back when the session was over, 10 s.
RESPONSIVE = 4.0


def begin_a_join(reader: Reader) -> Wire:
    """Let a poll give up on a join; the answer to JoinGroup is here and kept back."""
    consumer = reader.consumer
    wire = Wire(consumer)
    wire.hold("JoinGroup")
    consumer._coordinator.request_rejoin()
    reader.until(lambda: wire.held("JoinGroup"))
    return wire


def complete_it_between_polls(reader: Reader) -> None:
    """Let a join begin in a poll and succeed after it."""
    begin_a_join(reader).release("JoinGroup")
    wait_until(lambda: reader.consumer._coordinator._joined is not None)


def joined(lab: Lab, **config: object) -> tuple[Reader, TopicPartition]:
    """Make the only member of a group, with its partition assigned."""
    topic, (p0,) = lab.topic_with(each=10, partitions=1)
    reader = lab.reader("safe", topic, group=lab.name("g"), **config)
    reader.until_joined(reader.owns([p0]))
    return reader, p0


def refuse_once(wire: Wire, api: str, error: type[BrokerResponseError]) -> None:
    """Put an error into the next answer of this kind."""
    answers = []

    def change(name: str, response: Any) -> None:  # noqa: ANN401 - any response
        if name == api and not answers:
            answers.append(response)
            response.error_code = error.errno

    wire.change = change


def test_a_poll_that_comes_too_late_finds_a_responsive_client(lab: Lab) -> None:
    """The member leaves by ``max_poll_interval_ms``, and the IO thread does not spin."""
    reader, p0 = joined(lab, max_poll_interval_ms=1500, session_timeout_ms=10_000)
    coordinator = reader.consumer._coordinator
    complete_it_between_polls(reader)
    wait_until(lambda: coordinator.state is MemberState.UNJOINED)

    async def answer() -> None:
        pass

    asked = time.monotonic()
    coordinator._manager.run(answer)
    assert time.monotonic() - asked < RESPONSIVE
    wait_until(lambda: not coordinator._heartbeat_enabled)
    reader.until(lambda: reader.owns([p0])() and len(reader.log) >= 10)


def test_no_heartbeats_after_leaving_with_a_join_not_applied(lab: Lab) -> None:
    """``unsubscribe`` forgets the join; the partition assigned by hand flows."""
    reader, p0 = joined(lab)
    consumer = reader.consumer
    complete_it_between_polls(reader)
    consumer.unsubscribe()
    consumer.assign([p0])
    wait_until(lambda: not consumer._coordinator._heartbeat_enabled)
    consumer.seek(p0, 0)
    reader.drain({p0: range(10)})


def test_partitions_assigned_by_hand_flow_after_a_dropped_join(lab: Lab) -> None:
    """A join for an older subscription holds nothing up once there is none at all."""
    reader, p0 = joined(lab)
    consumer = reader.consumer
    wire = begin_a_join(reader)
    consumer.subscribe([lab.topic(partitions=1)])
    wire.release("JoinGroup")
    wire.hold("JoinGroup")  # of the join that follows
    reader.until(lambda: consumer._coordinator._has_stale_join)
    consumer.unsubscribe()
    consumer.assign([p0])
    consumer.seek(p0, 0)
    reader.drain({p0: range(10)})


def test_a_dropped_join_commits_and_revokes_nothing_again(lab: Lab) -> None:
    """Its generation is not used for positions that others may have moved since."""
    topic, (p0,) = lab.topic_with(each=10, partitions=1)
    another = lab.topic(partitions=1)
    told: list[str] = []
    listener = InListener(revoked=lambda _: told.append("revoked"))
    reader = lab.reader(
        "safe",
        group=lab.name("g"),
        enable_auto_commit=True,
        hooks=[lambda event: told.append(event.name)],
    )
    consumer = reader.consumer
    consumer.subscribe([topic], listener=listener)
    reader.until_joined(reader.owns([p0]))
    reader.until(lambda: len(reader.log) == 10)
    told.clear()
    wire = begin_a_join(reader)
    commits = wire.count("OffsetCommit")
    consumer.subscribe([another], listener=listener)
    wire.release("JoinGroup")
    wire.hold("JoinGroup")  # of the join that follows
    reader.until(lambda: wire.held("JoinGroup"))
    assert told == ["revoked", "stale_join_dropped"]
    assert wire.count("OffsetCommit") == commits
    wire.release("JoinGroup")
    reader.until_joined(reader.owns([TopicPartition(another, 0)]))


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_join_is_applied_when_the_subscription_has_only_grown(
    lab: Lab, assignor: str
) -> None:
    """
    What it assigned is subscribed still; the next join brings the rest.

    With topics that match a pattern made one after the other no join would ever be
    for the newest subscription, and nothing would flow.
    """
    told: list[str] = []
    reader, p0 = joined(
        lab, assignor=assignor, hooks=[lambda event: told.append(event.name)]
    )
    consumer, another = reader.consumer, lab.topic(partitions=1)
    wire = begin_a_join(reader)
    told.clear()
    consumer.subscribe([p0.topic, another])
    wire.release("JoinGroup")
    wire.hold("JoinGroup")  # of the join that follows
    reader.until(lambda: wire.held("JoinGroup"))
    assert told == ["rebalance_completed"]
    wire.release("JoinGroup")
    reader.until_joined(reader.owns([p0, TopicPartition(another, 0)]))
    reader.until(lambda: len(reader.log) == 10)


def test_a_subscription_that_has_grown_and_shrunk(lab: Lab) -> None:
    """A join that assigns what is not subscribed any more is dropped; the next one counts."""
    kept, gone, new = (lab.topic(partitions=1) for _ in range(3))
    told: list[str] = []
    reader = lab.reader(
        "safe",
        kept,
        gone,
        group=lab.name("g"),
        hooks=[lambda event: told.append(event.name)],
    )
    consumer = reader.consumer
    reader.until_joined(reader.owns([TopicPartition(one, 0) for one in (kept, gone)]))
    wire = begin_a_join(reader)
    told.clear()
    consumer.subscribe([kept, new])
    wire.release("JoinGroup")
    wire.hold("JoinGroup")
    reader.until(lambda: wire.held("JoinGroup"))
    assert told == ["stale_join_dropped"]
    wire.release("JoinGroup")
    reader.until_joined(reader.owns([TopicPartition(one, 0) for one in (kept, new)]))


def test_commits_do_not_outdate_the_offsets_of_other_partitions(lab: Lab) -> None:
    """With a commit after each short poll a gained partition gets its position, too."""
    _, (p0, p1) = lab.topic_with(each=10, partitions=2)
    reader = lab.reader("safe", group=lab.name("g"))
    consumer = reader.consumer
    consumer.assign([p0])
    reader.drain({p0: range(10)})
    consumer.commit()
    wire = Wire(consumer)
    wire.hold("OffsetFetch")
    consumer.assign([p0, p1])
    reader.until(lambda: wire.held("OffsetFetch") == 1)
    consumer.commit({p0: OffsetAndMetadata(10, "", -1)})
    wire.release("OffsetFetch")
    asked = wire.count("OffsetFetch")
    reader.drain({p1: range(10)})
    assert wire.count("OffsetFetch") == asked


def test_membership_lost_inside_a_join_ends_the_ownership(lab: Lab) -> None:
    """Others may have owned the partition meanwhile: it goes on at what is committed."""
    reader, p0 = joined(lab)
    consumer = reader.consumer
    reader.until(lambda: len(reader.log) == 10)
    consumer.commit({p0: OffsetAndMetadata(4, "", -1)})
    refuse_once(Wire(consumer), "JoinGroup", UnknownMemberIdError)
    consumer._coordinator.request_rejoin()
    reader.until(lambda: len(reader.log) >= 16)
    assert [record.offset for record in reader.log[10:]] == [*range(4, 10)]


def test_a_generation_that_was_missed_ends_the_ownership(lab: Lab) -> None:
    """
    Found by the soak: another member had the partition in it, and committed.

    1. A join is prepared: the partition is revoked, its position stays.
    2. The answer to SyncGroup does not come through, in the next generation another
       member owns the partition, delivers and commits.
    3. The join after that gives it back: it goes on at what is committed.
    """
    reader, p0 = joined(lab)
    consumer = reader.consumer
    reader.until(lambda: len(reader.log) == 10)
    consumer.commit({p0: OffsetAndMetadata(4, "", -1)})
    refuse_once(Wire(consumer), "SyncGroup", RebalanceInProgressError)
    losses = consumer._coordinator.losses
    consumer._coordinator.request_rejoin()
    reader.until(lambda: len(reader.log) >= 16)
    assert [record.offset for record in reader.log[10:]] == [*range(4, 10)]
    assert consumer._coordinator.losses == losses


def test_a_follower_with_nothing_new_goes_on_where_it_was(lab: Lab) -> None:
    """It is answered with the generation that it has: nobody had its partition meanwhile."""
    topic, tps = lab.topic_with(each=10, partitions=2)
    group = lab.name("g")
    leader = lab.reader("safe", topic, group=group)
    leader.until_joined(leader.owns(tps))
    follower = lab.reader("safe", topic, group=group)
    consumer = follower.consumer
    while len(consumer.assignment()) != 1 or len(leader.consumer.assignment()) != 1:
        leader.round()
        follower.round()
    (own,) = consumer.assignment()
    follower.until(lambda: len(follower.log) == 10)
    consumer.commit({own: OffsetAndMetadata(4, "", -1)})
    coordinator = consumer._coordinator
    before = coordinator._generation
    coordinator.request_rejoin()
    follower.until(lambda: coordinator._generation is not before)
    assert coordinator._generation.generation_id == before.generation_id
    lab.produce(own)
    follower.until(lambda: len(follower.log) > 10)
    assert [record.offset for record in follower.log[10:]] == [10]
