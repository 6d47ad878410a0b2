"""Every interleaving of small worlds: what is promised never breaks, what is flawed does."""

import pytest

from tests.unit.group.model.control import Flaw, Protocol
from tests.unit.group.model.explore import explore
from tests.unit.group.model.handover import Carrier, Handover


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


LEAKS = [
    # The literal ticket, without any fault: the old owner no longer owns it in round
    # two of a cooperative rebalance, and does not report it.
    Handover(carrier=Carrier.LITERAL, is_cooperative=True),
    # Whoever leaves or dies is not in the next JoinGroup.
    Handover(carrier=Carrier.LITERAL, may_crash=True),
    Handover(carrier=Carrier.KEPT, may_crash=True),
    # One committer that does not keep the mark.
    Handover(carrier=Carrier.FORGETFUL),
    Handover(carrier=Carrier.FORGETFUL, is_cooperative=True),
]
SAFE = [
    Handover(carrier=Carrier.OFFSETS),
    Handover(carrier=Carrier.OFFSETS, is_cooperative=True),
    Handover(carrier=Carrier.OFFSETS, may_crash=True),
    Handover(carrier=Carrier.OFFSETS, may_crash=True, is_cooperative=True),
]


@pytest.mark.parametrize("handover", LEAKS, ids=str)
def test_the_literal_suggestion_leaks(handover: Handover) -> None:
    """And so does every carrier that can lose the mark."""
    seen = explore(handover.first(), handover.steps, handover.is_leak)
    assert seen.trace
    assert any("pauses" in one for one in seen.trace)


@pytest.mark.parametrize("handover", SAFE, ids=str)
def test_marks_in_offsets_do_not_leak(handover: Handover) -> None:
    """With every commit keeping them."""
    seen = explore(handover.first(), handover.steps, handover.is_leak)
    assert (seen.trace, seen.is_complete) == ((), True)
