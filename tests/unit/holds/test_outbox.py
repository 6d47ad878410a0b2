"""Events reach every hook once, in the order in which things happened."""

import threading
from collections.abc import Callable

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
