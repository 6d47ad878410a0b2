"""Partitions that move, return, are gained, or come with another subscription."""

import re
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from safeconsumer import Lifetime, SafeConsumer
from tests.sim.lab import Lab, Member
from tests.sim.playing import simulated
from tests.sim.reading import Listener, Reader, both_protocols, both_ways, stock_fails


def owner(
    lab: Lab,
    records: int = 10,
    **settings: Any,  # noqa: ANN401 - as Reader()
) -> tuple[Reader, list[TopicPartition]]:
    """Make the only member of a group, which has read and committed everything."""
    tps = lab.topic("t", 4, records=records)
    reader = Reader(lab, SafeConsumer, "t", **settings)
    reader.until(lambda: len(reader.log) == 4 * records)
    reader.consumer.commit()
    return reader, tps


def with_another(lab: Lab, reader: Reader) -> Member:
    """Let another member join, and read until this one has two partitions left."""
    assignors = reader.consumer.config["partition_assignment_strategy"]
    given = {"partition_assignment_strategy": assignors, "poll_ms": 2000}
    other = lab.member(KafkaConsumer, "t", name="other", **given)
    reader.until(lambda: len(reader.consumer.assignment()) == 2, each=1)
    reader.until(other.consumer.assignment, each=1)
    return other


def alone(reader: Reader, other: Member, tps: list[TopicPartition]) -> None:
    """Let another member leave, and read until these are owned here."""
    other.leave()
    reader.owns(tps, each=1)


# Away and back


@both_protocols
@simulated()
def test_what_was_resumed_comes_back_flowing(lab: Lab, assignor: type) -> None:
    """A pause that was lifted before the move does not return with the partition."""
    reader, tps = owner(lab, assignor=assignor)
    reader.consumer.pause(*tps)
    reader.consumer.resume(*tps)
    alone(reader, with_another(lab, reader), tps)
    assert reader.consumer.paused() == set()
    for tp in tps:
        lab.append(tp)
    reader.until(lambda: all(10 in reader.offsets(tp) for tp in tps))


@both_protocols
@pytest.mark.parametrize("listens", [True, False])
@simulated(seeds=1)
def test_what_was_kept_and_is_not_paused_goes_on(
    lab: Lab, assignor: type, *, listens: bool
) -> None:
    """After a rebalance it flows, with a listener, too."""
    reader, tps = owner(lab, assignor=assignor)
    if listens:
        reader.consumer.subscribe(["t"], listener=Listener())
    other = with_another(lab, reader)
    held, flowing = sorted(reader.consumer.assignment())
    reader.consumer.pause(held)
    alone(reader, other, tps)
    lab.append(held)
    lab.append(flowing)
    reader.reads(flowing, [10])
    reader.is_silent()
    assert reader.offsets(held) == list(range(10))
    assert reader.consumer.paused() == {held}


@both_protocols
@simulated()
def test_a_paused_partition_is_handed_over_where_it_stood(
    lab: Lab, assignor: type
) -> None:
    """The automatic commit gives the next owner the position at which it was paused."""
    tps = lab.topic("t", 4, records=10)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor, **settings)
    reader.owns(tps, limit=1)
    reader.take(20 - len(reader.log))
    reader.consumer.pause(*tps)
    stood = {tp: len(reader.offsets(tp)) for tp in tps}
    other = with_another(lab, reader)
    moved = set(tps) - reader.consumer.assignment()
    reader.until(lambda: all(other.consumer.position(tp) == 10 for tp in moved), each=1)
    assert all(other.values(tp) == [*range(stood[tp], 10)] for tp in moved)
    assert len(reader.log) == 20


# Gained


@pytest.mark.contract("P7")
@stock_fails("what a poll gains was not assigned when the loop paused")
@both_ways
@simulated()
def test_what_the_loop_never_had_is_gated_until_its_poll_returns(
    lab: Lab, kind: type[KafkaConsumer], how: str
) -> None:
    """P7: no pause covers what another member had from the start; its gain is quiet."""
    first, second = lab.topic("t", 2, records=10)
    other = lab.member(KafkaConsumer, "t", name="a", poll_ms=2000)  # sorted by its name
    other.owns(2)
    reader = Reader(lab, kind, "t", how=how, client_id="z")
    reader.owns([second], each=5, limit=1)
    reader.take(5 - len(reader.log))

    def pausing() -> bool:
        assigned = reader.consumer.assignment()
        reader.consumer.pause(*assigned)
        return first in assigned

    pausing()
    other.leave()
    reader.until(pausing, each=5, seconds=60)
    reader.is_silent()
    assert reader.offsets(first) == []
    reader.consumer.resume(first)
    reader.until(lambda: reader.consumer.position(first) == 10)


LEVELS: dict[str, Any] = {
    "topic": lambda consumer: consumer.pause("t"),
    "pattern": lambda consumer: consumer.pause(re.compile("t.*")),
    "consumer": lambda consumer: consumer.pause_all(),
}


@pytest.mark.contract("P7")
@both_protocols
@pytest.mark.parametrize("level", LEVELS)
@simulated(seeds=1)
def test_partitions_gained_later_arrive_paused(
    lab: Lab, level: str, assignor: type
) -> None:
    """P7: a member leaves, and what it had arrives under the wider pause, unfetched."""
    reader, tps = owner(lab, assignor=assignor)
    other = with_another(lab, reader)
    LEVELS[level](reader.consumer)
    for tp in tps:
        lab.append(tp, 5, first=10)
    reader.is_silent()
    since = len(lab.history())
    alone(reader, other, tps)
    reader.is_silent()
    mine = [api for _, api, whose, _ in lab.history()[since:] if whose == "test"]
    assert "Fetch" not in mine
    assert reader.consumer.paused() == set(tps)


# Another subscription


@simulated()
def test_subscribed_away_and_back_without_a_group(lab: Lab) -> None:
    """
    Where no coordinator takes part, a strict hold stays as well.

    It comes back with a new topic: without a group, kafka-python looks at a changed
    subscription only when that brings topics whose metadata it did not have.
    """
    tps, others, new = lab.topic("t", 2, records=10), lab.topic("u"), lab.topic("v")
    reader = Reader(lab, SafeConsumer, "t", group_id=None)
    reader.owns(tps)
    reader.consumer.pause(*tps, lifetime=Lifetime.UNTIL_RESUMED)
    reader.consumer.subscribe(["u"])
    reader.owns(others)
    reader.consumer.subscribe(["t", "v"])
    reader.owns([*tps, *new])
    reader.is_silent()
    assert reader.consumer.paused() == set(tps)
    lab.append(new[0])
    reader.reads(new[0], [0])


@pytest.mark.contract("P9")
@both_ways
@pytest.mark.parametrize("state", ["half read", "parked", "on its way"])
@simulated()
def test_what_was_fetched_for_an_ownership_that_ended_is_thrown_away(
    lab: Lab, how: str, state: str
) -> None:
    """P9: also if the partition comes back at the same offset, with another log."""
    (tp,) = lab.topic("t", 1, records=10 if state == "half read" else 3)
    reader = Reader(lab, SafeConsumer, "t", how=how, client_id="z")
    reader.take(3)
    reader.consumer.commit()
    late = lab.cluster.fail("Fetch", is_held=True, origin="test")
    if state != "on its way":
        late.end()
    reader.consumer.pause(tp, lifetime=Lifetime.UNTIL_RESUMED)
    if state != "half read":
        lab.append(tp, 7, first=3)
    reader.is_silent(seconds=2)
    other = lab.member(KafkaConsumer, "t", name="a", poll_ms=2000)  # sorted by its name
    reader.owns([], each=1)
    rewrite(lab, tp)
    alone(reader, other, [tp])
    late.end()
    reader.is_silent()
    reader.consumer.resume(tp)
    reader.until(lambda: len(reader.log) == 10)
    assert [int(one.value) for one in reader.log[3:]] == list(range(103, 110))


def rewrite(lab: Lab, tp: TopicPartition) -> None:
    """Give a partition other records at the same offsets, as one that was made again has."""
    (other,) = lab.topic("rewritten", 1)
    lab.append(other, 10, first=100)
    lab.cluster.log(*tp).batches[:] = lab.cluster.log(*other).batches
