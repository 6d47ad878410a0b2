"""Tests pauses that cover more than the currently assigned partitions."""

from safeconsumer.testing.cases.consumer import JOINING
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.quiet import Pause, note
from safeconsumer.testing.cases.team import team

PART = "Wider pauses"


def test_paused_topic_gains_partitions(lab: Lab) -> None:
    """
    A pause of a topic covers partitions that are added later.

    kafka-python pauses only partitions, so the case is skipped for it.
    """
    here = team(lab)
    here.consumer.pause_topic(here.topic)
    added = lab.add_partition(here.tps)
    paused = note(lab, here.consumer, [*here.tps, added])
    lab.produce(added, 20)
    here.consumer.owns({*here.tps, added, here.witness}, "the new partition")
    here.beat()
    paused.expect_nothing()
    here.consumer.resume_topic(here.topic)
    paused.expect_flows()


def test_paused_pattern_matches_later_topics(lab: Lab) -> None:
    """
    A pause of a pattern covers topics that are created later.

    kafka-python pauses only partitions, so the case is skipped for it.
    """
    stem = lab.name("pattern")
    old = lab.topic(2, f"{stem}-old")
    (free,) = lab.topic(1, f"{stem}-free")
    consumer = lab.consumer(lab.name("g"))
    consumer.pause_pattern(f"{stem}-(old|new)")
    consumer.subscribe_pattern(f"{stem}.*")
    consumer.owns({*old, free}, "joined")
    new = lab.topic(2, f"{stem}-new")
    paused = note(lab, consumer, [*old, *new])
    lab.produce(paused.partitions, 20)
    consumer.owns({*old, *new, free}, "the new topic")
    lab.beat(consumer, free)
    paused.expect_nothing()
    consumer.resume_pattern(f"{stem}-(old|new)")
    paused.expect_flows()


def test_consumer_starts_paused(lab: Lab) -> None:
    """
    A consumer that starts paused gets no records from its first assignment.

    kafka-python pauses only partitions, so the case is skipped for it.
    """
    tps = lab.topic_with(20, partitions=4)
    consumer = lab.consumer(lab.name("g"))
    consumer.pause_all()
    paused = note(lab, consumer, tps)
    consumer.subscribe(tps[0].topic)
    consumer.owns(tps, "joined")
    for _ in range(3):
        consumer.poll(JOINING)
    paused.expect_nothing()
    consumer.resume_all()
    paused.expect_flows()


def test_pause_moves_with_its_partition(lab: Lab) -> None:
    """
    A paused partition that moves to another member stays paused there.

    In kafka-python a pause belongs to one consumer, so the case is skipped for it.
    KAFKA-13463 suggests such a hand-over.
    """
    here = team(lab, carries=True)
    # Pause before the other member joins: the join hands over the pause before
    # partitions move.
    here.pause(how="named")
    other = here.joined(carries=True)
    theirs = sorted(set(here.tps) - here.mine())
    committed = {tp: here.consumer.count([tp]) for tp in theirs}
    Pause(lab=lab, consumer=other, partitions=theirs, since=0, taken=committed).prove()
