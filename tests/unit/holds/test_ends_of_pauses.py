"""When pauses end that were made by several calls, for a time, or beside another one."""

import pytest

from safeconsumer.holds.scope import TopicPartition
from tests.harness.holds.lab import A, B, LedgerLab
from tests.unit.holds.test_whole_pauses import (
    EVERYTHING,
    LOST,
    D,
    Step,
    join,
    pause,
    play,
    resume,
    some,
)

BOTH = join(A, B)
ONE_IS_OVER: list[Step] = [BOTH, ("some for 1 s", A), ("2 s",), some(B)]
SITUATIONS: dict[str, tuple[list[Step], set[TopicPartition]]] = {
    "a shorter pause by name leaves the whole pause as it is": (
        [BOTH, EVERYTHING, ("some for 5 s", A), ("wait",), join(A, B, D)],
        {A, B, D},
    ),
    "a longer pause by name does not make the whole pause longer": (
        [BOTH, ("everything for 5 s",), some(A), ("wait",)],
        {A},
    ),
    "a whole pause of several calls": (
        [BOTH, ("some for 1 s", A), ("some for 600 s", B), join(A, B, D)],
        {A, B, D},
    ),
    "it ends with the first of them": (
        [BOTH, ("some for 1 s", A), ("some for 600 s", B), ("2 s",), join(A, B, D)],
        {B},
    ),
    "a name that is over makes no whole pause": ([*ONE_IS_OVER, join(A, B, D)], {B}),
    "nor one that was taken back": (
        [*ONE_IS_OVER, resume(), some(A), join(A, B, D)],
        {A, B},
    ),
    "a plain pause over one that lasts while assigned outlives a loss": (
        [BOTH, ("while assigned", A), pause(A), LOST, BOTH],
        {A},
    ),
    "an expired whole pause ends nothing that may be given back": (
        [BOTH, ("everything for 5 s",), ("poll",), pause(A), LOST, ("wait",), BOTH],
        {A},
    ),
    "a whole pause that its listed owner lifts ends what is away": (
        [BOTH, EVERYTHING, join(B), ("lift the whole",), BOTH],
        {B},
    ),
}


@pytest.mark.contract("P3", "P7")
@pytest.mark.parametrize(("steps", "quiet"), SITUATIONS.values(), ids=SITUATIONS)
def test_what_is_quiet_then(steps: list[Step], quiet: set[TopicPartition]) -> None:
    """Each partition for as long as it was asked for."""
    lab = LedgerLab()
    play(lab, steps)
    assert lab.quiet() == quiet
