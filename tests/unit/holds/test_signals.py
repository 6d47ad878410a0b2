"""Signal handlers pause, read and raise at every point of a change to the ledger."""

import dis
import functools
import threading
from itertools import count
from pathlib import Path

import pytest

from safeconsumer import events, holds
from safeconsumer.holds import ledger
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP
from safeconsumer.holds.ownership import Cause
from tests.harness.holds.lab import (
    ALL,
    AUDIT,
    ORDERS,
    A,
    B,
    C,
    LedgerLab,
    assign_to,
    handed,
    is_locked,
)
from tests.harness.signals import Interrupts, Places, handled_by, send
from tests.harness.waiting import end_of, wait_for

# The timeout ends a deadlock.
pytestmark = [pytest.mark.timeout(120), pytest.mark.contract("P12")]

D = ("orders.eu", 0)

HANDLERS = {
    "pause": (lambda lab: lab.hold(ORDERS, owner="signal"), {A, B, C}),
    "resume": (lambda lab: lab.lift(ALL, owner="old"), {C}),
    "all holds of an owner": (lambda lab: lab.ledger.remove_owner("old"), {C}),
    "assign": (lambda lab: assign_to(lab.ledger, [A]), {A}),
    "close": (lambda lab: lab.ledger.close(), set()),
    "look": (lambda lab: lab.ledger.view(), {A, B, C}),
    "pause, resume, pause": (
        lambda lab: (lab.hold(AUDIT), lab.lift(AUDIT), lab.hold(AUDIT, reason="last")),
        {A, B, C},
    ),
}


def _lab():
    lab = LedgerLab(owns=[A, B, C])
    lab.hold(ALL, owner="old")
    return lab


def _interrupt_under_the_lock(lab):
    # The signal arrives while the ledger reads the clock under its lock.
    def look():
        if is_locked(lab.ledger):
            lab.clock.on_look = None
            send()

    lab.clock.on_look = look


@pytest.mark.parametrize(("act", "quiet"), HANDLERS.values(), ids=HANDLERS)
def test_change_by_a_handler_inside_another_change_is_applied_afterwards(act, quiet):
    """The handler returns immediately, and the interrupted call applies both changes."""
    lab = _lab()
    returned = []
    with handled_by(lambda *_: returned.append(act(lab))):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert len(returned) == 1
    assert not lab.ledger.queue
    assert lab.quiet() == quiet
    assert not is_locked(lab.ledger)


def test_handler_inside_a_change_reads_the_state_before_that_change():
    """The handler's own lift is not applied yet, and no hook is called under the lock."""
    lab = _lab()
    lab.ledger.emit(events.NothingConsumed, reason="waits")
    seen = []

    def handler(*_):
        before = len(lab.log.events)
        lab.lift(ALL, owner="old")
        seen.append((lab.quiet(), lab.ledger.deliver(), len(lab.log.events) - before))

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert seen == [({A, B, C}, False, 0)]
    assert lab.log.names()[-3:] == ["nothing_consumed", "hold_placed", "hold_removed"]


def test_handler_outside_a_change_reads_the_effect_of_its_own_pause():
    """Hooks receive the event before the handler's call returns."""
    lab = LedgerLab(owns=[A, C])
    seen = []

    def handler(*_):
        lab.hold(ORDERS)
        seen.append((lab.quiet(), lab.log.names()))

    with handled_by(handler):
        send()
    assert seen == [({A}, ["hold_placed"])]


def test_handler_that_pauses_the_whole_assignment_pauses_its_topics():
    """Partitions that the interrupted call gains after the pause are held, too."""
    lab = LedgerLab(owns=[A])
    with handled_by(lambda *_: _whole(lab, {"orders": frozenset({A})})):
        _interrupt_under_the_lock(lab)
        lab.assign(A, B, C)
    assert lab.quiet() == {A, B}


def test_interrupted_call_reports_an_assignment_made_by_the_signal_handler_once():
    """The call notifies the journal and the group control."""
    lab = _lab()
    announced = []
    lab.ledger.on_reassigned = lambda what: announced.append(what.departed)
    lab.ledger.watch(lambda gained: announced.append(set(gained)))

    def handler(*_):
        assign_to(lab.ledger, [A, ("new", 0)])

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    lab.quiet()
    assert announced == [{B, C}, {("new", 0)}]


def test_handler_waits_for_another_threads_change():
    """The other thread continues during the wait, so there is no deadlock."""
    lab = LedgerLab(owns=[A])
    inside, entered = threading.Event(), threading.Event()

    def look():
        if threading.current_thread() is other and is_locked(lab.ledger):
            lab.clock.on_look = None
            inside.set()
            wait_for(entered.is_set, "the handler")

    def handler(*_):
        entered.set()
        lab.hold(ORDERS, owner="signal")
        assert lab.quiet() == {A}

    other = threading.Thread(target=lab.hold, args=(AUDIT,))
    lab.clock.on_look = look
    other.start()
    wait_for(inside.is_set, "the other thread's change")
    with handled_by(handler):
        send()
    end_of(other)
    assert {ORDERS, AUDIT} == {hold.scope for hold in lab.ledger.view().holds}


# ------------------------------------------------------------ at every point of a call

PACKAGES = tuple(str(Path(one.__file__).parent) for one in (holds, events))


SNAPSHOT = {"orders": frozenset({A, B})}
PATTERN = "re:ord.*"


def _whole(lab, snapshot=SNAPSHOT):
    lab.pause(*handed(snapshot), snapshot=snapshot)


def _late(lab):
    lab.clock.now = 2000.0
    lab.quiet()


# For each case, the calls that come first, and the call that is interrupted.
CALLS = {
    "pause": (lambda _: 0, lambda lab: lab.hold(ORDERS, AUDIT)),
    "pause a pattern": (lambda _: 0, lambda lab: lab.hold(scopes.parse(PATTERN))),
    "pause all of a topic": (lambda _: 0, _whole),
    "resume": (_whole, lambda lab: lab.lift(*handed(SNAPSHOT))),
    "resume all": (_whole, lambda lab: lab.ledger.remove_owner(APP)),
    "assign": (
        lambda lab: lab.hold(scopes.parse(PATTERN)),
        lambda lab: assign_to(lab.ledger, [C, A, D]),
    ),
    "unsubscribe": (_whole, lambda lab: assign_to(lab.ledger, [], Cause.UNSUBSCRIBED)),
    "expire": (lambda lab: lab.hold(ORDERS, for_=5.0), _late),
    "begin a poll": (lambda lab: lab.hold(ALL), lambda lab: lab.ledger.begin_call()),
}


class Watched:
    """A ledger and the states that its observers have received."""

    def __init__(self, before):
        self.lab = lab = LedgerLab()
        lab.assign(A, B, C)
        before(lab)
        self.view_seen = self.quiet = lab.quiet()
        self.owned = {A, B, C}
        self.gated = set()
        self.woken = 0
        lab.log.events.clear()
        lab.ledger.observers.append(self.look)
        lab.ledger.wakers.append(self.wake)
        lab.ledger.on_reassigned = self.reassigned
        lab.ledger.watch(self.gated.update)

    def look(self):
        self.view_seen = self.lab.quiet()

    def wake(self):
        self.woken += 1

    def reassigned(self, what):
        self.owned = (self.owned - what.departed) | what.gained

    def settled(self):
        """Return the state, after a check that events and observers agree with it."""
        lab = self.lab
        view = lab.ledger.view()
        lab.ledger.deliver()
        assert not is_locked(lab.ledger)
        assert not lab.ledger.queue
        assert self.view_seen == view.quiet
        assert self.owned == set(view.partitions())
        assert self.gated == set(lab.ledger.control_gates())
        assert self.woken or view.quiet == self.quiet
        holds = {(hold.key, hold.lifetime) for hold in view.holds}
        is_gating = lab.ledger._table.is_gating
        held = frozenset(lab.ledger.unconfirmed(lab.ledger.moves))
        return holds, view.quiet, is_gating, set(lab.log.events), held


@pytest.mark.parametrize(("before", "call"), CALLS.values(), ids=CALLS)
@pytest.mark.contract("P4")
def test_call_that_raises_at_any_point_takes_effect_completely_or_not_at_all(
    before, call
):
    """
    If the call takes effect, the effect is visible by the next read of the state.

    By then, all observers have seen the change, events are delivered, and the lock is free.
    """
    watched = Watched(before)
    call(watched.lab)
    whole, untouched = watched.settled(), Watched(before).settled()
    interrupts, found = Interrupts(PACKAGES), []
    for at in count():
        watched = Watched(before)
        has_come = interrupts.at(at, lambda one=watched: call(one.lab))
        found.append(watched.settled())
        if not has_come:
            break
    begun = found.index(whole)
    assert all(one == untouched for one in found[:begun])
    assert [whole] * len(found[begun:]) == found[begun:]
    assert len(found) > 15
    watched.lab.hold(AUDIT, owner="later")
    assert C not in watched.owned or C in watched.lab.quiet()


@pytest.mark.parametrize(("before", "call"), CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    "apart", [3, pytest.param(1, marks=pytest.mark.nightly)], ids=["day", "night"]
)
def test_pause_in_a_handler_at_any_point_of_a_call_is_applied_by_the_call(
    before, call, apart
):
    """All observers have seen the pause by the time the interrupted call returns."""
    places, has_come = Places(PACKAGES), True
    for at in count(step=apart):
        watched = Watched(before)
        hold = functools.partial(watched.lab.hold, ALL, owner="signal")
        has_come = places.reach(at, lambda one=watched: call(one.lab), hold)
        assert not watched.lab.ledger.queue
        assert not has_come or watched.view_seen == watched.owned
        watched.settled()
        if not has_come:
            break
    assert at > 15


def test_new_state_is_stored_without_a_point_at_which_a_signal_handler_can_run():
    """Python runs handlers after calls and at backward jumps; the stores contain neither."""
    steps = list(dis.get_instructions(ledger.PauseLedger._store))
    stores = [at for at, one in enumerate(steps) if one.opname == "STORE_ATTR"]
    between = {one.opname for one in steps[stores[0] : stores[-1]]}
    assert not [name for name in between if "CALL" in name or "BACKWARD" in name]


def test_change_that_raises_repeatedly_is_dropped():
    """Otherwise every later call that reads the state would raise the exception (P4)."""
    lab = LedgerLab(owns=[A, C])
    asked = []

    class Ending:
        pattern = "ord.*|aud.*"

        def fullmatch(self, topic, /):
            asked.append(topic)
            if topic == "new":
                raise KeyboardInterrupt
            return topic

    lab.hold(scopes.pattern(Ending()))
    with pytest.raises(KeyboardInterrupt):
        lab.assign(A, ("new", 0))
    looks = 0
    while lab.ledger.queue:
        with pytest.raises(KeyboardInterrupt):
            lab.quiet()
        looks += 1
    assert looks < 20
    assert lab.quiet() == {A, C}
