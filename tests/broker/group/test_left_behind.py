"""With ``pause_handover="assignor"`` only what the group really knows leaves its owner."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import SafeConsumer
from safeconsumer._kafka.handover import assignor
from safeconsumer.events.group import PauseNotHandedOver
from safeconsumer.testing import EmbeddedBroker
from safeconsumer.testing.polling import poll_until as poll_all
from tests.harness.group.team import Team
from tests.harness.polling import poll_until

both_ways = pytest.mark.parametrize("handover", ["offsets", "assignor"])
RANGE = {"partition_assignment_strategy": [RangePartitionAssignor]}


class InListener(ConsumerRebalanceListener):
    """Does something once, where partitions are revoked."""

    def __init__(self) -> None:
        self.once: Callable[[], object] | None = None

    def on_partitions_revoked(self, revoked: Any) -> None:  # noqa: ANN401, ARG002 - upstream's
        once, self.once = self.once, None
        if once is not None:
            once()

    def on_partitions_assigned(self, assigned: Any) -> None:  # noqa: ANN401 - upstream's
        pass


@pytest.fixture
def team() -> Iterator[Team]:
    with EmbeddedBroker() as broker, Team(broker, partitions=2) as made:
        yield made


def joined(team: Team, name: str, handover: str = "assignor") -> SafeConsumer:
    return team.subscribed(name, control=None, pause_handover=handover, **RANGE)


def alone(team: Team, consumer: Any) -> list[Any]:  # noqa: ANN401 - either client
    """Poll until the consumer owns everything and has a position everywhere."""

    def has_all() -> bool:
        states = tuple(consumer._subscription.assignment.values())
        return consumer.assignment() == set(team.partitions) and all(
            state.position is not None for state in states
        )

    return poll_all([consumer], has_all)


def shared(first: SafeConsumer, second: Any) -> list[Any]:  # noqa: ANN401 - either client
    return poll_all(
        [first, second],
        lambda: len(second.assignment()) == 1 and len(first.assignment()) == 1,
    )


def left_behind(team: Team, consumer: SafeConsumer) -> list[tuple[Any, ...]]:
    told = team.told[id(consumer)].of(PauseNotHandedOver)
    return [one.partitions for one in told]


@both_ways
def test_a_pause_in_a_listener_travels(team: Team, handover: str) -> None:
    """It is made before JoinGroup is sent."""
    listener = InListener()
    first = team.member("a", control=None, pause_handover=handover, **RANGE)
    first.subscribe([team.topic], listener=listener)
    alone(team, first)
    listener.once = lambda: first.pause(*team.partitions)
    second = joined(team, "b", handover)
    shared(first, second)
    records = poll_all([first, second], lambda: second.paused() == second.assignment())
    second.close(autocommit=False)
    records += alone(team, first)
    assert (records, first.paused()) == ([], set(team.partitions))
    assert left_behind(team, first) == []


@both_ways
def test_a_resume_in_a_listener_travels(team: Team, handover: str) -> None:
    """The join does not say what was so before it."""
    listener = InListener()
    first = team.member("a", control=None, pause_handover=handover, **RANGE)
    first.subscribe([team.topic], listener=listener)
    alone(team, first)
    first.pause(*team.partitions)
    listener.once = lambda: first.resume(*team.partitions)
    second = joined(team, "b", handover)
    shared(first, second)
    assert second.paused() == first.paused() == set()


def test_a_pause_behind_joingroup_stays_with_its_owner(team: Team) -> None:
    """It is in no join: the partition is quiet when it returns, and it is told."""
    first = joined(team, "a")
    alone(team, first)
    hold = team.broker.hold("JoinGroup", "a")
    second = joined(team, "b")
    poll_all([first, second], lambda: hold.count)
    first.pause(*team.partitions)
    hold.release()
    shared(first, second)
    moved = tuple(second.assignment())
    assert left_behind(team, first) == [moved]
    second.close(autocommit=False)
    assert alone(team, first) == []
    assert first.paused() == set(team.partitions)


def test_under_a_plain_leader_a_pause_stays_with_its_owner(team: Team) -> None:
    """It merges nothing; the owner may leave the group before another leads."""
    plain = KafkaConsumer(
        **team.broker.client_config,
        **team.broker.group_config,
        **RANGE,
        group_id=team.group,
        client_id="plain",
        enable_auto_commit=False,
    )
    plain.subscribe([team.topic])
    alone(team, plain)
    first = joined(team, "b")
    shared(first, plain)
    first.pause(*first.assignment())
    (paused,) = first.assignment()
    third = joined(team, "a")
    poll_all([first, third, plain], lambda: paused not in first.assignment())
    assert [str(hold.scope) for hold in first.holds()] == [
        f"{paused.topic}:{paused.partition}"
    ]
    plain.close(autocommit=False)


def test_marks_that_were_left_out_stay_with_their_owner(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader says none if all of them are too many."""
    monkeypatch.setattr(assignor, "MOST_BYTES_OF_A_GENERATION", 1)
    first = joined(team, "a")
    alone(team, first)
    first.pause(*team.partitions)
    second = joined(team, "b")
    shared(first, second)
    moved = tuple(second.assignment())
    assert left_behind(team, first) == [moved]
    assert len(first.holds()) == 2


LEAVING: dict[str, Callable[[SafeConsumer, list[TopicPartition]], object]] = {
    "unsubscribe": lambda consumer, _: consumer.unsubscribe(),
    "assign": lambda consumer, tps: (consumer.unsubscribe(), consumer.assign(tps)),
}


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize("leave", LEAVING.values(), ids=LEAVING)
def test_unsubscribing_leaves_pauses_where_they_are(
    team: Team, leave: Callable[..., object], *, is_known: bool
) -> None:
    """No join carries them, and assign() would ask for none."""
    first = joined(team, "a")
    alone(team, first)
    first.pause(*team.partitions)
    if is_known:  # to the group, by another join
        generation = first.group_metadata().generation_id
        first._coordinator.request_rejoin()
        poll_until(first, lambda: first.group_metadata().generation_id > generation)
        alone(team, first)
    leave(first, team.partitions)
    assert len(first.holds()) == 2
