"""What operators' journals say, also where something went wrong: then nobody knows."""

import sys
from typing import Any

import pytest

from safeconsumer.audit.checker import Settings, Verdict, check
from safeconsumer.audit.reading import covering_for_group
from safeconsumer.errors import JournalError
from tests.harness.audit.telling import Telling
from tests.harness.listing import each

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


@each(
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


@each(
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
    one.until(ended).then("lift", **HEARD)
    one.at = again
    return one.then("hold", **HEARD)


def test_who_forgot_the_journal_once_is_not_judged() -> None:
    """Also if that was a moment after a hold that is in the journal."""
    told = operator().then("group-hold", **SAID, id="x")
    told.until(1010.0).then("group-lift", **SAID, id="y").then(
        "group-lifted", **SAID, id="y"
    )
    assert outcome(told, heard(ended=1010.3, again=1012)) == OPEN
    told.until(1011.9).then("group-hold", **SAID, id="z")
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


@each("off", [-0.9, 0.0, 0.9])
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
    told.until(1500).then("group-lift", **SAID, id="y").then(
        "group-lifted", **SAID, id="y"
    )
    assert outcome(told, owner(1800)) == OPEN
    assert outcome(told, owner(1800), skew=600.0) == CLEAN


def test_what_takes_a_wrong_clock_is_not_judged_of_workers_either() -> None:
    """W10 of who never heard, A1 of who took a hold for lifted."""
    told = operator(1000).then("group-asked", **SAID, id="x")
    told.then("group-hold", **SAID, id="x", written=2000.0)
    one = Telling("b", at=1500).then("working", order="key").assigned(TP)
    one.then("hold", **HEARD).then("lift", **HEARD).poll(TP, 0, 1)
    one.begin(TP, 0).end(TP, 0)
    assert outcome(told, one, skew=5.0) == (set(), {"G2", "A1", "W10"})


@each(
    ("hold", "lift", "found"),
    [
        ({"offset": 10}, {"offset": 11}, CLEAN),
        ({"offset": 11}, {"offset": 10}, BROKEN),
        ({"written": 1000.15}, {"written": 1000.22}, CLEAN),
        ({"written": 1000.35}, {"written": 1000.22}, BROKEN),
        ({"written": 1000.22}, {"written": 1000.22}, OPEN),
        ({}, {}, OPEN),
    ],
)
@each("is_one_journal", [True, False])
def test_of_a_hold_and_a_lift_that_overlap_the_broker_tells_the_order(
    hold: dict[str, Any],
    lift: dict[str, Any],
    found: tuple[set[str], set[str]],
    *,
    is_one_journal: bool,
) -> None:
    """Two commands at once: the answer of the first is written after the second's."""
    told = operator().then("group-asked", **SAID, id="x")
    other = told if is_one_journal else Telling("ops-2", group="", at=1000.05)
    other.then("group-lift", **SAID, id="y")
    other.then("group-lifted", **SAID, id="y", **lift)
    told.until(1000.4).then("group-hold", **SAID, id="x", **hold)
    fleet = (told, owner(2000)) if is_one_journal else (told, other, owner(2000))
    assert outcome(*fleet) == found


def test_clocks_within_the_allowance_do_not_tell_which_was_first() -> None:
    """Neither that a hold was lifted, nor that it stands."""
    told = operator().then("group-hold", **SAID, id="x")
    other = Telling("ops-2", group="", at=1000.2)
    other.then("group-lift", **SAID, id="y").then("group-lifted", **SAID, id="y")
    assert outcome(told, other, owner(2000)) == CLEAN
    assert outcome(told, other, owner(2000), skew=0.5) == OPEN


def test_a_hold_that_was_forgotten_after_an_extended_one_is_noticed() -> None:
    """Placed again while it stood it was one hold, which answers for one."""
    told = operator().then("group-hold", **SAID, id="x")
    told.until(1005.0).then("group-hold", **SAID, id="y", until=9000.0)
    told.until(1010.0).then("group-lift", **SAID, id="z").then(
        "group-lifted", **SAID, id="z"
    )
    assert outcome(told, heard(ended=1010.3, again=1012)) == OPEN
    told.until(1011.9).then("group-hold", **SAID, id="v")
    assert outcome(told, heard(ended=1010.3, again=1012)) == CLEAN


def again() -> Telling:
    """Tell of a hold that is lifted and placed again at once."""
    told = operator().then("group-hold", **SAID, id="x")
    told.until(1010.0).then("group-lift", **SAID, id="y").then(
        "group-lifted", **SAID, id="y"
    )
    return told.then("group-asked", **SAID, id="z").then("group-hold", **SAID, id="z")


def test_a_lift_that_is_heard_late_is_not_of_the_hold_after_it() -> None:
    """Its word comes after that of the second hold, which stands."""
    told = again()
    obeys = heard(ended=1010.6, again=1010.7).revoked(TP)
    assert outcome(told, obeys, owner(900, "c")) == CLEAN
    assert outcome(told, obeys, owner(2000, "c")) == BROKEN


def test_a_lift_after_which_no_hold_is_heard_may_be_of_the_second() -> None:
    """Somebody lifted it at once, without a journal: whoever flows obeys."""
    one = Telling("b", at=1000.2).assigned(TP).then("hold", **HEARD)
    one.until(1010.6).then("lift", **HEARD).revoked(TP)
    assert outcome(again(), one, owner(2000, "c")) == OPEN


def test_an_answer_that_is_written_down_late_is_of_what_was_heard_before() -> None:
    """Members hear of a record, whenever its command hears that it is there."""
    told = operator().then("group-asked", **SAID, id="x")
    told.until(1009.0).then("group-hold", **SAID, id="x", written=1000.15)
    one = Telling("b", at=990).assigned(TP).poll(TP, 0, 2)
    one.at = 1000.3
    assert outcome(told, one.then("hold", **HEARD), skew=0.5) == CLEAN


def test_a_clock_that_nobody_compared_is_said() -> None:
    """A control topic with producers' times: what it says is the operator's clock."""
    told = operator().then("group-asked", **SAID, id="x")
    told.then("group-hold", **SAID, id="x", written=None)
    assert outcome(told, owner(2000)) == OPEN
    why = judged(told, owner(2000)).unjudged["G2"]
    assert why.startswith("nobody compared the clock of ops with the broker's")


def test_time_grows_with_what_operators_did_not_with_its_square() -> None:
    """What is compared one by one is near in time."""
    spent = [_comparisons(count) for count in (100, 400)]
    assert spent[1] < 6 * spent[0]


def _comparisons(holds: int) -> int:
    told, one = operator(), Telling("b", at=990).assigned(TP)
    for number in range(holds):
        told.at = one.at = 2000.0 + 100 * number
        told.then("group-asked", **SAID, id=f"x{number}")
        told.then("group-hold", **SAID, id=f"x{number}")
        one.at += 0.3
        one.then("hold", **HEARD)
        told.at = one.at = 2050.0 + 100 * number
        told.then("group-lift", **SAID, id=f"y{number}")
        told.then("group-lifted", **SAID, id=f"y{number}")
        one.at += 0.3
        one.then("lift", **HEARD).poll(TP, number, number + 1)
    journals = [told.journal(), one.journal()]
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        (verdict,) = check(journals, Settings()).values()
    finally:
        sys.setprofile(None)
    assert (verdict.findings, dict(verdict.unjudged)) == ((), {})
    return calls


@pytest.mark.parametrize("scope", ["re:ord[[:alnum:]-]*", r"re:\pL+"])
@pytest.mark.parametrize("has_re2", [True, False])
def test_a_pattern_of_re2_leaves_open_what_it_may_cover_and_no_more(
    monkeypatch: pytest.MonkeyPatch, scope: str, *, has_re2: bool
) -> None:
    """Where RE2 is not installed; other groups are judged all the same."""
    if has_re2:
        pytest.importorskip("re2")
    else:
        monkeypatch.setitem(sys.modules, "re2", None)
    covering_for_group.cache_clear()
    said = {**SAID, "scope": scope}
    told = operator().then("group-hold", **said, id="x")
    assert outcome(told, owner(2000)) == (BROKEN if has_re2 else OPEN)
    assert outcome(told, owner(900)) == CLEAN
    other = Telling("c", group="h", at=2000).assigned(TP).poll(TP, 0, 2)
    assert outcome(told, other) == CLEAN
    elsewhere = Telling("b", at=2000).assigned("1:0").poll("1:0", 0, 2)
    assert outcome(told, elsewhere) == (CLEAN if has_re2 else OPEN)
    told.then("group-lift", **said, id="y").then("group-lifted", **said, id="y")
    assert outcome(told, owner(2000)) == CLEAN


def test_a_member_that_hears_of_a_pattern_of_re2() -> None:
    pytest.importorskip("re2")
    said = {"scope": r"re:\pL+", "owner": "operator:eve"}
    one = Telling("b").assigned(TP).then("hold", **said).poll(TP, 0, 1)
    assert "A1" in outcome(one)[0]


def test_what_is_no_scope_at_all_is_still_refused() -> None:
    for scope in ("orders:x", "re:", "a b"):
        told = operator().then("group-hold", **{**SAID, "scope": scope})
        with pytest.raises(JournalError, match="must be a scope"):
            told.journal()


@pytest.mark.parametrize(("call", "found"), [("0123456789ab", CLEAN), ("x", OPEN)])
def test_a_journal_may_be_moved_away_between_asking_and_answer(
    call: str,
    found: Any,  # noqa: ANN401 - a pair of sets
) -> None:
    """The answer stands in the new one; an id that others may have says nothing."""
    first = operator(900).then("group-hold", **SAID, id="w", written=900.05)
    first.until(1000).then("group-lift", **SAID, id=call)
    second = Telling("ops-2", group="", at=1000.2)
    second.then("group-lifted", **SAID, id=call, written=1000.15)
    assert outcome(first, second, owner(2000)) == found


def test_a_hold_without_an_answer_may_come_after_one_that_was_asked_for_later() -> None:
    """It was placed last, and its limit is the one that counts."""
    told = operator().then("group-asked", **SAID, id="x", until=1020.1)
    told.then("group-asked", **SAID, id="y").then("group-hold", **SAID, id="y")
    assert outcome(told, owner(1010)) == BROKEN
    assert outcome(told, owner(1030)) == OPEN


def test_a_hold_without_an_answer_may_come_after_its_lift() -> None:
    """As long as it may be on its way; who wants to be sure lifts it once more."""
    told = operator().then("group-asked", **SAID, id="x")
    told.then("group-lift", **SAID, id="y").then("group-lifted", **SAID, id="y")
    assert outcome(told, owner(2000)) == OPEN
    told.until(1060.0).then("group-lift", **SAID, id="z").then(
        "group-lifted", **SAID, id="z"
    )
    assert outcome(told, owner(2000)) == CLEAN


def test_a_killed_pause_for_a_while_leaves_nothing_open_later() -> None:
    told = operator().then("group-asked", **SAID, id="x", until=1300.1)
    assert outcome(told, owner(1200)) == OPEN
    assert outcome(told, owner(90000)) == CLEAN


def let_expire(heard: Telling, at: float) -> Telling:
    """Have a member take the hold for expired at a moment, and deliver."""
    heard.until(at).then("lift", **HEARD, since=at, why="expired")
    return heard.poll(TP, 0, 2)


def test_that_a_hold_without_a_limit_has_expired_is_not_believed() -> None:
    """Perhaps somebody gave it one and keeps no journal; the member's word is none."""
    told = operator().then("group-hold", **SAID)
    heard = Telling("b", at=900).assigned(TP)
    heard.until(1001.0).then("hold", **HEARD)
    assert outcome(told, let_expire(heard, 1100)) == (set(), {"A1"})


def test_that_a_hold_has_expired_whose_limit_was_taken_away_is_not_believed() -> None:
    """As soon as the member must have heard of it."""
    limited = operator().then("group-hold", **SAID, until=1100.0)
    limited.until(1050.0).then("group-hold", **SAID)
    heard = Telling("b", at=900).assigned(TP)
    heard.until(1001.0).then("hold", **HEARD)
    heard.until(1051.0).then("hold", **HEARD)
    assert outcome(limited, let_expire(heard, 1100)) == (set(), {"A1"})


def test_a_hold_may_expire_just_before_its_limit_is_heard_to_be_gone() -> None:
    """It takes its time to hear of that."""
    limited = operator().then("group-hold", **SAID, until=1100.0)
    limited.until(1099.5).then("group-hold", **SAID)
    heard = Telling("b", at=900).assigned(TP)
    heard.until(1001.0).then("hold", **HEARD)
    assert outcome(limited, let_expire(heard, 1100)) == CLEAN
