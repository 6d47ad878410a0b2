"""Tests the members, partitions and holds of a view, and how commands describe them."""

from types import SimpleNamespace

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition

from safeconsumer.cli import group_text, waiting, watching
from safeconsumer.cli.output import Output
from safeconsumer.console import pages
from safeconsumer.group import findings, plan, scopes, wire
from safeconsumer.group.commits import Move
from safeconsumer.group.documents import group_document, status_document
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.fold import Fold, RawRecord
from safeconsumer.group.partitions import Coverage, covered
from safeconsumer.group.report_wire import decode_report, encode_report
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.verdicts import BAD, GOOD, NOTE
from safeconsumer.group.view import NO_TIMES, Answer, Times, skew_of, urgency
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.holds.explain import utc
from safeconsumer.holds.scope import Everything
from tests.harness.group.lab import ControlLab
from tests.harness.group.views import (
    BOTH,
    KEEPS,
    LINE,
    LOUD,
    ONE,
    PLAIN,
    QUIET,
    ZERO,
    A,
    B,
    commits,
    facts,
    held,
    hold,
    moved_by_silent,
    of_a,
    report,
    stream,
    viewed,
)
from tests.harness.listing import short

ALL = [Everything()]
LATER = Times(100.0)
NOBODY = facts("plain", ZERO)
# Member a owns both partitions.
OWNER = evolve(A, assigned=frozenset({ZERO, ONE}))
FROZEN = "has not reported for 18 s: it died, hangs, or cannot write its reports"


def found(view):
    return [(one.rank, one.what) for one in findings.member_findings(view)]


def status(view):
    return group_text.status_lines(view)


# ---------------------------------------------------------------- members that report


def test_members_are_not_called_plain_clients_if_reports_cannot_be_read():
    view = viewed(A, B, reports_are_read=False, unread=("no topic s",))
    quietness = view.quietness(ALL)
    assert not quietness.is_reached
    assert quietness.sentence() == (
        "0 of 2 members quiet; each of a, b cannot be judged: reports cannot be read; "
        "unknown: t:0-1"
    )
    assert view.reporting is None
    text = " ".join(one.what + one.do for one in findings.member_findings(view))
    assert "no topic s" in text
    assert "plain" not in text


@pytest.mark.parametrize(
    ("seen", "former", "words"),
    [
        ((report("b", 1),), (), "obeys"),
        ((report("b", 1, applied={"ops": 2}),), (), "behind"),
        ((report("b", 1, state="unavailable"),), (), "unavailable"),
        ((), (report("b", 1, at_ms=82_000),), "does not report"),
    ],
    ids=["obeys", "behind", "unavailable", "lost"],
)
def test_members_do_not_count_as_gone_while_kafka_hides_the_members(
    seen, former, words
):
    """Kafka hides the members from a user without permission to describe the group."""
    view = viewed(*seen, state="Unknown", former_reports=former)
    (member,) = view.members
    assert (member.verdict.words, [one.name for one in view.present]) == (words, ["b"])
    assert not view.quietness(ALL).is_reached
    text = " ".join(what for _, what in found(view)) + member.more
    assert "not in the group" not in text
    assert "does not list it" not in text
    listed = evolve(view, facts=evolve(view.facts, state="Stable"))
    assert listed.present == ()


def test_silence_of_a_member_is_measured_by_the_brokers_clock():
    """The member's own clock, which sets the time of its report, is a minute behind."""
    last = report("b", 1, at_ms=22_000, clock_offset=60.0)
    view = viewed(A, B, report("a", 0), former_reports=(last,), times=LATER)
    assert f"b {FROZEN}" in view.quietness(ALL).sentence()


STALE = "has reported for generation 7, and not yet for this one"


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("epoch", "last", "why"),
    [
        pytest.param(7, report("b", 1), None, id="same epoch"),
        pytest.param(9, report("b", 1), None, id="same partitions in a later epoch"),
        pytest.param(9, report("b", 0), STALE, id="other partitions before"),
        pytest.param(9, report("b"), STALE, id="no partitions before"),
        pytest.param(9, report("b", 1, generation=9), None, id="later report"),
        pytest.param(7, report("b", 1, quiet={}), "", id="delivering"),
        pytest.param(7, None, PLAIN, id="no report"),
    ],
)
def test_members_with_the_newer_protocol_report_their_epoch(epoch, last, why):
    """Each member has its own epoch, which may change although its partitions stay."""
    two = (evolve(A, epoch=epoch), evolve(B, epoch=epoch))
    reports = [one for one in (report("a", 0, generation=epoch), last) if one]
    quietness = viewed(*two, *reports).quietness(ALL)
    assert quietness.is_reached is (why is None)
    missing = {one.name: one.verdict.sentence for one in quietness.missing}
    assert missing == ({} if why is None else {"b": why})


def test_verdict_on_a_partition_does_not_repeat_the_reason_of_its_member():
    view = evolve(moved_by_silent(), moves={})
    (member,) = [one for one in view.members if one.name == "b"]
    assert (member.verdict.words, member.verdict.sentence) == ("does not report", PLAIN)
    assert member.more == PLAIN.removeprefix("does not report: ")
    assert view.row(ONE).verdict.sentence == f"b {PLAIN}"
    assert view.row(ONE).own_reason == ""
    moved = moved_by_silent().row(ONE)
    assert moved.own_reason == moved.verdict.sentence
    assert moved.reason == "b delivers it: its committed offset moved from 5 to 9"


@pytest.mark.parametrize(
    ("last", "text", "advice"),
    [
        (
            stream(host="h1", busy={"orders": ((0, 0),)}, state="stopped"),
            "nightly on h1 was stopped in the middle of a batch of orders, which",
            "check what is held",
        ),
        (
            stream(host="h1"),
            "stream nightly on h1 no longer reports, and is not counted",
            "its driver",
        ),
    ],
    ids=["stopped in a batch", "lost"],
)
def test_lost_stream_is_named_but_not_waited_for(last, text, advice):
    """Otherwise a command would wait forever for a stream that no longer reports."""
    view = viewed(state="Dead", lost_streams=(last,))
    quietness = view.quietness(ALL)
    assert quietness.is_reached
    assert text in quietness.sentence()
    (one,) = [one for one in findings.member_findings(view) if "h1" in one.what]
    assert (one.rank, advice in one.do) == (NOTE, True)


@pytest.mark.contract("G8")
def test_counts_of_an_outdated_report_are_unknown():
    view = held(A, B, report("a", 0), report("b", 1, generation=6))
    rows = {one.name: one for one in view.members}
    assert (rows["a"].quiet_count, rows["b"].quiet_count) == (1, None)
    (line,) = [one for one in status(view) if one.startswith("  b ")]
    assert "unknown of 1 quiet" in line


def test_only_reports_of_present_members_are_counted():
    """The killed member's last report does not count for its successor, a plain client."""
    view = held(NOBODY, report("a", 0))
    assert group_document(view)["reporting"] == 0
    (heading, *_) = status(view)
    assert heading == "group g: Stable, 1 member, 0 report"


# ---------------------------------------------------------------- killed members

HELD = hold("t", at=60.0)
DIED_QUIET = report("b", 1, at_ms=82_000)


def after_a_kill(last, *seen, **changed):
    """Return a view of a group in which member b no longer reports."""
    known = {"former_reports": (last,), "times": LATER, "holds": (HELD,), **changed}
    return viewed(*seen, **known)


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("last", "why", "rank"),
    [
        (DIED_QUIET, FROZEN, BAD),
        (
            # When a static member closes, it does not leave the group.
            report("b", None, at_ms=82_000, state="stopped"),
            "has stopped, and Kafka lists it until its session ends",
            NOTE,
        ),
    ],
    ids=["killed", "closed"],
)
def test_silent_member_that_kafka_still_lists_is_not_called_a_plain_client(
    last, why, rank
):
    view = after_a_kill(last, A, B, report("a", 0), holds=())
    assert (
        view.quietness(ALL).sentence() == f"1 of 2 members quiet; b {why}; unknown: t:1"
    )
    (one,) = [one for one in findings.member_findings(view) if why in one.what]
    assert (one.rank, one.what) == (rank, f"member b on  {why}")
    assert "Control()" not in one.do


@pytest.mark.contract("G8")
@pytest.mark.parametrize("member_id", ["", "b-1"], ids=short)
@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_partition_of_an_unlisted_frozen_member_is_unknown(member_id, state):
    """Kafka does not list members with manual assignment or an expired session."""
    why = f"b {FROZEN}"
    last = evolve(DIED_QUIET, member_id=member_id)
    for one in (last, evolve(last, quiet={}), evolve(last, quiet={}, busy=last.quiet)):
        view = after_a_kill(one, state=state, holds=())
        quietness = view.quietness(ALL)
        assert not quietness.is_reached
        assert why in quietness.sentence()
        assert (quietness.members, len(quietness.missing)) == (1, 1)
        assert view.row(ONE).answer is Answer.UNKNOWN
        assert not any(each.delivers(ONE) for each in view.present)
        (member,) = view.members
        assert f"{member.name} {member.more}".startswith(why)
        assert state != "Stable" or view.row(ONE).reason == why
    view = after_a_kill(last, A, LOUD, holds=())
    assert view.row(ZERO).answer is Answer.FLOWING
    busy = evolve(last, assigned={}, quiet={}, busy=QUIET)
    view = after_a_kill(busy, A, report("a", 0), holds=())
    assert view.row(ZERO).reason == why
    assert after_a_kill(evolve(last, state="stopped"), holds=()).all_members == ()


@pytest.mark.parametrize(
    "seen",
    [
        (A, B, report("a", 0)),
        (OWNER, report("a", 0, **BOTH)),
        (A, facts("c", ONE), report("a", 0), report("c", 1)),
    ],
    ids=["listed by Kafka", "partition moved", "owned by a successor"],
)
def test_member_that_died_while_quiet_does_not_change_the_verdict(seen):
    view = after_a_kill(DIED_QUIET, *seen)
    assert view.quietness([HELD]).is_reached
    row = next(one for one in view.partitions if one.tp == ONE)
    (owner,) = (one.client_id for one in view.facts.members if ONE in one.assigned)
    assert (row.verdict.words, row.owner) == ("quiet", owner)


def test_member_that_died_while_quiet_stays_quiet_after_later_records():
    ends = {"ops": 9}
    view = after_a_kill(DIED_QUIET, A, B, report("a", 0, applied=ends), ends=ends)
    assert view.quietness([HELD]).is_reached


@pytest.mark.parametrize(
    "last",
    [
        evolve(DIED_QUIET, quiet={}),
        evolve(DIED_QUIET, quiet={}, busy=DIED_QUIET.quiet),
        evolve(DIED_QUIET, applied={"ops": 2}),
        evolve(DIED_QUIET, state="unavailable"),
        evolve(DIED_QUIET, is_partial=True),
        evolve(DIED_QUIET, state="stopped"),
        report("b", state="stopped", busy={"t": ((1, 1),)}, at_ms=99_000),
    ],
    ids=[
        *("flowing", "busy", "before the hold", "cannot read", "partial", "stopped"),
        "stopped at work",
    ],
)
@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "not listed"])
def test_member_that_was_not_quiet_in_its_last_report_is_unknown(last, *, is_listed):
    """A frozen process may continue to process its records."""
    seen = (A, B) if is_listed else (OWNER,)
    view = after_a_kill(last, *seen, report("a", 0, **({} if is_listed else BOTH)))
    is_over = last.state == "stopped" and not last.busy and not is_listed
    assert view.quietness([HELD]).is_reached is is_over


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("skew", "changed"),
    [
        (1.0, {"times": Times(None, 82.0, 130.0), "skew": 1.0}),
        (1.0, {"times": LATER, "skew": 30.0}),
    ],
    ids=["by the local clock", "by its own, smaller skew"],
)
def test_silent_member_with_a_hold_that_may_have_ended_is_unknown(skew, changed):
    """The member lifts the hold at 90 s plus its skew, and then delivers records."""
    ending = evolve(HELD, hold=ControlHold("id", "x", 30_000))
    view = after_a_kill(evolve(DIED_QUIET, skew=skew), B, holds=(ending,), **changed)
    assert view.holds == (ending,)
    assert view.row(ONE).answer is Answer.UNKNOWN


@pytest.mark.contract("G8")
def test_silent_member_that_continues_to_commit_is_not_quiet():
    view = after_a_kill(DIED_QUIET, B, moves={ONE: Move(3, 9)})
    assert view.row(ONE).answer is Answer.FLOWING


# ---------------------------------------------------------------- unknown numbers


@pytest.mark.contract("G8")
def test_number_of_members_that_kafka_does_not_list_is_unknown():
    view = held(state="Unknown")
    (heading, *_) = status(view)
    assert heading == "group g: Unknown, members unknown"
    assert watching._group_row(view)[2] == "unknown"
    assert status_document(view)["members"] is None
    lost = evolve(view, facts=evolve(view.facts, has_committed=False), ends={})
    document = status_document(lost)
    names = ("reporting", "held", "quiet", "by_partition")
    assert [document[name] for name in names] == [None] * 4
    assert document["hold_count"] == 1


@pytest.mark.contract("G8")
def test_hold_count_is_unknown_if_the_holds_cannot_be_read():
    """A script that counts holds must not mistake an unreadable topic for an empty topic."""
    read = viewed(A, report("a", 0))
    names = ("hold_count", "held", "quiet", "flowing")
    lists = ("holds", "by_partition")
    assert [group_document(read)[name] for name in names] == [0, 0, 0, []]
    assert [status_document(read)[name] for name in lists] == [[], []]
    unread = evolve(read, ends=None, unread=("no holds topic",))
    assert [group_document(unread)[name] for name in names] == [None] * 4
    document = status_document(unread)
    assert [document[name] for name in (*names, *lists)] == [None] * 6
    before = group_document(held(A, NOBODY, ends=None))
    assert [before[name] for name in names] == [None, None, None, []]


@pytest.mark.parametrize(
    ("view", "text", "whole", "cell"),
    [
        (commits(held(A), ZERO), "lag unknown: t:0 cannot be queried", None, "unknown"),
        (
            evolve(commits(held(A), ZERO, ONE), lags={ZERO: 5}),
            "lag unknown: t:1 cannot be queried",
            None,
            "unknown",
        ),
        (
            evolve(commits(held(A), ZERO, ONE), lags={ZERO: 5_000, ONE: 1}),
            "lag 5,001",
            5001,
            "5,001",
        ),
        (
            evolve(commits(viewed(OWNER), ZERO), lags={ZERO: 0}),
            "lag unknown: nothing committed for t:1",
            None,
            "nothing committed for 1 partition",
        ),
        (held(A), "  t:0  unknown  a  nothing committed", None, "nothing committed"),
    ],
    ids=["no answer", "one answer", "known", "one uncommitted", "nothing committed"],
)
def test_lag_is_unknown_if_one_partition_has_an_unknown_lag(view, text, whole, cell):
    assert status(view)[-1] == text
    assert status_document(view)["whole_lag"] == whole
    assert watching._group_row(view)[5] == cell


def test_partition_with_an_unknown_end_offset_is_not_called_uncommitted():
    lines = status(commits(held(A, report("a", 0)), ZERO))
    assert any(one.startswith("  t:0 ") and "lag unknown" in one for one in lines)
    view = held(A, report("a", 0))
    assert any("  nothing committed" in one for one in status(view))
    unread = evolve(view, facts=evolve(view.facts, has_committed=False))
    assert not any("nothing committed" in one for one in status(unread))
    assert (unread.uncommitted, commits(view, ZERO).uncommitted) == ((), ())


def test_groups_are_sorted_by_their_known_lag():
    much = evolve(commits(viewed(OWNER), ZERO), lags={ZERO: 9})
    less = evolve(commits(viewed(facts("a", ZERO)), ZERO), lags={ZERO: 5}, group="a")
    assert sorted((less, much), key=pages._most_lag) == [much, less]
    assert sorted((less, much), key=urgency) == [much, less]


# ---------------------------------------------------------------- flowing and quiet groups

OLD = TopicPartition("old", 0)
READS = commits(viewed(A, LOUD), ZERO, OLD)
UNOWNED = "no member of the group owns it"


@pytest.mark.parametrize(
    ("view", "scopes", "still", "why"),
    [
        # The output names a topic that no member reads, but the command waits for it
        # only if a scope names it.
        (READS, ["old"], "old:0", UNOWNED),
        (commits(READS, ZERO, ONE, OLD), [], "t:1", UNOWNED),
        (commits(viewed(state="Empty"), ZERO, OLD), [], "old:0 t:0", UNOWNED),
        (
            # The member's last report is up to 15 s old, and the group has no members.
            commits(viewed(LOUD, state="Empty"), ZERO),
            [],
            "t:0",
            "not held; a is not in the group any more, and may still deliver it",
        ),
        (
            viewed(A, KEEPS),
            [],
            "t:0",
            f"a keeps holds that its control topic lost, until resume lifts them: {LINE}",
        ),
        (
            viewed(A, report("a", 0)),
            [],
            "t:0",
            "a paused it with pause(); no hold of the group covers it",
        ),
    ],
    ids=["named", "unowned", "empty", "left", "kept", "paused"],
)
def test_wait_flowing_names_the_partitions_that_are_not_flowing(
    view, scopes, still, why
):
    found = waiting.is_flowing(view, scopes_of(scopes, "g"))
    assert found == (False, f"not flowing: {still}; {why}")


def test_wait_flowing_names_topics_that_no_member_reads():
    one = commits(viewed(A, LOUD), ZERO)
    assert waiting.is_flowing(one, ()) == (True, "flowing: t:0")
    text = "flowing: t:0; no member of the group reads old"
    assert waiting.is_flowing(READS, ()) == (True, text)
    held_there = evolve(READS, holds=(hold("old"),))
    assert waiting.is_flowing(held_there, ()) == (False, "held: old by alice")


STREAM = stream(quiet={})
PAUSED = "not flowing: t:0; a paused it with pause(); no hold of the group covers it"


@pytest.mark.parametrize("scopes", [[], ["t"]], ids=["all", "named"])
@pytest.mark.parametrize(
    ("view", "sentence"),
    [
        (viewed(A, report("a", 0), STREAM), PAUSED),
        (
            commits(viewed(facts("a", ONE), report("a", 1, quiet={}), STREAM), ZERO),
            f"not flowing: t:0; {UNOWNED}",
        ),
        (viewed(A, LOUD, stream(quiet={"t": ((0, 0),)})), "flowing: t:0"),
        (viewed(STREAM), "flowing: t:0"),
        (commits(viewed(STREAM, state="Empty"), ZERO), "flowing: t:0"),
    ],
    ids=["paused", "unowned", "quiet stream", "stream alone", "stream commits"],
)
def test_wait_flowing_ignores_a_stream_in_a_group_with_members(view, sentence, scopes):
    """In a group without members, a stream does count."""
    found = waiting.is_flowing(view, scopes_of(scopes, "g") if scopes else ())
    assert found == (not sentence.startswith("not"), sentence)


def test_group_with_neither_partitions_nor_commits_does_not_count_as_flowing():
    nothing = "the group owns no partition, and has committed no offset"
    assert waiting.is_flowing(viewed(), ()) == (False, f"not flowing: {nothing}")


def test_wait_flowing_checks_every_owner_of_a_partition():
    """During a rebalance, a partition may briefly have two owners."""
    view = viewed(A, facts("b"), LOUD, report("b", 0))
    reached, _ = waiting.is_flowing(view, ())
    assert not reached


def test_wait_flowing_considers_a_stream_for_topics_that_no_member_reads():
    own = stream(assigned={"u": ((0, 0),)}, quiet={})
    view = viewed(A, LOUD, own)
    assert waiting.is_flowing(view, scopes_of(["u"], "g")) == (True, "flowing: u:0")
    held_back = viewed(A, LOUD, evolve(own, quiet=own.assigned))
    reached, sentence = waiting.is_flowing(held_back, scopes_of(["u"], "g"))
    assert (reached, sentence.startswith("not flowing: u:0")) == (False, True)


def test_topic_that_only_a_stream_reads_counts_as_not_read_by_any_member():
    """A reset of such a topic would never finish while the group has members."""
    view = commits(viewed(A, LOUD, stream(assigned={"old": ((0, 0),)})), ZERO, OLD)
    assert view.no_longer_read == ("old",)
    text = "flowing: t:0; no member of the group reads old"
    assert waiting.is_flowing(view, ()) == (True, text)


EMPTY = commits(viewed(state="Empty"), ZERO, ONE)


@pytest.mark.parametrize(
    ("view", "is_reached"),
    [
        (EMPTY, False),
        (evolve(EMPTY, holds=(hold("t:0"),)), False),
        (evolve(EMPTY, holds=(hold("t"),)), True),
        (commits(viewed(A, B, report("a", 0), report("b", 1)), ZERO), True),
    ],
    ids=["nothing held", "one held", "all held", "quiet members"],
)
def test_group_without_members_is_quiet_only_under_a_hold(view, *, is_reached):
    """A new member would deliver records of unheld partitions."""
    reached, text = watching._is_quiet(view, scopes_of(["t"], "g"))
    assert reached is is_reached
    assert ("no hold covers" in text) is not is_reached


@pytest.mark.contract("G8")
def test_scope_is_neither_confirmed_nor_refused_while_owners_are_unknown():
    view = held(state="PreparingRebalance")
    text = scopes.mistakes(view, scopes_of(["orders", "t:3"], "g"), lambda: ("orders",))
    assert text == (
        "whether g consumes orders, t:3 is not known: "
        "the group rebalances (PreparingRebalance)"
    )


def test_preview_of_a_group_with_unknown_members_is_unknown():
    view = commits(viewed(state="Unknown"), ZERO)
    ((level, text),) = plan._disobeying(view, [ZERO])
    assert level == "unknown"
    assert "does not list the group's members" in text


# ---------------------------------------------------------------- doctor


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (commits(held(state="Unknown"), ZERO), [(BAD, "does not list the group's")]),
        (
            commits(held(state="PreparingRebalance"), ZERO),
            [(NOTE, "the group rebalances")],
        ),
        (commits(held(state="Empty"), ZERO), [(NOTE, "g has no members")]),
        (
            held(A, report("a", 0, holds=1), unread=("no right",)),
            [(BAD, "unknown: no right"), (GOOD, "obeys all holds")],
        ),
        (
            held(NOBODY, report("a", 0)),
            [(BAD, "does not report"), (NOTE, "is not in the group any more")],
        ),
        (
            held(A, B, report("a", 0, holds=1), report("b", 1, generation=8, holds=1)),
            [(NOTE, "has reported for generation 7"), (GOOD, "obeys all holds")],
        ),
        (
            held(A, report("a", 0, holds=0)),
            [(BAD, "has read every record and obeys 0 holds")],
        ),
        (held(A, report("a", 0, holds=1)), [(GOOD, "obeys all holds")]),
        (
            held(A, report("a", 0, holds=2)),
            [(BAD, "obeys 2 holds, and the topics have 1")],
        ),
    ],
    ids=[
        *("no list", "rebalance", "empty", "unread", "silent", "outdated"),
        *("fewer holds", "all holds", "more holds"),
    ],
)
def test_doctor_ranks_the_findings_about_members(view, expected):
    for (rank, what), (wanted, text) in zip(found(view), expected, strict=True):
        assert (rank, text in what) == (wanted, True), what


def test_doctor_accepts_an_older_report_that_still_counts_an_expired_hold():
    expired = hold("t", 1000, at=60.0)

    def problems(at_ms, *over):
        last = report("a", 0, holds=1, at_ms=at_ms)
        view = viewed(A, last, recently_expired=over, times=Times(95.0), skew=30.0)
        return [what for rank, what in found(view) if rank == BAD]

    assert problems(90_000, expired) == []
    assert "the topics were lost" in problems(90_000)[0]
    assert "the topics were lost" in problems(92_500, expired)[0]


@pytest.mark.parametrize(
    "key",
    [
        ControlKey("g", "alice", "t:0", ("x",), 2),
        ControlKey("g", "alice", "shape:round", (), 2),
        ControlKey("g", "alice", "t:0", (), 2),
        ControlKey("g", "alice", "t:0"),
    ],
    ids=short,
)
def test_doctor_names_holds_that_members_apply_to_all_partitions(key):
    """Members of this version cannot read a key of a later version."""
    written = RawRecord(wire.encode_key(key), wire.encode_hold(ControlHold()), 0, 1000)
    lab, fold = ControlLab(), Fold("g")
    lab.hear(written)
    fold.take([written])
    (record,) = fold.holds()
    ((scope, _),) = lab.held()
    assert record.covers(ONE) == (scope == "@all")
    assert record.covers(ZERO)
    board = SimpleNamespace(times=NO_TIMES, holds=lambda _: (record,))
    bad = [one for one in findings._holds(board, "g") if one.rank == BAD]
    assert ["@all" in one.do for one in bad] == [True] * (scope == "@all")


# ---------------------------------------------------------------- expired holds


def over(*seen, **changed):
    """Return a view of a hold that expired 5 s ago, while members allow a skew of 30 s."""
    known = {"holds": (hold(ttl_ms=10_000),), "times": Times(115.0), "skew": 30.0}
    return commits(viewed(*seen, **{**known, **changed}), ZERO)


@pytest.mark.parametrize("quiet", [{}, QUIET], ids=["flows", "quiet"])
def test_expired_hold_does_not_raise_an_alarm(quiet):
    """Each member lifts the hold within the skew, by its own estimate of the clock."""
    lines = status(over(A, report("a", 0, holds=1, quiet=quiet)))
    assert sum("members lift it until" in one for one in lines) == 1
    assert sum("hold ended" in one for one in lines) == 3
    for holds in (0, 1):
        assert found(over(A, report("a", 0, holds=holds))) == [
            (GOOD, "member a on  obeys all holds")
        ]


def test_ended_hold_is_lifted_once_the_skew_of_members_has_passed():
    """The hold was placed at time 100 s for 10 s, and members allow a skew of 30 s."""
    view = over(A, report("a", 0, holds=1))
    assert view.lifted_by(view.holds) == 140.0
    assert utc(140.0) in view.verdict.sentence


def test_verdict_of_an_old_view_starts_with_its_age():
    assert viewed().aged(12.0).verdict.sentence == "12s ago: nothing held"


def test_old_view_adds_its_age_to_cached_verdicts(monkeypatch):
    """Judging many partitions takes milliseconds, and each request adds the view's age."""
    view = over(A, report("a", 0, holds=1))
    judged = view.members
    monkeypatch.setattr("safeconsumer.group.view._disobeying", None)
    aged = view.aged(12.0).members
    assert [one.name for one in aged] == [one.name for one in judged] != []
    assert all(one.verdict.sentence.startswith("12s ago: ") for one in aged)


@pytest.mark.parametrize(
    "besides", [(), (hold("t:1"),)], ids=["alone", "beside a lasting hold"]
)
def test_holds_that_may_have_ended_are_explained_once(besides):
    """Each such hold is marked; the list of groups marks the group without an explanation."""
    several = tuple(hold(f"t:{n}", ttl_ms=10_000) for n in (0, 2, 3))
    times = Times(None, 105.0, 111.0)
    view = over(A, report("a", 0), holds=(*several, *besides), times=times)
    lines = status(view)
    assert sum("so it counts as in force" in one for one in lines) == 1
    assert sum(one.endswith("  may have ended") for one in lines) == 3
    if not besides:
        assert watching._group_row(view)[-1] == "may have ended"


def test_largest_skew_that_a_member_reports_applies():
    """Most commands have no option for the skew."""
    several = [report("a", 0, skew=30.0), report("b", 1, skew=0.5)]
    assert skew_of(0.5, several) == 30.0
    assert skew_of(30.0, [report("a", 0, skew=0.5)]) == 0.5
    assert skew_of(5.0, []) == 5.0
    foreign = encode_report(report("a", 0, skew=30.0)).replace(b"30.0", b"-3.0")
    assert decode_report(foreign).skew is None


def test_partition_under_several_holds_shows_the_longest_hold():
    several = (hold(ttl_ms=1000), hold("t"))
    (row,) = evolve(of_a(quiet=QUIET), holds=several).partitions
    text = "held by alice until somebody lifts it: r"
    assert row.verdict.sentence == f"{text}, and 1 more"
    (row,) = evolve(of_a(quiet=QUIET), holds=several[1:]).partitions
    assert row.verdict.sentence == text


@pytest.mark.parametrize(
    ("count", "text"), [(1, "1 partition waits"), (2, "2 partitions wait")]
)
def test_verdict_on_a_member_shows_how_many_partitions_wait_for_control_topics(
    count, text
):
    (member,) = of_a(quiet=QUIET, gated=count).members
    assert member.more == f"{text} for the control topics"


# ---------------------------------------------------------------- many holds

TOPICS = ("orders", "audit", "orders.dlq")
SCOPES = (
    *("@all", *TOPICS, "re:ord.*", "re:x"),
    *(f"{topic}:{number}" for topic in TOPICS for number in range(3)),
)
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in range(4)]


@given(st.lists(st.tuples(st.sampled_from(SCOPES), st.sampled_from("ab"))))
def test_coverage_finds_the_holds_of_each_partition_in_their_order(placed):
    holds = [hold(key=ControlKey("g", owner, scope)) for scope, owner in placed]
    coverage = Coverage(holds)
    for tp in PARTITIONS:
        assert coverage.covering(tp) == tuple(one for one in holds if one.covers(tp))
    expected = [tp for tp in PARTITIONS if any(one.covers(tp) for one in holds)]
    assert list(covered(holds, PARTITIONS)) == expected


def test_key_of_a_later_version_covers_every_partition():
    later = hold(key=ControlKey("g", "a", "orders:0", ("later",)))
    assert Coverage([later]).covering(TopicPartition("audit", 3)) == (later,)


def test_many_holds_of_single_partitions_are_listed_in_one_line():
    several = [hold(f"t:{number}") for number in range(1_000)]
    view = viewed(A, report("a", 0), holds=(*several, hold("orders")))
    lines = status(view)
    assert len([one for one in lines if one.startswith("  t:0-999 ")]) == 1
    assert len([one for one in lines if one.startswith("  orders ")]) == 1
    owners = tuple(
        evolve(one, key=evolve(one.key, owner=f"o-{number}"))
        for number, one in enumerate(several)
    )
    lines = status(evolve(view, holds=owners))
    assert "  and 900 more: -o json shows all" in lines
    assert len(lines) < 120


class Walked(tuple[HoldRecord, ...]):  # noqa: SLOT001 - an attribute counts iterations
    """A tuple of holds that counts its iterations."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize(
    "show", [group_text.status_lines, status_document], ids=["text", "json"]
)
@pytest.mark.parametrize(
    "times",
    [Times(200.0), Times(None, 100.0, 9e9)],
    ids=["known time", "own clock"],
)
def test_holds_are_scanned_equally_often_however_many_there_are(show, times):
    walks = []
    for count in (5, 40):
        several = Walked(
            hold(ttl_ms=3_600_000, key=ControlKey("g", f"owner-{number}", "@all"))
            for number in range(count)
        )
        show(viewed(A, report("a", 0), holds=several, times=times))
        walks.append(several.walks)
    few, many = walks
    assert few == many


def test_newlines_in_names_cannot_forge_output_lines(capsys):
    """A client id and a group's name may have newlines."""
    forged = "m\nbilling-9  vm  obeys all"
    view = evolve(held(facts(forged, ZERO)), group="g\nholds: none")
    lines = status(view)
    Output().lines(lines)
    assert len(capsys.readouterr().out.splitlines()) == len(lines)
    assert any(r"m\nbilling-9" in one for one in lines)


def test_next_expiry_ignores_holds_that_have_already_expired():
    """Members still obey the ended hold for the allowed skew."""
    ended, later = hold(ttl_ms=3000), hold("t", ttl_ms=9000)
    view = held(A, times=Times(104.0), skew=30.0)
    assert evolve(view, holds=(ended, later)).next_expiry == 109.0
    assert evolve(view, holds=(ended,)).next_expiry is None
