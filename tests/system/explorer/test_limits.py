"""A handler raises wherever a function of `_kafka` or `holds` begins: P18."""

from collections.abc import Iterator

import pytest

from tests.harness.explorer.engine import Explorer
from tests.system.explorer.limits import INSIDE, Limit, every_limit
from tests.system.explorer.subject import rehearsed

pytestmark = pytest.mark.nightly


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    with rehearsed(), Explorer(INSIDE, places="call") as made:
        yield made


@pytest.mark.parametrize("limit", every_limit(), ids=lambda one: one.operation.name)
def test_a_time_limit_ends_it_anywhere(explorer: Explorer, limit: Limit) -> None:
    """Nothing is lost, comes twice, is leaked or is silent afterwards."""
    found = limit.explore(explorer)
    told = [f"{one}\n{one.stacks()}" for one in found.wrong]
    assert "\n\n".join(told) == ""
    assert found.tried > found.infeasible
