"""Simulated programs that pause as users' programs do (see ``idioms.py``)."""

import pytest
from kafka import KafkaConsumer

from safeconsumer import SafeConsumer
from tests.sim.idioms import (
    ALONE,
    ASSIGNORS,
    BESIDE,
    COLUMNS,
    EXCEPTED,
    LIFTED,
    PROGRAMS,
    SITUATIONS,
    STOCK,
    Case,
    params,
    rows,
)
from tests.sim.playing import simulated


def common():
    """Yield every run's cases: each program alone (both protocols), and once with a hold."""
    for row, program in enumerate(PROGRAMS):
        for kind, assignor in enumerate(ASSIGNORS):
            yield Case(program, assignor, [*SITUATIONS][(row + kind) % 8])
        kind, column = row % 2, [*COLUMNS][3 - row % 3]
        # Programs interact most with other holds and gates when they gain partitions.
        situation = [*SITUATIONS][row % 8 if kind else 0]
        yield Case(
            program, [*ASSIGNORS][kind], situation, column, [*LIFTED][row // 2 % 2]
        )


@pytest.mark.contract("P2", "P3", "P6", "P7")
@pytest.mark.parametrize("case", params(ALONE + BESIDE, {*common()}))
@simulated(seeds=1, nightly=2)
def test_program_gets_the_verdict_in_the_table(lab, case):
    """The consumer obeys another owner's hold or a gate, and nothing else changes."""
    game = case.played(lab, SafeConsumer)
    _, alone = case.known()
    assert game.disobeyed == []
    if case.column == "alone":
        assert game.verdict == alone
    else:
        assert {*game.verdict} <= {*alone, "."}


@pytest.mark.parametrize("case", params(STOCK, STOCK[::45]))
@simulated(seeds=1, nightly=10)
def test_program_with_kafka_python_gets_the_verdict_in_the_table(lab, case):
    known, _ = case.known()
    verdict = case.played(lab, KafkaConsumer).verdict
    assert verdict in ({"L", "."} if known == "?" else {known})


def test_program_that_works_with_kafka_python_works_with_our_class_unless_excepted():
    """Every listed exception is still needed."""
    worse = {
        (name, situation)
        for name, cells in rows().items()
        for situation, cell in cells.items()
        if cell.startswith("./") and cell != "./."
    }
    assert worse == {*EXCEPTED}


def test_programs_leak_with_our_class_only_where_they_leak_with_kafka_python():
    cells = [cell for row in rows().values() for cell in row.values()]
    ours = [cell.split("/") for cell in cells]
    assert [one for one in ours if "L" in one[1] and "L" not in one[0]] == []
