"""
A join that outlasts the ``poll`` that began it is finished by the next polls.

kafka-python asks whether it needs to join; once JoinGroup is sent the answer is no.
If that poll has ended meanwhile, nobody takes the answer: the member keeps its old
assignment with its heartbeats off, its partitions go to others, and it goes on
delivering them. A consumer that polls while paused polls short, so it meets this.
"""

import time
from collections.abc import Iterable
from typing import Any

import pytest
from kafka.structs import TopicPartition

from tests.broker.regression.matrix import HOWS, PROTOCOLS, fails, matrix
from tests.harness.members import partitions_of
from tests.harness.regression.lab import ASSIGNOR_CLASSES, Lab
from tests.harness.regression.members import Delivery, Member, Ownership
from tests.harness.regression.support import (
    Condition,
    Reader,
    delivered,
    partition_of,
    wait_until,
)
from tests.harness.regression.wire import Wire

FORGOTTEN = "kafka-python 3.0.12 forgets a join that outlasts its poll"
SLOW = 2.0
"""Seconds between the slow member's polls."""


class Collected:
    """A reader's deliveries with their times, to be compared with another member's."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.log: list[Delivery] = []
        self.refused = 0

    def round(self) -> None:
        """Read one round, and commit what it gave if the group takes it."""
        taken = self.reader.round(limit=50)
        now = time.monotonic()
        self.log += [Delivery(partition_of(one), one.offset, now) for one in taken]
        if taken:
            try:
                self.reader.consumer.commit(timeout_ms=1000)
            except Exception:  # noqa: BLE001 - refused: the offsets stay as they were
                self.refused += 1


def _delivered_to_both(mine: Iterable[Delivery], other: Member) -> set[tuple[Any, int]]:
    theirs = {(one.tp, one.offset) for one in other.log}
    return {(one.tp, one.offset) for one in mine} & theirs


def _while_the_other_owned(mine: Iterable[Delivery], theirs: Ownership) -> int:
    return sum(theirs.owned(one) for one in mine)


@pytest.mark.contract("P11")
@pytest.mark.any_broker
@matrix(stock=fails(FORGOTTEN), costly=True, assignor=PROTOCOLS, how=HOWS)
def test_a_new_topic_while_another_member_is_slow(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """
    Rows 14 and 14a: both share old and new topic; nothing is worked on twice.

    A topic appears that matches the pattern. This member polls briefly and is the
    leader, the other one polls every two seconds. The new topic is produced to, and
    so is the old one, until the group has settled; stock gets eight seconds for that.
    """
    stem = lab.name("pattern")
    old = partitions_of(lab.topic(4, f"{stem}-old"), 4)
    owned_by_slow = Ownership()
    common = {
        "group": lab.name("g"),
        "assignor": assignor,
        "max_poll_interval_ms": 30_000,
    }
    fast = lab.reader(client, how=how, **common)
    fast.consumer.subscribe(pattern=f"{stem}.*")
    fast.until_joined(fast.owns(old))
    # The other one is ours in both runs: one zombie is enough.
    slow = lab.member(client="safe", commits=True, start=False, **common)
    slow.consumer.subscribe(pattern=f"{stem}.*", listener=owned_by_slow)
    slow.start()
    fast.until_joined(_shared(old, fast, slow))
    collected = Collected(fast)
    wire = Wire(fast.consumer)
    slow.hold_back()
    slow.pace = SLOW
    new = partitions_of(lab.topic(4, f"{stem}-new"), 4)
    fast.consumer._cluster.request_update()  # it sees the new topic first
    _produce_while(lab, old, collected, lambda: wire.count("JoinGroup"), bound=20)
    for _ in range(3):
        collected.round()  # the poll that began the join is over
    slow.go_on()
    settled = _shared([*old, *new], fast, slow)
    bound = 8 if client == "stock" else 30
    _produce_while(lab, [*old, *new], collected, until=settled, bound=bound)
    converged = settled()
    slow.pace = 0.0  # and what it owns by now, it reads to the end
    wait_until(lambda: _came(lab, collected, slow, [*old, *new]))

    twice = _delivered_to_both(collected.log, slow)
    overlap = _while_the_other_owned(collected.log, owned_by_slow)
    told = f"{len(twice)} of {len(collected.log)} records delivered to both members"
    assert (converged, overlap, len(twice)) == (True, 0, 0), told


def _shared(tps: Iterable[TopicPartition], fast: Reader, slow: Member) -> Condition:
    wanted = sorted(tps)

    def shared() -> bool:
        mine, theirs = fast.consumer.assignment(), slow.consumer.assignment()
        return bool(mine and theirs) and sorted([*mine, *theirs]) == wanted

    return shared


def _produce_while(
    lab: Lab,
    tps: list[TopicPartition],
    collected: Collected,
    until: Condition,
    bound: float,
) -> None:
    deadline = time.monotonic() + bound
    while time.monotonic() < deadline and not until():
        lab.produce(tps)
        collected.round()


def _came(lab: Lab, collected: Collected, slow: Member, tps: list[Any]) -> bool:
    collected.round()
    came = {(one.tp, one.offset) for one in [*slow.log, *collected.log]}
    states = slow.consumer._subscription.assignment.copy()
    return all(
        state.position is not None and state.position.offset == lab.end(tp)
        for tp, state in states.items()
    ) and came >= {(tp, offset) for tp in tps for offset in range(lab.end(tp))}


@pytest.mark.any_broker
@matrix(stock=fails(FORGOTTEN), assignor=PROTOCOLS, how=HOWS)
def test_a_changed_subscription_whose_join_outlasts_the_poll(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """Row 14: the answer to JoinGroup is held back until the poll has ended."""
    topic, old = lab.topic_with(each=1, partitions=2)
    other, new = lab.topic_with(each=1, partitions=2)
    reader = lab.reader(client, topic, group=lab.name("g"), assignor=assignor, how=how)
    reader.until_joined(reader.owns(old))
    reader.consumer.pause(*old)
    # Known before, so that the change of the subscription is the only reason to join.
    assert reader.consumer.partitions_for_topic(other)
    wire = Wire(reader.consumer)
    wire.hold("JoinGroup")
    reader.consumer.subscribe([topic, other])
    reader.until(lambda: wire.held("JoinGroup"))
    # No news that would be a second reason to join may come after the assignment.
    reader.until(lambda: reader.consumer._coordinator._metadata_snapshot.get(other))
    reader.rounds(2)
    wire.release("JoinGroup")
    lab.produce(old)
    start = len(reader.log)
    assert reader.reaches(
        reader.owns([*old, *new]), bound=2 if client == "stock" else 20
    )
    reader.drain({tp: [0] for tp in new})
    assert delivered(reader.log[start:], old) == 0
    assert reader.consumer.paused() == set(old)


def _slow_assignor(protocol: str) -> type:
    base: Any = ASSIGNOR_CLASSES[protocol]

    class Slow(base):  # type: ignore[misc] - upstream's classes are untyped
        def assign(self, cluster: object, members: object) -> object:
            time.sleep(0.3)
            return super().assign(cluster, members)

    return Slow


@pytest.mark.any_broker
@matrix(stock=fails(FORGOTTEN), assignor=PROTOCOLS, how=HOWS)
def test_a_leader_whose_assignor_is_slow(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """Row 15: the assignor takes 0.3 s, the polls 0.1 s: it joins all the same."""
    topic, tps = lab.topic_with(each=3, partitions=2)
    reader = lab.reader(
        client, group=lab.name("g"), assignor=_slow_assignor(assignor), how=how
    )
    assert reader.consumer.partitions_for_topic(topic)
    reader.consumer.subscribe([topic])
    wire = Wire(reader.consumer)
    joined = _polling_for(
        reader, reader.owns(tps), seconds=2.5 if client == "stock" else 20
    )
    assert joined
    # One join may come before the topic's metadata; endlessly many are the defect.
    assert wire.count("SyncGroup") <= 2
    start = {tp: delivered(reader.log, [tp]) for tp in tps}
    reader.drain({tp: range(start[tp], 3) for tp in tps})


def _polling_for(reader: Reader, condition: Condition, seconds: float) -> bool:
    # Between two polls the application works until the join is over on the wire.
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not condition():
        reader.round(timeout=0.1, limit=1)
        wait_until(lambda: _join_is_over(reader.consumer._coordinator))
    return bool(condition())


def _join_is_over(coordinator: Any) -> bool:  # noqa: ANN401 - upstream's
    task = coordinator._join_task
    return task is None or task.is_done
