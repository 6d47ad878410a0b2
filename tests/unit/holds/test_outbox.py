"""Events reach every hook once, in the order in which things happened."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import count

import pytest

from safeconsumer import events
from safeconsumer.events.dispatch import Dispatcher, Outbox
from tests.harness.holds.lab import AUDIT, ORDERS, A, C, LedgerLab, Told
from tests.harness.signals import handled_by, send

pytestmark = pytest.mark.timeout(120)  # a deadlock ends here

PATIENCE = 20


class Slow:
    """A hook that takes its time over the first event, until it is released."""

    def __init__(self):
        self.entered, self.release = threading.Event(), threading.Event()

    def __call__(self, _):
        if not self.entered.is_set():
            self.entered.set()
            assert self.release.wait(PATIENCE)


def _outbox(*hooks):
    return Outbox(Dispatcher(hooks))


def _ats(told):
    return [event.at for event in told.events]


@pytest.mark.contract("P14")
def test_two_threads_tell_in_the_order_of_the_ledger():
    """
    The last word of every hook is "removed".

    1. One thread places a hold; a hook takes its time over that. 2. Another lifts it,
    and does not wait for the hook. 3. The first tells both.
    """
    slow, told = Slow(), Told()
    lab = LedgerLab(slow, told)
    placing = threading.Thread(target=lab.hold, args=(ORDERS,))
    placing.start()
    assert slow.entered.wait(PATIENCE)
    lab.lift(ORDERS)
    assert told.names() == []
    slow.release.set()
    placing.join(PATIENCE)
    assert told.names() == lab.told.names() == ["hold_placed", "hold_removed"]


def test_a_hook_that_pauses_is_told_after_the_event_it_has():
    """Hooks behind it see what it did after the cause of it."""
    told = Told()

    def keeper(event):
        if isinstance(event, events.HoldsRemoved):
            lab.hold(ORDERS)

    lab = LedgerLab(keeper, told)
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    expected = ["hold_placed", "hold_removed", "hold_placed"]
    assert told.names() == lab.told.names() == expected


class _Turn(dict[str, list[int]]):
    """The turn, with something that happens just before it is given back."""

    before: Callable[[], object] | None = None

    def __delitem__(self, key):
        if self.before is not None:
            act, self.before = self.before, None
            act()
        super().__delitem__(key)


def test_an_event_that_comes_as_the_drainer_stops_is_not_forgotten():
    """
    Whoever finds the turn taken may go away.

    1. A thread has handed out all there was. 2. Another appends an event and finds the
    turn taken. 3. The first gives the turn back, looks once more, and tells it.
    """
    told = Told()
    outbox = _outbox(told)
    answers = []

    def other():
        outbox.waiting.append(events.Event(at=2.0))
        answers.append(outbox.deliver())

    def between():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(PATIENCE)

    turn = outbox._turn = _Turn()
    turn.before = between
    outbox.waiting.append(events.Event(at=1.0))
    assert outbox.deliver()
    assert answers == [False]
    assert _ats(told) == [1.0, 2.0]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_program_is_raised_when_every_hook_has_had_the_event(stop):
    """The turn is given back, and the events behind it wait for the next call."""
    told = Told()

    def hook(event):
        if event.at == 1.0:
            raise stop

    outbox = _outbox(hook, told)
    outbox.waiting.extend([events.Event(at=1.0), events.Event(at=2.0)])
    with pytest.raises(stop):
        outbox.deliver()
    assert _ats(told) == [1.0]
    assert outbox.deliver()
    assert _ats(told) == [1.0, 2.0]


def test_a_handler_in_the_middle_of_a_hook_tells_nothing():
    """The hook may have the very lock that another hook would wait for."""
    told = Told()
    seen = []

    def handler(*_):
        lab.lift(ORDERS)
        seen.append(told.names())

    lab = LedgerLab(lambda event: event.name == "hold_placed" and send(), told)
    lab.assign(A, C)
    with handled_by(handler):
        lab.hold(ORDERS, AUDIT)
    assert seen == [[]]
    assert told.names() == lab.told.names() == ["hold_placed", "hold_removed"]
    assert lab.quiet() == {C}


def test_a_hook_that_never_returns_stops_no_other_thread():
    """``pause`` does not wait for hooks that run elsewhere; nothing of it is lost."""
    slow = Slow()
    lab = LedgerLab(slow)
    first = threading.Thread(target=lab.hold, args=(ORDERS,))
    first.start()
    assert slow.entered.wait(PATIENCE)
    for number in range(50):
        lab.hold(AUDIT, reason=str(number))
    assert len(lab.told.of(events.HoldsPlaced)) == 1
    slow.release.set()
    first.join(PATIENCE)
    assert len(lab.told.of(events.HoldsPlaced)) == 51


def test_whoever_waits_is_woken_by_what_changes_here():
    """A waiting ``poll`` looks again; a hold of elsewhere wakes nobody."""
    lab = LedgerLab(owns=[A])
    woken = []
    lab.ledger.wakers.append(lambda: woken.append("again"))
    lab.hold(AUDIT)
    assert woken == []
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert woken == ["again", "again"]


class _Trap(deque[object]):
    """A queue, with something that happens as soon as a change is in it."""

    then: Callable[[], object] | None = None

    def append(self, change):
        super().append(change)
        act, self.then = self.then, None
        if act is not None:
            act()


def test_who_queued_a_change_goes_on_when_all_have_seen_it():
    """
    A worker starts nothing after the pause (W10), whoever has applied it.

    1. A thread queues its change. 2. Another applies it, and is slow to call those who
    look. 3. The first calls them before it returns.
    """
    lab = LedgerLab(owns=[A])
    inside, told = threading.Event(), threading.Event()
    seen = []
    other = threading.Thread(target=lab.ledger.view, name="other")

    def look():
        name = threading.current_thread().name
        if name == "other":
            inside.set()
            assert told.wait(20)
        seen.append(name)

    trap = lab.ledger.queue = _Trap()
    trap.then = lambda: (other.start(), inside.wait(20))
    lab.ledger.observers.append(look)
    lab.hold(ORDERS)
    assert seen == [threading.current_thread().name]
    told.set()
    other.join(20)
    assert seen[1:] == ["other"]


class BrokenError(Exception):
    """Raised by a hook."""


class Broken:
    """A hook that always raises."""

    def __init__(self, name=lambda: "Broken()"):
        self._name = name

    def __call__(self, event):
        raise BrokenError(event.name)

    def __repr__(self):
        return self._name()


@pytest.mark.contract("P14")
def test_a_hook_that_raises_breaks_nothing(caplog):
    """The other hooks are called, it is counted each time and logged once."""
    after = Told()
    lab = LedgerLab(Broken(), after)
    with caplog.at_level(logging.ERROR, logger="safeconsumer"):
        lab.assign(A)
        lab.hold(ORDERS)
        lab.lift(ORDERS)
    assert len(after.events) == 2
    failures = dict(lab.ledger.dispatcher.failures)
    assert failures == {"Broken()": 2}
    lab.hold(ORDERS)
    assert failures == {"Broken()": 2}  # of that moment
    (record,) = caplog.records
    assert "Broken()" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], BrokenError)


def test_a_hook_that_cannot_be_named_breaks_nothing():
    """Also its ``repr`` is foreign code."""

    def nameless():
        raise BrokenError

    after = Told()
    lab = LedgerLab(Broken(nameless), after)
    lab.hold(ORDERS)
    assert len(after.events) == 1


@pytest.mark.parametrize("hook", [None, "hook", 3])
def test_what_is_no_hook_is_refused_at_once(hook):
    """Not at the first event, hours later."""
    with pytest.raises(TypeError, match="hook"):
        Dispatcher([hook])


def test_a_hook_has_one_name(caplog):
    """Also one whose ``repr`` changes each time: it is logged once, and counted under it."""
    numbers = count()
    lab = LedgerLab(Broken(lambda: f"hook {next(numbers)}"))
    for _ in range(3):
        lab.hold(ORDERS)
        lab.lift(ORDERS)
    assert list(dict(lab.ledger.dispatcher.failures).values()) == [6]
    assert len(caplog.records) == 1


class Full(logging.Handler):
    """A log whose disk is full."""

    def emit(self, record):
        raise OSError(record.getMessage())


def test_a_log_that_fails_breaks_nothing():
    """Neither as a hook nor when the hook's failure is to be logged."""
    after = Told()
    lab = LedgerLab(Broken(), after)
    logger, full = logging.getLogger("safeconsumer"), Full()
    logger.addHandler(full)
    try:
        lab.hold(ORDERS)
    finally:
        logger.removeHandler(full)
    assert len(after.events) == 1
    assert dict(lab.ledger.dispatcher.failures) == {"Broken()": 1}


def test_who_makes_events_without_rest_tells_them_himself():
    """
    Another thread that hands out, the network's for example, goes back to its work.

    A hook that holds and lifts at each event stands in for that thread.
    """
    told = []

    def restless(event):
        told.append(event)
        lab.ledger.emit(type(event), holds=())

    lab = LedgerLab(restless)
    lab.hold(ORDERS)
    assert 1 < len(told) <= 200
