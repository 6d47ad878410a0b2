"""The verdicts on members and partitions of one group: unknown is never quiet."""

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group.commits import Move
from safeconsumer.group.facts import GroupFacts, HoldRecord, MemberFacts
from safeconsumer.group.findings import member_findings
from safeconsumer.group.report_wire import Report
from safeconsumer.group.view import Answer, Times, View
from safeconsumer.group.wire import ControlHold, ControlKey
from safeconsumer.holds.scope import Everything
from tests.harness.listing import short

ENDS = {"ops": 3}
LATER = Times(100.0)
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def facts(name, *assigned):
    return MemberFacts(
        member_id=f"{name}-1", client_id=name, host="", assigned=frozenset(assigned)
    )


def report(name, number=None, **changed):
    owned = {} if number is None else {"t": ((number, number),)}
    made = Report(
        group="g",
        member=f"{name}-x",
        client_id=name,
        applied=ENDS,
        assigned=owned,
        quiet=owned,
        member_id=f"{name}-1",
        generation=7,
    )
    return evolve(made, **changed)


def viewed(*seen, state="Stable"):
    members = tuple(one for one in seen if isinstance(one, MemberFacts))
    return View(
        group="g",
        facts=GroupFacts(state=state, members=members, committed={}),
        reports=tuple(one for one in seen if isinstance(one, Report)),
        ends=ENDS,
    )


def quietness(*seen, state="Stable"):
    return viewed(*seen, state=state).quietness([Everything()])


A, B = facts("a", ZERO), facts("b", ONE)
TWO = {"t": ((0, 1),)}
BOTH = {"assigned": TWO, "quiet": TWO}
NOTHING = {"assigned": {}, "quiet": {}}
PLAIN = (
    "does not report: a plain client, which obeys no hold, one that was told not to "
    "report, or one whose last report is over a minute old"
)


def test_nobody_is_called_a_plain_client_whose_reports_cannot_be_read():
    seen = evolve(viewed(A, B), is_heard=False, unread=("no topic s",))
    found = seen.quietness([Everything()])
    assert not found.is_reached
    assert found.sentence() == (
        "0 of 2 members quiet; each of a, b cannot be judged: reports cannot be read; "
        "unknown: t:0-1"
    )
    assert seen.reporting is None
    said = " ".join(one.what + one.do for one in member_findings(seen))
    assert "no topic s" in said
    assert "plain" not in said


FROZEN = "has not reported for 18 s: it died, hangs, or cannot write its reports"


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("last", "why", "rank"),
    [
        (report("b", 1, at_ms=82_000), FROZEN, "PROBLEM"),
        (
            # A static member leaves no group.
            report("b", None, at_ms=82_000, state="stopped"),
            "has stopped, and Kafka lists it until its session ends",
            "note",
        ),
    ],
    ids=["killed", "closed"],
)
def test_a_member_that_kafka_still_lists_is_no_plain_client(last, why, rank):
    """Its own last report says what it was."""
    seen = evolve(viewed(A, B, report("a", 0)), late=(last,), times=LATER)
    found = seen.quietness([Everything()])
    assert found.sentence() == f"1 of 2 members quiet; b {why}; unknown: t:1"
    (told,) = [one for one in member_findings(seen) if why in one.what]
    assert (told.rank, told.what) == (rank, f"member b on  {why}")
    assert "Control()" not in told.do


def test_silence_of_a_member_is_counted_by_the_brokers_clock():
    """The member's own clock is a minute behind, and its report has that time."""
    last = report("b", 1, at_ms=22_000, clock_offset=60.0)
    seen = evolve(viewed(A, B, report("a", 0)), late=(last,), times=LATER)
    assert f"b {FROZEN}" in seen.quietness([Everything()]).sentence()


@pytest.mark.contract("G8")
@pytest.mark.parametrize("member_id", ["", "b-1"], ids=short)
@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance"])
def test_who_is_frozen_may_go_on(member_id, state):
    """It assigned partitions itself, or its session is over: Kafka does not list it."""
    why = f"b {FROZEN}"
    last = report("b", 1, at_ms=82_000, member_id=member_id)
    for one in (last, evolve(last, quiet={}), evolve(last, quiet={}, busy=last.quiet)):
        seen = evolve(viewed(state=state), late=(one,), times=LATER)
        found = seen.members[0]
        quiet = seen.quietness([Everything()])
        assert not quiet.is_reached
        assert why in quiet.sentence()
        assert (quiet.members, len(quiet.missing)) == (1, 1)
        assert seen.row(ONE).answer is Answer.UNKNOWN
        assert not any(one.delivers(ONE) for one in seen.present)
        assert f"{found.name} {found.more}".startswith(why)
        assert state != "Stable" or seen.row(ONE).reason == why
    seen = evolve(viewed(A, report("a", 0, quiet={})), late=(last,))
    assert seen.row(ZERO).answer is Answer.FLOWING
    busy = evolve(last, assigned={}, quiet={}, busy={"t": ((0, 0),)})
    seen = evolve(viewed(A, report("a", 0)), late=(busy,), times=LATER)
    assert seen.row(ZERO).reason == why
    stopped = evolve(viewed(), late=(evolve(last, state="stopped"),), times=LATER)
    assert stopped.everybody == ()


def test_a_hold_that_just_expired_is_not_lost():
    """A report from before that counts it still; one from after that does not."""
    hold = HoldRecord(
        key=ControlKey("g", "alice", "t"),
        hold=ControlHold("id", "x", 1000),
        at=60.0,
        offset=0,
    )

    def problems(at_ms, *over):
        told = report("a", 0, holds=1, at_ms=at_ms)
        seen = evolve(viewed(A, told), just_over=over, times=Times(95.0), skew=30.0)
        return [one.what for one in member_findings(seen) if one.rank == "PROBLEM"]

    assert problems(90_000, hold) == []
    assert "they were lost" in problems(90_000)[0]
    assert "they were lost" in problems(92_500, hold)[0]


def moved_by_silent(*seen):
    moved = {ONE: Move(5, 9)}
    return evolve(viewed(A, B, report("a", 0), *seen), moves=moved)


def test_a_partition_does_not_repeat_what_its_member_says():
    """A sentence of 96 characters stood once for the member and once for each partition."""
    seen = evolve(moved_by_silent(), moves={})
    (member,) = [one for one in seen.members if one.name == "b"]
    assert (member.verdict.words, member.verdict.sentence) == ("does not report", PLAIN)
    assert member.more == PLAIN.removeprefix("does not report: ")
    assert seen.row(ONE).verdict.sentence == f"b {PLAIN}"
    assert seen.row(ONE).own_reason == ""
    moved = moved_by_silent().row(ONE)
    assert moved.own_reason == moved.verdict.sentence
    assert moved.reason == "b delivers it: its committed offset went on from 5 to 9"


def stream(**changed):
    made = report("stream nightly", 0, member_id="", generation=-1, kind="stream")
    return evolve(made, **changed)


ALONE = report("m", 0, member_id="", generation=-1)
REBALANCES = "PreparingRebalance"
LOUD = report("a", 0, quiet={})
HANDLES = report("a", 0, busy={"t": ((1, 1),)})
GONE = report("z", 0, quiet={}, member_id="z-1", generation=6)


def test_a_stream_that_was_stopped_in_a_batch_is_named_and_not_counted():
    """Nothing reads now; whoever starts its query again must know what that brings."""
    one = evolve(stream(host="h1", busy={"orders": ((0, 0),)}), state="stopped")
    found = evolve(viewed(state="Dead"), gone=(one,)).quietness([Everything()])
    assert found.is_reached
    assert "nightly on h1 was stopped in the middle of a batch of orders, which" in (
        found.sentence()
    )


def test_a_stream_that_is_not_heard_of_any_more_is_named_and_not_counted():
    """It must not block for ever, and nobody may think that it was asked."""
    seen = evolve(viewed(state="Dead"), gone=(stream(host="h1"),))
    found = seen.quietness([Everything()])
    assert found.is_reached
    assert "stream nightly on h1 is not heard of any more, and not counted" in (
        found.sentence()
    )
    (told,) = [one for one in member_findings(seen) if "h1" in one.what]
    assert (told.rank, "its driver" in told.do) == ("note", True)


# ---------------------------------------------------------------- the dead

HELD = HoldRecord(
    key=ControlKey("g", "alice", "t"),
    hold=ControlHold("id", "x"),
    at=60.0,
    offset=2,
)


def after_a_kill(last, *seen, **known):
    """Return a view of a group of which B reports no more."""
    given = {"late": (last,), "times": LATER, "holds": (HELD,), **known}
    return evolve(viewed(*seen), **given)


DIED_QUIET = report("b", 1, at_ms=82_000)


@pytest.mark.parametrize(
    "seen",
    [
        (A, B, report("a", 0)),
        (evolve(A, assigned=frozenset({ZERO, ONE})), report("a", 0, **BOTH)),
        (A, facts("c", ONE), report("a", 0), report("c", 1)),
    ],
    ids=["Kafka lists it", "its partition has moved", "a successor has it"],
)
def test_a_member_that_died_quiet_changes_no_verdict(seen):
    """Neither while Kafka lists it, nor once its next owner reports."""
    view = after_a_kill(DIED_QUIET, *seen)
    assert view.quietness([HELD]).is_reached
    row = next(one for one in view.partitions if one.tp == ONE)
    (owner,) = (one.client_id for one in view.facts.members if ONE in one.assigned)
    assert (row.verdict.words, row.owner) == ("quiet", owner)


def test_a_later_hold_of_something_else_leaves_it_quiet():
    ends = {"ops": 9}
    heard = report("a", 0, applied=ends)
    view = after_a_kill(DIED_QUIET, A, B, heard, ends=ends)
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
    ],
    ids=["flowing", "busy", "before the hold", "cannot read", "partial", "stopped"],
)
@pytest.mark.parametrize("is_listed", [True, False], ids=["listed", "not listed"])
def test_a_member_that_died_otherwise_is_unknown(last, *, is_listed):
    """A process that is frozen may go on with what it had."""
    seen = (A, B) if is_listed else (evolve(A, assigned=frozenset({ZERO, ONE})),)
    view = after_a_kill(last, *seen, report("a", 0, **({} if is_listed else BOTH)))
    is_over = last.state == "stopped" and not is_listed
    assert view.quietness([HELD]).is_reached is is_over


@pytest.mark.parametrize(
    ("seen", "late", "words"),
    [
        ((report("b", 1),), (), "obeys"),
        ((report("b", 1, applied={"ops": 2}),), (), "behind"),
        ((report("b", 1, state="unavailable"),), (), "unavailable"),
        ((), (DIED_QUIET,), "does not report"),
    ],
    ids=["obeys", "behind", "unavailable", "lost"],
)
def test_a_member_is_not_said_to_have_left_while_nobody_lists_members(
    seen, late, words
):
    """Kafka answers with no list, as without a right."""
    unlisted = evolve(viewed(*seen, state="Unknown"), late=late)
    view = unlisted
    assert [one.verdict.words for one in view.members] == [words]
    assert [one.name for one in view.present] == ["b"]
    assert not view.quietness([Everything()]).is_reached
    said = " ".join(one.what for one in member_findings(unlisted))
    assert "not in the group" not in f"{said} {view.members[0].more}"
    assert "does not list" not in view.members[0].more
    listed = evolve(unlisted, facts=evolve(unlisted.facts, state="Stable"))
    assert listed.present == ()


STALE = "has reported for generation 7, and not yet for this one"


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("epoch", "last", "why"),
    [
        pytest.param(7, report("b", 1), None, id="of the present epoch"),
        pytest.param(9, report("b", 1), None, id="others came, and it owns the same"),
        pytest.param(9, report("b", 0), STALE, id="it owned others then"),
        pytest.param(9, report("b"), STALE, id="it owned nothing then"),
        pytest.param(9, report("b", 1, generation=9), None, id="it reports this one"),
        pytest.param(7, report("b", 1, quiet={}), "", id="it delivers"),
        pytest.param(7, None, PLAIN, id="it does not report"),
    ],
)
def test_members_of_the_newer_protocol_report_their_epoch(epoch, last, why):
    """Each has one of its own; it moves also while the member's partitions stay."""
    two = (evolve(A, epoch=epoch), evolve(B, epoch=epoch))
    reports = [one for one in (report("a", 0, generation=epoch), last) if one]
    found = quietness(*two, *reports)
    assert found.is_reached is (why is None)
    missing = {one.name: one.verdict.sentence for one in found.missing}
    assert missing == ({} if why is None else {"b": why})


@pytest.mark.contract("G8")
def test_a_member_that_closed_while_its_threads_work_is_not_quiet():
    stopped = report("b", state="stopped", busy={"t": ((1, 1),)}, at_ms=99_000)
    both = evolve(A, assigned=frozenset({ZERO, ONE}))
    view = after_a_kill(stopped, both, report("a", 0, **BOTH))
    assert not view.quietness([HELD]).is_reached


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    ("skew", "given"),
    [
        (1.0, {"times": Times(None, 82.0, 130.0), "skew": 1.0}),
        (1.0, {"times": LATER, "skew": 30.0}),
    ],
    ids=["by this machine's clock", "by its own, smaller skew"],
)
def test_a_silent_member_whose_hold_may_have_ended_is_unknown(skew, given):
    """It lifts the hold at 90 s and its skew, and delivers."""
    hold = evolve(HELD, hold=ControlHold("id", "x", 30_000))
    view = after_a_kill(evolve(DIED_QUIET, skew=skew), B, holds=(hold,), **given)
    assert view.holds == (hold,)
    assert view.row(ONE).answer is Answer.UNKNOWN


@pytest.mark.contract("G8")
def test_a_silent_member_that_commits_on_is_not_quiet():
    view = after_a_kill(DIED_QUIET, B, moves={ONE: Move(3, 9)})
    assert view.row(ONE).answer is Answer.FLOWING
