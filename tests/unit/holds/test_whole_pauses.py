"""Tests plain and whole pauses in many situations (P3, P7), and their events."""

import re

import pytest

from safeconsumer import events
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP, WHOLE, Hold, Lifetime
from safeconsumer.holds.ownership import Cause
from safeconsumer.holds.scope import Partition
from safeconsumer.holds.table import MOST_LEFT
from tests.harness.holds.lab import ALL, AUDIT, ORDERS, A, B, C, LedgerLab, handed

pytestmark = pytest.mark.contract("P3", "P7")

D, E = ("orders", 2), ("audit", 1)
PARTITIONS = {"A": A, "B": B, "C": C, "D": D, "E": E}

# Steps, and the partitions that are quiet after them. ``pause all`` and ``some A`` pause
# objects from ``assignment()``; ``pause A`` pauses an object that the program creates.
# tests/sim/test_idioms.py runs the usual idioms of programs with the real client.
SITUATIONS = {
    "no assignment at the resume": (
        "join A; pause all; lost; resume all; join A -> nothing"
    ),
    "resume() with nothing assigned": (
        "join A; pause all; lost; resume; join A -> nothing"
    ),
    "membership lost, others assigned": "join A; pause all; lost; join B -> B",
    "one paused, lost twice, reassigned": "join A B; pause A; lost; lost; join A -> A",
    "one paused, lost, an empty join": "join A B; pause A; lost; join; join A -> nothing",
    "the only one paused, another gained": "join A; pause A; join A B -> A",
    "the only one paused and replaced": "join A; pause A; join B -> nothing",
    "a topic by a filter, gains in that topic": "join A C; some A; join A B C -> A B",
    "a topic by a filter, gains in another topic": "join A C; some A; join A C E -> A",
    "everything paused, a new topic": "join A; pause all; join A C -> A",
    "in several calls with a poll between": (
        "join A B; some A; poll; some B; join A B D -> A B"
    ),
    "in several calls, one resumed": (
        "join A B; some A; resume A; some B; join A B D -> B"
    ),
    "in several calls, another topic resumed": (
        "join A B C; some A; resume C; some B; join A B D -> A B D"
    ),
    "some of a topic": "join A B; some A; join A B D -> A",
    "partitions of an earlier assignment() call": (
        "join A; ask; join A B; pause what was asked; join A B D -> A B D"
    ),
    "one is resumed, and the others stay paused": (
        "join A B; pause all; resume A; join A B D -> B"
    ),
    "gains flow after a resume": "join A B; pause all; join A B D; resume A -> B",
    "a pause of an absent partition ends with the whole pause": (
        "join A B; pause all; join B; resume B; join A B -> nothing"
    ),
    "a named pause outlives an absence of its partition": (
        "join A B; pause all; join B D; join A B; resume D -> A B"
    ),
    "a listener pauses a gained partition": (
        "join A; pause all; join A B; pause B; resume A -> B"
    ),
    "assigned manually, one kept": "join A; pause all; assign A B -> A",
    "assigned manually, absent for a time": "join A; pause A; assign B; assign A -> nothing",
    "paused before an empty join": "pause A; join; join A B -> A",
    "paused before two joins, absent in the first": "pause A; join B; join A B -> nothing",
    "paused before the join, then another resumed": "pause A; resume C; join A B -> nothing",
    "paused twice before the join, another resumed each time": (
        "pause A; resume C; pause A; resume C; join A B -> nothing"
    ),
    "a lift of another owner ends no whole pause": (
        "join A; pause all; lift another's A; join A B -> A B"
    ),
    "the end of a block ends no whole pause": "join A; pause all; held B; join A B -> A B",
    "resume_all ends a whole pause": "join A; pause all; resume_all; join A B -> nothing",
    "a whole pause with a limit": "join A; all for 5 s; join A B; wait -> nothing",
    "a named pause expires": "join A; pause all; A for 5 s; wait; join A B -> A B",
    "the limit of the whole pause passes, not that of a named pause": (
        "join A; all for 5 s; pause A; join A B; wait -> A"
    ),
    "the limit of the whole pause passes while one is absent": (
        "join A; all for 5 s; pause A; join B; wait; join A B -> nothing"
    ),
    "a plain pause keeps a strict hold": "join A; strict A; pause A; join B; join A -> A",
    "a plain pause outlasts a strict hold": "join A; strict for 5 s A; pause A; wait -> A",
    "a pause after a strict hold's limit is plain": (
        "join A; strict for 5 s A; pass; pause A; join B; join A -> nothing"
    ),
    "a pause over a strict hold is plain after the hold's limit": (
        "join A; strict for 5 s A; pause A; wait; join B; join A -> nothing"
    ),
    "a pause over a strict hold leaves the hold in force": (
        "join A; strict for 5 s A; pause A; join B; join A -> A"
    ),
    "a second pause over a strict hold leaves the hold in force": (
        "join A; strict for 5 s A; pause A; A for 9 s; join B; join A -> A"
    ),
    "a strict hold under an ended pause expires": (
        "join A; strict for 5 s A; pause A; join B; join A; wait -> nothing"
    ),
    "a strict hold under an ended pause expires while absent": (
        "join A; strict for 5 s A; pause A; join B; wait; join A -> nothing"
    ),
    "a shorter pause over a strict hold expires": (
        "join A; strict for 5 s A; pause A; A for 1 s; 2 s -> A"
    ),
    "a resume of another partition leaves an absent strict hold": (
        "join B; strict for 5 s A; pause A; resume B; join A -> A"
    ),
    "a resume by name ends an absent strict hold": (
        "join B; strict for 5 s A; pause A; resume A; join A -> nothing"
    ),
    "an unsubscribe leaves the strict hold under a pause": (
        "join A; strict for 5 s A; pause A; unsubscribe; join A -> A"
    ),
    "a shorter pause by name leaves the whole pause unchanged": (
        "join A B; pause all; some for 5 s A; wait; join A B D -> A B D"
    ),
    "a longer pause by name does not make the whole pause longer": (
        "join A B; all for 5 s; some A; wait -> A"
    ),
    "a whole pause made by several calls": (
        "join A B; some for 1 s A; some for 600 s B; join A B D -> A B D"
    ),
    "a whole pause ends with the first limit of its calls": (
        "join A B; some for 1 s A; some for 600 s B; 2 s; join A B D -> B"
    ),
    "an expired pause does not count toward a whole pause": (
        "join A B; some for 1 s A; 2 s; some B; join A B D -> B"
    ),
    "a resumed pause does not count toward a whole pause": (
        "join A B; some for 1 s A; 2 s; some B; resume; some A; join A B D -> A B"
    ),
    "a plain pause over a while-assigned hold outlives a loss": (
        "join A B; while assigned A; pause A; lost; join A B -> A"
    ),
    "an expired whole pause ends no pause that may be needed again": (
        "join A B; all for 5 s; poll; pause A; lost; wait; join A B -> A"
    ),
    "a lift by the whole pause's owner ends absent pauses": (
        "join A B; pause all; join B; lift the whole; join A B -> B"
    ),
}


def play(lab, steps):
    """Run these steps in order; capital letters at the end of a step are its partitions."""
    asked = {}
    for step in steps.split("; "):
        what, names = re.fullmatch(r"(.+?)((?: [A-E])*)", step).groups()
        if what == "ask":
            asked.update(lab.assignment())
        else:
            _act(lab, [PARTITIONS[name] for name in names.split()], asked)[what]()


def played(steps):
    lab = LedgerLab()
    play(lab, steps)
    return lab


def _act(lab, names, asked):
    single = [Partition(*tp) for tp in names]
    now = lab.assignment()
    return {
        "pause": lambda: lab.pause(*single),
        "some": lambda: lab.pause(*single, snapshot=now),
        "pause all": lambda: lab.pause(*handed(now), snapshot=now),
        "all for 5 s": lambda: lab.pause(*handed(now), snapshot=now, for_=5.0),
        "some for 1 s": lambda: lab.pause(*single, snapshot=now, for_=1.0),
        "some for 5 s": lambda: lab.pause(*single, snapshot=now, for_=5.0),
        "some for 600 s": lambda: lab.pause(*single, snapshot=now, for_=600.0),
        "while assigned": lambda: lab.hold(*single, lifetime=Lifetime.WHILE_ASSIGNED),
        "lift the whole": lambda: lab.lift(ORDERS, owner=WHOLE),
        "A for 5 s": lambda: lab.pause(Partition(*A), for_=5.0),
        "A for 1 s": lambda: lab.pause(Partition(*A), for_=1.0),
        "A for 9 s": lambda: lab.pause(Partition(*A), for_=9.0),
        "2 s": lambda: (setattr(lab.clock, "now", lab.clock.now + 2), lab.quiet()),
        "pause what was asked": lambda: lab.pause(*handed(asked), snapshot=asked),
        "resume": lambda: lab.resume(*single),
        "resume all": lambda: lab.resume(*handed(now)),
        "resume the topic": lambda: lab.resume(ORDERS),
        "resume_all": lambda: lab.ledger.remove_owner(APP),
        "lift another's": lambda: lab.lift(*single, owner="ops"),
        "held": lambda: (lab.hold(*single), lab.lift(*single)),
        "strict": lambda: lab.hold(*single),
        "strict for 5 s": lambda: lab.hold(*single, for_=5.0),
        "wait": lambda: (setattr(lab.clock, "now", 2000.0), lab.quiet()),
        "pass": lambda: setattr(lab.clock, "now", 2000.0),
        "poll": lab.poll,
        "join": lambda: lab.assign(*names),
        "assign": lambda: lab.assign(*names, cause=Cause.ASSIGNED),
        "lost": lambda: lab.assign(*names, cause=Cause.LOST),
        "prepared": lambda: lab.assign(*names, cause=Cause.PASSING),
        "unsubscribe": lambda: lab.assign(cause=Cause.UNSUBSCRIBED),
        "close": lambda: (lab.ledger.close(), lab.ledger.deliver()),
    }


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_quiet_partitions_after_each_situation_match_its_row(situation):
    steps, quiet = situation.split(" -> ")
    expected = (
        set() if quiet == "nothing" else {PARTITIONS[one] for one in quiet.split()}
    )
    assert played(steps).quiet() == expected


@pytest.mark.parametrize("lifetime", [Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED])
def test_topic_pause_keeps_its_lifetime_despite_a_plain_pause_of_a_partition(lifetime):
    lab = LedgerLab()
    lab.pause(ORDERS, Partition(*C))
    lab.hold(AUDIT, lifetime=lifetime)
    found = {str(hold.scope): hold.lifetime for hold in lab.ledger.view().holds}
    strict = Lifetime.UNTIL_RESUMED
    assert found == {"orders": strict, "audit": lifetime, "audit:0": Lifetime.PLAIN}


def test_whole_pause_is_a_hold_of_each_topic_with_the_reason_and_limit_of_the_call():
    lab = LedgerLab(owns=[A, C])
    snapshot = lab.assignment()
    lab.pause(*handed(snapshot), snapshot=snapshot, reason="full", for_=5.0)
    wholes = [hold for hold in lab.ledger.view().holds if hold.owner == WHOLE]
    assert {hold.scope for hold in wholes} == {ORDERS, AUDIT}
    assert {(hold.reason, hold.deadline) for hold in wholes} == {("full", 1005.0)}
    assert wholes[0].lifted_by() == "resume(*assignment())"


# ------------------------------------------------------------ handover of pauses (G7)


def lab_that_hands_over(*partitions, owns=()):
    """Return a lab in which the group hands over the pauses of these partitions."""
    lab = LedgerLab(owns=owns)
    lab.ledger.carried = frozenset(partitions)
    return lab


def test_pauses_under_a_whole_pause_are_not_handed_over():
    lab = lab_that_hands_over(A, B, C, owns=[A, B, C])
    lab.pause(*handed({"orders": frozenset({A, B})}), snapshot=lab.assignment())
    lab.pause(Partition(*C))
    lab.assign()
    left = {str(hold.scope) for hold in lab.ledger.view().holds}
    assert left == {"orders:0", "orders:1", "orders"}


@pytest.mark.parametrize(
    ("own", "steps", "reasons"),
    [
        ([A], "ask", {"orders:0": "own", "orders:1": "left"}),
        ([], "join B; join A B", {"orders:1": "left"}),
    ],
    ids=["paused here", "owned again since"],
)
def test_pause_is_taken_over_only_for_the_same_ownership_and_if_not_yet_paused(
    own, steps, reasons
):
    lab = lab_that_hands_over(A, B, C, owns=[A, B])
    if own:
        lab.hold(*(Partition(*tp) for tp in own), reason="own")
    owned = lab.ledger.owned()
    play(lab, steps)
    lab.ledger.take_over(owned, "left")
    found = {str(hold.scope): hold.reason for hold in lab.ledger.view().holds}
    assert found == reasons


def test_warning_about_a_taken_over_pause_names_the_call_that_lifts_the_pause():
    lab = lab_that_hands_over(A, B, C)
    play(lab, "join A B; pause B")
    lab.log.events.clear()
    lab.ledger.take_over({A: lab.ledger.owned()[A]}, "left")
    placed = lab.log.only(events.HoldsPlaced)
    assert (placed.is_taken_over, placed.severity) == (True, "warning")
    assert placed.advice == "lift with resume('orders:0')"


@pytest.mark.contract("G7")
@pytest.mark.parametrize(
    ("cause", "left"),
    [
        (Cause.JOINED, {A, B}),
        (Cause.PASSING, {A, B}),
        (Cause.LOST, {A, B}),
        (Cause.UNSUBSCRIBED, {B}),  # unsubscribe() ends the plain pause of A
        (Cause.CLOSED, set()),
    ],
)
def test_pauses_of_revoked_partitions_are_reported_unless_they_are_handed_over(
    cause, left
):
    lab = lab_that_hands_over(C, owns=[A, B, C])
    lab.pause(Partition(*A))
    lab.hold(Partition(*B), Partition(*C))
    lab.assign(cause=cause)
    reports = lab.log.of(events.PauseNotHandedOver)
    assert {tp for one in reports for tp in one.partitions} == left


@pytest.mark.contract("G7")
@pytest.mark.parametrize(
    ("pause", "left"), [("pause all", (A, B)), ("all for 5 s", ())]
)
def test_whole_pause_that_is_not_handed_over_is_reported_unless_it_expires(pause, left):
    lab = lab_that_hands_over(A, B)
    play(lab, f"join A B; {pause}; join C")
    reports = lab.log.of(events.PauseNotHandedOver)
    found = [(one.partitions, one.is_whole) for one in reports]
    assert found == ([(left, True)] if left else [])


# ------------------------------------------------------------ events


def caused(lab, steps):
    """Play these steps, and return the events that they cause."""
    lab.log.events.clear()
    play(lab, steps)
    return lab.log.events


def only(lab, steps, kind):
    """Return the only event that these steps cause, which must be of this kind."""
    (event,) = caused(lab, steps)
    assert isinstance(event, kind)
    return event


def assigned_while_held(lab, steps):
    found = caused(lab, steps)
    return [one for one in found if isinstance(one, events.AssignedWhileHeld)]


def scopes_of(holds):
    return [str(hold.scope) for hold in holds]


def test_event_of_an_ended_plain_pause_suggests_a_lifetime_unless_it_is_handed_over():
    lab = lab_that_hands_over(A)
    play(lab, "join A B; pause A B")
    ended, left = caused(lab, "join C")
    assert (left.name, left.partitions) == ("pause_not_handed_over", (B,))
    assert (ended.departed, ended.handed_over, ended.severity) == ((A, B), (A,), "info")
    assert "UNTIL_RESUMED" in (ended.advice or "")  # for B
    play(lab, "join A; pause A")
    ended = only(lab, "join C", events.HoldsEnded)
    assert (ended.handed_over, ended.advice) == ((A,), None)
    lab.hold(ALL, lifetime=Lifetime.WHILE_ASSIGNED)
    (bound,) = caused(lab, "join")
    assert bound.advice is None


@pytest.mark.parametrize("how", ["assign B", "unsubscribe", "close"])
def test_end_of_a_hold_by_a_call_is_a_debug_event_only_if_the_application_owns_it(how):
    lab = played("join A; pause A")
    own = only(lab, how, events.HoldsEnded)
    assert (own.is_called, own.severity, own.advice) == (True, "debug", None)
    play(lab, "join A")
    lab.hold(Partition(*A), owner="ops", lifetime=Lifetime.WHILE_ASSIGNED)
    assert only(lab, how, events.HoldsEnded).severity == "info"


def test_event_for_the_end_of_a_whole_pause_names_partitions_no_longer_quiet():
    """``assign`` ends the whole pause; B was covered only by it, and is no longer quiet."""
    lab = played("join A; pause all; join A B")
    ended = only(lab, "assign A B", events.HoldsEnded)
    assert ([hold.owner for hold in ended.holds], ended.flowing) == ([WHOLE], (B,))
    assert lab.quiet() == {A}


def test_close_ends_all_holds_except_those_placed_by_operators():
    lab = played("join A C; pause all; pause B")
    lab.hold(ALL, owner="worker:load")
    lab.hold(ORDERS, lifetime=Lifetime.WHILE_ASSIGNED)
    lab.hold(AUDIT, owner="ops", for_=60.0)
    theirs = [Hold(scope=ALL, owner=f"operator:{one}") for one in "xy"]
    lab.ledger.follow(theirs, ())
    before = set(lab.ledger.view().holds)
    caused(lab, "close")
    assert set(lab.ledger.view().holds) == set(theirs)
    ended = lab.log.only(events.HoldsEnded)
    assert set(ended.holds) == before - set(theirs)


def test_quiet_partitions_that_departed_are_forgotten_after_ten_thousand_others():
    """While all partitions are held, topics with new names may come and go endlessly."""
    topics = [(f"topic-{day}", 0) for day in range(MOST_LEFT + 1)]
    lab = LedgerLab(owns=topics)
    lab.hold(ALL, owner="ops")
    for left in (1, 2, len(topics)):
        lab.assign(*topics[left:])
    lab.assign(*topics[:2])
    assert lab.log.only(events.AssignedWhileHeld).partitions == (topics[1],)


@pytest.mark.parametrize(
    "steps",
    ["join B", "lost; join B", "join; join B", "join A B; join B"],
    ids=["eager", "membership lost", "cooperative", "gained before"],
)
def test_whole_pause_that_loses_its_last_named_partition_causes_one_warning(steps):
    lab = played("join A; pause all")
    found = assigned_while_held(lab, steps)
    assert (found[-1].partitions, found[-1].severity) == ((B,), "warning")
    assert found[-1].is_left_alone
    (more,) = caused(lab, "join B D")
    assert (more.severity, more.is_left_alone) == ("info", False)
    play(lab, "resume all; join A; pause all")
    assert assigned_while_held(lab, steps)[-1].is_left_alone


@pytest.mark.parametrize(
    ("steps", "partitions"),
    [
        ("join A; pause all; join A B", (B,)),
        ("join A B; pause all; prepared; join A B", (A, B)),
        ("join A B; pause all; prepared; join A B D", (A, B, D)),
        ("join A B; pause A; prepared; join A B", (A,)),
    ],
    ids=["a gain", "everything", "everything, and a gain", "one"],
)
def test_plain_pause_kept_by_a_rebalance_is_reported_as_information(steps, partitions):
    """Each eager rebalance emits this event, so it is neither a warning nor an alarm."""
    lab = LedgerLab()
    (event,) = assigned_while_held(lab, steps)
    assert (event.partitions, event.severity) == (partitions, "info")
    assert not event.is_left_alone
    assert lab.ledger.counts.alarms["assigned_while_held"] == 0


def test_is_left_alone_is_false_when_a_lost_partition_returns_to_a_whole_pause():
    lab = played("join A; pause all; join A B")
    (event,) = assigned_while_held(lab, "lost B; join A B")
    assert not event.is_left_alone


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ("join A B; pause all; lost; join A B", (A, B)),
        ("join A B; pause all; lost; join A B D", (A, B)),
        ("join A B; pause A; lost; join A B", (A,)),
        ("join A B; pause A; lost; prepared; lost; join A B", (A,)),
    ],
    ids=["everything", "everything, and a gain", "one", "lost twice"],
)
def test_plain_pause_that_outlives_a_lost_membership_causes_one_warning(steps, lost):
    """In kafka-python, losing the membership ends a pause; a program may rely on that."""
    lab = LedgerLab()
    first, second = assigned_while_held(lab, f"{steps}; prepared; join A B")
    assert (first.severity, first.lost, second.severity) == ("warning", lost, "info")
    assert second.lost == ()
    assert lab.ledger.counts.alarms["assigned_while_held"] == 1


def test_strict_hold_beside_plain_pauses_causes_a_warning_at_the_next_assignment():
    lab = LedgerLab()
    lab.hold(ORDERS)
    (event,) = assigned_while_held(lab, "join A B; pause all; lost; join A B")
    assert event.severity == "warning"
    assert lab.ledger.counts.alarms["assigned_while_held"] == 1


def test_resume_that_ends_a_whole_pause_and_an_unassigned_pause_emits_one_event():
    lab = played("join A; pause all; join A B; pause E")
    removed = only(lab, "resume all", events.HoldsRemoved)
    assert {hold.key for hold in removed.holds} == {
        (scopes.partition(*A), APP),
        (scopes.partition(*E), APP),
        (ORDERS, WHOLE),
    }
    assert set(removed.flowing) == {A, B}
    assert not caused(lab, "resume all")


WHOLE_AND_GAIN = "join A B; pause all; join A B D"
RESUMES = {
    "another topic": ("join A B C; pause all", "resume C", ["orders"], []),
    "less than flows": (WHOLE_AND_GAIN, "resume A", ["orders"], []),
    "waiting, of its topic": ("join A; pause A B", "resume A", [], ["orders:1"]),
    "waiting, another topic": ("join A; pause A E", "resume A", [], ["audit:1"]),
    "waiting, lost": ("join A B; pause A B; lost", "resume A", [], ["orders:1"]),
    "waiting and whole": ("join A; pause all; pause E", "resume all", [], ["audit:1"]),
    "waiting, named": ("join A; pause A B", "resume A B", [], []),
    "waiting, its topic": ("join A; pause A B", "resume the topic", [], []),
    "whole, its topic": ("join A B; pause all", "resume the topic", [], []),
    "waiting, no names": ("join A; pause A B", "resume", [], []),
    "waiting, all": ("join A; pause A B", "resume_all", [], []),
    "waiting under a whole": ("join A B; pause all; join A", "resume all", [], []),
    "whole and lost": ("join A B; pause all; lost", "resume A", [], []),
    "whole, assignment": ("join A B; pause all", "resume all", [], []),
    "whole, all names": ("join A B; pause all", "resume A B", [], []),
    "whole, a name": ("join A B; pause all", "resume A", [], []),
    "whole, no names": ("join A B; pause all", "resume", [], []),
    "whole, all": ("join A B; pause all", "resume_all", [], []),
}


@pytest.mark.parametrize(
    ("before", "resume", "besides", "waiting"), RESUMES.values(), ids=RESUMES
)
def test_resume_reports_pauses_that_it_ends_although_it_did_not_name_them(
    before, resume, besides, waiting
):
    """Lifting the pause of an unassigned partition warns, as it will not take effect."""
    lab = played(before)
    play(lab, resume)
    removed = lab.log.only(events.HoldsRemoved)
    assert (scopes_of(removed.besides), scopes_of(removed.waiting)) == (
        besides,
        waiting,
    )
    is_complete = not besides and not removed.remaining
    level = "warning" if waiting else "debug" if is_complete else "info"
    assert removed.severity == level
    if besides:
        assert "pause('orders')" in (removed.advice or "")


def test_whole_pause_ends_if_the_last_named_pause_expires_first():
    lab = played("join A B; some A; some for 1 s B; 2 s")
    assert lab.quiet() == {A}
