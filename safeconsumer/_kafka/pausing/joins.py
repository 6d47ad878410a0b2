"""Remembers a join's answer until a ``poll`` applies it, and compares before and after."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer.holds.ledger import PauseLedger

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


@frozen
class Joined:
    """
    A join that has succeeded on the wire and waits for a ``poll`` to apply it.

    Attributes:
        generation: upstream's object; it is replaced when the membership changes.
        assignment: the encoded answer to SyncGroup.
        at: when it succeeded, in seconds on the monotonic clock.
    """

    generation: object
    assignment: bytes
    at: float

    def is_current(
        self, generation: object, last_heartbeat: float, session_timeout: float
    ) -> bool:
        """
        Tell whether it can still be applied.

        Heartbeats in the meantime would have shown that the generation has ended, but
        not if none of them got through.
        """
        silent = time.monotonic() - max(self.at, last_heartbeat)
        return self.generation is generation and silent < session_timeout

    def answer(self) -> Callable[[], Coroutine[Any, Any, bytes]]:
        """Return a coroutine function that gives the answer once more."""

        async def again() -> bytes:
            return self.assignment

        return again


class HandOver:
    """
    Hands no pause over; with ``pause_handover="assignor"`` a child of it does.

    Thread rules: :meth:`reassigned` on any thread, the rest on the IO thread.
    """

    def before_join(self) -> None:
        """Fix what the join tells; called before it begins, and after the listener."""

    def joined(self, assignment: bytes) -> None:
        """Note the answer to a join; the partitions that it takes away depart after this."""

    def reassigned(self) -> None:
        """Note which partitions have departed since the last call."""


class RebalanceWatch:
    """
    Takes a snapshot when a join is prepared, and compares when it has completed.

    Args:
        ledger: the consumer's.

    A join may be prepared several times before one completes, if a listener raises, and
    possibly none completes.

    Thread rules: the IO thread; :meth:`departed` on any.
    """

    def __init__(self, ledger: PauseLedger) -> None:
        self._ledger = ledger
        self._before: _Owned | None = None
        self._lost: frozenset[TopicPartition] = frozenset()
        self._returned: frozenset[TopicPartition] = frozenset()

    def prepared(self) -> None:
        """Remember what is owned and quiet before anything is given up."""
        now = _owned(self._ledger)
        earlier = self._before
        if earlier is not None:  # no join has reported what left since that one
            gone = earlier.quiet.difference(now.epochs)
            now = _Owned({**earlier.epochs, **now.epochs}, now.quiet | gone)
        self._before = now

    def lost(self) -> None:
        """Count partitions that have left the assignment since then as lost."""
        if self._before is not None:
            owned = self._ledger.ownership().epochs
            self._lost |= self._before.epochs.keys() - owned.keys()

    def also_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Count these as lost, too."""
        self._lost |= partitions

    def departed(
        self, quiet_before: frozenset[TopicPartition]
    ) -> frozenset[TopicPartition]:
        """
        Return partitions that were quiet before and left, unless a join reported it.

        This includes those that left in a join that has not completed, and may never
        do.
        """
        # It is not upstream's assignment, which stays as it was after close().
        before, owned = self._before, self._ledger.ownership().epochs
        if before is None:
            return quiet_before.difference(owned)
        untold = before.quiet - self._returned
        gone = (quiet_before | untold).difference(owned)
        self._returned |= gone
        return gone

    def completed(self, generation: int, member_id: str) -> frozenset[TopicPartition]:
        """
        Emit what the join changed.

        Return the partitions that were quiet and have departed.
        """
        before, self._before = self._before, None
        lost, self._lost = self._lost, frozenset()
        returned, self._returned = self._returned, frozenset()
        ledger = self._ledger
        if before is None:
            return frozenset()
        now, view = ledger.ownership().epochs, ledger.view()
        kept = {tp for tp in now if before.epochs.get(tp) == now[tp]}
        gained, gone = now.keys() - kept, before.epochs.keys() - now.keys()
        bit = {
            hold.key: hold
            for tp in gained
            if tp in view.quiet
            for hold in view.holds.covering(tp)
        }
        ledger.emit(
            events.RebalanceCompleted,
            generation=generation,
            member_id=member_id,
            kept=events.sorted_partitions(kept),
            gained=events.sorted_partitions(gained),
            revoked=events.sorted_partitions(gone - lost),
            lost=events.sorted_partitions(lost),
            quiet=events.sorted_partitions(view.quiet),
            bit=tuple(bit.values()),
        )
        ledger.on_joined()
        return frozenset(gone | lost) & before.quiet - returned


@frozen
class _Owned:
    # What was owned, by epoch, and what of it was quiet.
    epochs: Mapping[TopicPartition, int]
    quiet: frozenset[TopicPartition]


def _owned(ledger: PauseLedger) -> _Owned:
    return _Owned(ledger.ownership().epochs, frozenset(ledger.view().quiet))
