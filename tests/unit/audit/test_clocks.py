"""Members measure the broker's clock: no wrong clock convicts, none acquits."""

from pathlib import Path

import pytest

from safeconsumer.audit.clocks import Measures
from safeconsumer.audit.entries import Clock
from tests.harness.audit.bad import fleets_in
from tests.harness.audit.telling import outcome
from tests.harness.listing import short

CASES, UNMEASURED = (
    fleets_in(Path(__file__).with_name(name), HISTORY="operator: held 2000 2900")
    for name in ("clocks.txt", "unmeasured.txt")
)


@pytest.mark.contract("S5")
@pytest.mark.parametrize("make", CASES, ids=short)
def test_a_fleet_with_clocks_of_its_own_has_the_verdict_of_its_table(make):
    assert outcome(make(), clock_skew=1.0) == make.does


@pytest.mark.contract("S5")
@pytest.mark.parametrize("make", UNMEASURED, ids=short)
def test_a_clock_that_nobody_measured_acquits_nobody(make):
    assert outcome(make()) == make.does


def test_between_two_measures_either_may_hold():
    measures = Measures()
    for at, least in ((100.0, 0.0), (200.0, 50.0), (300.0, 20.0)):
        measures.add(Clock(n=1, at=at, least=least, most=least + 1))
    moments = 50.0, 100.0, 150.0, 200.0, 250.0, 350.0
    found = [measures.around(at) for at in moments]
    assert found == [(0, 1), (0, 1), (0, 51), (0, 51), (20, 51), (20, 21)]
