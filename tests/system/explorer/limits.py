"""An operation is ended by a signal handler that raises, wherever a function begins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

import safeconsumer
from tests.harness.explorer.engine import (
    Exploration,
    Explorer,
    InfeasibleError,
    Meeting,
    Outcome,
)
from tests.harness.signals import TimeLimitError
from tests.system.explorer import invariants
from tests.system.explorer.operations import IO, OPERATIONS, TIME, Operation
from tests.system.explorer.pairs import _MODES
from tests.system.explorer.subject import Stage

_OURS = Path(safeconsumer.__file__).parent
INSIDE = tuple(str(_OURS / name) for name in ("_kafka", "holds", "consumer.py"))
"""
Whose functions are places.
"""

# The diary knows of a seek that has returned, and of no other.
_UNKNOWN = frozenset({"seek", "pause, seek", "seek_to_beginning"})


@frozen
class Limit:
    """
    One operation with a time limit, as a job runner sets it.

    Attributes:
        mode: how the consumer gets its partitions.
    """

    operation: Operation
    mode: str

    def explore(self, explorer: Explorer) -> Exploration:
        """End it at every place."""
        meeting = Meeting(
            self._make,
            self.operation.run,
            _be_in_the_main_thread,
            self._check,
            as_handler=True,
            raises=TimeLimitError,
        )
        return explorer.explore(meeting, stop_at=3)

    @contextmanager
    def _make(self) -> Iterator[Stage]:
        made = Stage(self.mode, is_cooperative=self.operation.is_cooperative)
        try:
            self.operation.prepare(made)
            yield made
        finally:
            made.end()

    def _check(self, made: Stage, a: Outcome, b: Outcome) -> Iterator[str]:
        del b  # it has come, and may have come after A
        allowed = (TimeLimitError, *self.operation.may_raise)
        if a.error is not None and not isinstance(a.error, allowed):
            yield f"A {a.told()}"
        yield from invariants.check(made)


def _be_in_the_main_thread(made: Stage) -> None:
    # The IO thread, which the explored one plays, is never interrupted.
    if made.io.owner == threading.get_ident():
        raise InfeasibleError


def every_limit() -> list[Limit]:
    """Return one for each operation that the application calls."""
    return [
        Limit(one, next(mode for mode in _MODES if mode in one.modes))
        for one in OPERATIONS
        if one.thread not in {IO, TIME} and one.name not in _UNKNOWN
    ]
