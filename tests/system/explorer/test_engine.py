"""The explorer finds the known fault of each toy, and none in the toy that is right."""

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from tests.harness.explorer.engine import (
    Exploration,
    Explorer,
    Meeting,
    Outcome,
    every,
    sample,
)
from tests.system.explorer import toys

# It needs no broker at all, so one run of the suite is enough: the one that always is.
pytestmark = pytest.mark.embedded_broker

Check = Callable[[Any, Outcome, Outcome], list[str]]


@pytest.fixture
def explorer() -> Iterator[Explorer]:
    with Explorer([toys.__file__]) as made:
        yield made


def _nothing(*_: object) -> list[str]:
    return []


def _explore(
    explorer: Explorer,
    make: Callable[[], object],
    operations: tuple[Callable[[Any], object], Callable[[Any], object]],
    check: Check,
    *,
    as_handler: bool = False,
) -> Exploration:
    a, b = operations
    meeting = Meeting(lambda: nullcontext(make()), a, b, check, as_handler)
    return explorer.explore(meeting)


def _both_counted(toy: toys.Counter, a: Outcome, b: Outcome) -> list[str]:
    assert a.error is None
    assert b.error is None
    return [] if toy.count == 2 else [f"counted {toy.count}"]


def test_a_lost_update_is_found(explorer: Explorer) -> None:
    """Between reading and writing, and nowhere else."""
    add = toys.Counter.add
    found = _explore(explorer, toys.Counter, (add, add), _both_counted)
    assert (found.places, found.tried) == (2, 2)
    (wrong,) = found.wrong
    assert wrong.messages == ("counted 1",)
    assert wrong.place is not None
    assert "(Counter.add)" in str(wrong.place)
    assert "B ran whole there" in wrong.stacks()


def test_a_lock_makes_it_right(explorer: Explorer) -> None:
    """Where A has the lock B waits, and ends after it."""

    def add(toy: toys.Counter) -> None:
        toy.add()

    found = _explore(explorer, toys.LockedCounter, (add, add), _both_counted)
    assert found.wrong == []
    assert found.blocked > 0
    assert found.tried == found.places


@pytest.mark.timeout(60)
def test_a_deadlock_is_found_and_broken(explorer: Explorer) -> None:
    """Both stacks are told, and no thread is left behind."""
    before = set(threading.enumerate())
    move = (toys.Accounts.to_right, toys.Accounts.to_left)
    found = _explore(explorer, toys.Accounts, move, _nothing)
    assert found.wrong
    for one in found.wrong:
        first, *stacks = one.messages
        assert first == "deadlock"
        assert "Accounts.to_right" in stacks[0]
        assert "Accounts.to_left" in stacks[1]
    assert set(threading.enumerate()) <= before


def _write(line: str) -> Callable[[toys.Log], None]:
    return lambda log: log.write(line)


@pytest.mark.timeout(60)
def test_a_handler_that_waits_for_what_it_interrupted_is_found(
    explorer: Explorer,
) -> None:
    """It is the same thread, so nobody can go on."""
    found = _explore(
        explorer,
        toys.Log,
        (_write("a"), _write("b")),
        _nothing,
        as_handler=True,
    )
    assert found.wrong
    assert all(one.messages[0] == "deadlock" for one in found.wrong)
    assert all("Log.write" in one.messages[1] for one in found.wrong)


class _Interrupt(BaseException):
    pass


def test_whatever_is_raised_is_seen(explorer: Explorer) -> None:
    """A ``BaseException`` too, on either side; tracing ends all the same."""

    def fail(_: object) -> None:
        raise _Interrupt

    def check(_: object, a: Outcome, b: Outcome) -> list[str]:
        return [type(a.error).__name__, b.told().splitlines()[0]]

    def add_and_fail(toy: toys.Counter) -> None:
        toy.add()
        raise _Interrupt

    found = _explore(explorer, toys.Counter, (add_and_fail, fail), check)
    messages = ("_Interrupt", "raised _Interrupt()")
    assert [one.messages for one in found.wrong] == [messages] * 3
    assert sys.gettrace() is None


def test_everything_is_as_it_was() -> None:
    """Trace function, signal handlers, switch interval, collection, threads."""

    def state() -> list[object]:
        return [
            sys.gettrace(),
            [signal.getsignal(number) for number in signal.valid_signals()],
            sys.getswitchinterval(),
            gc.isenabled(),
            set(threading.enumerate()),
        ]

    before = state()
    with Explorer([toys.__file__]) as explorer:
        _explore(explorer, toys.Counter, (toys.Counter.add,) * 2, _nothing)
        assert state() != before
    assert state() == before
    with pytest.raises(KeyError), Explorer([toys.__file__]):
        raise KeyError
    assert state() == before


def test_a_sample_is_repeatable() -> None:
    """Each line where it is reached first, then others by chance; the seed decides."""
    first, second = toys.Counter.add.__code__, toys.LockedCounter.add.__code__
    places = [(first, 1), (first, 2), (first, 1), (second, 1)] * 50
    assert list(every(places)) == list(range(1, 201))
    assert list(sample(500, 1)(places)) == list(range(1, 201))
    chosen = list(sample(10, 1)(places))
    assert chosen == list(sample(10, 1)(places)) == sorted(set(chosen))
    assert len(chosen) == 10
    assert {1, 2, 4} <= set(chosen)
    assert chosen != list(sample(10, 2)(places))
    assert set(sample(2, 1)(places)) < {1, 2, 4}
