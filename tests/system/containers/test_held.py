"""Holds while the broker freezes, or is killed and comes back."""

import time
from pathlib import Path
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.structs import TopicPartition

from tests.harness.regression.lab import Lab
from tests.harness.regression.support import Reader, offsets_of
from tests.system.containers.held import (
    EACH,
    OWNER,
    SCOPES,
    STAYS,
    Held,
    acknowledge,
    evict,
    judged,
)
from tests.system.containers.outages import How, Outage

pytestmark = pytest.mark.container_broker

AWAY = 2.0
"""Seconds for which the broker is away, at least."""

ASSIGNORS = ("range", "cooperative-sticky")


def fleet(lab: Lab, journals: Path, outage: Outage) -> list[Held]:
    """Hold one consumer by each scope; the assignors take turns with the outages."""
    turn = list(How).index(outage.how)
    members = [
        Held(lab, scope, ASSIGNORS[(number + turn) % 2], journals)
        for number, scope in enumerate(SCOPES)
    ]
    for one in members:
        one.begin()
    return members


def poll_for(members: list[Held], seconds: float) -> None:
    """Let all of them poll for a while."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for one in members:
            one.reader.round()


def change_hands(member: Held) -> None:
    """Place the hold for another owner and lift it for the first: it must not flow."""
    member.place("bob")
    left = member.consumer.resume_all(owner=OWNER)
    assert {hold.owner for hold in left} == {"bob"}


def beaten(member: Held) -> list[Any]:
    """Prove that the consumer speaks with the broker; return what came of what is held."""
    start = len(member.reader.log)
    member.reader.until_joined(member.is_alone)
    if member.witness not in member.held:
        member.lab.beats(member.reader, member.witness)
    member.consumer.commit()
    member.reader.round()
    since = member.reader.log[start:]
    return [offsets for offsets in offsets_of(since, member.held).values() if offsets]


def flows(member: Held, starts: dict[TopicPartition, int | None]) -> None:
    """Resume; assert that exactly the records come that were held back."""
    assert not member.consumer.resume_all(owner="bob")
    member.reader.drain(member.lab.rest(starts))


def end_with(members: list[Held], journals: Path) -> None:
    """Take and commit what is left, and have the journals judged."""
    for one in members:
        left = {tp: one.consumer.position(tp) for tp in (*one.tps, one.witness)}
        one.reader.drain(one.lab.rest(left))
        one.consumer.commit()
        assert all(one.consumer.committed(tp) == one.lab.end(tp) for tp in one.tps)
        acknowledge(one.lab, journals, [*one.tps, one.witness])
    assert judged(journals) == ([], set())


@pytest.mark.contract("P1", "P8", "P10", "P11")
def test_holds_stand_while_the_broker_is_away(
    lab: Lab, journals: Path, outage: Outage
) -> None:
    """
    Nothing held comes, nobody leaves its group, and after the resume nothing is lost.

    Who holds changes in the middle of the outage.
    """
    members = fleet(lab, journals, outage)
    places = [one.where() for one in members]
    memberships = [one.membership() for one in members]
    with outage.lasting():
        poll_for(members, AWAY / 2)
        for one in members:
            change_hands(one)
        poll_for(members, AWAY / 2)
    for one, place in zip(members, places, strict=True):
        lab.produce([*one.tps, one.witness], 5)
        assert beaten(one) == []
        assert one.where() == place
        assert set(one.held) <= one.consumer.paused()
        flows(one, place)
    assert [one.membership() for one in members] == memberships
    end_with(members, journals)


@pytest.mark.contract("P6", "P8", "P9")
def test_holds_stand_though_others_had_the_partitions_meanwhile(
    lab: Lab, journals: Path, outage: Outage
) -> None:
    """
    A consumer that was evicted comes back held, at what the other one has committed.

    What it had fetched before is thrown away, and nothing of it comes again.
    """
    members = fleet(lab, journals, outage)
    with outage.lasting():
        for one in members:
            change_hands(one)
        poll_for(members, AWAY)
    for one in members:
        member_id, generation = one.membership()
        evict(lab.broker, one.group, member_id)
        one.rival(EACH)
        lab.produce([*one.tps, one.witness], 5)
        place = {tp: one.consumer.committed(tp) or 0 for tp in one.held}
        one.reader.until_joined(
            lambda one=one, old=generation: one.membership()[1] > old
        )
        assert beaten(one) == []
        assert one.where() == place
        flows(one, place)
    end_with(members, journals)


def three_read(lab: Lab, client: str, **config: Any) -> Reader:  # noqa: ANN401 - kafka-python's keys
    """Make a consumer that has read and committed 3 of 20 records, and fetched them all."""
    _, (tp,) = lab.topic_with(EACH, 1)
    made = lab.reader(client, tp.topic, group=lab.name("g"), **STAYS, **config)
    made.until_joined(made.owns([tp]))
    made.take(3 - len(made.log))
    made.consumer.commit()
    return made


@pytest.fixture
def reader(lab: Lab, journals: Path) -> Reader:
    """Make such a consumer with a journal."""
    return three_read(lab, "safe", journal=journals)


def its_partition(reader: Reader) -> TopicPartition:
    """Return the only partition that is assigned to it."""
    (tp,) = reader.consumer.assignment()
    return tp


@pytest.mark.contract("P8", "P10")
def test_what_was_fetched_comes_after_the_resume_of_a_frozen_broker(
    lab: Lab, journals: Path, freeze: Outage, reader: Reader
) -> None:
    """It waits in the consumer, and needs nobody's answer."""
    tp = its_partition(reader)
    reader.consumer.pause(tp)
    with freeze.lasting():
        reader.rounds(5)
        assert reader.consumer.position(tp) == 3
        reader.consumer.resume(tp)
        reader.drain(lab.rest({tp: 3}), bound=2.0)
    reader.consumer.commit()
    assert reader.consumer.committed(tp) == EACH
    acknowledge(lab, journals, [tp])
    assert judged(journals) == ([], set())


@pytest.mark.contract("P3")
def test_a_hold_ends_at_its_time_while_the_broker_is_frozen(
    lab: Lab, journals: Path, freeze: Outage, reader: Reader
) -> None:
    """Never early, and what was fetched comes then."""
    tp = its_partition(reader)
    with freeze.lasting():
        began = time.monotonic()
        reader.consumer.pause(tp.topic, for_=1.0)
        while not reader.round():
            assert time.monotonic() < began + 3.0
        assert time.monotonic() >= began + 1.0
        reader.drain(lab.rest({tp: reader.consumer.position(tp)}), bound=2.0)
    lab.produce(tp, 5)
    reader.drain(lab.rest({tp: EACH}))
    acknowledge(lab, journals, [tp])
    assert judged(journals) == ([], set())


@pytest.mark.contract("P3", "P8", "P11")
def test_without_a_coordinator_nothing_comes_and_nothing_is_lost(
    lab: Lab, journals: Path, kill: Outage, reader: Reader
) -> None:
    """
    A consumer that cannot ask whether it is a member still delivers nothing.

    As kafka-python's, and what both have fetched comes when they can ask again. Holds
    end at their time meanwhile.
    """
    tp = its_partition(reader)
    stock = three_read(lab, "stock")
    with kill.lasting():
        began = time.monotonic()
        reader.consumer.pause(tp, for_=1.0)
        while reader.consumer.paused():
            assert reader.round() == stock.round() == []
        assert 1.0 <= time.monotonic() - began < 3.0
        assert reader.rounds(20) == stock.rounds(20) == []
        assert reader.consumer.position(tp) == 3
    for one in (reader, stock):
        one.drain(lab.rest({its_partition(one): 3}))
    acknowledge(lab, journals, [tp])
    assert judged(journals) == ([], set())


@pytest.mark.contract("P11")
def test_a_held_consumer_waits_as_long_as_asked_while_the_broker_is_away(
    outage: Outage, reader: Reader
) -> None:
    """poll() neither returns at once, over and over, nor waits for the broker, nor spins."""
    reader.consumer.pause_all()
    with outage.lasting():
        reader.rounds(5)
        began, used = time.monotonic(), time.process_time()
        for _ in range(4):
            assert reader.consumer.poll(500) == {}
        seconds, used = time.monotonic() - began, time.process_time() - used
    assert 1.9 <= seconds < 3.0
    assert used < 0.2 * seconds


@pytest.mark.contract("P8")
@pytest.mark.parametrize("outage", [How.FREEZE, How.STUCK], indirect=True)
def test_a_commit_in_flight_counts_if_it_is_acknowledged(
    lab: Lab, journals: Path, outage: Outage, reader: Reader
) -> None:
    """
    Nothing that was acknowledged as committed comes again, whoever reads on.

    1. The broker freezes. 2. The consumer is held, and commits; the request lies with
    the broker. 3. The broker goes on, or is killed and starts again.
    """
    tp = its_partition(reader)
    reader.take(7)
    answers: list[Any] = []
    with outage.lasting():
        reader.consumer.pause(tp)
        reader.consumer.commit_async(callback=lambda _, answer: answers.append(answer))
        with pytest.raises(KafkaTimeoutError):
            reader.consumer.commit(timeout_ms=500)
        reader.rounds(5)
        assert answers == []
    reader.until(lambda: answers)
    if isinstance(answers[0], Exception):
        reader.consumer.commit()
    assert reader.consumer.position(tp) == 10
    reader.consumer.close(autocommit=False)
    successor = lab.reader(
        "safe",
        tp.topic,
        group=reader.consumer.config["group_id"],
        journal=journals,
        **STAYS,
    )
    successor.drain(lab.rest({tp: 10}))
    acknowledge(lab, journals, [tp])
    assert judged(journals) == ([], set())
