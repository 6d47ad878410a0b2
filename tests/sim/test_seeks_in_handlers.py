"""``seek()`` in a signal handler, at places of a read: by day at each fourth."""

import itertools

import pytest

from safeconsumer import SafeConsumer
from tests.harness.signals import Places
from tests.sim.meddling import both_steps
from tests.sim.playing import simulated
from tests.sim.reading import Reader
from tests.sim.test_interrupts import OURS, THEIRS

__all__ = ["both_steps"]  # a fixture


@pytest.mark.contract("P8")
@pytest.mark.usefixtures("both_steps")
@pytest.mark.parametrize("how", ["poll", "iterate"])
@simulated(seeds=1, nightly=4)
def test_where_a_handler_seeks_reading_goes_on(lab, how):
    """P8: the lock is no obstacle there; what was taken before is not gone on from."""
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, SafeConsumer, tps=[tp], how=how)
    consumer = reader.consumer
    reader.take(1)
    mine = lab.world.task
    places = Places((OURS, THEIRS), lambda: lab.world.task is mine)
    for at in itertools.count(lab.world.seed, 4):
        consumer.seek(tp, 0)
        consumer.poll(0)
        lab.sleep(0.5)
        if not places.reach(
            at,
            lambda: reader.poll(1, limit=1 if how == "iterate" else 3),
            lambda: consumer.seek(tp, 7),
        ):
            break
        after = consumer.position(tp)
        assert after >= 7, places.place
        reader.log.clear()
        while consumer.position(tp) < 10:
            reader.poll(1, limit=50)
        assert reader.offsets(tp) == [*range(after, 10)], places.place
    assert at > 100
