import logging

import pytest

from safeconsumer.events.dispatch import Dispatcher
from tests.harness.holds.lab import ORDERS, A, LedgerLab, Told


class BrokenError(Exception):
    """Raised by a hook."""


class Broken:
    """A hook that always raises."""

    def __call__(self, event):
        raise BrokenError(event.name)

    def __repr__(self):
        return "Broken()"


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
    failures = lab.ledger.hook_failures()
    assert failures == {"Broken()": 2}
    lab.hold(ORDERS)
    assert failures == {"Broken()": 2}  # of that moment
    (record,) = caplog.records
    assert "Broken()" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], BrokenError)


class _Repr:
    """A hook that raises, and cannot even be named."""

    def __call__(self, _):
        raise BrokenError

    def __repr__(self):
        raise BrokenError


def test_a_hook_that_cannot_be_named_breaks_nothing():
    """Also its ``repr`` is foreign code."""
    after = Told()
    lab = LedgerLab(_Repr(), after)
    lab.hold(ORDERS)
    assert len(after.events) == 1


@pytest.mark.parametrize("hook", [None, "hook", 3])
def test_what_is_no_hook_is_refused_at_once(hook):
    """Not at the first event, hours later."""
    with pytest.raises(TypeError, match="hook"):
        Dispatcher([hook])


class Counting:
    """A hook that raises, and whose name changes each time."""

    def __init__(self):
        self.count = 0

    def __call__(self, event):
        self.count += 1
        raise BrokenError(event.name)

    def __repr__(self):
        return f"Counting({self.count})"


def test_a_hook_has_one_name(caplog):
    """Logged once, counted under it."""
    lab = LedgerLab(Counting())
    for _ in range(3):
        lab.hold(ORDERS)
        lab.lift(ORDERS)
    assert list(lab.ledger.hook_failures().values()) == [6]
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
    assert lab.ledger.hook_failures() == {"Broken()": 1}


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
