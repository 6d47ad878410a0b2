"""What ``groups``, ``status``, ``doctor`` and pages say of members, from one picture."""

from typing import Any

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.cli import group_text, waiting, watching
from safeconsumer.cli.output import Output
from safeconsumer.group import findings, preview, verdicts, wire
from safeconsumer.group.backlog import Backlog, Pace, backlog_of
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.facts import Standing
from safeconsumer.group.fold import Fold, Written
from safeconsumer.group.known import Told
from safeconsumer.group.overview import row_of, view_of
from safeconsumer.group.picture import Picture, skew_of
from safeconsumer.group.report_wire import Kept, decode_report, encode_report
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.verdicts import BAD, GOOD, NOTE, Level
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.metrics import table
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


def found(seen: Picture) -> list[tuple[str, str]]:
    return [(one.rank, one.what) for one in findings.member_findings(seen)]


def status(seen: Picture) -> list[str]:
    return group_text.status_lines(view_of(seen), NO_BACKLOG)


# ---------------------------------------------------------------- groups


BEHIND = report("a", 0, applied={"ops": 2, "own": 0})


LOST = Kept(owner="operator:alice", scope="t", line="t held by operator:alice")
KEEPS = report("a", 0, kept=(LOST,), holds=1)


def test_what_a_member_keeps_is_not_paused_by_itself() -> None:
    """Its control topic was lost and made again; resume lifts it."""
    (row,) = view_of(picture(A, KEEPS)).partitions
    assert row.verdict.words == "kept by its member"
    is_flowing, said = waiting.is_flowing(picture(A, KEEPS), [])
    assert (is_flowing, "t held by operator:alice" in said) == (False, True)
    assert "paused it by itself" not in said
    (row,) = view_of(picture(A, report("a", 0))).partitions
    assert row.verdict.sentence == "a paused it by itself; no hold covers it"


@each(
    ("seen", "level", "said"),
    [
        (picture(A), Level.FLOWS, "nothing held"),
        (picture(A, KEEPS), Level.WAITING, "kept by members: the control topic was"),
        (picture(A, KEEPS), Level.WAITING, "by scope and owner: t held by operator:al"),
        (held(A, report("a", 0)), Level.QUIET, "quiet: 1 of 1 members quiet"),
        (held(A, BEHIND), Level.WAITING, "a is 1 record behind"),
        (held(state="Dead"), Level.QUIET, "no members: the group has no members"),
        (
            commits(held(state="Unknown"), ZERO),
            Level.UNKNOWN,
            "unknown: the cluster does not tell who is in the group",
        ),
        (
            held(report("m", 0, quiet={}, member_id=""), state="Dead"),
            Level.ALARM,
            "held but flowing: 0 of 1 members quiet; flowing: t:0",
        ),
        (commits(held(state="Empty"), ZERO), Level.QUIET, "is not seen"),
        (evolve(held(A, report("a", 0)), ends=None), Level.UNKNOWN, "what is held is"),
    ],
)
def test_what_is_said_of_a_group(seen: Picture, level: Level, said: str) -> None:
    """Nothing that is unknown is quiet; all faces show these words."""
    verdict = row_of(seen).verdict
    assert (verdict.level, said in group_text.said(verdict)) == (level, True)
    assert group_text.said(verdict) in status(seen)
    assert group_document(row_of(seen))["words"] == verdict.words


def test_reports_are_counted_as_members_have_them() -> None:
    """A killed member's last one stood in for its plain successor's."""
    seen = held(PLAIN, KILLED)
    assert group_document(view_of(seen))["reporting"] == 0
    (heading, *_) = status(seen)
    assert heading == "group g: Stable, 1 member, 0 of them report"


@pytest.mark.contract("G8")
def test_members_that_nobody_lists_are_no_number() -> None:
    """KIP-848: that there are none is not known."""
    seen = held(state="Unknown")
    (heading, *_) = status(seen)
    assert heading == "group g: Unknown, members unknown"
    assert watching._group_row(view_of(seen))[2] == "unknown"
    assert status_document(view_of(seen))["members"] is None


def test_names_forge_no_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """A client id and a group's name may have line ends; a table's lines are ours."""
    forged = "m\nbilling-9  vm  obeys all"
    seen = evolve(held(facts(forged, ZERO)), group="g\nholds: none")
    lines = status(seen)
    Output().lines(lines)
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    assert any(r"m\nbilling-9" in one for one in lines)


def test_status_names_who_has_gone_and_whose_report_is_old() -> None:
    stale, new = report("a", 0), report("b", 1, generation=8)
    lines = status(held(A, B, stale, new))
    assert any("has reported for generation 7" in one for one in lines)
    assert any("left the group" in one for one in status(held(PLAIN, KILLED)))


def test_pages_and_commands_agree_on_what_covers_nothing() -> None:
    """``wait`` ended with 0, and called members quiet that deliver all they have."""
    loud = report("a", 0, quiet={})
    seen = held(A, loud, scope="ordres")
    assert view_of(seen).verdict.words == "covers nothing"
    is_quiet, said = waiting.is_quiet(seen, seen.standing)
    assert not is_quiet
    assert "quiet" not in said


@pytest.mark.contract("G8")
def test_of_a_member_that_is_not_known_nothing_is_counted() -> None:
    """What it reported of an earlier generation was shown as a number."""
    seen = held(A, B, report("a", 0), report("b", 1, generation=6))
    rows = {one.name: one for one in view_of(seen).members}
    assert (rows["a"].quiet_count, rows["b"].quiet_count) == (1, None)
    (line,) = [one for one in status(seen) if one.startswith("  b ")]
    assert "unknown of 1 quiet" in line


def test_metrics_have_the_words_for_members() -> None:
    """A member is counted by the words that a page shows."""
    rows = (
        verdicts.OBEYS, verdicts.BEHIND, verdicts.UNAVAILABLE, verdicts.SILENT,
        verdicts.LOST, verdicts.STOPPED, verdicts.UNHEARD, verdicts.UNMEASURED,
        verdicts.OUT_OF_DATE,
    )  # fmt: skip
    assert {one.words for one in rows} == {*table.MEMBER_STATES}


def test_a_partition_whose_end_is_unknown_is_not_called_uncommitted() -> None:
    """One without a leader has a committed offset, and no lag."""
    lines = status(commits(held(A, report("a", 0)), ZERO))
    assert any(one.startswith("  t:0 ") and "lag unknown" in one for one in lines)
    seen = held(A, report("a", 0))
    assert any("nothing committed" in one for one in status(seen))
    unread = evolve(seen, facts=evolve(seen.facts, has_committed=False))
    assert not any("nothing committed" in one for one in status(unread))


# ---------------------------------------------------------------- flowing


def test_who_has_gone_does_not_make_it_flow() -> None:
    """Its last report is up to 15 s old, and nobody is in the group."""
    seen = commits(picture(report("a", 0, quiet={}), state="Empty"), ZERO)
    is_flowing, said = waiting.is_flowing(seen, ())
    assert not is_flowing
    why = "not held; a is not in the group any more, and may still deliver it"
    assert said == f"not flowing: t:0; {why}"


def test_a_member_makes_it_flow() -> None:
    seen = commits(picture(A, report("a", 0, quiet={})), ZERO)
    assert waiting.is_flowing(seen, ()) == (True, "flowing: t:0")


OLD = TopicPartition("old", 0)
READS = commits(picture(A, report("a", 0, quiet={})), ZERO, OLD)


def test_a_topic_that_the_group_no_longer_reads_does_not_keep_it_from_flowing() -> None:
    """It is named; what is asked for by its name, and a group without owners, waits on."""
    said = "flowing: t:0; nobody of the group reads old"
    assert waiting.is_flowing(READS, ()) == (True, said)
    for seen, scopes, still in (
        (READS, scopes_of(["old"], "g"), "old:0"),
        (commits(READS, ZERO, ONE, OLD), (), "t:1"),
        (commits(picture(state="Empty"), ZERO, OLD), (), "old:0 t:0"),
        (evolve(READS, standing=(hold("old"),)), (), "held"),
    ):
        is_flowing, why = waiting.is_flowing(seen, scopes)
        assert not is_flowing
        assert still in why


# ---------------------------------------------------------------- quiet


EMPTY = commits(picture(state="Empty"), ZERO, ONE)


@each(
    ("seen", "is_reached"),
    [
        (EMPTY, False),
        (evolve(EMPTY, standing=(hold("t:0"),)), False),
        (evolve(EMPTY, standing=(hold("t"),)), True),
        (commits(picture(A, B, report("a", 0), report("b", 1)), ZERO), True),
    ],
)
def test_a_group_without_members_is_quiet_only_where_a_hold_waits_for_them(
    seen: Picture, *, is_reached: bool
) -> None:
    """A member that starts would deliver what nothing holds."""
    reached, said = watching._is_quiet(seen, scopes_of(["t"], "g"))
    assert reached is is_reached
    assert ("no hold covers" in said) is not is_reached


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
    """Members obeyed a key of a later version as @all; status and doctor did not say."""
    standing, scope = heard(key)
    assert standing.covers(ONE) == (scope == "@all")
    assert standing.covers(ZERO)
    topics = Told(standing=(standing,))
    told = [one for one in findings._holds(topics, "g") if one.rank == BAD]
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
    shown = view_of(seen)
    for one in (shown.verdict, shown.partitions[0].verdict):
        assert (one.level, one.words) == (Level.WAITING, "hold ended")
        assert "members lift it until 1970-01-01 00:02:20Z" in one.sentence
    assert sum("members lift it until" in one for one in status(seen)) == 3
    for holds in (0, 1):
        assert found(over(A, report("a", 0, holds=holds))) == [
            (GOOD, "member a on  obeys everything")
        ]


def test_the_largest_skew_counts() -> None:
    """By what members report: most commands have no option for it."""
    several = [report("a", 0, skew=30.0), report("b", 1, skew=0.5)]
    assert skew_of(0.5, several) == 30.0
    assert skew_of(30.0, [report("a", 0, skew=0.5)]) == 0.5
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


def test_a_sum_without_one_of_its_parts_is_unknown() -> None:
    """The broker of one partition is down."""
    seen = evolve(commits(held(A), ZERO, ONE), lags={ZERO: 5})
    waits = backlog_of(seen, {ZERO: 3}, Pace())
    assert waits.lines() == ["lag unknown: t:1 cannot be asked"]
    assert set(waits.document().values()) == {None}
    known = backlog_of(evolve(seen, lags={ZERO: 5, ONE: 1}), {ZERO: 3, ONE: 0})
    assert known.lines() == ["lag 6, 3 written since the hold"]


# ---------------------------------------------------------------- placing


def test_a_preview_of_a_group_whose_members_nobody_knows() -> None:
    """A dry run said nothing of who would not obey."""
    seen = commits(picture(state="Unknown"), ZERO)
    (said,) = preview._disobeying(seen, [ZERO])
    assert said[0] == "unknown"
    assert "does not tell who is in the group" in said[1]
