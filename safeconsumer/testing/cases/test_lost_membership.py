"""Tests that pauses survive a lost and regained group membership."""

import time

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.consumer import JOINING, Consumer, until
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import expect
from safeconsumer.testing.cases.quiet import Pause
from safeconsumer.testing.cases.team import Team, team

PART = "Over lost membership"
# The maximum poll interval in seconds; longer than a poll waits in a rebalance.
_NO_POLL = 5.0
_SHORT = 0.1
_SLOW = 2.0
_SETTLED_AFTER = 30.0


def test_evicted_for_not_polling(lab: Lab) -> None:
    """
    A member evicted for not polling still has its pauses when it rejoins.

    kafka-python (3.0, 2.3) and aiokafka lose the pause together with the membership.
    confluent-kafka passes.
    """
    here = team(lab, each=0, max_poll_interval=_NO_POLL)
    other = here.joined()
    paused = here.pause(here.mine())
    lab.produce(here.tps, 20)
    _all_go_to(other, here)
    _come_back(here, other, paused)


def test_evicted_for_being_frozen(lab: Lab) -> None:
    """
    A member that was frozen and evicted still has its pauses when it rejoins.

    kafka-python (3.0, 2.3) and aiokafka lose the pause together with the membership.
    confluent-kafka passes.
    """
    session = lab.broker.group_config["session_timeout_ms"] / 1000
    here = team(lab, each=0, session=session)
    other = here.joined()
    paused = here.pause(here.mine())
    lab.produce(here.tps, 20)
    here.consumer.process.freeze()
    try:
        _all_go_to(other, here)
    finally:
        here.consumer.process.thaw()
    _come_back(here, other, paused)


def _all_go_to(other: Consumer, here: Team) -> None:
    until(
        [other],
        lambda: other.assignment() >= set(here.tps),
        "the other member takes over",
        timeout=JOINING,
    )


def _come_back(here: Team, other: Consumer, paused: Pause) -> None:
    until(
        [here.consumer, other],
        here.is_shared_with(other),
        "it is a member again",
        timeout=JOINING,
    )
    here.dismiss(other)
    here.beat()
    paused.prove()


def test_a_join_outlasts_its_poll(lab: Lab) -> None:
    """
    A group gets its new assignment even if a member's polls are shorter than a join.

    kafka-python 3.0 and 2.3 forget a join that outlasts its poll(). Such a member then
    has no partitions, or continues to read partitions that now belong to other members.
    aiokafka and confluent-kafka pass.
    """
    stem, group = lab.name("pattern"), lab.name("g")
    old = lab.topic(4, f"{stem}-old")
    quick = lab.consumer(group)
    quick.subscribe_pattern(f"{stem}.*")
    quick.owns(old, "joined")
    slow = lab.consumer(group)
    slow.subscribe_pattern(f"{stem}.*")
    both = [quick, slow]
    until(both, lambda: _is_shared(both, old), "the topic is shared", timeout=JOINING)
    everything = [*old, *lab.topic(4, f"{stem}-new")]
    deadline = time.monotonic() + _SETTLED_AFTER
    while not _is_shared(both, everything) and time.monotonic() < deadline:
        slow.begin_poll(_SHORT)
        slow.end_poll()
        turn = time.monotonic() + _SLOW
        while time.monotonic() < turn:
            quick.poll(_SHORT)
    expect(
        _is_shared(both, everything),
        f"after {_SETTLED_AFTER:g} s {len(quick.assignment())} and "
        f"{len(slow.assignment())} of {len(everything)} partitions",
    )


def _is_shared(members: list[Consumer], tps: list[TopicPartition]) -> bool:
    owned = [tp for member in members for tp in member.assignment()]
    return all(member.assignment() for member in members) and sorted(owned) == sorted(
        tps
    )
