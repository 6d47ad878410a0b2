"""What ``groups``, ``status``, ``doctor`` and pages say of members, from one picture."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.cli import group_text, waiting, watching
from safeconsumer.cli.backlog import Backlog
from safeconsumer.cli.output import Output
from safeconsumer.console.views import View, view_of
from safeconsumer.group import findings, judging, preview, wire
from safeconsumer.group.documents import status_document
from safeconsumer.group.facts import Standing
from safeconsumer.group.fold import Fold, Written
from safeconsumer.group.judging import BAD, GOOD, NOTE
from safeconsumer.group.picture import Picture, skew_of
from safeconsumer.group.report_wire import decode_report, encode_report
from safeconsumer.group.why import Level
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.group.lab import ControlLab
from tests.harness.listing import each
from tests.unit.group.test_judging import ONE, ZERO, A, B, facts, picture, report

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


@each(
    ("seen", "said"),
    [
        (commits(held(state="Unknown"), ZERO), "does not tell who is in the group"),
        (held(report("m", 0, quiet={}, member_id=""), state="Dead"), "flowing: t:0"),
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
    assert heading == "group g: Stable, 1 member, 0 of them report"


@pytest.mark.contract("G8")
def test_members_that_nobody_lists_are_no_number() -> None:
    """KIP-848: that there are none is not known."""
    seen = held(state="Unknown")
    (heading, *_) = group_text.status_lines(seen, NO_BACKLOG)
    assert heading == "group g: Unknown, members unknown"
    document = watching._group_document(seen)
    assert watching._group_row(document)[2] == "unknown"
    assert document["members"] is None is status_document(seen)["members"]
    assert view(seen).row.members is None


def test_names_forge_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A client id and a group's name may have line ends; a table's lines are ours."""
    forged = "m\nbilling-9  vm  obeys all"
    seen = evolve(held(facts(forged, ZERO)), group="g\nholds: none")
    lines = group_text.status_lines(seen, NO_BACKLOG)
    Output().lines(lines)
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    assert any(r"m\nbilling-9" in one for one in lines)


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


def test_a_page_of_a_group_without_members() -> None:
    """As ``wait`` says it: whoever comes reads the holds first."""
    seen = commits(held(state="Empty"), ZERO)
    assert view(seen).row.level is Level.QUIET
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
    why = "though a, which has left or waits, delivers some"
    assert said == f"not flowing: t:0, {why}"


def test_a_member_makes_it_flow() -> None:
    seen = commits(picture(A, report("a", 0, quiet={})), ZERO)
    assert waiting.is_flowing(seen, ()) == (True, "flowing: t:0")


# ---------------------------------------------------------------- doctor


@each(
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


@each(("holds", "rank"), [(0, BAD), (1, GOOD), (2, BAD)])
def test_doctor_counts_holds_both_ways(holds: int, rank: str) -> None:
    """A member that has read all and obeys fewer than stand is no better."""
    assert [one for one, _ in found(held(A, report("a", 0, holds=holds)))] == [rank]


# ---------------------------------------------------------------- versions to come


of_versions = each(
    "key",
    [
        ControlKey("g", "alice", "t:0", ("x",), 2),
        ControlKey("g", "alice", "shape:round", (), 2),
        ControlKey("g", "alice", "t:0", (), 2),
        ControlKey("g", "alice", "t:0"),
    ],
)


def heard(key: ControlKey) -> tuple[Standing, str]:
    """Return what stands for an operator, and the scope that members obey."""
    written = Written(wire.encode_key(key), wire.encode_hold(ControlHold()), 0, 1000)
    lab = ControlLab()
    lab.hear(written)
    fold = Fold({"ops": "operator"}, "g")
    fold.take("ops", [written])
    (standing,) = fold.standing()
    ((scope, _),) = lab.held()
    return standing, scope


@of_versions
def test_an_operator_is_told_of_what_members_obey(key: ControlKey) -> None:
    """Members obeyed a key of a later version as @all, status showed one partition."""
    standing, scope = heard(key)
    assert standing.covers(ONE) == (scope == "@all")
    assert standing.covers(ZERO)


@of_versions
def test_doctor_names_what_members_obey_as_everything(key: ControlKey) -> None:
    """It found nothing wrong with a key of a later version."""
    standing, scope = heard(key)
    desk: Any = SimpleNamespace(broker_time=lambda: 0.0, standing=lambda _: (standing,))
    told = [one for one in findings._holds(desk, "g") if one.rank == BAD]
    assert ["@all" in one.do for one in told] == [True] * (scope == "@all")


# ---------------------------------------------------------------- just over


def over(*seen: Any) -> Picture:  # noqa: ANN401 - as picture
    """Return a picture of a hold that was over five seconds ago; members allow for 30."""
    made = commits(held(*seen), ZERO)
    return evolve(made, standing=(hold(ttl_ms=10_000),), now=115.0, skew=30.0)


@pytest.mark.parametrize("quiet", [{}, {"t": ((0, 0),)}])
def test_a_hold_whose_time_is_over_is_no_alarm(quiet: Any) -> None:  # noqa: ANN401 - ranges
    """Members lift it some time within the skew, each by what it knows of the clock."""
    seen = over(A, report("a", 0, holds=1, quiet=quiet))
    shown = view(seen)
    assert (shown.row.level, shown.row.words) == (Level.WAITING, "just over")
    assert (
        "members lift them by 1970-01-01 00:02:20Z at the latest" in shown.row.sentence
    )
    assert shown.partitions[0].words == "just over"
    lines = group_text.status_lines(seen, NO_BACKLOG)
    assert sum("members lift it until" in one for one in lines) == 2
    assert disobeying(seen) is None
    for holds in (0, 1):
        assert found(over(A, report("a", 0, holds=holds))) == [
            (GOOD, "member a on  obeys everything")
        ]


def test_the_largest_skew_counts() -> None:
    """Where members lift later than an operator's side thinks, holds are shown."""
    assert skew_of(0.5, [report("a", 0, skew=30.0), report("b", 1)]) == 30.0
    assert skew_of(30.0, [report("a", 0, skew=0.5)]) == 30.0
    assert skew_of(5.0, []) == 5.0


def test_a_report_tells_the_skew() -> None:
    for skew in (None, 0.0, 30.0):
        made = report("a", 0, skew=skew)
        assert decode_report(encode_report(made)) == made
    foreign = encode_report(report("a", 0, skew=30.0)).replace(b"30.0", b"-3.0")
    decoded = decode_report(foreign)
    assert decoded is not None
    assert decoded.skew is None


# ---------------------------------------------------------------- watching


def test_what_is_held_is_not_caught_up() -> None:
    """A million held records counted in the estimate of what falls by 100 a second."""
    waits = Backlog(
        lags={ZERO: 1_000_000, ONE: 500},
        since={ZERO: 10},
        held=frozenset({ZERO}),
        pace=100.0,
    )
    (line,) = waits.lines()
    assert line == (
        "lag 1,000,500, 10 written since the hold, 500 of it are not held, falling by "
        "100/s: caught up in 5s"
    )
    all_held = evolve(waits, held=frozenset({ZERO, ONE}))
    assert all_held.catch_up is None


def test_a_look_that_took_long_does_not_make_the_broker_late() -> None:
    """The broker's time is of the end of the look, and what came since is known."""
    seen = evolve(picture(A), now=time.time() - 30.0, taken_at=time.monotonic() - 30.0)
    assert "the broker is" not in watching._clock(seen)
    assert "behind" in watching._clock(evolve(seen, taken_at=time.monotonic()))


# ---------------------------------------------------------------- placing


def test_a_preview_of_a_group_whose_members_nobody_knows() -> None:
    """A dry run said nothing of who would not obey."""
    seen = commits(picture(state="Unknown"), ZERO)
    (said,) = preview._disobeying(seen, [ZERO])
    assert said[0] == "unknown"
    assert "does not tell who is in the group" in said[1]
