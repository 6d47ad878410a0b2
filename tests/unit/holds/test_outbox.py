"""Each hook receives each event exactly once, in the order of the changes."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from itertools import count

import pytest

from safeconsumer import events
from safeconsumer.events.dispatch import Dispatcher, Outbox
from tests.harness.holds.lab import AUDIT, ORDERS, A, C, EventLog, LedgerLab
from tests.harness.signals import handled_by, send
from tests.harness.waiting import end_of, wait_for

pytestmark = pytest.mark.timeout(120)  # the timeout ends a deadlock


class Slow:
    """A hook that blocks at the first event until the test releases the hook."""

    def __init__(self):
        self.entered, self.release = threading.Event(), threading.Event()

    def __call__(self, _):
        if not self.entered.is_set():
            self.entered.set()
            self.release.wait()


def _outbox(*hooks):
    return Outbox(Dispatcher(hooks))


def _times(log):
    return [event.at for event in log.events]


@pytest.mark.contract("P14")
def test_events_of_two_threads_arrive_in_the_order_of_the_ledger():
    """
    The last event that every hook receives is "removed".

    1. One thread places a hold, and a hook handles the event slowly.
    2. Another thread lifts the hold without waiting for the hook.
    3. The first thread delivers both events.
    """
    slow, log = Slow(), EventLog()
    lab = LedgerLab(slow, log)
    placing = threading.Thread(target=lab.hold, args=(ORDERS,))
    placing.start()
    wait_for(slow.entered.is_set, "the hook to be called")
    lab.lift(ORDERS)
    assert log.names() == []
    slow.release.set()
    end_of(placing)
    assert log.names() == lab.log.names() == ["hold_placed", "hold_removed"]


def test_event_of_a_hooks_own_pause_comes_after_its_cause():
    log = EventLog()

    def keeper(event):
        if isinstance(event, events.HoldsRemoved):
            lab.hold(ORDERS)

    lab = LedgerLab(keeper, log)
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    expected = ["hold_placed", "hold_removed", "hold_placed"]
    assert log.names() == lab.log.names() == expected


class _Delivering(dict[str, list[int]]):
    """A dict that calls a function once, just before an entry is deleted."""

    before: Callable[[], object] | None = None

    def __delitem__(self, key):
        if self.before is not None:
            act, self.before = self.before, None
            act()
        super().__delitem__(key)


def test_event_added_as_the_delivering_thread_stops_is_delivered():
    """
    A thread may leave its event to the thread that is delivering events.

    1. A thread has delivered all events.
    2. Another thread appends an event, and leaves it to the delivering thread.
    3. The first thread stops delivering, reads the queue again, and delivers the
       event.
    """
    log = EventLog()
    outbox = _outbox(log)
    answers = []

    def other():
        outbox.waiting.append(events.Event(at=2.0))
        answers.append(outbox.deliver())

    def between():
        thread = threading.Thread(target=other)
        thread.start()
        end_of(thread)

    delivering = outbox._delivering = _Delivering()
    delivering.before = between
    outbox.waiting.append(events.Event(at=1.0))
    assert outbox.deliver()
    assert answers == [False]
    assert _times(log) == [1.0, 2.0]


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_interrupt_in_a_hook_is_raised_after_all_hooks_have_received_the_event(stop):
    """The thread stops delivering; the next call delivers the later events."""
    log = EventLog()

    def hook(event):
        if event.at == 1.0:
            raise stop

    outbox = _outbox(hook, log)
    outbox.waiting.extend([events.Event(at=1.0), events.Event(at=2.0)])
    with pytest.raises(stop):
        outbox.deliver()
    assert _times(log) == [1.0]
    assert outbox.deliver()
    assert _times(log) == [1.0, 2.0]


def test_signal_handler_inside_a_hook_does_not_deliver_events():
    """The interrupted hook may hold a lock that another hook would wait for."""
    log = EventLog()
    seen = []

    def handler(*_):
        lab.lift(ORDERS)
        seen.append(log.names())

    lab = LedgerLab(lambda event: event.name == "hold_placed" and send(), log)
    lab.assign(A, C)
    with handled_by(handler):
        lab.hold(ORDERS, AUDIT)
    assert seen == [[]]
    assert log.names() == lab.log.names() == ["hold_placed", "hold_removed"]
    assert lab.quiet() == {C}


def test_wakers_are_called_only_for_changes_to_assigned_partitions():
    """A waker makes a waiting ``poll`` continue."""
    lab = LedgerLab(owns=[A])
    woken = []
    lab.ledger.wakers.append(lambda: woken.append("again"))
    lab.hold(AUDIT)
    assert woken == []
    lab.hold(ORDERS)
    lab.lift(ORDERS)
    assert woken == ["again", "again"]


class _Trap(deque[object]):
    """A queue that calls a function right after it receives a change."""

    then: Callable[[], object] | None = None

    def append(self, change):
        super().append(change)
        act, self.then = self.then, None
        if act is not None:
            act()


def test_pause_returns_after_all_observers_even_if_another_thread_applied_the_change():
    """
    A worker must not start a record after the pause (W10).

    1. A thread queues its change.
    2. Another thread applies the change, and calls the observers slowly.
    3. The first thread calls the observers before ``pause`` returns.
    """
    lab = LedgerLab(owns=[A])
    inside, released = threading.Event(), threading.Event()
    seen = []
    other = threading.Thread(target=lab.ledger.view, name="other")

    def look():
        name = threading.current_thread().name
        if name == "other":
            inside.set()
            released.wait()
        seen.append(name)

    trap = lab.ledger.queue = _Trap()
    trap.then = lambda: (other.start(), wait_for(inside.is_set, "the observer"))
    lab.ledger.observers.append(look)
    lab.hold(ORDERS)
    assert seen == [threading.current_thread().name]
    released.set()
    end_of(other)
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
def test_hook_that_raises_is_counted_and_logged_once(caplog):
    """The other hooks still receive the events."""
    after = EventLog()
    lab = LedgerLab(Broken(), after)
    with caplog.at_level(logging.ERROR, logger="safeconsumer"):
        lab.assign(A)
        lab.hold(ORDERS)
        lab.lift(ORDERS)
    assert len(after.events) == 2
    failures = dict(lab.ledger.dispatcher.failures)
    assert failures == {"Broken()": 2}
    lab.hold(ORDERS)
    assert failures == {"Broken()": 2}  # this copy does not change any more
    (record,) = caplog.records
    assert "Broken()" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], BrokenError)


def test_failing_hook_with_a_failing_repr_does_not_stop_other_hooks():

    def nameless():
        raise BrokenError

    after = EventLog()
    lab = LedgerLab(Broken(nameless), after)
    lab.hold(ORDERS)
    assert len(after.events) == 1


@pytest.mark.parametrize("hook", [None, "hook", 3])
def test_hook_that_is_not_callable_is_refused(hook):
    """The constructor raises the error, long before the first event."""
    with pytest.raises(TypeError, match="hook"):
        Dispatcher([hook])


def test_hook_whose_repr_changes_is_logged_under_its_first_repr(caplog):
    numbers = count()
    lab = LedgerLab(Broken(lambda: f"hook {next(numbers)}"))
    for _ in range(3):
        lab.hold(ORDERS)
        lab.lift(ORDERS)
    assert list(dict(lab.ledger.dispatcher.failures).values()) == [6]
    assert len(caplog.records) == 1


class Full(logging.Handler):
    """A log handler that fails as if its disk were full."""

    def emit(self, record):
        raise OSError(record.getMessage())


def test_log_handler_that_raises_does_not_stop_other_hooks():
    """The handler may raise for an event, or for the log line about a failed hook."""
    after = EventLog()
    lab = LedgerLab(Broken(), after)
    logger, full = logging.getLogger("safeconsumer"), Full()
    logger.addHandler(full)
    try:
        lab.hold(ORDERS)
    finally:
        logger.removeHandler(full)
    assert len(after.events) == 1
    assert dict(lab.ledger.dispatcher.failures) == {"Broken()": 1}


def test_thread_delivers_only_a_limited_number_of_other_threads_events():
    """
    Otherwise the network thread, for example, might never return to its own work.

    In this test, a hook that emits an event for each event stands in for other threads.
    """
    handed_out = []

    def restless(event):
        handed_out.append(event)
        lab.ledger.emit(type(event), holds=())

    lab = LedgerLab(restless)
    lab.hold(ORDERS)
    assert 1 < len(handed_out) <= 200
