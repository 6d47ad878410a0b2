"""
What operators' journals say, also where something went wrong: then nobody knows.
"""

from typing import Any

import pytest

from safeconsumer.audit.checker import Settings, Verdict, check
from tests.audit.telling import Telling

TP = "orders:0"
SAID = {"scope": "orders", "owner": "eve", "group": "g", "source": "operator"}
HEARD = {"scope": "orders", "owner": "operator:eve"}


def operator(at: float = 1000.0) -> Telling:
    return Telling("ops", group="", at=at)


def owner(at: float, name: str = "b") -> Telling:
    """Tell of a member that gets the partition then, and delivers."""
    return Telling(name, at=at).assigned(TP).poll(TP, 0, 2)


def judged(*fleet: Telling, skew: float = 0.0) -> Verdict:
    verdicts = check([one.journal() for one in fleet], Settings(clock_skew=skew))
    (verdict,) = verdicts.values()
    return verdict


def outcome(*fleet: Telling, skew: float = 0.0) -> tuple[set[str], set[str]]:
    verdict = judged(*fleet, skew=skew)
    return {one.check for one in verdict.findings}, set(verdict.unjudged)


CLEAN: tuple[set[str], set[str]] = (set(), set())
BROKEN: tuple[set[str], set[str]] = ({"G2"}, set())
OPEN: tuple[set[str], set[str]] = (set(), {"G2"})


@pytest.mark.parametrize(
    ("ended", "found"),
    [
        ("", OPEN),  # killed, or the answer was lost
        ("group-hold", BROKEN),
        ("group-refused", CLEAN),
    ],
)
def test_a_hold_counts_once_its_answer_is_there(ended: str, found: Any) -> None:  # noqa: ANN401 - a pair of sets
    told = operator().then("group-asked", **SAID, id="x")
    if ended:
        told.then(ended, **SAID, id="x")
    assert outcome(told, owner(2000)) == found
    assert outcome(told, owner(900)) == CLEAN  # had and delivered before it was asked


@pytest.mark.parametrize(
    ("ended", "found"),
    [("", OPEN), ("group-lifted", CLEAN), ("group-refused", BROKEN)],
)
def test_a_lift_counts_once_its_answer_is_there(ended: str, found: Any) -> None:  # noqa: ANN401 - a pair of sets
    told = operator().then("group-hold", **SAID, id="x")
    told.then("group-lift", **SAID, id="y")
    if ended:
        told.then(ended, **SAID, id="y")
    assert outcome(told, owner(2000)) == found


def test_two_that_ask_at_once_are_told_apart() -> None:
    """By their ids: of the same hold one was refused, one was placed."""
    told = operator().then("group-asked", **SAID, id="x")
    told.then("group-asked", **SAID, id="y")
    told.then("group-refused", **SAID, id="x").then("group-hold", **SAID, id="y")
    assert outcome(told, owner(2000)) == BROKEN
    told.then("group-lift", **SAID, id="z").then("group-lifted", **SAID, id="z")
    assert outcome(told, owner(2000)) == CLEAN


def test_of_several_scopes_each_has_its_own_answer() -> None:
    """A pause that failed half-way."""
    other = {**SAID, "scope": "orders:0"}
    told = operator().then("group-asked", **SAID, id="x")
    told.then("group-asked", **other, id="x")
    assert outcome(told, owner(2000)) == OPEN
    told.then("group-refused", **other, id="x")
    assert outcome(told, owner(2000)) == OPEN
    told.then("group-refused", **SAID, id="x")
    assert outcome(told, owner(2000)) == CLEAN


def test_a_hold_that_nobody_is_sure_of_limits_no_other() -> None:
    """The one before stands for longer, perhaps; until its own end it stands."""
    told = operator().then("group-hold", **SAID, id="x", until=1600.0)
    told.then("group-asked", **SAID, id="y", until=1100.0)
    assert outcome(told, owner(1050)) == BROKEN
    assert outcome(told, owner(1500)) == OPEN
    assert outcome(told, owner(1700)) == CLEAN


def test_two_groups_in_one_journal_are_two() -> None:
    """A hold is of the group that it names; a group that nobody reads in is none."""
    told = operator().then("group-hold", **{**SAID, "group": "other"}, id="x")
    told.then("group-asked", **{**SAID, "group": "stream"}, id="y")
    assert outcome(told, owner(2000)) == CLEAN
    told.then("group-hold", **SAID, id="z")
    assert outcome(told, owner(2000)) == BROKEN


def heard(*, ended: float, again: float) -> Telling:
    """Tell of a member that hears of a hold, of its end, and of a hold again."""
    one = Telling("b", at=1000.2).assigned(TP).then("hold", **HEARD)
    one.at = ended
    one.then("lift", **HEARD)
    one.at = again
    return one.then("hold", **HEARD)


def test_who_forgot_the_journal_once_is_not_judged() -> None:
    """Also if that was a moment after a hold that is in the journal."""
    told = operator().then("group-hold", **SAID, id="x")
    told.at = 1010.0
    told.then("group-lift", **SAID, id="y").then("group-lifted", **SAID, id="y")
    assert outcome(told, heard(ended=1010.3, again=1012)) == OPEN
    told.at = 1011.9
    told.then("group-hold", **SAID, id="z")
    assert outcome(told, heard(ended=1010.3, again=1012)) == CLEAN


def test_who_forgot_the_journal_at_a_resume_is_not_judged() -> None:
    """Then the hold that is in the journal seems to stand for ever."""
    told = operator().then("group-hold", **SAID, id="x")
    one = heard(ended=1010.3, again=1012)
    one.at = 1500.0
    found, unjudged = outcome(told, one.poll(TP, 0, 1), owner(1011, "c"))
    assert ("G2" in found, "G2" in unjudged) == (False, True)


def test_a_hold_heard_twice_in_a_row_is_one() -> None:
    """By two consumers of one process, or as it was placed anew by nobody."""
    told = operator().then("group-hold", **SAID, id="x")
    one = Telling("b", at=1000.2).assigned(TP).then("hold", **HEARD)
    one.at = 1500
    assert outcome(told, one.then("hold", **HEARD)) == CLEAN


@pytest.mark.parametrize("off", [-0.9, 0.0, 0.9])
def test_the_brokers_time_shows_how_wrong_the_operators_clock_is(off: float) -> None:
    """Not within the allowance: nothing that rests on it is judged, and it is said."""
    told = operator(1000 + off).then("group-asked", **SAID, id="x")
    told.then("group-hold", **SAID, id="x", written=1000.15)
    assert outcome(told, owner(2000), skew=1.0) == BROKEN
    found = outcome(told, owner(2000), skew=0.5)
    assert found == (BROKEN if not off else OPEN)
    if off:
        why = judged(told, owner(2000), skew=0.5).unjudged["G2"]
        assert why.startswith("the clocks of ops and the broker differ by 0.")
        assert why.endswith("s or more, and 0.5 s are allowed")


def test_the_brokers_time_of_a_lift_counts_too() -> None:
    told = operator().then("group-hold", **SAID, id="x")
    told.then("group-lift", **SAID, id="y")
    told.then("group-lifted", **SAID, id="y", written=1090.0)
    assert outcome(told, owner(1050)) == OPEN


def test_a_clock_that_was_set_back_between_two_commands_is_seen() -> None:
    told = operator(2000).then("group-hold", **SAID, id="x")
    told.at = 1500
    told.then("group-lift", **SAID, id="y").then("group-lifted", **SAID, id="y")
    assert outcome(told, owner(1800)) == OPEN
    assert outcome(told, owner(1800), skew=600.0) == CLEAN


def test_what_takes_a_wrong_clock_is_not_judged_of_workers_either() -> None:
    """W10 of who never heard, S1 of who took a hold for lifted."""
    told = operator(1000).then("group-asked", **SAID, id="x")
    told.then("group-hold", **SAID, id="x", written=2000.0)
    one = Telling("b", at=1500).then("working", order="key").assigned(TP)
    one.then("hold", **HEARD).then("lift", **HEARD).poll(TP, 0, 1)
    one.begin(TP, 0).end(TP, 0)
    assert outcome(told, one, skew=5.0) == (set(), {"G2", "S1", "W10"})
