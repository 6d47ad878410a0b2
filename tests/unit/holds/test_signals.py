"""Signals: what a handler does, and what it raises, at every moment of a change."""

import dis
import functools
import gc
import inspect
import sys
import threading
from itertools import count

import pytest

from safeconsumer import events
from safeconsumer.events.dispatch import Dispatcher
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
from tests.harness.signals import handled_by, send

pytestmark = [pytest.mark.timeout(120), pytest.mark.contract("P12")]  # for deadlocks

D = ("orders.eu", 0)

HANDLERS = {
    "pause": (lambda lab: lab.hold(ORDERS, owner="signal"), {A, B, C}),
    "resume": (lambda lab: lab.lift(ALL, owner="old"), {C}),
    "all of an owner's": (lambda lab: lab.ledger.remove_owner("old"), {C}),
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
    # The ledger looks at the clock while it holds its lock: there the signal comes.
    def look():
        if is_locked(lab.ledger):
            lab.clock.on_look = None
            send()

    lab.clock.on_look = look


@pytest.mark.parametrize(("act", "quiet"), HANDLERS.values(), ids=HANDLERS)
def test_what_a_handler_changes_in_the_middle_of_a_change_is_applied_after_it(
    act, quiet
):
    """It returns at once, and the interrupted call applies it before it returns."""
    lab = _lab()
    returned = []
    with handled_by(lambda *_: returned.append(act(lab))):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert len(returned) == 1
    assert not lab.ledger.queue
    assert lab.quiet() == quiet
    assert not is_locked(lab.ledger)


def test_inside_a_change_a_handler_sees_what_was_applied_last():
    """Its own pause is not in it yet, and no hook is called under the lock."""
    lab = _lab()
    lab.ledger.emit(events.NothingConsumed, reason="waits")
    seen = []

    def handler(*_):
        told = len(lab.told.events)
        lab.lift(ALL, owner="old")
        seen.append((lab.quiet(), lab.ledger.deliver(), len(lab.told.events) - told))

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    assert seen == [({A, B, C}, False, 0)]
    assert lab.told.names()[-3:] == ["nothing_consumed", "hold_placed", "hold_removed"]


def test_outside_a_change_a_handler_is_answered_and_told_as_anybody():
    """Before its call returns."""
    lab = LedgerLab(owns=[A, C])
    seen = []

    def handler(*_):
        lab.hold(ORDERS)
        seen.append((lab.quiet(), lab.told.names()))

    with handled_by(handler):
        send()
    assert seen == [({A}, ["hold_placed"])]


def test_a_handler_that_pauses_all_that_was_assigned_pauses_the_topics():
    """It is judged at its call: what is gained by the interrupted change is held."""
    lab = LedgerLab(owns=[A])
    with handled_by(lambda *_: _whole(lab, {"orders": frozenset({A})})):
        _interrupt_under_the_lock(lab)
        lab.assign(A, B, C)
    assert lab.quiet() == {A, B}


def test_an_assignment_of_a_handler_is_announced_by_the_call_that_it_interrupted():
    """A journal and the control member hear of it, once."""
    lab = _lab()
    heard = []
    lab.ledger.on_reassigned = lambda what: heard.append(what.departed)
    lab.ledger.watch(lambda gained: heard.append(set(gained)))

    def handler(*_):
        assign_to(lab.ledger, [A, ("new", 0)])

    with handled_by(handler):
        _interrupt_under_the_lock(lab)
        lab.hold(AUDIT)
    lab.quiet()
    assert heard == [{B, C}, {("new", 0)}]


def test_a_handler_waits_for_another_threads_change():
    """That thread goes on meanwhile, so this is no deadlock."""
    lab = LedgerLab(owns=[A])
    inside, entered = threading.Event(), threading.Event()

    def look():
        if threading.current_thread() is other and is_locked(lab.ledger):
            lab.clock.on_look = None
            inside.set()
            assert entered.wait(20)

    def handler(*_):
        entered.set()
        lab.hold(ORDERS, owner="signal")
        assert lab.quiet() == {A}

    other = threading.Thread(target=lab.hold, args=(AUDIT,))
    lab.clock.on_look = look
    other.start()
    assert inside.wait(20)
    with handled_by(handler):
        send()
    other.join(20)
    assert {ORDERS, AUDIT} == {hold.scope for hold in lab.ledger.view().holds}


# ------------------------------------------------------------ exceptions at any moment


class InterruptError(Exception):
    """What a signal handler raises."""


def _is_in_the_ledger(frame):
    # What a hook raises is the hook's: it is counted, and ends nothing.
    codes = []
    while frame is not None:
        codes.append(frame.f_code)
        frame = frame.f_back
    in_a_hook = Dispatcher.dispatch.__code__ in codes
    return not in_a_hook and any(one.co_filename == ledger.__file__ for one in codes)


def _raise():
    raise InterruptError


class Interrupt:
    """
    Comes where Python may call a signal handler: as a function begins, after a call.

    A profiler is called in exactly these places, so each of them has its turn.
    """

    def __init__(self, at, handler=_raise):
        self.left, self.has_come = at, False
        self.handler = handler

    def __call__(self, frame, event, _arg):
        # Closing a generator calls the profiler, but no handler.
        is_generator = event == "call" and frame.f_code.co_flags & inspect.CO_GENERATOR
        if event not in {"call", "c_return"} or is_generator:
            return
        if not _is_in_the_ledger(frame):
            return
        self.left -= 1
        if self.left < 0:
            sys.setprofile(None)
            self.has_come = True
            self.handler()

    def during(self, call):
        # The collector calls back whom it likes, and what those raise is nobody's.
        gc.disable()
        sys.setprofile(self)
        try:
            call()
        except InterruptError:
            assert self.has_come
        finally:
            sys.setprofile(None)
            gc.enable()


SNAPSHOT = {"orders": frozenset({A, B})}
PATTERN = "re:ord.*"


def _whole(lab, snapshot=SNAPSHOT):
    lab.pause(*handed(snapshot), snapshot=snapshot)


def _late(lab):
    lab.clock.now = 2000.0
    lab.quiet()


# What comes before, and what is interrupted.
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


class World:
    """A ledger, and all who are called when it changes."""

    def __init__(self, before):
        self.lab = lab = LedgerLab()
        lab.assign(A, B, C)
        before(lab)
        self.looks = self.quiet = lab.quiet()
        self.owned = {A, B, C}
        self.gated = set()
        self.woken = 0
        lab.told.events.clear()
        lab.ledger.observers.append(self.look)
        lab.ledger.wakers.append(self.wake)
        lab.ledger.on_reassigned = self.reassigned
        lab.ledger.watch(self.gated.update)

    def look(self):
        self.looks = self.lab.quiet()

    def wake(self):
        self.woken += 1

    def reassigned(self, what):
        self.owned = (self.owned - what.departed) | what.gained

    def settled(self):
        """Look, tell, and return all there is; what others saw must be the same."""
        lab = self.lab
        view = lab.ledger.view()
        lab.ledger.deliver()
        assert not is_locked(lab.ledger)
        assert not lab.ledger.queue
        assert self.looks == view.quiet
        assert self.owned == set(view.partitions())
        assert self.gated == set(lab.ledger.control_gates())
        assert self.woken or view.quiet == self.quiet
        holds = {(hold.key, hold.lifetime) for hold in view.holds}
        gates = lab.ledger._table
        held = frozenset(lab.ledger.unconfirmed(lab.ledger.moves))
        return holds, view.quiet, gates.is_gating, set(lab.told.events), held


@pytest.mark.parametrize(("before", "call"), CALLS.values(), ids=list(CALLS))
@pytest.mark.contract("P4")
def test_an_exception_at_any_moment_of_a_call_loses_nothing(before, call):
    """
    The call takes effect whole, at the latest by the next look, or had not begun.

    All who look have seen it then, its events are told, and the lock is free.
    """
    world = World(before)
    call(world.lab)
    whole = world.settled()
    untouched = World(before).settled()
    found = []
    for at in count():
        world, interrupt = World(before), Interrupt(at)
        interrupt.during(lambda one=world: call(one.lab))
        found.append(world.settled())
        if not interrupt.has_come:
            break
    begun = found.index(whole)
    assert all(one == untouched for one in found[:begun])
    assert [whole] * len(found[begun:]) == found[begun:]
    assert len(found) > 15
    world.lab.hold(AUDIT, owner="later")
    assert C not in world.owned or C in world.lab.quiet()


@pytest.mark.parametrize(("before", "call"), CALLS.values(), ids=list(CALLS))
@pytest.mark.parametrize(
    "apart", [3, pytest.param(1, marks=pytest.mark.nightly)], ids=["day", "night"]
)
def test_a_pause_of_a_handler_at_any_moment_of_a_call_is_applied_by_it(
    before, call, apart
):
    """Nobody needs to look: all who are called at changes have been when it returns."""
    for at in count(step=apart):
        world = World(before)
        hold = functools.partial(world.lab.hold, ALL, owner="signal")
        interrupt = Interrupt(at, hold)
        interrupt.during(lambda one=world: call(one.lab))
        assert not world.lab.ledger.queue
        assert not interrupt.has_come or world.looks == world.owned
        world.settled()
        if not interrupt.has_come:
            assert at > 15
            return


def test_a_step_is_interrupted_before_or_after_it():
    """Python looks for signals after calls and at jumps back; there is none in between."""
    steps = list(dis.get_instructions(ledger.PauseLedger._store))
    stores = [at for at, one in enumerate(steps) if one.opname == "STORE_ATTR"]
    between = {one.opname for one in steps[stores[0] : stores[-1]]}
    assert not [name for name in between if "CALL" in name or "BACKWARD" in name]


def test_an_exception_that_comes_always_is_given_up():
    """Of a change that cannot be applied, else every look would raise; P4 holds."""
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
