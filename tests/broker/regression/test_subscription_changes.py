"""Pauses over changed subscriptions, assignments and topics."""

from typing import Any

import pytest
from kafka.structs import TopicPartition

from tests.broker.regression.groups import group
from tests.broker.regression.matrix import HOWS, PROTOCOLS, fails, matrix, passes
from tests.harness.members import partitions_of
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import Reader, delivered, offsets_of, wait_until
from tests.harness.regression.wire import Wire

UNPAUSED = "kafka-python forgets the pause of a partition that it gives up"

AWAY: dict[str, Any] = {
    "subscribe": lambda consumer, _topic, other: consumer.subscribe([other]),
    "unsubscribe": lambda consumer, _topic, _other: consumer.unsubscribe(),
}


@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), way=tuple(AWAY), assignor=PROTOCOLS, how=HOWS)
def test_subscribed_away_and_back(
    lab: Lab, client: str, way: str, assignor: str, how: str
) -> None:
    """
    Rows 8 and R11: another topic and back, or nothing and back; still paused.

    A deliberate difference from Java, where a changed subscription drops a pause.
    """
    here = group(lab, client, assignor=assignor, how=how)
    other = here.witness.topic
    here.pause()
    start = here.taken()
    AWAY[way](here.reader.consumer, here.topic, other)
    away = set(here.witnesses) if way == "subscribe" else set()
    here.reader.until_joined(here.reader.owns(away))
    here.reader.consumer.subscribe([here.topic, other])
    here.reader.until_joined(here.alone())
    assert here.leaked() == 0
    assert here.reader.consumer.paused() == set(here.tps)
    here.reader.consumer.resume(*here.tps)
    here.reader.drain(lab.rest(start))


@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), how=HOWS)
def test_subscribed_away_and_back_without_a_group(
    lab: Lab, client: str, how: str
) -> None:
    """
    Row 8: the same where no coordinator is involved.

    It comes back with a new topic: without a group, kafka-python looks at a changed
    subscription only when that brings topics whose metadata it did not have.
    """
    topic, tps = lab.topic_with(each=10, partitions=2)
    other, others = lab.topic_with(each=0, partitions=1)
    third, (witness,) = lab.topic_with(each=0, partitions=1)
    reader = lab.reader(client, topic, how=how)
    reader.until(reader.owns(tps))
    reader.consumer.pause(*tps)
    reader.consumer.subscribe([other])
    reader.until(reader.owns(others))
    reader.consumer.subscribe([topic, third])
    reader.until(reader.owns([*tps, witness]))
    start = len(reader.log)
    lab.beats(reader, witness)
    assert delivered(reader.log[start:], tps) == 0
    assert reader.consumer.paused() == set(tps)


@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), how=HOWS)
def test_assigned_away_and_back(lab: Lab, client: str, how: str) -> None:
    """Row 8: ``assign`` to something else and back."""
    _, (p0, witness) = lab.topic_with(each=10, partitions=2)
    reader = lab.assigned(client, [p0, witness], how=how)
    reader.take(5)
    reader.consumer.pause(p0)
    reader.consumer.assign([witness])
    start = len(reader.log)
    lab.beats(reader, witness, times=1)
    reader.consumer.assign([p0, witness])
    lab.beats(reader, witness)
    assert delivered(reader.log[start:], [p0]) == 0
    reader.consumer.resume(p0)
    reader.drain({p0: range(10)})  # a new ownership, without a committed offset


@pytest.mark.contract("P9")
@pytest.mark.any_broker
@matrix(stock=passes(), how=HOWS)
def test_what_was_fetched_for_an_ownership_that_ended_is_thrown_away(
    lab: Lab, client: str, how: str
) -> None:
    """Row R20: half read, parked and on the way: gone once the partition is given up."""
    _, (half_read, parked, on_the_way, witness) = lab.topic_with(each=0)
    given_up = [half_read, parked, on_the_way]
    reader = lab.assigned(client, [half_read, parked, on_the_way, witness], how=how)
    wire = Wire(reader.consumer)
    lab.produce([half_read, parked], 10)
    reader.take(3)
    reader.consumer.pause(half_read, parked)
    reader.rounds(2)
    wire.hold("Fetch")
    lab.produce(on_the_way, 10)
    reader.until(lambda: wire.held("Fetch"))
    reader.consumer.assign([witness])
    wire.release("Fetch")
    start = len(reader.log)
    lab.beats(reader, witness)
    assert delivered(reader.log[start:], given_up) == 0
    reader.until(lambda: buffered(reader) <= {witness})


def buffered(reader: Reader) -> set[Any]:
    """Return the partitions of which the consumer keeps fetched records."""
    fetcher = reader.consumer._fetcher
    slot = fetcher._next_partition_records
    return {
        *({slot.topic_partition} if slot else ()),
        *(one.topic_partition for one in fetcher._completed_fetches),
        *fetcher._paused_completed_fetches,
        *(tp for tp, part in fetcher._paused_partition_records.items() if part),
    }


@pytest.mark.any_broker
@matrix(stock=passes(), assignor=PROTOCOLS, how=HOWS)
def test_a_wider_subscription_keeps_pauses(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """Rows 18 and R11: a topic more, a rebalance, and the pause and position stay."""
    here = group(lab, client, assignor=assignor, how=how)
    here.pause()
    more, more_tps = lab.topic_with(each=3, partitions=1)
    consumer = here.reader.consumer
    assert consumer.partitions_for_topic(more)
    consumer.subscribe([here.topic, here.witness.topic, more])
    here.reader.until_joined(here.reader.owns([*here.tps, *here.witnesses, *more_tps]))
    assert here.leaked() == 0
    assert here.reader.consumer.paused() == set(here.tps)
    log = here.reader.log
    assert here.reader.reaches(lambda: delivered(log, more_tps) == 3)
    assert offsets_of(log, more_tps) == {tp: [0, 1, 2] for tp in more_tps}


@pytest.mark.any_broker
@matrix(stock=passes(), assignor=PROTOCOLS)
def test_partitions_added(lab: Lab, client: str, assignor: str) -> None:
    """Row 18: the topic grows; what was paused stays paused, what is new flows."""
    here = group(lab, client, assignor=assignor, metadata_max_age_ms=300)
    here.pause()
    lab.broker.add_partitions(here.topic, 6)
    new = partitions_of(here.topic, 6)[4:]
    here.reader.until_joined(here.reader.owns([*here.tps, *here.witnesses, *new]))
    assert here.leaked() == 0
    lab.produce(new, 3)
    here.reader.drain({tp: range(3) for tp in new})
    assert here.reader.consumer.paused() == set(here.tps)


@pytest.mark.contract("P6")
@pytest.mark.any_broker
@matrix(stock=fails(UNPAUSED), how=HOWS)
def test_a_topic_deleted_and_created_again(lab: Lab, client: str, how: str) -> None:
    """Row 9: the new topic of the old name is paused as the old one was."""
    with lab.other_producer():
        topic, (p0,) = lab.topic_with(each=3, partitions=1)
    _, (witness,) = lab.topic_with(each=0, partitions=1)
    reader = lab.reader(client, how=how, group=lab.name("g"), metadata_max_age_ms=100)
    # kafka-python 3.0.12 drops the configuration key of this name on the way.
    reader.consumer._cluster.config["allow_auto_create_topics"] = False
    without: list[set[TopicPartition]] = []
    listener = InListener(assigned=lambda tps: p0 in tps or without.append(tps))
    reader.consumer.subscribe([topic, witness.topic], listener=listener)
    reader.until_joined(reader.owns([p0, witness]))
    reader.consumer.pause(p0)
    without.clear()
    lab.drop(topic)
    reader.until_joined(lambda: without)
    lab.topic(1, name=topic)
    lab.recreated([p0])
    reader.until_joined(lambda: p0 in reader.consumer.assignment())
    reader.consumer.seek_to_beginning(p0)
    with lab.other_producer():
        lab.produce(p0, 5)
    start = len(reader.log)
    lab.beats(reader, witness)
    assert delivered(reader.log[start:], [p0]) == 0
    assert reader.consumer.paused() == {p0}
    reader.consumer.resume(p0)
    reader.drain({p0: range(5)})


@pytest.mark.any_broker
@matrix(stock=passes(), assignor=PROTOCOLS, how=HOWS)
def test_a_paused_partition_is_handed_over_where_it_stood(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """Row 18: auto-commit gives the next owner the position at which it was paused."""
    here = group(
        lab,
        client,
        assignor=assignor,
        how=how,
        enable_auto_commit=True,
        auto_commit_interval_ms=60_000,
        taking=20,
    )
    here.pause()
    stood = here.taken()
    ghost = here.ghost()
    moved = set(here.tps) - here.mine()
    wait_until(
        lambda: all(
            stood[tp] == 30 or any(one.tp == tp for one in ghost.log) for tp in moved
        )
    )
    first = {}
    for one in ghost.log:
        first.setdefault(one.tp, one.offset)
    assert first == {tp: stood[tp] for tp in moved if stood[tp] < 30}
    assert here.leaked() == 0
