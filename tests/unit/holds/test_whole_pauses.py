"""Plain and whole pauses, situation by situation (P3, P7), and what is told of them."""

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

# What happens, and what is quiet then. What programs do all the time is played with the
# real client by tests/sim/test_idioms.py, and is not here again. ``all`` is what
# ``assignment()`` returns and ``some`` a part of it; ``pause`` names partitions by value.
SITUATIONS = {
    "nothing assigned at the resume": (
        "join A; pause all; lost; resume all; join A -> nothing"
    ),
    "resume() with nothing assigned": (
        "join A; pause all; lost; resume; join A -> nothing"
    ),
    "membership lost, others come": "join A; pause all; lost; join B -> B",
    "one, lost twice, given back": "join A B; pause A; lost; lost; join A -> A",
    "one, lost, a join of nothing": "join A B; pause A; lost; join; join A -> nothing",
    "the only one, another is gained": "join A; pause A; join A B -> A",
    "the only one is exchanged": "join A; pause A; join B -> nothing",
    "a topic by a filter, gains of it": "join A C; some A; join A B C -> A B",
    "a topic by a filter, gains of another": "join A C; some A; join A C E -> A",
    "everything, a topic that had nothing here": "join A; pause all; join A C -> A",
    "in several calls with a poll between": (
        "join A B; some A; poll; some B; join A B D -> A B"
    ),
    "in several calls, one taken back": (
        "join A B; some A; resume A; some B; join A B D -> B"
    ),
    "in several calls, something else resumed": (
        "join A B C; some A; resume C; some B; join A B D -> A B D"
    ),
    "some of a topic": "join A B; some A; join A B D -> A",
    "objects of an earlier call": (
        "join A; ask; join A B; pause what was asked; join A B D -> A B D"
    ),
    "one is resumed, and the rest stays": (
        "join A B; pause all; resume A; join A B D -> B"
    ),
    "gains flow from a resume on": "join A B; pause all; join A B D; resume A -> B",
    "what was named and is away ends with the whole": (
        "join A B; pause all; join B; resume B; join A B -> nothing"
    ),
    "what is named outlives its absence": (
        "join A B; pause all; join B D; join A B; resume D -> A B"
    ),
    "a listener pauses what is gained": (
        "join A; pause all; join A B; pause B; resume A -> B"
    ),
    "assigned by hand, one kept": "join A; pause all; assign A B -> A",
    "assigned by hand, away and back": "join A; pause A; assign B; assign A -> nothing",
    "before it, and a join of nothing": "pause A; join; join A B -> A",
    "before it, in the second assignment": "pause A; join B; join A B -> nothing",
    "before it, and a resume of another": "pause A; resume C; join A B -> nothing",
    "another's resume ends no whole pause": (
        "join A; pause all; lift another's A; join A B -> A B"
    ),
    "the end of a block ends none": "join A; pause all; held B; join A B -> A B",
    "resume_all ends it": "join A; pause all; resume_all; join A B -> nothing",
    "for a time": "join A; all for 5 s; join A B; wait -> nothing",
    "a name's time is over": "join A; pause all; A for 5 s; wait; join A B -> A B",
    "the whole's time is over, the name's is not": (
        "join A; all for 5 s; pause A; join A B; wait -> A"
    ),
    "the whole's time is over while one is away": (
        "join A; all for 5 s; pause A; join B; wait; join A B -> nothing"
    ),
    "it weakens no strict hold": "join A; strict A; pause A; join B; join A -> A",
    "it outlasts a strict hold's time": "join A; strict for 5 s A; pause A; wait -> A",
    "after a strict hold's time it is a plain one": (
        "join A; strict for 5 s A; pass; pause A; join B; join A -> nothing"
    ),
    "placed over a strict hold it is plain when that is over": (
        "join A; strict for 5 s A; pause A; wait; join B; join A -> nothing"
    ),
    "placed over a strict hold it leaves that in force": (
        "join A; strict for 5 s A; pause A; join B; join A -> A"
    ),
    "placed over it again, too": (
        "join A; strict for 5 s A; pause A; A for 9 s; join B; join A -> A"
    ),
    "what it leaves in force ends": (
        "join A; strict for 5 s A; pause A; join B; join A; wait -> nothing"
    ),
    "what it left in force while it was away ends": (
        "join A; strict for 5 s A; pause A; join B; wait; join A -> nothing"
    ),
    "a strict hold, one over it for less, and that is over": (
        "join A; strict for 5 s A; pause A; A for 1 s; 2 s -> A"
    ),
    "a strict hold and one over it while it is away, resumed": (
        "join B; strict for 5 s A; pause A; resume B; join A -> A"
    ),
    "the same by name": (
        "join B; strict for 5 s A; pause A; resume A; join A -> nothing"
    ),
    "a strict hold and one over it, unsubscribed": (
        "join A; strict for 5 s A; pause A; unsubscribe; join A -> A"
    ),
    "a shorter pause by name leaves the whole pause as it is": (
        "join A B; pause all; some for 5 s A; wait; join A B D -> A B D"
    ),
    "a longer pause by name does not make the whole pause longer": (
        "join A B; all for 5 s; some A; wait -> A"
    ),
    "a whole pause of several calls": (
        "join A B; some for 1 s A; some for 600 s B; join A B D -> A B D"
    ),
    "it ends with the first of them": (
        "join A B; some for 1 s A; some for 600 s B; 2 s; join A B D -> B"
    ),
    "a name that is over makes no whole pause": (
        "join A B; some for 1 s A; 2 s; some B; join A B D -> B"
    ),
    "nor one that was taken back": (
        "join A B; some for 1 s A; 2 s; some B; resume; some A; join A B D -> A B"
    ),
    "a plain pause over one that lasts while assigned outlives a loss": (
        "join A B; while assigned A; pause A; lost; join A B -> A"
    ),
    "an expired whole pause ends nothing that may be given back": (
        "join A B; all for 5 s; poll; pause A; lost; wait; join A B -> A"
    ),
    "a whole pause that its listed owner lifts ends what is away": (
        "join A B; pause all; join B; lift the whole; join A B -> B"
    ),
}


def play(lab, steps):
    """Do these things one after another; the capitals at the end of each are partitions."""
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
    }


@pytest.mark.parametrize("situation", SITUATIONS.values(), ids=SITUATIONS)
def test_what_is_quiet_after_a_situation(situation):
    steps, quiet = situation.split(" -> ")
    expected = (
        set() if quiet == "nothing" else {PARTITIONS[one] for one in quiet.split()}
    )
    assert played(steps).quiet() == expected


@pytest.mark.parametrize("lifetime", [Lifetime.UNTIL_RESUMED, Lifetime.WHILE_ASSIGNED])
def test_only_single_partitions_are_paused_plainly(lifetime):
    """A topic is held until it is resumed, whatever the others are."""
    lab = LedgerLab()
    lab.pause(ORDERS, Partition(*C))
    lab.hold(AUDIT, lifetime=lifetime)
    found = {str(hold.scope): hold.lifetime for hold in lab.ledger.view().holds}
    strict = Lifetime.UNTIL_RESUMED
    assert found == {"orders": strict, "audit": lifetime, "audit:0": Lifetime.PLAIN}


def test_a_whole_pause_is_a_hold_of_its_own():
    """It shows as one of the topic, and takes reason and limit of the call."""
    lab = LedgerLab(owns=[A, C])
    snapshot = lab.assignment()
    lab.pause(*handed(snapshot), snapshot=snapshot, reason="full", for_=5.0)
    wholes = [hold for hold in lab.ledger.view().holds if hold.owner == WHOLE]
    assert {hold.scope for hold in wholes} == {ORDERS, AUDIT}
    assert {(hold.reason, hold.deadline) for hold in wholes} == {("full", 1005.0)}
    assert wholes[0].lifted_by() == "resume(*assignment())"


def test_what_is_handed_over_ends_here_but_not_under_a_whole_pause():
    """Neither the whole pause nor the names under it travel (G7)."""
    lab = LedgerLab()
    lab.ledger.carried = frozenset({A, B, C})
    lab.assign(A, B, C)
    lab.pause(*handed({"orders": frozenset({A, B})}), snapshot=lab.assignment())
    lab.pause(Partition(*C))
    lab.assign()
    left = {str(hold.scope) for hold in lab.ledger.view().holds}
    assert left == {"orders:0", "orders:1", "orders"}


def taken_over(lab, epochs):
    """Take pauses of these ownerships over; return the reasons of the holds there are."""
    lab.ledger.take_over(epochs, "left")
    return {str(hold.scope): hold.reason for hold in lab.ledger.view().holds}


def test_a_pause_of_the_applications_own_is_not_taken_over():
    """Its reason stays: it is what the application has asked for here."""
    lab = LedgerLab(owns=[A, B])
    lab.ledger.carried = frozenset({A, B, C})
    lab.hold(Partition(*A), reason="own")
    epochs = lab.ledger.owned()
    assert taken_over(lab, epochs) == {"orders:0": "own", "orders:1": "left"}


def test_an_ownership_that_has_ended_takes_nothing_over():
    """What came in it comes too late."""
    lab = LedgerLab(owns=[A, B])
    lab.ledger.carried = frozenset({A, B, C})
    before = lab.ledger.owned()
    play(lab, "join B; join A B")
    assert taken_over(lab, before) == {"orders:1": "left"}


# ------------------------------------------------------------ what is told


def told(lab, steps):
    """Play these steps, and return the events that they cause."""
    lab.told.events.clear()
    play(lab, steps)
    return lab.told.events


def only(lab, steps, kind):
    """Return the one event that these steps cause; it is of this kind."""
    (event,) = told(lab, steps)
    assert isinstance(event, kind)
    return event


def assigned_while_held(lab, steps):
    return [
        one for one in told(lab, steps) if isinstance(one, events.AssignedWhileHeld)
    ]


def scopes_of(holds):
    return [str(hold.scope) for hold in holds]


def test_a_plain_pause_that_ends_with_its_partition_is_told_with_advice():
    """One who wanted more learns what to write; a strict hold needs no advice."""
    lab = played("join A B; pause A")
    ended = only(lab, "join B", events.HoldsEnded)
    assert ended.departed == (A,)
    assert "UNTIL_RESUMED" in (ended.advice or "")
    lab.hold(ALL, lifetime=Lifetime.WHILE_ASSIGNED)
    (bound,) = told(lab, "join")
    assert bound.advice is None


@pytest.mark.parametrize("how", ["assign", "unsubscribe", "close"])
def test_what_the_applications_own_call_ends_is_no_news(how):
    """But if it was another owner's: only the application knows of its call."""
    lab = played("join A; pause A")
    end = {
        "assign": lambda: lab.assign(B, cause=Cause.ASSIGNED),
        "unsubscribe": lambda: lab.assign(cause=Cause.UNSUBSCRIBED),
        "close": lambda: (lab.ledger.close(), lab.ledger.deliver()),
    }
    lab.told.events.clear()
    end[how]()
    own = lab.told.only(events.HoldsEnded)
    assert (own.is_called, own.severity, own.advice) == (True, "debug", None)
    play(lab, "join A")
    lab.hold(Partition(*A), owner="ops", lifetime=Lifetime.WHILE_ASSIGNED)
    end[how]()
    assert lab.told.of(events.HoldsEnded)[-1].severity == "info"


def test_what_flows_as_a_whole_pause_ends_is_told_with_its_end():
    """``assign`` ends it; what was gained under it is kept, and was never named."""
    lab = played("join A; pause all; join A B")
    ended = only(lab, "assign A B", events.HoldsEnded)
    assert ([hold.owner for hold in ended.holds], ended.flowing) == ([WHOLE], (B,))
    assert lab.quiet() == {A}


def test_what_goes_to_the_next_owner_is_told_as_that():
    """It has not ended for the group, and no other lifetime is advised."""
    lab = LedgerLab()
    lab.ledger.carried = frozenset({A})
    play(lab, "join A B; pause A B")
    ended, left = told(lab, "join C")
    assert (left.name, left.partitions) == ("pause_not_handed_over", (B,))
    assert (ended.handed_over, ended.severity) == ((A,), "info")
    assert "UNTIL_RESUMED" in (ended.advice or "")  # for the other one
    play(lab, "join A; pause A")
    ended = only(lab, "join C", events.HoldsEnded)
    assert (ended.handed_over, ended.advice) == ((A,), None)


@pytest.mark.contract("G7")
@pytest.mark.parametrize(
    ("cause", "left"),
    [
        (Cause.JOINED, {A, B}),
        (Cause.PASSING, {A, B}),
        (Cause.LOST, {A, B}),
        (Cause.UNSUBSCRIBED, {B}),  # the plain pause has ended
        (Cause.CLOSED, set()),
    ],
)
def test_what_departs_and_is_not_handed_over_is_told(cause, left):
    """C is known to the group."""
    lab = LedgerLab(owns=[A, B, C])
    lab.ledger.carried = frozenset({C})
    lab.pause(Partition(*A))
    lab.hold(Partition(*B), Partition(*C))
    lab.assign(cause=cause)
    events_left = lab.told.of(events.PauseNotHandedOver)
    assert {tp for one in events_left for tp in one.partitions} == left


def test_a_pause_that_was_taken_over_is_a_warning():
    """Nobody here has asked for it, and only a resume of this program ends it."""
    lab = LedgerLab()
    lab.ledger.carried = frozenset({A, B, C})
    play(lab, "join A B; pause B")
    lab.told.events.clear()
    lab.ledger.take_over({A: lab.ledger.owned()[A]}, "left")
    placed = lab.told.only(events.HoldsPlaced)
    assert (placed.is_taken_over, placed.severity) == (True, "warning")
    assert placed.advice == "lift with resume('orders:0')"


def test_a_closed_consumer_holds_nothing_of_its_own():
    """What operators hold, they hold all the same."""
    lab = played("join A C; pause all; pause B")
    lab.hold(ALL, owner="worker:load")
    lab.hold(ORDERS, lifetime=Lifetime.WHILE_ASSIGNED)
    lab.hold(AUDIT, owner="ops", for_=60.0)
    theirs = [Hold(scope=ALL, owner=f"operator:{one}") for one in "xy"]
    lab.ledger.follow(theirs, ())
    before = set(lab.ledger.view().holds)
    lab.told.events.clear()
    lab.ledger.close()
    lab.ledger.deliver()
    assert set(lab.ledger.view().holds) == set(theirs)
    ended = lab.told.only(events.HoldsEnded)
    assert set(ended.holds) == before - set(theirs)


def test_what_left_quiet_is_forgotten_after_ten_thousand_others():
    """Of topics that come and go, each with another name, under a hold of everything."""
    topics = [(f"topic-{day}", 0) for day in range(MOST_LEFT + 1)]
    lab = LedgerLab(owns=topics)
    lab.hold(ALL, owner="ops")
    for left in (1, 2, len(topics)):
        lab.assign(*topics[left:])
    lab.assign(*topics[:2])
    assert lab.told.only(events.AssignedWhileHeld).partitions == (topics[1],)


def test_what_a_resume_ends_besides_is_told_with_it():
    """One event: what was named, whole pauses, and what waited; and all that flows."""
    lab = played("join A; pause all; join A B; pause E")
    removed = only(lab, "resume all", events.HoldsRemoved)
    assert {hold.key for hold in removed.holds} == {
        (scopes.partition(*A), APP),
        (scopes.partition(*E), APP),
        (ORDERS, WHOLE),
    }
    assert set(removed.flowing) == {A, B}
    assert not told(lab, "resume all")


def test_what_is_gained_under_a_whole_pause_is_told_as_information():
    lab = played("join A; pause all")
    event = only(lab, "join A B", events.AssignedWhileHeld)
    assert (event.partitions, event.severity, event.is_left_alone) == (
        (B,),
        "info",
        False,
    )


@pytest.mark.parametrize(
    "steps",
    ["join B", "lost; join B", "join; join B", "join A B; join B"],
    ids=["eager", "membership lost", "cooperative", "gained before"],
)
def test_a_whole_pause_that_is_left_alone_is_warned_of_once(steps):
    """Nothing is left that was paused by name, and something is quiet all the same."""
    lab = played("join A; pause all")
    found = assigned_while_held(lab, steps)
    assert (found[-1].partitions, found[-1].severity) == ((B,), "warning")
    assert found[-1].is_left_alone
    (more,) = told(lab, "join B D")
    assert (more.severity, more.is_left_alone) == ("info", False)
    play(lab, "resume all; join A; pause all")
    assert assigned_while_held(lab, steps)[-1].is_left_alone


def test_what_may_be_given_back_leaves_no_whole_pause_alone():
    """Only a completed join decides."""
    lab = played("join A; pause all; join A B")
    (event,) = assigned_while_held(lab, "lost B; join A B")
    assert not event.is_left_alone


@pytest.mark.parametrize(
    "steps",
    [
        "join A B; pause all; prepared; join A B",
        "join A B; pause all; prepared; join A B D",
        "join A B; pause A; prepared; join A B",
    ],
    ids=["everything", "everything, and a gain", "one"],
)
def test_a_plain_pause_that_a_rebalance_keeps_is_told_as_information(steps):
    """It is what was asked for, at each eager rebalance: no warning, and no alarm."""
    lab = LedgerLab()
    (event,) = assigned_while_held(lab, steps)
    assert (event.severity, event.is_left_alone) == ("info", False)
    assert lab.ledger.counts.alarms["assigned_while_held"] == 0


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
def test_a_plain_pause_that_outlives_a_loss_is_warned_of_once(steps, lost):
    """In kafka-python it ends with the membership, and a program may rely on that."""
    lab = LedgerLab()
    first, second = assigned_while_held(lab, f"{steps}; prepared; join A B")
    assert (first.severity, first.lost, second.severity) == ("warning", lost, "info")
    assert second.lost == ()
    assert lab.ledger.counts.alarms["assigned_while_held"] == 1


def test_a_strict_hold_that_bites_is_a_warning_beside_plain_pauses():
    """P6: whoever has forgotten it should hear of it."""
    lab = LedgerLab()
    lab.hold(ORDERS)
    (event,) = assigned_while_held(lab, "join A B; pause all; lost; join A B")
    assert event.severity == "warning"
    assert lab.ledger.counts.alarms["assigned_while_held"] == 1


def test_a_resume_tells_which_whole_pauses_it_ends_besides():
    """What is gained of a topic that it did not name flows from then on."""
    lab = played("join A B C; pause all")
    removed = only(lab, "resume C", events.HoldsRemoved)
    assert scopes_of(removed.besides) == ["orders"]
    assert removed.severity == "info"
    assert "pause('orders')" in (removed.advice or "")
    play(lab, "join A B; pause all; join A B D")
    removed = only(lab, "resume A", events.HoldsRemoved)
    assert (removed.severity, scopes_of(removed.besides)) == (
        "info",
        ["orders"],
    )  # D flows


@pytest.mark.parametrize(
    ("before", "resume", "waiting"),
    [
        pytest.param("join A; pause A B", "resume A", ["orders:1"], id="of its topic"),
        pytest.param(
            "join A; pause A E", "resume A", ["audit:1"], id="of another topic"
        ),
        pytest.param(
            "join A B; pause A B; lost", "resume A", ["orders:1"], id="membership lost"
        ),
        pytest.param(
            "join A; pause all; pause E", "resume all", ["audit:1"], id="whole pause"
        ),
        pytest.param("join A; pause A B", "resume A B", [], id="named"),
        pytest.param("join A; pause A B", "resume", [], id="names nothing"),
        pytest.param("join A; pause A B", "resume_all", [], id="all of the owner"),
        pytest.param(
            "join A B; pause all; join A", "resume all", [], id="under a whole pause"
        ),
        pytest.param("join A B; pause all; lost", "resume A", [], id="whole and lost"),
    ],
)
def test_a_resume_warns_of_the_waiting_pauses_that_it_ends_and_does_not_name(
    before, resume, waiting
):
    """These were asked for by name, and will never be in force."""
    lab = played(before)
    play(lab, resume)
    removed = lab.told.only(events.HoldsRemoved)
    assert scopes_of(removed.waiting) == waiting
    assert (removed.severity == "warning") is bool(waiting)


@pytest.mark.parametrize(
    "resume", ["resume all", "resume A B", "resume A", "resume", "resume_all"]
)
def test_a_resume_of_what_was_paused_is_logged_for_debugging_only(resume):
    """So is one that names its topic and lets nothing else flow."""
    lab = played("join A B; pause all")
    play(lab, resume)
    removed = lab.told.only(events.HoldsRemoved)
    assert (removed.severity, removed.besides) == ("debug", ())


def test_the_pause_that_ends_first_ends_the_whole_one():
    """Also where it was the last that was named."""
    lab = played("join A B; some A; some for 1 s B; 2 s")
    assert lab.quiet() == {A}
