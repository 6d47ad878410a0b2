"""All pairs, at some places each; ``python -m tests.system.explorer --all`` tries all."""

from collections.abc import Iterator

import pytest

from tests.harness.explorer.engine import Explorer, sample
from tests.system.explorer.__main__ import PLACES, SEED, told
from tests.system.explorer.operations import OPERATIONS, Operation
from tests.system.explorer.pairs import INSIDE, every_pair
from tests.system.explorer.subject import rehearsed

pytestmark = pytest.mark.nightly

# More of a pair that is wrong would only be more of the same.
ENOUGH = 2


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    with rehearsed(), Explorer(INSIDE) as made:
        yield made


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_whatever_comes_in_between(
    explorer: Explorer, operation: Operation, first_seed: int
) -> None:
    """P1, P3, P8, P10, P12 and P14 hold wherever another one interrupts this one."""
    wrong, seed = [], first_seed or SEED
    for pair in every_pair():
        if pair.a is operation:
            places = sample(PLACES, f"{seed} {pair.name}")
            found = pair.explore(explorer, places=places, stop_at=ENOUGH)
            wrong += [told(pair, found)] if found.wrong else []
    assert "\n\n".join(wrong) == ""
