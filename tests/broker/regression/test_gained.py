"""Partitions that arrive during a pause: gained in a ``poll``, or under a wider pause."""

import re
from typing import Any

import pytest
from kafka.structs import TopicPartition

from tests.broker.regression.groups import Group, group, resume_exactly
from tests.harness.regression.choices import ASSIGNORS_AND_HOWS, PROTOCOLS_AND_HOWS
from tests.harness.regression.lab import Lab
from tests.harness.regression.support import Condition, Reader, delivered
from tests.harness.regression.wire import Wire
from tests.harness.waiting import NotReachedError

pytestmark = pytest.mark.any_broker


@pytest.mark.contract("P7")
@pytest.mark.parametrize(("assignor", "how"), ASSIGNORS_AND_HOWS)
def test_the_loop_of_kafka_13463(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """``pause(*assignment())`` before every poll, whatever rebalances: 0 records."""
    here = group(lab, client, assignor=assignor, how=how)
    gained = _loop_through(here)
    assert gained
    here.reader.consumer.resume(*here.witnesses)
    assert here.leaked() == 0
    resume_exactly(here, here.tps)


def test_the_loop_of_kafka_13463_with_nothing_assigned_between(
    lab: Lab, client: str
) -> None:
    """The same where another member has everything for a time."""
    topic, tps = lab.topic_with(each=30, partitions=1)
    name = lab.name("g")
    reader = lab.reader(client, topic, group=name, client_id="z")
    reader.until_joined(reader.owns(tps))
    reader.consumer.commit()
    start = reader.consumer.position(tps[0])
    reader.consumer.pause(*tps)
    ghost = lab.member(topic, group=name, client_id="a")  # range: sorted by member id
    taken = _loop(reader, ghost.consumer.assignment)
    taken += _loop(reader, reader.owns([]))
    ghost.stop()
    taken += _loop(reader, reader.owns(tps))
    assert taken == []
    reader.consumer.resume(*tps)
    reader.drain({tps[0]: range(start, 30)})


def _loop_through(here: Group) -> set[TopicPartition]:
    here.pause()
    ghost = here.start_ghost()
    _loop(here.reader, here.shared_with(ghost))
    gained = set(here.tps) - here.mine()
    ghost.stop()
    _loop(here.reader, here.alone())
    return gained


def _loop(reader: Reader, until: Condition) -> list[Any]:
    taken: list[Any] = []
    for _ in range(20):
        if until():
            return taken
        reader.consumer.pause(*reader.consumer.assignment())
        # Long enough for the rebalance and a fetch to fall into one poll.
        taken += reader.round(timeout=0.5, limit=10)
    message = "the loop saw no rebalance"
    raise NotReachedError(message)


LEVELS: dict[str, Any] = {
    "topic": lambda here: here.reader.consumer.pause(here.topic),
    "pattern": lambda here: here.reader.consumer.pause(
        re.compile(re.escape(here.topic[:-1]) + ".*")
    ),
    "consumer": lambda here: here.reader.consumer.pause_all(),
}


@pytest.mark.contract("P7")
@pytest.mark.parametrize(("assignor", "how"), PROTOCOLS_AND_HOWS)
@pytest.mark.parametrize("level", LEVELS)
def test_partitions_gained_later_arrive_paused(
    lab: Lab, client: str, level: str, how: str, assignor: str
) -> None:
    """A member leaves, and what it had arrives under the wider pause."""
    here = group(lab, client, assignor=assignor, how=how)
    ghost = here.ghost()
    start = {tp: delivered(here.reader.log, [tp]) for tp in here.tps}
    LEVELS[level](here)
    wire = Wire(here.reader.consumer)
    ghost.stop()
    here.reader.until(here.alone())
    if level == "consumer":
        fetches = wire.count("Fetch")
        here.reader.rounds(5)
        assert wire.count("Fetch") == fetches
    else:
        here.leaked()
    assert {tp: delivered(here.reader.log, [tp]) for tp in here.tps} == start
    assert set(here.tps) <= here.reader.consumer.paused()
