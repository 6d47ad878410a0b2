"""Finds the holds that expire next, in a heap whose size is bounded by what is held."""

import heapq
import itertools
import math
from collections.abc import Iterable

from safeconsumer.holds.hold import Hold
from safeconsumer.holds.state import LedgerState

_FEW = 64


class Deadlines:
    """
    Remembers the holds that will expire, soonest first.

    Holds that are lifted or renewed leave their old entry behind; these entries are
    removed whenever the heap has doubled.

    Thread rules: under the ledger's lock. :attr:`next`, a plain number, on any thread.

    Attributes:
        next: the soonest deadline, in seconds on the monotonic clock; infinite if there
            is no deadline.
    """

    def __init__(self) -> None:
        self.next = math.inf
        self._entries: list[tuple[float, int, Hold]] = []
        self._limit = _FEW
        self._serial = itertools.count()  # so that holds are never compared

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, holds: Iterable[Hold], state: LedgerState) -> None:
        """Remember those of the holds that have a deadline and are in force in ``state``."""
        for hold in holds:
            if hold.deadline is not None:
                entry = (hold.deadline, next(self._serial), hold)
                heapq.heappush(self._entries, entry)
        if len(self._entries) > self._limit:
            self._entries = [
                entry for entry in self._entries if _is_in_force(entry[2], state)
            ]
            heapq.heapify(self._entries)
            self._limit = max(_FEW, 2 * len(self._entries))
        self._look()

    def take_due(self, now: float) -> list[Hold]:
        """Take out the holds whose deadline is reached, in force or not."""
        due = []
        while self._entries and self._entries[0][0] <= now:
            due.append(heapq.heappop(self._entries)[2])
        self._look()
        return due

    def _look(self) -> None:
        self.next = self._entries[0][0] if self._entries else math.inf


def _is_in_force(hold: Hold, state: LedgerState) -> bool:
    return any(one is hold for one in state.of(hold.scope))
