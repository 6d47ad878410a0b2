"""A partition paused by its owner stays paused at the next one, if that is wanted."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.abstract import RebalanceProtocol
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata

from safeconsumer import HoldSettingError, SafeConsumer
from safeconsumer._kafka.handover import envelope
from safeconsumer._kafka.handover.assignor import HoldCarryingAssignor, MarkBook
from safeconsumer._kafka.handover.envelope import Direction
from safeconsumer.audit.checker import check
from safeconsumer.audit.journal import read
from safeconsumer.testing.polling import poll_until as poll_all
from tests.broker.group.wire import Wire
from tests.harness.group.team import Team
from tests.harness.kafka.fixtures import Maker
from tests.harness.members import has_positions
from tests.harness.polling import poll_until

ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]
both_ways = pytest.mark.parametrize("handover", ["offsets", "assignor"])
any_broker = pytest.mark.any_broker


@pytest.fixture
def team(kafka_broker: Any) -> Iterator[Team]:  # noqa: ANN401 - any kind
    with Team(kafka_broker) as made:
        yield made


def joined(team: Team, name: str, handover: str, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - upstream's
    return team.subscribed(name, control=None, pause_handover=handover, **configs)


def alone(team: Team, consumer: Any) -> list[Any]:  # noqa: ANN401 - either client
    """Poll until the consumer owns everything and has a position everywhere."""
    return poll_all(
        [consumer],
        lambda: (
            consumer.assignment() == set(team.partitions) and has_positions(consumer)
        ),
    )


def partitions_of(records: list[Any]) -> set[TopicPartition]:
    return {TopicPartition(one.topic, one.partition) for one in records}


@pytest.mark.contract("G7")
@any_broker
@both_ways
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_a_moved_partition_stays_paused_until_its_owner_resumes(
    team: Team, handover: str, assignor: type
) -> None:
    """Through two more owners; plain resume() lifts it; it does not come back."""
    strategy = {"partition_assignment_strategy": [assignor]}
    first = joined(team, "a", handover, **strategy)
    alone(team, first)
    first.pause(*team.partitions)
    second = joined(team, "b", handover, **strategy)
    records = poll_all(
        [first, second],
        lambda: len(second.assignment()) == 2 and len(first.assignment()) == 2,
    )
    records += poll_all([first, second], lambda: second.paused() == second.assignment())
    first.close()
    records += alone(team, second)
    assert (records, second.paused()) == ([], set(team.partitions))
    second.resume(*team.partitions)
    got: dict[Any, list[int]] = {}
    poll_until(second, lambda: sum(map(len, got.values())) == 20, got=got)
    third = joined(team, "c", handover, **strategy)
    poll_all([second, third], lambda: len(third.assignment()) == 2)
    poll_all([second, third], lambda: len(second.assignment()) == 2)
    assert third.paused() == second.paused() == set()


@any_broker
@both_ways
def test_a_pause_that_arrives_stands_in_the_journal(
    team: Team, handover: str, tmp_path: Path
) -> None:
    """No call of the new owner placed it: its journal says so, and is clean."""
    first = joined(team, "a", handover)
    alone(team, first)
    first.pause(*team.partitions)
    second = joined(team, "b", handover, journal=tmp_path)
    poll_all([first, second], lambda: second.assignment() and second.paused())
    first.close()
    poll_all([second], lambda: second.paused() == set(team.partitions))
    second.resume(*team.partitions)
    got: dict[Any, list[int]] = {}
    poll_until(second, lambda: sum(map(len, got.values())) == 20, got=got)
    second.close()
    (path,) = tmp_path.glob("*.journal")
    held = [one["scope"] for one in read(path).entries if one.event == "hold"]
    assert {str(scope) for scope in held} == {f"{t}:{p}" for t, p in team.partitions}
    for verdict in check([read(path)]).values():
        assert (verdict.findings, verdict.unjudged) == ((), {})


@any_broker
def test_marks_in_offsets_survive_everybody(team: Team) -> None:
    """All members gone, and a new one in another process's place."""
    first = joined(team, "a", "offsets")
    alone(team, first)
    first.pause(team.partitions[1])
    first.close()
    second = joined(team, "b", "offsets")
    got: dict[Any, list[int]] = {}
    poll_until(second, lambda: sum(map(len, got.values())) == 15, got=got)
    assert team.partitions[1] not in got
    assert second.paused() == {team.partitions[1]}
    (line,) = second.explain(team.partitions[1])
    assert "paused by its previous owner" in line


@pytest.mark.contract("G7")
@pytest.mark.embedded_broker
@pytest.mark.parametrize("word", ["resume", "resume_all", "pause"])
def test_what_the_new_owner_says_before_it_reads_the_mark_counts(
    team: Team, word: str
) -> None:
    """A resume of then lifted nothing, and the mark paused the partition after it."""
    first = joined(team, "a", "offsets")
    alone(team, first)
    first.pause(*team.partitions)
    first.close()
    late = team.broker.hold("OffsetFetch", "b")
    second = joined(team, "b", "offsets")
    poll_until(second, team.has_all(second))
    late.wait()
    told, others = team.partitions[0], set(team.partitions[1:])
    if word == "resume":
        assert second.resume(told) == ()
    elif word == "resume_all":
        second.resume_all()
        others = set()
    else:
        second.pause(told, reason="of its own", for_=3600)
        others = set(team.partitions)
    late.release()
    flowing = set(team.partitions) - others
    got: dict[Any, list[int]] = {}
    poll_until(second, lambda: has_positions(second), got=got)
    poll_until(second, lambda: sum(map(len, got.values())) == 5 * len(flowing), got=got)
    assert (set(got), second.paused()) == (flowing, others)
    if word == "pause":
        (own,) = (one for one in second.holds() if one.reason == "of its own")
        assert own.expires_at is not None
    second.close()
    # What it said is what its successor finds: a pause with a time limit stays here.
    third = joined(team, "c", "offsets")
    alone(team, third)
    assert third.paused() == others - ({told} if word == "pause" else set())


@any_broker
def test_every_commit_keeps_marks_and_the_users_metadata(team: Team) -> None:
    """By hand, asynchronous, automatic; committed() shows only what the user wrote."""
    consumer = joined(team, "a", "offsets", enable_auto_commit=True)
    alone(team, consumer)
    first, second = team.partitions[:2]
    consumer.pause(first)
    plain = team.member("plain", control=None, group_id=team.group)

    def stored(tp: TopicPartition) -> str:
        with_mark = KafkaConsumer(
            **team.broker.client_config, group_id=team.group, enable_auto_commit=False
        )
        try:
            return str(with_mark.committed(tp, metadata=True).metadata)
        finally:
            with_mark.close()

    assert stored(first).startswith("\x1fsc1:")
    consumer.commit({first: OffsetAndMetadata(2, "mine", -1)})
    assert stored(first).startswith("\x1fsc1:")
    assert stored(first).endswith(";mine")
    assert consumer.committed(first, metadata=True).metadata == "mine"
    assert consumer.committed(first) == 2
    consumer.commit({second: OffsetAndMetadata(1, "yours", -1)})
    assert stored(second) == "yours"
    consumer.commit_async({first: OffsetAndMetadata(3, "", -1)}).add_errback(
        pytest.fail
    )
    poll_until(consumer, lambda: consumer.committed(first) == 3)
    assert stored(first).startswith("\x1fsc1:")
    consumer.resume(first)
    assert stored(first) == ""
    consumer.pause(first)
    consumer.close()  # commits automatically
    assert stored(first).startswith("\x1fsc1:")
    plain.close()


@any_broker
def test_pausing_never_moves_what_is_committed(team: Team) -> None:
    """Not the position: that would acknowledge what was not processed."""
    consumer = joined(team, "a", "offsets")
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    consumer.pause(*team.partitions)
    assert {consumer.committed(tp) for tp in team.partitions} == {0}
    consumer.commit()
    consumer.resume(*team.partitions)
    assert {consumer.committed(tp) for tp in team.partitions} == {5}


@any_broker
def test_what_was_read_and_not_committed_is_not_acknowledged(team: Team) -> None:
    """Nothing was committed when it was paused: the next owner begins at the start."""
    first = joined(team, "a", "offsets")
    got: dict[Any, list[int]] = {}
    poll_until(first, lambda: sum(map(len, got.values())) == 20, got=got)
    first.pause(*team.partitions)
    first.close()
    second = joined(team, "b", "offsets")
    alone(team, second)
    second.resume(*team.partitions)
    again: dict[Any, list[int]] = {}
    poll_until(second, lambda: sum(map(len, again.values())) == 20, got=again)
    assert again == {tp: list(range(5)) for tp in team.partitions}


@pytest.mark.embedded_broker
def test_a_resume_is_not_undone_by_losing_the_membership(team: Team) -> None:
    """The mark could not be taken off in time; it is this member's own old one."""
    consumer = joined(team, "a", "offsets")
    alone(team, consumer)
    consumer.pause(team.partitions[0])
    team.broker.fail("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", times=10_000)
    consumer.resume(team.partitions[0])
    generation = consumer.group_metadata().generation_id
    team.broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID", times=1)
    poll_until(consumer, lambda: consumer.group_metadata().generation_id > generation)
    alone(team, consumer)
    team.broker.clear_faults()
    poll_until(consumer, lambda: not consumer._coordinator.handover._unsaved())
    assert consumer.paused() == set()


@pytest.mark.embedded_broker
def test_what_was_known_before_a_loss_is_not_committed_after_it(team: Team) -> None:
    """
    Others may have committed meanwhile: first it is asked what the broker has now.

    A commit of the old offset, without the mark, would undo theirs and the pause.
    """
    consumer = joined(team, "a", "offsets")
    alone(team, consumer)
    consumer.pause(team.partitions[0])
    wire = Wire(consumer)
    wire.hold("OffsetFetch")
    generation = consumer.group_metadata().generation_id
    team.broker.fail("Heartbeat", "UNKNOWN_MEMBER_ID", times=1)
    poll_until(
        consumer,
        lambda: (
            consumer.group_metadata().generation_id > generation
            and consumer.assignment() == set(team.partitions)
        ),
    )
    for _ in range(5):
        consumer.poll(20)
    assert wire.count("OffsetCommit") == 0
    wire.release("OffsetFetch")
    alone(team, consumer)
    assert consumer.paused() == {team.partitions[0]}


@any_broker
def test_a_producers_transaction_gets_the_marks_too(team: Team) -> None:
    """What send_offsets_to_transaction commits does not go through the consumer."""
    consumer = joined(team, "a", "offsets")
    alone(team, consumer)
    first, second = team.partitions[:2]
    consumer.pause(first)
    plain = {tp: OffsetAndMetadata(1, "mine", -1) for tp in (first, second)}
    offsets = consumer.marked_offsets(plain)
    assert offsets[first].metadata.startswith("\x1fsc1:")
    assert offsets[first].metadata.endswith(";mine")
    assert offsets[second] == plain[second]


@pytest.mark.contract("G7")
@any_broker
@both_ways
def test_only_the_applications_own_pauses_travel(team: Team, handover: str) -> None:
    """Not those of other owners, of topics, or with a limit."""
    first = joined(team, "a", handover)
    alone(team, first)
    first.pause(team.partitions[0], owner="worker")
    first.pause(team.partitions[1], for_=3600)
    first.pause(team.topic, owner="other")
    first.close()
    second = joined(team, "b", handover)
    alone(team, second)
    assert second.holds() == ()


@pytest.mark.contract("G7")
@any_broker
def test_off_hands_nothing_over(team: Team) -> None:
    """A slow worker's backpressure must not stop its successor."""
    first = joined(team, "a", "off")
    alone(team, first)
    first.pause(*team.partitions)
    first.close()
    second = joined(team, "b", "off")
    got: dict[Any, list[int]] = {}
    poll_until(second, lambda: sum(map(len, got.values())) == 20, got=got)


@any_broker
@both_ways
def test_plain_members_take_part(team: Team, handover: str) -> None:
    """They are not stopped, and neither are the others by them."""
    plain = team.subscribed(
        "a-plain", control=None, partition_assignment_strategy=[RangePartitionAssignor]
    )
    alone(team, plain)
    ours = joined(
        team, "b", handover, partition_assignment_strategy=[RangePartitionAssignor]
    )
    poll_all([plain, ours], lambda: len(ours.assignment()) == 2)
    ours.pause(*ours.assignment())
    paused = ours.paused()
    poll_all([plain, ours], lambda: len(plain.assignment()) == 2)
    plain.close()
    alone(team, ours)
    assert ours.paused() >= paused


def test_settings_that_cannot_work_are_refused(safe: Maker) -> None:
    with pytest.raises(HoldSettingError, match="pause_handover must be one of"):
        safe(group_id="g", pause_handover="topic")
    with pytest.raises(HoldSettingError, match="group_id"):
        safe(group_id=None, pause_handover="offsets")


def test_wrapped_assignors_are_what_they_wrap(safe: Maker) -> None:
    """Name, version, protocols; bytes are a plain client's while nothing is paused."""
    strategies = [RangePartitionAssignor, RoundRobinPartitionAssignor]
    consumer = safe(
        group_id="g",
        pause_handover="assignor",
        partition_assignment_strategy=strategies,
    )
    for inner in strategies:
        wrapped = consumer._coordinator._assignors[inner.name]
        assert (wrapped.name, wrapped.version) == (inner.name, inner.version)
        assert wrapped.supported_protocols() == [RebalanceProtocol.EAGER]
        expected = inner.metadata({"orders"}).encode()
        assert wrapped.metadata({"orders"}).encode() == expected


@pytest.mark.parametrize("kind", ASSIGNORS)
def test_the_inner_user_data_stays_in_front(kind: type) -> None:
    """Readers that decode from the front see what the inner assignor wrote."""
    inner: Any = kind()
    inner.on_assignment(ConsumerProtocolAssignment(0, [("orders", [1])], b""), 3)
    book = MarkBook(lambda _: True, lambda: [TopicPartition("orders", 1)])
    book.freeze()
    ours = HoldCarryingAssignor(inner, book, lambda _: None).metadata({"orders"})
    plain = inner.metadata({"orders"}).user_data
    plain = plain if isinstance(plain, bytes) else plain.encode()
    front, found = envelope.unwrap(ours.user_data)
    assert front == plain or (not plain and not front.strip(b"\0\xff"))
    assert found is not None
    assert set(found.marks) == {("orders", 1)}


def test_a_leader_that_echoes_is_no_leader_of_ours() -> None:
    """Librdkafka sends a member's own subscription back as its assignment."""
    book = MarkBook(lambda _: True, lambda: [TopicPartition("orders", 1)])
    book.freeze()
    own = envelope.wrap(b"", book.known(), Direction.SUBSCRIPTION)
    assert book.hear(own, 5) == {("orders", 1)}
    assert book.unmerged == 1


def test_too_many_marks_for_one_generation_are_left_out() -> None:
    """A group whose metadata does not fit can never rebalance again."""
    many = [TopicPartition(f"topic-{n:05d}", n * 7 % 1000) for n in range(9000)]
    book = MarkBook(lambda _: True, lambda: many)
    book.freeze()
    assignor = HoldCarryingAssignor(RangePartitionAssignor, book, lambda _: None)
    members = [
        SimpleNamespace(
            member_id=str(n),
            group_instance_id=None,
            metadata=assignor.metadata({"orders"}),
        )
        for n in range(4)
    ]
    cluster = SimpleNamespace(partitions_for_topic=lambda _: {0, 1, 2, 3})
    assigned = assignor.assign(cluster, members)
    assert {one.user_data for one in assigned.values()} == {b""}


def _rebalanced(book: MarkBook, generation: int, *topics: str) -> int:
    # One round of a group whose leader is this very member.
    book.freeze()
    assignor = HoldCarryingAssignor(RangePartitionAssignor, book, lambda _: None)
    data = assignor.metadata(set(topics)).user_data or b""
    book.hear(
        envelope.wrap(b"", found.marks, Direction.ASSIGNMENT)
        if (found := envelope.unwrap(data)[1])
        else b"",
        generation,
    )
    return len(data)


def test_marks_of_topics_that_are_gone_leave_the_joins() -> None:
    """Topics come, are paused and go, hundred times: a join grows no more."""
    owned: list[TopicPartition] = []
    book = MarkBook(lambda _: True, lambda: owned)
    sizes = []
    for generation in range(1, 101):
        owned[:] = [TopicPartition(f"short-{generation}", n) for n in range(100)]
        sizes.append(_rebalanced(book, generation, f"short-{generation}"))
    assert max(sizes[50:]) <= 1.2 * max(sizes[:50])
    assert set(book.known()) >= set(owned)


def test_marks_of_a_member_that_is_away_for_a_while_stay() -> None:
    """Nobody subscribes to its topic meanwhile; a rolling restart is as long."""
    away = TopicPartition("audit", 0)
    owned = [away]
    book = MarkBook(lambda _: True, lambda: owned)
    _rebalanced(book, 1, "audit", "orders")
    owned.clear()
    for generation in range(2, 12):
        _rebalanced(book, generation, "orders")
    assert book.hear(b"", 12) == {away}


def test_marks_of_what_is_subscribed_stay_however_old() -> None:
    """Its owner obeys no mark, say, and repeats none."""
    tp = TopicPartition("orders", 0)
    owned = [tp]
    book = MarkBook(lambda _: True, lambda: owned)
    _rebalanced(book, 1, "orders")
    owned.clear()
    for generation in range(2, 100):
        _rebalanced(book, generation, "orders")
    assert book.hear(b"", 100) == {tp}
