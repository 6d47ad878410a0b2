"""Members' clocks are compared with the broker's: no wrong clock convicts, none acquits."""

from pathlib import Path

import pytest

from safeconsumer.audit.clocks import Lags, clock_of
from tests.harness.audit.bad import TP, fleets_in
from tests.harness.audit.telling import (
    Operator,
    Telling,
    control_in,
    outcome,
    verdict_on,
)
from tests.harness.listing import short

# When the group is held, in these tests.
HISTORY = control_in([Operator().held(2000.0, 2900.0)])


CASES = fleets_in(
    Path(__file__).with_name("clocks.txt"), HISTORY="operator: held 2000 2900"
)


@pytest.mark.parametrize("make", CASES, ids=short)
def test_a_fleet_with_clocks_of_its_own_has_the_verdict_of_its_table(make):
    assert outcome(make(), clock_skew=1.0) == make.does


def judged(*fleet):
    """Return the checks that were broken, and why G2 is not judged."""
    result = verdict_on(*fleet, clock_skew=1.0, control=HISTORY)
    return {one.check for one in result.findings}, result.unjudged.get("G2", "")


@pytest.mark.parametrize(
    ("came", "broken", "said"),
    [
        # Suspended from 1,500 to 3,000, it reads on at 3,600, long after the lift.
        ([1000, (1500, 3000), (2100, 3600)], set(), "is 1499.800 s or more behind the"),
        # What it reads of the time before shows nothing: it has a backlog then.
        ([1000, (1950, 1400), (2100, 1500), (2200, 3700)], set(), "s or more behind"),
        # A leak: at 2,050 of the broker's clock it is 1,050 of its own.
        ([500, (1050, 2050)], set(), "the clock of a is 999.800 s or more"),
        # Its clock was right when it leaked; afterwards it is suspended.
        ([1990, 2050, 2060, (2070, 5000)], {"G2"}, ""),
        # What is behind once the hold is over can have broken nothing.
        ([2950, (3000, 9000)], set(), ""),
        # Ahead by 1,000 s it seems to be under the hold, and is before it; or after it.
        ([(2400, 1400)], set(), "may be 1000.200 s ahead of the broker's"),
        ([(3100, 2100)], set(), "may be 1000.200 s ahead of the broker's"),
    ],
    ids=short,
)
def test_a_wrong_clock_neither_convicts_nor_acquits(came, broken, said):
    told = Telling(at=400).assigned(TP)
    for number, one in enumerate(came):
        at, written = one if isinstance(one, tuple) else (one, one)
        told.until(at).poll(TP, number, number + 1, written=written)
    found, why = judged(told)
    assert (found, said in why) == (broken, True)


def test_handlers_of_a_member_whose_clock_is_wrong_are_not_judged():
    told = Telling().then("working", order="key").assigned(TP)
    told.poll(TP, 0, 2).handle(TP, 0)
    told.until(2100).handle(TP, 1).poll(TP, 2, 3, written=3600.0)
    result = verdict_on(told, control=HISTORY)
    assert result.findings == ()
    assert "s or more behind" in result.unjudged["W10"]


@pytest.mark.contract("S5")
@pytest.mark.parametrize("check_", ["G2", "W10"])
def test_what_was_appended_under_the_hold_convicts_who_gets_it(check_):
    """A member without control= reads a backlog, so that its clock may be ahead."""
    told = Telling(at=1000).assigned(TP)
    if check_ == "W10":
        told.then("working", order="key")
    told.until(2400).poll(TP, 0, 5, written=2100.0)
    if check_ == "W10":
        told.handle(TP, 0)
    found, why = judged(told)
    assert (check_ in found, why) == (True, "")


def test_what_was_appended_before_the_hold_convicts_nobody_whose_clock_may_be_wrong():
    """The clock may be ahead by as much as the record is late."""
    for written in (1999.0, 2004.0):  # before the hold, and before it had to be read
        told = Telling(at=1000).assigned(TP).until(2400).poll(TP, 0, 5, written=written)
        found, why = judged(told)
        assert (found, "may be" in why) == (set(), True)


def test_a_clock_was_right_when_the_last_record_came_in_time():
    """That record set no new minimum, and is known from the first one that came too soon."""
    lags = Lags()
    for entry, (at, lag) in enumerate([(10, 0.1), (100, 0.5), (200, -500.0)]):
        lags.add(at, at - lag, entry)
    clock = clock_of("a", [lags], patience=5.0, skew=1.0)
    assert (clock.since, clock.behind) == (100, 500.0)
