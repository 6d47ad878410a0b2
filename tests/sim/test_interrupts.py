"""A signal handler raises at every place of a call: it comes out, and nothing is lost."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka import TopicPartition

import safeconsumer
from safeconsumer import SafeConsumer
from tests.harness.signals import Interrupts
from tests.sim.lab import GROUP, Lab
from tests.sim.meddling import both_decoders
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_ways
from tests.sim.world import World

OURS = str(Path(safeconsumer.__file__).parent)
THEIRS = str(Path(kafka.__file__).parent)


def _interrupts(inside: tuple[str, ...] = (OURS,)) -> Interrupts:
    world = World.current
    assert world is not None
    mine = world.task
    # A handler interrupts the main thread, never the IO thread.
    return Interrupts(inside, is_here=lambda: world.task is mine)


@pytest.mark.contract("P18")
@both_ways
@both_decoders
@simulated(seeds=1)
def test_at_every_place_of_a_poll(lab: Lab, how: str, decoder: str) -> None:
    """P18: each record comes once and in order, whatever was raised in the middle."""
    tps = lab.topic("t", 2)
    reader = Reader(
        lab, SafeConsumer, tps=tps, how=how, decoder=decoder, max_poll_records=3
    )
    reader.poll()
    interrupts = _interrupts()
    most = 3 if how == "poll" else 1  # what a handler takes from a loop is its own
    written = 0
    for at in itertools.count():
        for tp in tps:
            lab.append(tp, 2, first=written)
        written += 2
        lab.sleep(0.01)
        has_come = interrupts.at(at, lambda: reader.poll(1, limit=most))
        reader.until(lambda: len(reader.log) >= 2 * written)
        for tp in tps:
            assert reader.offsets(tp) == [*range(written)], interrupts.place
        if not has_come:
            break
    assert at > 50
