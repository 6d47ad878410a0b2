"""Patterns are foreign code: asked once, under no lock, and never trusted to answer."""

import re
from collections.abc import Callable
from types import FrameType

import pytest

from safeconsumer.events.consumer import HoldsBit, HoldsRemoved, PatternFailed
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.explain import explain_lines
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.patterns import MOST_KEPT
from safeconsumer.holds.scope import Scope
from tests.harness.holds.lab import AUDIT, ORDERS, A, C, LedgerLab, is_locked
from tests.unit.holds.signals import handled_by, send

pytestmark = pytest.mark.timeout(120)

BOOM = ("boom", 0)


class PatternError(Exception):
    """Raised by an expression."""


class Asking:
    """An expression that notes each question, and whether the lock was held then."""

    pattern = "ord.*"

    def __init__(self, lab: LedgerLab, *raises_about: str) -> None:
        self.lab = lab
        self.raises_about = raises_about
        self.asked: list[tuple[str, bool]] = []
        self.on_ask: Callable[[], None] | None = None

    def fullmatch(self, string: str, /) -> object | None:
        self.asked.append((string, is_locked(self.lab.ledger)))
        act, self.on_ask = self.on_ask, None
        if act is not None:
            act()
        if string in self.raises_about:
            raise PatternError(string)
        return re.fullmatch(self.pattern, string)

    def scope(self) -> Scope:
        return scopes.pattern(self)

    def names(self) -> list[str]:
        return [name for name, _ in self.asked]

    def under_the_lock(self) -> list[str]:
        return [name for name, locked in self.asked if locked]


def test_no_expression_is_asked_under_the_lock() -> None:
    """Whatever is done: placing, lifting, assigning, asking, expiring."""
    lab = LedgerLab()
    lab.assign(A)
    one = Asking(lab)
    lab.hold(one.scope(), for_=5.0)
    lab.hold(scopes.partition("unassigned", 1), scopes.topic("another"))
    lab.lift(scopes.partition("lifted", 1), scopes.topic("more"))
    lab.assign(A, C)
    lab.assign(C, BOOM)
    explain_lines(lab.ledger.view_about("explained"), ("explained", 0))
    lab.ledger.follow(
        [Hold(scope=scopes.topic("placed"), owner="operator:alice")],
        [(scopes.topic("followed"), "operator:alice")],
    )
    lab.clock.now += 5.0
    assert lab.quiet() == set()
    lab.lift(Asking(lab).scope())
    expected = {"orders", "unassigned", "another", "lifted", "more", "audit", "boom"}
    assert expected <= set(one.names())
    assert {"explained", "placed", "followed"} <= set(one.names())
    assert one.under_the_lock() == []


def test_an_assignment_while_a_pattern_is_being_placed() -> None:
    """
    The lock is given back to ask about the new topic.

    1. A thread asks its new pattern about what is assigned. 2. The assignment changes.
    3. The thread takes the lock.
    """
    lab = LedgerLab()
    lab.assign(A)
    one = Asking(lab)
    one.on_ask = lambda: lab.assign(A, C)
    lab.hold(one.scope())
    assert one.names() == ["orders", "audit"]
    assert one.under_the_lock() == []
    assert lab.quiet() == {A}


def test_a_pattern_placed_while_an_assignment_is_being_applied() -> None:
    """The other way round."""
    lab = LedgerLab()
    lab.assign(A)
    other, one = Asking(lab), Asking(lab)
    other.pattern = "oth.*"
    lab.hold(other.scope())
    other.on_ask = lambda: lab.hold(one.scope())
    lab.assign(A, C)
    assert one.names() == ["orders", "audit"]
    assert one.under_the_lock() == []
    assert lab.quiet() == {A}


def test_a_pattern_noted_by_a_signal_handler() -> None:
    """
    Of a topic that was assigned meanwhile it is asked before the lock is taken again.

    1. The main thread has the lock, to assign a topic more. 2. The handler leaves a
    pattern in the inbox, asked only about what was assigned before.
    """
    lab = LedgerLab()
    lab.assign(A)
    one = Asking(lab)

    def handler(_: int, __: FrameType | None) -> None:
        lab.hold(one.scope())

    def look() -> None:
        if is_locked(lab.ledger):
            lab.clock.on_look = None
            send()

    lab.clock.on_look = look
    with handled_by(handler):
        lab.assign(A, ("ordinary", 0), C)
    assert lab.clock.on_look is None  # it did come
    assert lab.quiet() == {A, ("ordinary", 0)}
    assert {"audit", "ordinary"} <= set(one.names())
    assert one.under_the_lock() == ["orders"]  # by the handler itself


def test_a_pattern_that_raises_undoes_no_resume() -> None:
    """The hold is lifted, told, and what the pattern might cover is said to remain."""
    lab = LedgerLab()
    failing = Asking(lab, "boom")
    lab.hold(failing.scope(), owner="ops")
    lab.hold(scopes.topic("boom"))
    remaining = lab.ledger.remove([(scopes.topic("boom"), "app")])
    assert [hold.owner for hold in remaining] == ["ops"]
    (removed,) = lab.told.of(HoldsRemoved)
    assert removed.remaining == remaining
    (failed,) = lab.told.of(PatternFailed)
    assert (failed.pattern, failed.topic) == ("re:ord.*", "boom")
    assert "PatternError" in failed.error


def test_a_pattern_that_raises_breaks_no_question() -> None:
    """``explain()`` says that it covers the topic, and so it does."""
    lab = LedgerLab()
    lab.hold(Asking(lab, "boom").scope())
    (line,) = explain_lines(lab.ledger.view_about("boom"), BOOM)
    assert line.startswith("re:ord.* held by app")
    lab.assign(BOOM, C)
    assert lab.quiet() == {BOOM}
    assert len(lab.told.of(PatternFailed)) == 1


def test_a_pattern_that_raised_later_raises_for_whoever_pauses_next() -> None:
    """That a name was taken for covered is no answer to a new caller."""
    lab = LedgerLab()
    lab.hold(Asking(lab, "boom").scope())
    lab.assign(BOOM)
    with pytest.raises(PatternError):
        lab.hold(Asking(lab, "boom").scope(), owner="ops")
    assert [hold.owner for hold in lab.ledger.view().state] == ["app"]


def test_an_expression_is_asked_once_per_name_whoever_pauses_with_it() -> None:
    """Owners compile their own; pausing and resuming in a loop costs no match."""
    lab = LedgerLab()
    lab.assign(A, C)
    several = [Asking(lab) for _ in range(4)]
    for number, one in enumerate(several):
        lab.hold(one.scope(), owner=str(number % 2), known_topics=lambda: ["ordinary"])
        lab.lift(one.scope(), owner=str(number % 2))
    names = [name for one in several for name in one.names()]
    assert sorted(names) == ["audit", "orders", "ordinary"]


def test_not_every_expression_is_kept_for_ever() -> None:
    """An application may make a new one for each pause."""
    lab = LedgerLab()
    lab.assign(A)
    for number in range(3 * MOST_KEPT):
        scope = scopes.pattern(re.compile(f"orders|{number}"))
        lab.hold(scope)
        assert lab.quiet() == {A}
        lab.lift(scope)
        assert lab.quiet() == set()
    assert len(lab.ledger._patterns._kept) <= MOST_KEPT


def test_what_departed_quiet_is_forgotten_with_its_hold() -> None:
    """A member that sees many partitions come and go remembers the held ones only."""
    lab = LedgerLab()
    lab.assign(A, C)
    lab.hold(ORDERS, AUDIT)
    lab.assign(BOOM)
    lab.lift(ORDERS)
    lab.assign()
    assert lab.ledger._departed_quiet.topics() == {"audit"}
    lab.assign(A, C)
    assert [event.partitions for event in lab.told.of(HoldsBit)] == [(C,)]
    assert lab.ledger._departed_quiet.topics() == set()
