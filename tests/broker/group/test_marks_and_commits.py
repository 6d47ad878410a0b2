"""
A mark never moves what is committed, and writing it never gets in the way (G7, P8).

With ``pause_handover="offsets"`` a mark is a commit of the consumer's own, beside those
of the application, of a producer's transaction and of whoever owned the partition
before.
"""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import NoOffsetForPartitionError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer._kafka.handover import offsets
from safeconsumer.events import PauseNotHandedOver
from safeconsumer.testing.polling import poll_until as poll_all
from tests.broker.group.wire import Wire
from tests.harness.group.team import Team
from tests.harness.kafka.fixtures import Maker
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for
from tests.sim.reading import Listener

any_broker = pytest.mark.any_broker
embedded_broker = pytest.mark.embedded_broker

A = TopicPartition("orders", 0)


@pytest.fixture
def team(kafka_broker: Any) -> Iterator[Team]:  # noqa: ANN401 - any kind
    with Team(kafka_broker) as made:
        yield made


def joined(team: Team, name: str = "a", **configs: Any) -> SafeConsumer:  # noqa: ANN401 - upstream's
    consumer = team.subscribed(name, control=None, pause_handover="offsets", **configs)
    until_at_home(team, consumer)
    return consumer


def until_at_home(team: Team, consumer: SafeConsumer) -> None:
    """Poll until the consumer owns everything and has a position everywhere."""
    poll_all(
        [consumer],
        lambda: (
            consumer.assignment() == set(team.partitions)
            and all(
                state.position is not None
                for state in tuple(consumer._subscription.assignment.values())
            )
        ),
    )


def stored(team: Team, tp: TopicPartition) -> tuple[int | None, bool]:
    """Return what the broker has committed, and whether a mark is on it."""
    plain = KafkaConsumer(
        **team.broker.client_config, group_id=team.group, enable_auto_commit=False
    )
    try:
        found = plain.committed(tp, metadata=True)
    finally:
        plain.close()
    if found is None:
        return None, False
    return found.offset, str(found.metadata).startswith("\x1fsc1:")


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


@any_broker
def test_a_commit_with_an_unknown_end_is_asked_about(team: Team) -> None:
    """Its answer was lost with the connection: the broker may have it, or not."""
    consumer, (first, *_) = joined(team), team.partitions
    consumer.commit({first: at(2)})
    wire = Wire(consumer)
    wire.hold("OffsetCommit")
    failed: list[object] = []
    consumer.commit_async({first: at(4)}).add_errback(failed.append)
    wire.wait_held("OffsetCommit")
    with wire._lock:
        (lost,) = wire._waiting
        wire._waiting.clear()
        wire._held.clear()

    async def cut() -> None:
        lost.answer.failure(ConnectionError("cut"))

    consumer._manager.run(cut)
    poll_until(consumer, lambda: failed)
    consumer.pause(first)
    poll_until(consumer, lambda: stored(team, first)[1])
    assert stored(team, first) == (4, True)


@any_broker
def test_a_position_of_the_applications_own_is_not_committed_by_a_pause(
    team: Team,
) -> None:
    """It seeks in its listener, so that nothing was asked; 5 is committed."""
    before = joined(team, "before")
    before.commit({tp: at(5) for tp in team.partitions})
    before.close()
    consumer = team.member("a", control=None, pause_handover="offsets")
    listener = Listener(
        assigned=lambda tps: [consumer.seek(tp, 1) for tp in tps],
    )
    consumer.subscribe([team.topic], listener=listener)
    until_at_home(team, consumer)
    consumer.pause(*team.partitions)
    poll_until(consumer, lambda: all(stored(team, tp)[1] for tp in team.partitions))
    assert {stored(team, tp)[0] for tp in team.partitions} == {5}


@any_broker
def test_a_mark_is_found_where_the_application_sets_the_position(team: Team) -> None:
    """It keeps its offsets elsewhere; it is asked whether there is a mark."""
    before = joined(team, "before")
    before.pause(*team.partitions)
    before.close()
    consumer = team.member("a", control=None, pause_handover="offsets")
    listener = Listener(assigned=lambda tps: [consumer.seek(tp, 0) for tp in tps])
    consumer.subscribe([team.topic], listener=listener)
    until_at_home(team, consumer)
    poll_until(consumer, lambda: consumer.paused() == set(team.partitions))


@any_broker
def test_nothing_that_was_not_read_is_acknowledged(team: Team) -> None:
    """Nothing committed, read from the end first and from the start then."""
    consumer = joined(team, auto_offset_reset="latest")
    first = team.partitions[0]
    assert stored(team, first) == (None, False)  # nothing is paused: nothing is written
    consumer.seek(first, 1)
    consumer.pause(first)
    poll_until(consumer, lambda: stored(team, first)[1])
    assert stored(team, first) == (1, True)


@any_broker
def test_nothing_that_was_read_is_acknowledged(team: Team) -> None:
    """Nothing committed; it went back from the end, read, and committed nothing."""
    consumer = joined(team, auto_offset_reset="latest")
    first = team.partitions[0]
    consumer.seek(first, 2)
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: got.get(first) == [2, 3, 4], got=got)
    consumer.pause(first)
    poll_until(consumer, lambda: stored(team, first)[1])
    assert stored(team, first) == (2, True)


@any_broker
def test_going_back_to_the_beginning_is_waited_for(team: Team) -> None:
    """Until a broker has said where that is, nobody knows what the mark may say."""
    consumer = joined(team, auto_offset_reset="latest")
    first = team.partitions[0]
    consumer.seek_to_beginning(first)
    consumer.pause(first)
    poll_until(consumer, lambda: stored(team, first)[1])
    assert stored(team, first) == (0, True)


@any_broker
def test_a_position_set_for_want_of_one_is_where_reading_begins(team: Team) -> None:
    """The group was asked and has none; there is no reset."""
    consumer = team.subscribed(
        "a", control=None, pause_handover="offsets", auto_offset_reset="none"
    )
    with pytest.raises(NoOffsetForPartitionError):
        poll_until(consumer, lambda: False)
    for tp in team.partitions:
        consumer.seek(tp, 1)
    until_at_home(team, consumer)
    consumer.pause(*team.partitions)
    poll_until(consumer, lambda: all(stored(team, tp)[1] for tp in team.partitions))
    assert {stored(team, tp)[0] for tp in team.partitions} == {1}


@embedded_broker
def test_a_seek_before_the_reset_is_answered_is_where_reading_begins(
    team: Team,
) -> None:
    """It is known that nothing is committed, and where to begin is being asked."""
    consumer = team.subscribed("a", control=None, pause_handover="offsets")
    hold = team.broker.hold("ListOffsets", "a")
    poll_until(consumer, lambda: bool(hold.count))
    for tp in team.partitions:
        consumer.seek(tp, 1)
    hold.release()
    until_at_home(team, consumer)
    consumer.pause(*team.partitions)
    poll_until(consumer, lambda: all(stored(team, tp)[1] for tp in team.partitions))
    assert {stored(team, tp)[0] for tp in team.partitions} == {1}


@any_broker
def test_a_pause_in_a_listener_is_handed_over_by_that_join(team: Team) -> None:
    """It is written once the listener has returned, before the member joins."""
    consumer = team.member("a", control=None, pause_handover="offsets")
    revoked: list[Any] = []

    def pause(tps: Any) -> None:  # noqa: ANN401 - upstream's
        if tps:
            consumer.pause(*tps)
            revoked.extend(tps)

    consumer.subscribe([team.topic], listener=Listener(revoked=pause))
    until_at_home(team, consumer)
    wire = Wire(consumer)
    wire.hold("JoinGroup")
    consumer._coordinator.request_rejoin()
    poll_until(consumer, lambda: wire.held("JoinGroup"))
    marked = {tp for tp in team.partitions if stored(team, tp)[1]}
    wire.release("JoinGroup")
    assert marked == set(revoked) == set(team.partitions)


@any_broker
def test_a_pause_after_close_is_a_note_in_the_ledger(team: Team) -> None:
    """It raises nothing; nobody is there to be told."""
    consumer, (first, *_) = (
        team.member("a", control=None, pause_handover="offsets"),
        team.partitions,
    )
    consumer.assign(team.partitions)
    until_at_home(team, consumer)
    consumer.close()
    consumer.pause(first)
    assert [str(hold.scope) for hold in consumer.holds()] == [f"{team.topic}:0"]
    consumer.resume(first)
    assert consumer.holds() == ()


def test_a_commit_is_answered_while_a_poll_looks_for_marks(
    safe: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the IO thread, at any time; a poll looks at all partitions."""
    consumer = safe(group_id="g", pause_handover="offsets")
    consumer.assign([TopicPartition("orders", number) for number in range(5)])
    handover = consumer._coordinator.handover
    handover.committed({A: at(0)})
    looked = []
    travels = offsets.travelling

    def look(ledger: Any, tp: TopicPartition) -> bool:  # noqa: ANN401 - the ledger
        looked.append(tp)
        if len(looked) < 5:
            other = TopicPartition("orders", len(looked))
            one = threading.Thread(target=handover.committed, args=({other: at(0)},))
            one.start()
            one.join(20)
        return travels(ledger, tp)

    monkeypatch.setattr(offsets, "travelling", look)
    consumer.pause(*consumer.assignment())
    consumer.poll(0)
    assert len(looked) >= 5


@any_broker
def test_a_partition_given_to_a_producer_gets_no_mark_below_that(team: Team) -> None:
    """Until what is committed has reached it, whoever committed that."""
    consumer, (first, *_) = joined(team), team.partitions
    consumer.commit({first: at(1)})
    consumer.marked_offsets({first: at(4)})
    consumer.pause(first)
    for _ in range(3):
        consumer.poll(50)
    assert stored(team, first) == (1, False)
    consumer.commit({first: at(4)})
    assert stored(team, first) == (4, True)


@any_broker
def test_a_mark_that_a_transaction_may_wipe_is_not_relied_on(
    team: Team, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Given without a mark, at what is committed already: its commit shows nothing.

    Until no transaction can be open that long, the pause stays here when the partition
    departs.
    """
    consumer, (first, *_) = joined(team), team.partitions
    marks = consumer._coordinator.handover
    consumer.commit({first: at(4)})
    consumer.marked_offsets({first: at(4)})
    consumer.pause(first)
    assert stored(team, first) == (4, True)
    assert not marks._is_marked(first)
    monkeypatch.setattr(offsets, "_TRANSACTION", 0.0)
    consumer.resume(first)
    consumer.marked_offsets({first: at(4)})
    consumer.pause(first)
    assert stored(team, first) == (4, True)
    assert marks._is_marked(first)


@any_broker
def test_a_mark_after_the_transaction_is_relied_on(team: Team) -> None:
    """What is committed has come to where only the transaction could bring it."""
    consumer, (first, *_) = joined(team), team.partitions
    consumer.commit({first: at(1)})
    consumer.marked_offsets({first: at(4)})
    consumer.commit({first: at(4)})  # as the producer does
    consumer.pause(first)
    assert stored(team, first) == (4, True)
    assert consumer._coordinator.handover._is_marked(first)


# ------------------------------------------------------------ transactions


@pytest.fixture
def producer(team: Team) -> Iterator[KafkaProducer]:
    made = KafkaProducer(
        **team.broker.client_config, transactional_id=f"t-{uuid4().hex[:8]}"
    )
    made.init_transactions()
    yield made
    made.close(timeout=5)


def sent(
    producer: KafkaProducer, consumer: SafeConsumer, offsets: dict[Any, Any]
) -> None:
    producer.begin_transaction()
    producer.send_offsets_to_transaction(
        consumer.marked_offsets(offsets), consumer.group_metadata()
    )


isolation = pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])


@any_broker
@isolation
def test_a_mark_is_not_written_over_a_transaction(
    team: Team, producer: KafkaProducer, level: str
) -> None:
    """It is committed before the pause: exactly-once would be broken."""
    consumer = joined(team, isolation_level=level)
    first = team.partitions[0]
    sent(producer, consumer, {first: at(4)})
    producer.commit_transaction()
    consumer.pause(first)
    poll_until(consumer, lambda: stored(team, first)[1])
    assert stored(team, first) == (4, True)
    consumer.resume(first)
    poll_until(consumer, lambda: not stored(team, first)[1])
    assert stored(team, first) == (4, False)


@any_broker
@isolation
def test_a_mark_waits_for_a_transaction_that_is_open(
    team: Team, producer: KafkaProducer, level: str
) -> None:
    """Whether it was given to the producer only, or sent."""
    consumer = joined(team, isolation_level=level)
    first = team.partitions[0]
    consumer.commit({first: at(1)})
    sent(producer, consumer, {first: at(4)})
    consumer.pause(first)
    for _ in range(5):
        consumer.poll(100)
    assert stored(team, first) == (1, False)
    producer.commit_transaction()
    poll_until(consumer, lambda: stored(team, first)[1])
    assert stored(team, first) == (4, True)


@any_broker
@isolation
def test_a_mark_that_a_transaction_wipes_is_written_again(
    team: Team, producer: KafkaProducer, level: str
) -> None:
    """The producer was given what is committed already, before the pause."""
    consumer = joined(team, isolation_level=level)
    first = team.partitions[0]
    consumer.commit({first: at(4)})
    given = consumer.marked_offsets({first: at(4)})
    consumer.pause(first)
    assert stored(team, first) == (4, True)
    producer.begin_transaction()
    producer.send_offsets_to_transaction(given, consumer.group_metadata())
    producer.commit_transaction()  # it is answered before the group's offsets are there
    wait_for(lambda: stored(team, first) == (4, False), "the transaction's end")
    poll_until(consumer, lambda: stored(team, first)[1])
    poll_until(consumer, lambda: consumer._coordinator.handover._is_marked(first))
    assert stored(team, first) == (4, True)


@any_broker
def test_a_partition_that_departs_in_an_open_transaction_is_told_of(
    team: Team, producer: KafkaProducer
) -> None:
    """Its pause is not handed over, and its commit is not undone."""
    consumer = joined(team)
    first = team.partitions[0]
    sent(producer, consumer, {first: at(4)})
    consumer.pause(first)
    consumer.close()
    producer.commit_transaction()
    told = team.told[id(consumer)].of(PauseNotHandedOver)
    assert [one.partitions for one in told] == [(first,)]
    wait_for(lambda: stored(team, first) == (4, False), "the transaction's end")


@any_broker
def test_a_paused_partition_in_a_transaction_is_handed_over(
    team: Team, producer: KafkaProducer
) -> None:
    """By the transaction itself: the mark is in what the producer was given."""
    consumer = joined(team)
    first = team.partitions[0]
    consumer.pause(first)
    sent(producer, consumer, {first: at(4)})
    producer.commit_transaction()
    consumer.close()
    wait_for(lambda: stored(team, first) == (4, True), "the transaction's end")
    assert team.told[id(consumer)].of(PauseNotHandedOver) == []
    after = joined(team, "b")
    assert after.paused() == {first}
