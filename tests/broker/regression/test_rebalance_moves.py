"""Pauses through rebalances: kept partitions, and those that leave and come back."""

import pytest

from tests.broker.regression.groups import group, resume_exactly
from tests.harness.regression.choices import (
    ASSIGNORS_AND_HOWS,
    PROTOCOLS,
    PROTOCOLS_AND_HOWS,
)
from tests.harness.regression.lab import Lab
from tests.harness.regression.members import InListener
from tests.harness.regression.support import delivered

pytestmark = pytest.mark.any_broker


@pytest.mark.parametrize(("assignor", "how"), ASSIGNORS_AND_HOWS)
def test_kept_partitions_stay_paused(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """A member joins and leaves; what stays here stays quiet."""
    here = group(lab, client, assignor=assignor, how=how)
    here.pause()
    ghost = here.ghost()
    kept = here.mine()
    assert here.leaked(kept) == 0
    ghost.stop()
    here.reader.until(here.alone())
    assert here.leaked(kept) == 0
    assert kept <= here.reader.consumer.paused()
    resume_exactly(here, kept)


@pytest.mark.parametrize("members", ["dynamic", "static"])
@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_kept_partitions_stay_paused_when_a_member_dies(
    lab: Lab, client: str, members: str, assignor: str
) -> None:
    """It vanishes and its session expires; a static one says no goodbye anyway."""
    static = members == "static"
    names = [lab.name("static") if static else None for _ in range(2)]
    here = group(lab, client, assignor=assignor, group_instance_id=names[0])
    here.pause()
    ghost = here.ghost(group_instance_id=names[1], **lab.quick_session())
    kept = here.mine()
    ghost.die()
    here.reader.until(here.alone())
    assert here.leaked(kept) == 0
    assert kept <= here.reader.consumer.paused()


@pytest.mark.contract("P6")
@pytest.mark.parametrize(("assignor", "how"), ASSIGNORS_AND_HOWS)
def test_a_partition_that_moves_away_and_back_is_still_paused(
    lab: Lab, client: str, assignor: str, how: str
) -> None:
    """0 records come, and after resume exactly the next ones."""
    here = group(lab, client, assignor=assignor, how=how)
    here.pause()
    ghost = here.ghost()
    moved = set(here.tps) - here.mine()
    assert moved
    ghost.stop()
    here.reader.until(here.alone())
    assert here.leaked() == 0
    assert here.reader.consumer.paused() == set(here.tps)
    resume_exactly(here, here.tps)


def test_still_paused_when_it_returns_two_rebalances_later(
    lab: Lab, client: str
) -> None:
    """The request outlives a rebalance in which the partition is elsewhere."""
    here = group(lab, client)
    here.pause()
    first = here.ghost()
    second = lab.member(here.topic, group=here.name)
    here.reader.until(here.shared_with(first, second))
    first.stop()
    here.reader.until(here.shared_with(second))
    second.stop()
    here.reader.until(here.alone())
    assert here.leaked() == 0
    resume_exactly(here, here.tps)


@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_what_was_resumed_comes_back_flowing(
    lab: Lab, client: str, assignor: str
) -> None:
    """A pause that was lifted before the move does not return with the partition."""
    here = group(lab, client, assignor=assignor)
    here.pause()
    here.reader.consumer.resume(*here.tps)
    here.ghost().stop()
    here.reader.until(here.alone())
    assert here.reader.consumer.paused() == set()
    lab.produce(here.tps)
    here.reader.until(
        lambda: all(
            any(
                (record.partition, record.offset) == (tp.partition, lab.end(tp) - 1)
                for record in here.reader.log
                if record.topic == tp.topic
            )
            for tp in here.tps
        )
    )


@pytest.mark.parametrize("assignor", PROTOCOLS)
def test_it_comes_back_paused_at_what_the_other_member_committed(
    lab: Lab, client: str, assignor: str
) -> None:
    """The committed offset rules, not where this consumer stood; still paused."""
    here = group(lab, client, assignor=assignor)
    consumer = here.reader.consumer
    here.pause()
    ghost = here.ghost(commits=True)
    moved = set(here.tps) - here.mine()
    lab.produce(moved, 5)
    here.reader.until(
        lambda: all(consumer.committed(tp) == lab.end(tp) for tp in moved)
    )
    ghost.stop()
    here.reader.until(here.alone())
    lab.produce(here.tps, 2)
    assert here.leaked() == 0
    start = {tp: consumer.committed(tp) for tp in here.tps}
    assert {tp: consumer.position(tp) for tp in here.tps} == start
    assert all(start[tp] == lab.end(tp) - 2 for tp in moved)
    consumer.resume(*here.tps)
    here.reader.drain(lab.rest(start))


@pytest.mark.parametrize(("assignor", "how"), PROTOCOLS_AND_HOWS)
@pytest.mark.parametrize("listener", ["present", "absent"])
def test_kept_partitions_that_are_not_paused_go_on(
    lab: Lab, client: str, listener: str, assignor: str, how: str
) -> None:
    """After a rebalance what stayed and is not paused flows, with a listener too."""
    here = group(lab, client, assignor=assignor, how=how)
    consumer = here.reader.consumer
    if listener == "present":
        topics = [here.topic, here.witness.topic]
        consumer.subscribe(topics, listener=InListener())
    ghost = here.ghost()
    held, *flowing = sorted(here.mine())
    consumer.pause(held)
    ghost.stop()
    here.reader.until(here.alone())
    start = len(here.reader.log)
    lab.produce([held, *flowing])
    ends = {tp: lab.end(tp) - 1 for tp in flowing}
    assert here.reader.reaches(
        lambda: all(
            any(
                (record.topic, record.partition, record.offset) == (*tp, end)
                for record in here.reader.log[start:]
            )
            for tp, end in ends.items()
        )
    )
    assert delivered(here.reader.log[start:], [held]) == 0
    assert consumer.paused() == {held}
