"""Remembers a join's answer until a ``poll`` applies it, and compares before and after."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen
from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer.holds import ownership as rebalance
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
        ledger: the consumer's; None beside a plain subscription: it does nothing then.

    A join may be prepared several times before one completes, if a listener raises, and
    possibly none completes.

    Thread rules: the IO thread; :meth:`departed` on any.
    """

    def __init__(self, ledger: PauseLedger | None) -> None:
        self._ledger = ledger
        self._snapshot: rebalance.Snapshot | None = None
        self._lost: frozenset[TopicPartition] = frozenset()
        self._returned: frozenset[TopicPartition] = frozenset()

    def prepared(self) -> None:
        """Remember what is owned and quiet before anything is given up."""
        if self._ledger is not None:
            ledger = self._ledger
            now = rebalance.snapshot(ledger.view(), ledger.ownership())
            earlier = self._snapshot
            if earlier is not None:  # no join has reported what left since that one
                gone = earlier.quiet.difference(now.epochs)
                epochs = {**earlier.epochs, **now.epochs}
                now = evolve(now, epochs=epochs, quiet=now.quiet | gone)
            self._snapshot = now

    def lost(self) -> None:
        """Count partitions that have left the assignment since then as lost."""
        if self._ledger is not None and self._snapshot is not None:
            owned = self._ledger.ownership().epochs
            self._lost |= self._snapshot.epochs.keys() - owned.keys()

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
        if self._ledger is None:
            return frozenset()
        # It is not upstream's assignment, which stays as it was after close().
        snapshot, owned = self._snapshot, self._ledger.ownership().epochs
        if snapshot is None:
            return quiet_before.difference(owned)
        untold = snapshot.quiet - self._returned
        gone = (quiet_before | untold).difference(owned)
        self._returned |= gone
        return gone

    def completed(self, generation: int, member_id: str) -> frozenset[TopicPartition]:
        """
        Emit what the join changed.

        Return the partitions that were quiet and have departed.
        """
        snapshot, self._snapshot = self._snapshot, None
        lost, self._lost = self._lost, frozenset()
        returned, self._returned = self._returned, frozenset()
        ledger = self._ledger
        if ledger is None or snapshot is None:
            return frozenset()
        outcome = rebalance.compare(snapshot, ledger.view(), ledger.ownership(), lost)
        ledger.emit(
            events.RebalanceCompleted,
            generation=generation,
            member_id=member_id,
            **_what_changed(outcome, ledger),
        )
        ledger.on_joined()
        if outcome.woken:
            ledger.emit(
                events.PauseForgotten,
                partitions=events.sorted_partitions(outcome.woken),
            )
        return (outcome.revoked | outcome.lost) & snapshot.quiet - returned


def _what_changed(
    outcome: rebalance.Outcome, ledger: PauseLedger
) -> Mapping[str, object]:
    view = ledger.view()
    bit = {
        hold.key: hold
        for tp in outcome.gained
        if tp in view.quiet
        for hold in view.state.covering(tp)
    }
    return {
        "kept": events.sorted_partitions(outcome.kept),
        "gained": events.sorted_partitions(outcome.gained),
        "revoked": events.sorted_partitions(outcome.revoked),
        "lost": events.sorted_partitions(outcome.lost),
        "quiet": events.sorted_partitions(view.quiet),
        "bit": tuple(bit.values()),
    }
