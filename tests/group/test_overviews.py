"""
What ``groups``, ``status``, ``doctor`` and pages say of members, from one picture.
"""

from typing import Any

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.cli import group_text, waiting, watching
from safeconsumer.cli.backlog import Backlog
from safeconsumer.console.views import View, view_of
from safeconsumer.group import judging, wire
from safeconsumer.group.commits import Commits, Move
from safeconsumer.group.facts import Standing
from safeconsumer.group.fold import Fold, Written
from safeconsumer.group.judging import BAD, GOOD, NOTE
from safeconsumer.group.picture import Picture
from safeconsumer.group.why import Level
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.group.lab import ControlLab
from tests.group.test_judging import ONE, ZERO, A, B, facts, picture, report

NO_BACKLOG = Backlog(lags={}, since={})
PLAIN = facts("plain", ZERO)
KILLED = report("a", 0)


def hold(scope: str = "@all", ttl_ms: int | None = None) -> Standing:
    return Standing(
        source="operator",
        key=ControlKey("g", "alice", scope),
        hold=ControlHold("id", "r", ttl_ms),
        at=100.0,
        offset=2,
    )


def held(*seen: Any, scope: str = "@all", state: str = "Stable") -> Picture:  # noqa: ANN401 - as picture
    return evolve(picture(*seen, state=state), standing=(hold(scope),))


def commits(seen: Picture, *several: TopicPartition) -> Picture:
    return evolve(seen, facts=evolve(seen.facts, committed=dict.fromkeys(several, 5)))


def view(seen: Picture) -> View:
    return view_of(seen, lambda _: None)


def found(seen: Picture) -> list[tuple[str, str]]:
    return [(one.rank, one.what) for one in judging.member_findings(seen)]


def disobeying(seen: Picture) -> Any:  # noqa: ANN401 - text or None
    return watching._group_document(seen)["disobeying"]


# ---------------------------------------------------------------- groups


def test_what_is_quiet_has_nothing_beside_it() -> None:
    assert disobeying(held(A, report("a", 0))) is None
    assert disobeying(picture(A)) is None


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (commits(held(state="Unknown"), ZERO), "does not tell who is in the group"),
        (held(report("m", 0, quiet={}, member_id=""), state="Dead"), "flowing: t:0"),
        (commits(held(state="Empty"), ZERO), "unknown: t:0"),
        (evolve(held(A, report("a", 0)), ends=None), "what is held is unknown"),
    ],
)
def test_what_nobody_can_know_is_said(seen: Picture, said: str) -> None:
    """An empty cell is a promise that all that is held is quiet."""
    assert said in str(disobeying(seen))


def test_reports_are_counted_as_members_have_them() -> None:
    """A killed member's last one stood in for its plain successor's."""
    seen = held(PLAIN, KILLED)
    assert watching._group_document(seen)["reporting"] == 0
    assert view(seen).row.reporting == 0
    (heading, *_) = group_text.status_lines(seen, NO_BACKLOG)
    assert heading == "group g: Stable, 1 members, 0 of them report"


def test_status_names_who_has_gone_and_whose_report_is_old() -> None:
    stale, new = report("a", 0), report("b", 1, generation=8)
    lines = group_text.status_lines(held(A, B, stale, new), NO_BACKLOG)
    assert any("its report is of generation 7" in one for one in lines)
    lines = group_text.status_lines(held(PLAIN, KILLED), NO_BACKLOG)
    assert any("is not in the group any more" in one for one in lines)


# ---------------------------------------------------------------- pages


def test_a_page_of_a_group_that_nobody_can_describe() -> None:
    """KIP-848: its committed offsets are known, and nothing is said to be quiet."""
    seen = commits(held(state="Unknown"), ZERO)
    assert view(seen).row.level is Level.UNKNOWN
    assert [one.answer.level for one in view(seen).partitions] == [Level.UNKNOWN]
    assert view(held(state="Unknown")).row.words == "cannot tell"
    moving = evolve(seen, commits=Commits(moved={ZERO: Move(5, 9)}))
    assert view(moving).row.level is Level.ALARM
    assert "went on from 5 to 9" in view(moving).partitions[0].sentence


def test_a_page_of_a_group_without_members() -> None:
    """As ``wait`` says it: unknown after one look, quiet when nothing moves."""
    once = commits(held(state="Empty"), ZERO)
    assert view(once).row.level is Level.UNKNOWN
    still = evolve(once, commits=Commits(still=frozenset({ZERO})))
    assert view(still).row.level is Level.QUIET
    assert view(held(state="Dead")).row.words == "nobody there"


def test_pages_and_commands_agree_on_what_covers_nothing() -> None:
    """``wait`` ended with 0, and called members quiet that deliver all they have."""
    loud = report("a", 0, quiet={})
    seen = held(A, loud, scope="ordres")
    assert view(seen).row.words == "covers nothing"
    is_quiet, said = waiting.is_quiet(seen, seen.standing)
    assert not is_quiet
    assert "quiet" not in said


# ---------------------------------------------------------------- flowing


def test_who_has_gone_does_not_make_it_flow() -> None:
    """Its last report is up to 15 s old, and nobody is in the group."""
    seen = commits(picture(report("a", 0, quiet={}), state="Empty"), ZERO)
    is_flowing, said = waiting.is_flowing(seen, ())
    assert not is_flowing
    assert said.startswith("not flowing: t:0")


def test_a_member_makes_it_flow() -> None:
    seen = commits(picture(A, report("a", 0, quiet={})), ZERO)
    assert waiting.is_flowing(seen, ()) == (True, "flowing: t:0")


# ---------------------------------------------------------------- doctor


@pytest.mark.parametrize(
    ("state", "rank"), [("Unknown", BAD), ("PreparingRebalance", NOTE), ("Empty", NOTE)]
)
def test_doctor_says_that_it_saw_nobody(state: str, rank: str) -> None:
    """It said nothing at all, and its page was green."""
    assert [one for one, _ in found(commits(held(state=state), ZERO))] == [rank]


def test_doctor_says_what_it_could_not_read() -> None:
    seen = evolve(held(A, report("a", 0, holds=1)), unread=("no right",))
    assert (BAD, "unknown: no right") in found(seen)


def test_doctor_goes_by_members_and_not_by_reports() -> None:
    told = found(held(PLAIN, KILLED))
    assert [one for one, _ in told] == [BAD, NOTE]
    assert told[1][1].endswith("is not in the group any more")
    stale, new = report("a", 0, holds=1), report("b", 1, generation=8, holds=1)
    assert [one for one, _ in found(held(A, B, stale, new))] == [NOTE, GOOD]


@pytest.mark.parametrize(("holds", "rank"), [(0, BAD), (1, GOOD), (2, BAD)])
def test_doctor_counts_holds_both_ways(holds: int, rank: str) -> None:
    """A member that has read all and obeys fewer than stand is no better."""
    assert [one for one, _ in found(held(A, report("a", 0, holds=holds)))] == [rank]


# ---------------------------------------------------------------- versions to come


@pytest.mark.parametrize(
    "key",
    [
        ControlKey("g", "alice", "t:0", ("x",), 2),
        ControlKey("g", "alice", "shape:round", (), 2),
        ControlKey("g", "alice", "t:0", (), 2),
        ControlKey("g", "alice", "t:0"),
    ],
)
def test_an_operator_is_told_of_what_members_obey(key: ControlKey) -> None:
    """Members obeyed a key of a later version as @all, status showed one partition."""
    written = Written(wire.encode_key(key), wire.encode_hold(ControlHold()), 0, 1000)
    lab = ControlLab()
    lab.hear(written)
    fold = Fold({"ops": "operator"}, "g")
    fold.take("ops", [written])
    (standing,) = fold.standing()
    ((scope, _),) = lab.held()
    assert standing.covers(ONE) == (scope == "@all")
    assert standing.covers(ZERO)
