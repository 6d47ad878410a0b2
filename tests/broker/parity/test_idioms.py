"""
Tests that common ways of pausing have the same results on Kafka as in the simulation.

The situation "lost at go" is left out, because only the simulated broker can refuse a
member's joins for some time.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import pytest

from safeconsumer import SafeConsumer
from tests.sim.idioms import ASSIGNORS, PROGRAMS, SITUATIONS, expected, play
from tests.sim.parity.stages import CLIENTS, RealStage

_BESIDE = 8  # programs that run concurrently; most of them wait
# Ordinary runs test one out of this many pairs of a program and an assignor; nightly
# runs also test the others.
_DAYS_SHARE = 4
PLAYED = [name for name in SITUATIONS if name != "lost at go"]


def games(name, *, by_day):
    """Yield a quarter of all program-assignor pairs if ``by_day``, else all other pairs."""
    column = [*SITUATIONS].index(name)
    pairs = product(PROGRAMS, ASSIGNORS)
    for number, (program, assignor) in enumerate(pairs, start=column):
        if (number % _DAYS_SHARE == 0) == by_day:
            yield program, assignor


def played(broker, name, programs, kind):
    """Play programs in a situation with one client; return the verdict on each program."""
    is_ours = kind is SafeConsumer
    here = [one for one in programs if is_ours or not PROGRAMS[one[0]].is_ours_only]
    with RealStage(broker, kind) as stage, ThreadPoolExecutor(_BESIDE) as pool:
        found = play(stage, name, here, every=pool.map)
    return {one: game.verdict for one, game in zip(here, found, strict=True)}


@pytest.mark.contract("P3", "P6", "P7")
@pytest.mark.real_broker
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLAYED)
@pytest.mark.parametrize(
    "by_day", [True, pytest.param(False, marks=pytest.mark.nightly)]
)
def test_programs_have_the_simulated_results_on_kafka(kafka_broker, name, by_day):
    """If the test fails, its message names all programs with different results."""
    programs = [*games(name, by_day=by_day)]
    ours, stock = (played(kafka_broker, name, programs, kind) for kind in CLIENTS)
    different = {
        "-".join(one): (cell, known)
        for one in programs
        if (cell := f"{stock.get(one, '-')}/{ours[one]}")
        != (known := expected(*one, name)).replace("?", cell[0])
    }
    assert different == {}
