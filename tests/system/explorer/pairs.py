"""Which operations meet, and what came of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import kafka
import kafka.errors as kafka_errors
from attrs import frozen

import safeconsumer
from tests.harness.explorer.engine import (
    Exploration,
    Explorer,
    Meeting,
    Outcome,
    Places,
    every,
)
from tests.system.explorer import invariants, waits
from tests.system.explorer.operations import (
    ANY,
    BY_NAME,
    IO,
    OPERATIONS,
    POLLING,
    Operation,
)
from tests.system.explorer.subject import ALONE, GROUP, MANUAL, Stage

INSIDE = (str(Path(safeconsumer.__file__).parent), waits.__file__)
"""
Whose lines are places.
"""

UPSTREAM = tuple(
    str(Path(kafka.__file__).parent / name) for name in ("consumer", "coordinator")
)
"""
Whose lines can be places, too: kafka-python's, where our calls go through.
"""

# The cheapest first.
_MODES = (MANUAL, ALONE, GROUP)


@frozen
class Pair:
    """
    Two operations: A is interrupted by B.

    Attributes:
        as_handler: whether B is a signal handler on A's thread.
        mode: how the consumer gets its partitions.
    """

    a: Operation
    b: Operation
    as_handler: bool
    mode: str

    @property
    def name(self) -> str:
        suffix = " in a handler" if self.as_handler else ""
        return f"{self.a.name} x {self.b.name}{suffix}"

    def explore(
        self,
        explorer: Explorer,
        *,
        places: Places = every,
        stop_at: int | None = None,
    ) -> Exploration:
        meeting = Meeting(
            self._make, self.a.run, self._run_b, self._check, self.as_handler
        )
        return explorer.explore(meeting, places=places, stop_at=stop_at)

    @contextmanager
    def _make(self) -> Iterator[Stage]:
        is_cooperative = self.a.is_cooperative or self.b.is_cooperative
        made = Stage(
            self.mode, is_cooperative=is_cooperative, watches_locks=self.as_handler
        )
        try:
            made.may_rewind = self.a.commits and self.b.commits
            for one in sorted((self.a, self.b), key=lambda one: one.order):
                one.prepare(made)
            yield made
        finally:
            made.end()

    def _run_b(self, made: Stage) -> object:
        made.io.in_handler = self.as_handler
        try:
            return self.b.run(made)
        finally:
            made.io.in_handler = False

    def _check(self, made: Stage, a: Outcome, b: Outcome) -> Iterator[str]:
        for name, operation, other, seen in (
            ("A", self.a, self.b, a),
            ("B", self.b, self.a, b),
        ):
            by_application = operation.thread != POLLING or other.thread == ANY
            is_moved = other.moves and by_application
            allowed = operation.may_raise + operation.if_moved * is_moved
            if self.as_handler and other.moves:
                # Nobody promises that what close() interrupts goes on: only that it
                # does not hang.
                allowed += (Exception,)
            if made.is_closed:
                allowed += _WHEN_CLOSED
            if seen.error is not None and not isinstance(seen.error, allowed):
                yield f"{name} {seen.told()}"
        yield from invariants.check(made)


# As upstream answers what is asked of a consumer that has been closed.
_WHEN_CLOSED: tuple[type[BaseException], ...] = (kafka_errors.IllegalStateError,)


def _fits(a: Operation, b: Operation, *, as_handler: bool) -> str | None:
    """Return the mode in which two operations can meet, or None."""
    if not b.comes_in:
        return None
    if as_handler and (a.thread == IO or not b.in_handler):
        return None  # a handler interrupts the main thread, never the IO thread
    if a.thread == b.thread == IO:
        return None  # one thread does one thing after the other
    if a.thread == b.thread == POLLING and (a is not b or a.moves):
        return None  # refused whatever they do: few pairs of them are enough
    modes = a.modes & b.modes
    return next((mode for mode in _MODES if mode in modes), None)


def _pair(a: Operation, b: Operation, *, as_handler: bool) -> Pair | None:
    mode = _fits(a, b, as_handler=as_handler)
    if mode is None:
        return None
    return Pair(a, b, as_handler, mode)


def every_pair() -> list[Pair]:
    """Return all pairs that make sense, in the order of the table."""
    found = (
        _pair(a, b, as_handler=as_handler)
        for a, b in itertools.product(OPERATIONS, OPERATIONS)
        for as_handler in (False, True)
    )
    return [one for one in found if one is not None]


def named(text: str) -> Pair:
    """
    Return the pair of this name.

    Raises:
        LookupError: there is none; the message says why.
    """
    plain = text.removesuffix(" in a handler")
    first, cross, second = plain.partition(" x ")
    for name in (first, second):
        if not cross or name not in BY_NAME:
            message = f"no operation is called {name!r}; --list shows the pairs"
            raise LookupError(message)
    pair = _pair(BY_NAME[first], BY_NAME[second], as_handler=plain != text)
    if pair is None:
        message = f"{first!r} and {second!r} never meet"
        raise LookupError(message)
    return pair
