"""Random members of a group under a judge; each seed is a history that can be replayed."""

import pytest

from tests.sim.churn.judge import ViolationError
from tests.sim.churn.nemesis import Churn
from tests.sim.churn.planted import OF_GROUPS, OF_WORKERS, PLANTS, planted
from tests.sim.churn.playing import played

SHORT = Churn(minutes=8)
LONG = Churn(
    minutes=30,
    wanted={"delivered": 200, "gained": 10, "held with records waiting": 1},
)
WORKERS = Churn(minutes=4, are_workers=True, wanted={"delivered": 20, "committed": 1})
CONTROLLED = Churn(minutes=30, is_controlled=True)
SEEDS = 20  # a planted fault must be found within so many


def with_seeds(seeds):
    """Play a test once for each seed, called ``seed=N``."""
    seeds = list(seeds)
    return pytest.mark.parametrize("seed", seeds, ids=[f"seed={n}" for n in seeds])


@pytest.mark.contract("P1", "P7", "P8", "P9", "P11")
@with_seeds(range(5))
def test_a_churn_breaks_no_promise(seed):
    """P1, P7 to P9 and P11 hold whatever happens to members and brokers."""
    played(SHORT, seed)


@pytest.mark.nightly
@with_seeds(range(200))
def test_a_long_churn_breaks_no_promise(seed):
    """The same for 30 virtual minutes."""
    played(LONG, seed)


@pytest.mark.nightly
@pytest.mark.contract("W3", "W4", "W5", "W10")
@with_seeds(range(50))
def test_a_churn_of_workers_breaks_no_promise(seed):
    """W3 to W5 and W10 hold whatever happens to Workers and brokers."""
    played(WORKERS, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_fault_is_found(plant):
    """The judge is worth something: each of these faults breaks a promise that it sees."""
    what = {OF_WORKERS: WORKERS, OF_GROUPS: CONTROLLED}.get(PLANTS[plant][1], LONG)
    with planted(plant):
        seed = next((one for one in range(SEEDS) if is_found(what, one)), None)
    assert seed is not None, f"{plant} is not found in {SEEDS} seeds"
    print(f"{plant} is found by seed {seed}")  # noqa: T201 - for -rP


def is_found(what, seed):
    """Tell whether the judge finds a violation."""
    try:
        played(what, seed)
    except ViolationError:
        return True
    return False
