"""Each fault that was planted is found in its pair, and the pair is clean without it."""

from collections.abc import Iterator

import pytest

from tests.harness.explorer.engine import Explorer, every
from tests.system.explorer.mutants import PLANTED, Planted
from tests.system.explorer.pairs import INSIDE, named
from tests.system.explorer.subject import rehearsed

pytestmark = pytest.mark.nightly


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    with rehearsed(), Explorer(INSIDE) as made:
        yield made


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.name)
def test_a_planted_fault_is_found(explorer: Explorer, planted: Planted) -> None:
    """The report says what is wrong, and where both threads were."""
    pair = named(planted.pair)
    with planted.plant():
        found = pair.explore(explorer, places=every, stop_at=1)
    assert found.wrong
    wrong = found.wrong[-1]
    assert any(planted.message in message for message in wrong.messages)
    assert wrong.place is not None
    assert "A stood at" in wrong.stacks()


@pytest.mark.parametrize("pair", sorted({one.pair for one in PLANTED}))
def test_its_pair_is_right_without_it(explorer: Explorer, pair: str) -> None:
    """At every place."""
    found = named(pair).explore(explorer, places=every)
    assert [str(one) for one in found.wrong] == []
    assert found.tried > 0
