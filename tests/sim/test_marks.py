"""Marks of a hand-over by offsets, while the coordinator takes its time with commits."""

import threading

import pytest
from kafka import TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer import BlockingCallInListenerError, SafeConsumer
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated


def joined(lab: Lab) -> tuple[SafeConsumer, TopicPartition, TopicPartition]:
    """Make a member that owns two partitions, and has a position in each."""
    first, second = lab.topic("t", 2, records=5)
    wish = {"group_id": GROUP, "pause_handover": "offsets"}
    consumer = SafeConsumer("t", **lab.settings(**wish))
    while not consumer.assignment():
        consumer.poll(100)
    for tp in (first, second):
        consumer.position(tp)
        consumer.seek(tp, 0)
    return consumer, first, second


def at(offset: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, "", -1)


def stored(lab: Lab, tp: TopicPartition) -> tuple[int | None, bool]:
    """Return what the broker has committed, and whether a mark is on it."""
    found = lab.cluster.committed(GROUP).get((tp.topic, tp.partition))
    if found is None:
        return None, False
    return found.offset, str(found.metadata).startswith("\x1fsc1:")


def until_marked(lab: Lab, consumer: SafeConsumer, tp: TopicPartition) -> None:
    """Poll until the mark of a partition is committed."""
    for _ in range(100):
        if stored(lab, tp)[1]:
            return
        consumer.poll(100)
    pytest.fail("no mark within ten seconds")


@pytest.mark.contract("G7")
@simulated()
def test_a_mark_waits_for_commits_in_flight(lab: Lab) -> None:
    """
    It is not written over them with what was committed before.

    1. 2 is committed. 2. ``commit_async(4)``; the broker has it, its answer is on the
    way. 3. ``pause``: what is known to be committed is 2 still.
    """
    consumer, first, _ = joined(lab)
    consumer.commit({first: at(2)})
    late = lab.cluster.fail("OffsetCommit", is_held=True, count=1)
    consumer.commit_async({first: at(4)})
    lab.until(lambda: late.kept)
    pausing = threading.Thread(target=consumer.pause, args=(first,))
    pausing.start()
    lab.sleep(1.0)
    assert (pausing.is_alive(), stored(lab, first)) == (True, (4, False))
    late.end()
    pausing.join()
    until_marked(lab, consumer, first)
    assert stored(lab, first) == (4, True)


@simulated()
def test_a_coordinator_that_says_nothing_costs_one_wait(lab: Lab) -> None:
    """Not one for each pause, resume and poll; the mark is written in the end."""
    consumer, first, second = joined(lab)
    silent = [lab.cluster.fail(f"Offset{api}", is_held=True) for api in _ASKED]
    began = lab.now
    consumer.pause(first)
    assert 2.0 <= lab.now - began <= 2.1
    began = lab.now
    consumer.pause(second)
    consumer.resume(second)
    for _ in range(3):
        consumer.poll(0)
    assert lab.now - began <= 0.1
    for one in silent:
        one.end()
    until_marked(lab, consumer, first)
    assert not stored(lab, second)[1]


_ASKED = ("Fetch", "Commit")


@pytest.mark.contract("P8")
@simulated()
def test_a_producer_is_given_nothing_while_a_mark_is_on_its_way(lab: Lab) -> None:
    """
    P8: its transaction has a connection of its own and could be quicker.

    The mark, of an older offset, would then be written over what it committed.
    """
    consumer, first, second = joined(lab)
    late = lab.cluster.fail("OffsetCommit", is_held=True)
    pausing = threading.Thread(target=consumer.pause, args=(first,))
    pausing.start()
    lab.until(lambda: late.kept)
    given: list[object] = []
    giving = threading.Thread(
        target=lambda: given.append(consumer.marked_offsets({first: at(4)}))
    )
    giving.start()
    lab.sleep(1.0)
    assert giving.is_alive()
    assert consumer.marked_offsets({second: at(4)}) == {second: at(4)}
    with pytest.raises(BlockingCallInListenerError):
        consumer._manager.run(consumer.marked_offsets, {first: at(4)})
    late.end()
    giving.join()
    pausing.join()
    assert len(given) == 1
    assert stored(lab, first) == (0, True)
