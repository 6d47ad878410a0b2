"""Histories that once broke a promise, kept as they were found."""

from collections import Counter
from typing import ClassVar

from tests.unit.model.group import Kind
from tests.unit.model.machine import ROOMY, Model
from tests.unit.model.member import Mode


class Found(Model):
    """The model with counters of its own."""

    sights: ClassVar[Counter[str]] = Counter()
    steps: ClassVar[Counter[str]] = Counter()


def test_committed_offsets_asked_for_in_an_earlier_generation_are_not_used() -> None:
    """The answer came after a seek had made it needless, and waited for a rebalance."""
    history = Found()
    history.begin(
        mode=Mode.GROUP,
        iterates=False,
        cap=ROOMY,
        counts=[0, 0, 0, 0],
        commits=False,
        is_slow=True,
    )
    history.pause_the_assignment_and_gain(fewer=1, kind=Kind.LOST, n=1)
    history.produce(count=1, gap=0, mask=63)
    history.seek(act=("seek", 0, None))
    history.catch_up()
    history.commit()
    history.lose_and_regain(commits=False, kind=Kind.EAGER, n=1, other=0, reads=False)
    history.teardown()
