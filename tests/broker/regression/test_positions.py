"""Positions, seeks and commits of a paused partition."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka import OffsetAndMetadata
from kafka.structs import TopicPartition

from tests.harness.regression.choices import HOWS
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import BOUND, Reader, delivered, wait_until
from tests.harness.regression.wire import Wire

pytestmark = pytest.mark.any_broker

ORDERS = ("seek, pause, resume", "pause, seek, resume")
STATES = ("parsed", "raw")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("how", HOWS)
def test_a_seek_wins_over_parked_data(
    lab: Lab, client: str, order: str, state: str, how: str
) -> None:
    """After a seek while paused the sought offset comes, not parked data."""
    _, (p0, witness) = lab.topic_with(each=30, partitions=2)
    reader = lab.assigned(client, [p0, witness], how=how)
    if state == "parsed":
        reader.take(4)
        steps = order.split(", ")
    else:
        wire = Wire(reader.consumer)
        wire.hold("Fetch")
        reader.until(lambda: wire.held("Fetch"))
        steps = [*order.split(", ")[:2], "release", "resume"]
    start = len(reader.log)
    for step in steps:
        if step == "seek":
            reader.consumer.seek(p0, 20)
        elif step == "pause":
            reader.consumer.pause(p0)
        elif step == "release":
            wire.release("Fetch")
            lab.beats(reader, witness, times=1)
        else:
            assert delivered(reader.log[start:], [p0]) == 0
            reader.consumer.resume(p0)
    reader.drain({p0: range(20, 30)})


@pytest.mark.parametrize("how", HOWS)
def test_seek_to_beginning_and_end_while_paused(
    lab: Lab, client: str, how: str
) -> None:
    """Both work on a paused partition, and neither wakes it."""
    _, (p0, witness) = lab.topic_with(each=10, partitions=2)
    reader = lab.assigned(client, [p0, witness], how=how)
    reader.until(lambda: len(reader.log) == 20)
    consumer = reader.consumer
    consumer.pause(p0)
    consumer.seek_to_end(p0)
    assert consumer.position(p0) == 10
    consumer.seek_to_beginning(p0)
    assert consumer.position(p0) == 0
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    assert consumer.paused() == {p0}
    consumer.resume(p0)
    reader.drain({p0: range(10)})


FIRST_POSITIONS = {"earliest": 0, "latest": 10, "none": 4}


@pytest.mark.parametrize("reset", FIRST_POSITIONS)
@pytest.mark.parametrize("how", HOWS)
def test_a_partition_paused_before_its_first_position_gets_one(
    lab: Lab, client: str, reset: str, how: str
) -> None:
    """By reset or by commit; and it stays quiet until resumed."""
    _, (p0, witness) = lab.topic_with(each=10, partitions=2)
    group = lab.name("g")
    reader = lab.reader(client, how=how, group=group, auto_offset_reset=reset)
    consumer = reader.consumer
    consumer.assign([p0, witness])
    if reset == "none":
        consumer.commit({tp: OffsetAndMetadata(4, "", -1) for tp in (p0, witness)})
    consumer.pause(p0)
    assert consumer.position(p0) == FIRST_POSITIONS[reset]
    assert consumer.position(witness) == FIRST_POSITIONS[reset]
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    lab.produce(p0)
    consumer.resume(p0)
    reader.drain({p0: range(FIRST_POSITIONS[reset], 11)})


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_pause_before_the_first_record_keeps_the_sought_start(
    lab: Lab, client: str, reset: str
) -> None:
    """Seek and pause in the listener; the start is the one sought."""
    topic, tps = lab.topic_with(each=10, partitions=2)
    p0, witness = tps
    reader = lab.reader(client, group=lab.name("g"), auto_offset_reset=reset)
    consumer = reader.consumer

    def seek_and_pause(assigned: set[TopicPartition]) -> None:
        for tp in assigned:
            consumer.seek(tp, 6)
        consumer.pause(*(assigned & {p0}))

    consumer.subscribe([topic], listener=InListener(assigned=seek_and_pause))
    reader.until_joined(reader.owns(tps))
    assert delivered(lab.beats(reader, witness), [p0]) == 0
    assert consumer.position(p0) == 6
    consumer.resume(p0)
    reader.drain({p0: range(6, 10)})
    assert reader.log[0].offset == 6


def test_an_answer_about_commits_is_not_used_after_newer_ones(
    lab: Lab, client: str
) -> None:
    """Found by the model: it goes on where it was committed meanwhile."""
    _, (p0, witness) = lab.topic_with(each=10, partitions=2)
    reader = lab.reader(client, group=lab.name("g"))
    consumer = reader.consumer
    consumer.assign([p0])
    consumer.commit({p0: OffsetAndMetadata(2, "", -1)})
    wire = Wire(consumer)
    wire.hold("OffsetFetch")
    reader.until(lambda: wire.held("OffsetFetch"))
    asked = list(consumer._coordinator._offset_fetch_futures.values())
    consumer.seek(p0, 7)  # the question is not asked again; its answer comes
    wire.release("OffsetFetch")
    wait_until(lambda: all(future.is_done for future in asked))
    reader.drain({p0: range(7, 10)})
    consumer.commit()
    consumer.assign([witness])
    consumer.assign([p0])
    assert consumer.position(p0) == 10


@contextmanager
def asked_what_is_committed(reader: Reader, tp: TopicPartition) -> Iterator[Wire]:
    """Poll on another thread until the block is over; the answer waits for ``release``."""
    wire = Wire(reader.consumer)
    wire.hold("OffsetFetch")
    reader.consumer.assign([tp])
    thread = threading.Thread(target=reader.round, args=(BOUND, 1))
    thread.start()
    wire.wait_held("OffsetFetch")
    try:
        yield wire
    finally:
        wire.release("OffsetFetch")
        thread.join(BOUND)


@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_about_commits_counts_in_its_ownership_only(
    lab: Lab, *, committed: bool
) -> None:
    """1. It is asked. 2. The partition goes, others commit. 3. It is back. 4. The answer."""
    _, (p0, p1) = lab.topic_with(each=10, partitions=2)
    reader = lab.reader("safe", group=lab.name("g"))
    consumer = reader.consumer
    if committed:
        consumer.commit({p0: OffsetAndMetadata(2, "", -1)})
    with asked_what_is_committed(reader, p0):
        consumer.assign([p1])
        consumer.commit({p0: OffsetAndMetadata(6, "", -1)})
        consumer.assign([p0])
    reader.take(4 - len(reader.log))
    assert [record.offset for record in reader.log] == [6, 7, 8, 9]


def test_a_seek_while_it_is_asked_what_is_committed_stays(lab: Lab) -> None:
    """The answer is about a position that nobody needs any more."""
    _, (p0,) = lab.topic_with(each=10, partitions=1)
    reader = lab.reader("safe", group=lab.name("g"))
    consumer = reader.consumer
    consumer.commit({p0: OffsetAndMetadata(2, "", -1)})
    with asked_what_is_committed(reader, p0):
        consumer.seek(p0, 7)
    reader.take(3 - len(reader.log))
    assert [record.offset for record in reader.log] == [7, 8, 9]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("commits", ["by hand", "automatic"])
def test_commits_while_paused_are_what_was_delivered(
    lab: Lab, client: str, how: str, commits: str
) -> None:
    """A commit works while paused, and covers no parked record."""
    _, (p0, witness) = lab.topic_with(each=20, partitions=2)
    automatic = commits == "automatic"
    reader = lab.reader(
        client,
        how=how,
        group=lab.name("g"),
        enable_auto_commit=automatic,
        auto_commit_interval_ms=100,
    )
    consumer = reader.consumer
    consumer.assign([p0, witness])
    reader.take(27)
    consumer.pause(p0)
    if automatic:
        lab.beats(reader, witness)
        end = lab.end(witness)
        reader.until(lambda: consumer.committed(witness) == end)
    else:
        consumer.commit()
    wanted = delivered(reader.log, [p0])
    committed = consumer.committed(p0)
    assert committed == wanted
    assert consumer.position(p0) == wanted
    consumer.resume(p0)
    if wanted < 20:
        reader.drain({p0: range(wanted, 20)})
