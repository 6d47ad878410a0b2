"""A history (--history FILE) that was written before the journals end."""

import math

import pytest

from safeconsumer.audit.control import Control, Span
from tests.harness.audit.fleets import TP
from tests.harness.audit.journals import MemberJournal, verdict_on

EVE = {"group": "g", "holder": "operator:eve", "scope": "orders"}
HELD = Span(**EVE, start=1500, end=math.inf)
ENDS = "the history ends at 1970-01-01 00:26:40Z, take it after the journals"


def member():
    told = MemberJournal("a", at=1000.0)
    return told.assigned(TP).poll(TP, 0, 5).commit(TP, 5)


def obedient():
    """Obey a hold from 1500 to 2000, and go on then."""
    eve = {"scope": "orders", "owner": "operator:eve"}
    told = member().until(1500.2).then("hold", **eve, written=1500.0, offset=0)
    told.until(2000.2).then("lift", **eve, since=2000.0)
    return told.until(2001.0).poll(TP, 5, 9).commit(TP, 9)


def judged(told, *spans, until=1600.0, clock_skew=0.0):
    """Judge by a history with these holds that ends at 1600, if nothing else is said."""
    control = Control(spans=spans, until=until)
    return verdict_on(told, control=control, clock_skew=clock_skew)


@pytest.mark.contract("S5")
def test_a_lift_after_the_end_of_the_history_convicts_nobody():
    result = judged(obedient(), HELD)
    assert result.findings == ()
    assert result.unjudged == {"G2": ENDS}


def test_a_handler_that_began_after_the_end_of_the_history_is_not_judged():
    told = MemberJournal("a", at=1000.0).then("working", order="key").assigned(TP)
    told.poll(TP, 0, 1).until(1700.0).begin(TP, 0).end(TP, 0).commit(TP, 1)
    assert judged(told).unjudged == dict.fromkeys(("G2", "W10"), ENDS)


def test_a_delivery_under_a_hold_before_the_end_of_the_history_stays_a_violation():
    told = member().until(1550.0).poll(TP, 5, 6).until(2001.0).poll(TP, 6, 9)
    result = judged(told, HELD)
    assert [one.check for one in result.findings] == ["G2"]
    assert result.unjudged == {"G2": ENDS}


@pytest.mark.parametrize(
    ("until", "skew", "is_judged"),
    [
        pytest.param(2002.0, 0.0, True, id="after the last record"),
        pytest.param(math.inf, 0.0, True, id="read by the audit itself"),
        pytest.param(2001.0, 0.0, False, id="before the last record"),
        pytest.param(2002.0, 2.0, False, id="within the allowance for clocks"),
    ],
)
def test_a_history_is_judged_by_up_to_its_end(until, skew, *, is_judged):
    lifted = Span(**EVE, start=1500, end=2000)
    result = judged(obedient(), lifted, until=until, clock_skew=skew)
    assert result.findings == ()
    assert ("G2" not in result.unjudged) == is_judged


@pytest.mark.contract("S5")
def test_an_owner_that_may_have_begun_before_the_topics_are_complete_is_not_judged():
    told = MemberJournal(at=1000.0).assigned(TP).poll(TP, 0, 1)
    cases = (1000.1, 0.0, True), (999.5, 0.5, True), (999.5, 1.0, False)
    for since, skew, is_covered in cases:
        result = verdict_on(told, control=Control(since=since), clock_skew=skew)
        assert (result.findings, "G2" not in result.unjudged) == ((), is_covered)


@pytest.mark.parametrize(
    "control", [Control(since=1500.0), Control(until=1500.0)], ids=["since", "until"]
)
def test_a_history_is_to_cover_the_ownerships_of_all_members(control):
    first = MemberJournal("a").assigned(TP).poll(TP, 0, 1).commit(TP, 1).revoked(TP)
    second = MemberJournal("b", at=2000).assigned(TP, generation=2)
    second.asks(TP, 1, "a#3").poll(TP, 1, 2)
    result = verdict_on(first, second, control=control)
    assert (result.findings, {*result.unjudged}) == ((), {"G2"})


def test_commits_after_the_end_of_the_history_are_judged():
    """A member that has nothing to do goes on committing, and leaves its group."""
    told = member().until(2000.0).commit(TP, 5).revoked(TP)
    assert judged(told).unjudged == {}


@pytest.mark.parametrize(
    ("written", "until", "why"),
    [
        pytest.param(
            2000.0,
            1600.0,
            f"{ENDS}: operator:eve held orders later, as entry 5 of a proves",
            id="the hold is later",
        ),
        pytest.param(
            1500.0,
            1600.0,
            "the holds topics lack the hold of orders by operator:eve that entry 5 of a "
            "proves: they are of another cluster, or were made again since",
            id="the hold is earlier",
        ),
        pytest.param(
            2000.0,
            None,
            "the holds topics lack the hold of orders by operator:eve that entry 5 of a "
            "proves: they are of another cluster, or were made again since, or the "
            "history was written before",
            id="the history does not say when it ends",
        ),
    ],
)
def test_a_hold_that_the_history_lacks_is_not_judged(written, until, why):
    eve = {"scope": "orders", "owner": "operator:eve"}
    told = member().then("hold", **eve, written=written, offset=3)
    assert judged(told, until=until).unjudged == {"G2": why}
