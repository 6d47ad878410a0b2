"""What a pause does to requests, to responses on the way, and to what is buffered."""

import re
from itertools import chain, combinations
from typing import Any

import pytest
from kafka.errors import CorruptRecordError
from kafka.structs import TopicPartition

from tests.harness.regression.choices import HOWS
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import (
    Reader,
    delivered,
    partition_of,
    positions,
    wait_until,
)
from tests.harness.regression.wire import Wire

pytestmark = pytest.mark.any_broker


@pytest.mark.contract("P1")
@pytest.mark.parametrize("how", HOWS)
def test_a_response_that_arrives_after_the_pause_waits_for_the_resume(
    lab: Lab, client: str, how: str
) -> None:
    """Paused while its fetch was on the way, nothing comes, and nothing is lost."""
    _, (p0, p1) = lab.topic_with(each=5, partitions=2)
    reader = lab.assigned(client, [p0, p1], how=how)
    wire = Wire(reader.consumer)
    wire.hold("Fetch")
    reader.until(lambda: wire.held("Fetch"))
    reader.consumer.pause(p0)
    wire.release("Fetch")
    others = lab.beats(reader, p1)
    assert delivered(others, [p0]) == 0
    assert reader.consumer.position(p0) == 0
    reader.consumer.resume(p0)
    reader.drain({p0: range(5)})


def test_a_topic_subscribed_while_metadata_is_on_its_way_is_asked_for(
    lab: Lab, client: str
) -> None:
    """Without it, now and then a new consumer reads nothing for five minutes."""
    _, (p0,) = lab.topic_with(each=3, partitions=1)
    reader = lab.reader(client, metadata_max_age_ms=300_000)
    cluster = reader.consumer._cluster
    # An answer on its way, the first one, takes back what is asked for meanwhile.
    wait_until(
        lambda: not (cluster.need_update or cluster.metadata_refresh_in_progress)
    )
    wire = Wire(reader.consumer)
    wire.hold("Metadata")
    cluster.request_update()
    wire.wait_held("Metadata")
    reader.consumer.subscribe([p0.topic])
    wire.release("Metadata")
    reader.drain({p0: range(3)})


LEVELS = ("partition", "topic", "pattern", "consumer")


def pause_at(level: str, consumer: Any, topic: str) -> None:  # noqa: ANN401 - either client
    """Pause all the topic's partitions at one level."""
    if level == "partition":
        consumer.pause(*consumer.assignment())
    elif level == "topic":
        consumer.pause(topic)
    elif level == "pattern":
        consumer.pause(re.compile(re.escape(topic)))
    else:
        consumer.pause_all()


def test_no_fetch_is_sent_for_a_paused_partition(lab: Lab, client: str) -> None:
    """Requests name the partitions that flow and no others; none if all pause."""
    topic, (p0, p1) = lab.topic_with(each=1, partitions=2)
    reader = lab.assigned(client, [p0, p1], enable_incremental_fetch_sessions=False)
    wire = Wire(reader.consumer)
    reader.take(2)
    reader.consumer.pause(p0)
    wire.wait_answered("Fetch")
    wire.sent.clear()
    wire.answered.clear()
    assert lab.beats(reader, p1) == []
    assert wire.fetched() == {p1}
    _none_when_all_paused("partition", reader, wire, topic)


@pytest.mark.contract("P11")
@pytest.mark.parametrize("level", ["topic", "pattern", "consumer"])
def test_no_fetch_is_sent_at_any_level(lab: Lab, client: str, level: str) -> None:
    """A pause of the topic, of a pattern or of the consumer sends nothing either."""
    topic, tps = lab.topic_with(each=1, partitions=2)
    reader = lab.assigned(client, tps)
    wire = Wire(reader.consumer)
    reader.take(2)
    _none_when_all_paused(level, reader, wire, topic)


def _none_when_all_paused(level: str, reader: Reader, wire: Wire, topic: str) -> None:
    pause_at(level, reader.consumer, topic)
    wire.wait_answered("Fetch")
    before = wire.count("Fetch")
    assert reader.rounds(5) == []
    assert wire.count("Fetch") == before


@pytest.mark.contract("P8")
@pytest.mark.parametrize("how", HOWS)
def test_data_that_is_here_is_delivered_after_resume_without_a_fetch(
    lab: Lab, client: str, how: str
) -> None:
    """Pauses and resumes cost no byte more than reading straight on."""
    _, (p0,) = lab.topic_with(each=200, partitions=1)
    straight = lab.assigned("stock", [p0])
    measure = Wire(straight.consumer)
    straight.drain({p0: range(200)})
    reader = lab.assigned(client, [p0], how=how)
    wire = Wire(reader.consumer)
    reader.take(3)
    for count in (50, 70):
        reader.consumer.pause(p0)
        assert reader.rounds(2) == []
        reader.consumer.resume(p0)
        reader.take(count)
    reader.drain({p0: range(123, 200)})
    wire.wait_answered("Fetch")
    assert wire.bytes_fetched() == measure.bytes_fetched()


@pytest.mark.parametrize("how", HOWS)
def test_every_subset_of_four_partitions(lab: Lab, client: str, how: str) -> None:
    """Whichever are paused, the others flow and these keep their positions."""
    _, tps = lab.topic_with(each=0)
    reader = lab.assigned(client, tps, how=how)
    subsets = chain.from_iterable(combinations(tps, size) for size in range(5))
    for paused in subsets:
        reader.consumer.pause(*paused)
        stood = positions(reader.consumer, paused)
        flowing = {tp: [lab.end(tp)] for tp in tps if tp not in paused}
        lab.produce(tps)
        before = len(reader.log)
        reader.drain(flowing) if flowing else reader.rounds(2)
        assert {partition_of(record) for record in reader.log[before:]} == set(flowing)
        assert positions(reader.consumer, paused) == stood
        reader.consumer.resume(*paused)
        reader.drain({tp: [lab.end(tp) - 1] for tp in paused})


@pytest.mark.parametrize("how", HOWS)
def test_resume_goes_on_at_the_very_next_offset(
    lab: Lab, client: str, how: str
) -> None:
    """Consume, pause, more is written, resume: the next record is the next one."""
    _, (p0, witness) = lab.topic_with(each=10, partitions=2)
    reader = lab.assigned(client, [p0, witness], how=how)
    reader.until(lambda: delivered(reader.log, [p0]) == 10)
    reader.consumer.pause(p0)
    lab.produce(p0, 10)
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    reader.consumer.resume(p0)
    reader.drain({p0: range(10, 20)})


def test_a_thousand_empty_polls_drop_nothing(lab: Lab, client: str) -> None:
    """A paused partition's data outlasts 1,000 polls."""
    _, (p0,) = lab.topic_with(each=50, partitions=1)
    reader = lab.assigned(client, [p0])
    reader.take(7)
    reader.consumer.pause(p0)
    for _ in range(1000):
        assert reader.consumer.poll(0) == {}
    assert reader.consumer.position(p0) == 7
    reader.consumer.resume(p0)
    reader.drain({p0: range(7, 50)})


@pytest.mark.contract("P8")
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("another", ["same batch", "next batch"])
def test_pause_in_the_middle_and_at_the_end_of_a_batch(
    lab: Lab, client: str, how: str, another: str
) -> None:
    """The pause bites between two records of a batch, and between two batches."""
    _, (p0,) = lab.topic_with(each=0, partitions=1)
    for _ in range(2):
        lab.produce(p0, 10)
    reader = lab.assigned(client, [p0], how=how)
    first = 4 if another == "same batch" else 10
    reader.take(first)
    reader.consumer.pause(p0)
    assert reader.rounds(3) == []
    assert reader.consumer.position(p0) == first
    reader.consumer.resume(p0)
    reader.drain({p0: range(first, 20)})


@pytest.mark.parametrize("how", HOWS)
def test_a_corrupt_batch_of_a_paused_partition_is_told_after_resume(
    lab: Lab, client: str, how: str
) -> None:
    """Others flow past it; the error comes when the partition flows again."""
    _, (p0, p1) = lab.topic_with(each=3, partitions=2)
    reader = lab.assigned(client, [p0, p1], how=how)
    wire = Wire(reader.consumer)
    reader.until(lambda: len(reader.log) == 6)
    wire.change = lambda name, response: _corrupt(name, response, p0)
    wire.wait_answered("Fetch")  # what is held next has the records in it
    wire.hold("Fetch")
    lab.produce(p0, 3)
    reader.until(lambda: wire.held("Fetch"))
    reader.consumer.pause(p0)
    wire.release("Fetch")
    assert lab.beats(reader, p1) == []
    assert reader.consumer.position(p0) == 3
    reader.consumer.resume(p0)
    with pytest.raises(CorruptRecordError):
        reader.until(lambda: False)


def _corrupt(name: str, response: Any, tp: TopicPartition) -> None:  # noqa: ANN401 - any response
    if name != "Fetch":
        return
    for topic in response.responses:
        for partition in topic.partitions:
            if (topic.topic, partition.partition_index) == tp and partition.records:
                records = bytearray(partition.records)
                records[-1] ^= 0xFF  # the last byte of the last record
                partition.records = bytes(records)
