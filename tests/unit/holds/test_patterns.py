"""A pattern is the application's code, which is called once for each topic name."""

import gc
import re
import tracemalloc

import pytest

from safeconsumer.holds import scope as scopes
from tests.harness.holds.lab import AUDIT, A, C, LedgerLab, is_locked
from tests.harness.signals import handled_by, send

pytestmark = [pytest.mark.timeout(120), pytest.mark.contract("P3")]


class PatternError(Exception):
    """Raised by an expression."""


class Asking:
    """An expression that records each call, and raises an error for some names."""

    pattern = "ord.*"

    def __init__(self, *raises_about):
        self.raises_about = raises_about
        self.asked = []
        self.on_ask = None

    def fullmatch(self, string, /):
        self.asked.append(string)
        act, self.on_ask = self.on_ask, None
        if act is not None:
            act()
        if string in self.raises_about:
            raise PatternError(string)
        return re.fullmatch(self.pattern, string)

    def scope(self):
        return scopes.pattern(self)


def test_expression_is_called_once_for_a_topic():
    """The ledger reuses the cached answer in every later step."""
    lab = LedgerLab(owns=[A])
    one = Asking()
    scope = one.scope()
    lab.hold(scope, for_=5.0, known_topics=lambda: ["known"])
    lab.assign(A, C)
    lab.assign(C, ("known", 1))
    lab.assign(A, C)
    assert lab.quiet() == {A}
    lab.clock.now += 5.0
    assert lab.quiet() == set()
    lab.hold(scope)
    lab.lift(scope)
    assert sorted(one.asked) == ["audit", "known", "orders"]


def test_cached_answers_of_a_pattern_are_bounded():
    """A cluster may get new topic names all the time, one for each day or customer."""
    scope = scopes.pattern(re.compile("ord.*"))
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(50_000):
            assert scope.covers((f"orders-{number}", 0))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2_000_000


@pytest.mark.contract("P4")
def test_pause_does_not_place_a_hold_if_the_pattern_raises():
    """The caller gets the exception."""
    lab = LedgerLab(owns=[A, C])
    with pytest.raises(PatternError):
        lab.hold(AUDIT, Asking("known").scope(), known_topics=lambda: ["known"])
    assert lab.quiet() == set()
    assert not lab.ledger.view().holds
    assert lab.log.events == []


@pytest.mark.contract("P12")
def test_exception_of_a_signal_handler_inside_an_expression_is_raised():
    """The assignment is still applied, and the expression is called again for that topic."""
    lab = LedgerLab(owns=[A])
    one = Asking()
    lab.hold(one.scope())

    def handler(*_):
        raise PatternError

    one.on_ask = send
    with handled_by(handler), pytest.raises(PatternError):
        lab.assign(A, C)
    assert lab.quiet() == {A}
    assert set(lab.ledger.view().partitions()) == {A, C}


def test_expression_is_called_without_the_ledgers_lock_when_its_hold_is_placed():
    lab = LedgerLab(owns=[A])
    locked = []
    one = Asking()
    one.on_ask = lambda: locked.append(is_locked(lab.ledger))
    lab.hold(one.scope())
    assert locked == [False]
