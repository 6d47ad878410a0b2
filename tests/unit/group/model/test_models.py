"""Every interleaving of small worlds: what is promised never breaks, what is flawed does."""

import pytest

from tests.unit.group.model.control import Flaw, Protocol
from tests.unit.group.model.explore import explore


@pytest.mark.parametrize(
    "most", [30_000, pytest.param(2_000_000, marks=pytest.mark.nightly)]
)
def test_the_barrier_never_leaks(most: int) -> None:
    """Crashes, restarts, delays, compaction, a topic cut off, late readers, zombies."""
    protocol = Protocol(members=2, generations=3, faults=2)
    seen = explore(protocol.first(), protocol.steps, protocol.is_leak, most=most)
    assert seen.trace == ()
    assert seen.is_complete or seen.states > most


def test_a_small_world_is_explored_completely() -> None:
    protocol = Protocol(members=2, generations=2, faults=1, actions=((True, False),))
    seen = explore(protocol.first(), protocol.steps, protocol.is_leak)
    assert (seen.trace, seen.is_complete) == ((), True)
    assert seen.states > 1_000


@pytest.mark.parametrize("flaw", [one for one in Flaw if one is not Flaw.NONE])
def test_a_flawed_barrier_leaks(flaw: Flaw) -> None:
    """The exploration can find what it looks for."""
    # Three assignments: lost and regained. One operator is enough.
    protocol = Protocol(flaw=flaw, actions=((True, False),), generations=3, faults=1)
    seen = explore(protocol.first(), protocol.steps, protocol.is_leak)
    assert any("holds" in one for one in seen.trace), flaw
