"""Remembers a join's answer until a ``poll`` applies it, and compares before and after."""

from __future__ import annotations

import time
from typing import NamedTuple

from kafka.structs import TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.commits import States
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState


class Joined(NamedTuple):
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

    async def answer(self) -> bytes:
        """Give the answer once more."""
        return self.assignment


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
    Remembers what is owned when a join is prepared, and compares when it has completed.

    Upstream's state objects tell ownerships apart: it makes a new one for each.

    Args:
        subscription: the consumer's.

    Attributes:
        handover: passes pauses on in joins, and takes them over.

    A join may be prepared several times before one completes, if a listener raises, and
    possibly none completes.

    Thread rules: the IO thread; :meth:`quiet` and :meth:`departed` on any.
    """

    def __init__(self, subscription: LedgerSubscription) -> None:
        self.handover = HandOver()
        self._subscription = subscription
        self._before: States | None = None
        self._quiet: States = {}  # of that, but for what was told of since
        self._lost: frozenset[TopicPartition] = frozenset()

    def quiet(self) -> States:
        assigned = self._subscription.assignment
        quiet = self._subscription.ledger.view().quiet
        states = {tp: assigned.get(tp) for tp in quiet}
        return {tp: one for tp, one in states.items() if one is not None}

    def kept(self, tp: TopicPartition) -> OwnedPartitionState | None:
        """Return the state before the join under way, unless others may have owned it."""
        return None if tp in self._lost else (self._before or {}).get(tp)

    def state(self, tp: TopicPartition) -> OwnedPartitionState | None:
        """Return the state of what is owned, or was before the join that is under way."""
        state: OwnedPartitionState | None = self._subscription.assignment.get(tp)
        return state or (self._before or {}).get(tp)

    def prepared(self) -> None:
        """Remember what is owned and quiet before anything is given up."""
        self.handover.before_join()
        owned = self._subscription.assignment
        gone = {tp: one for tp, one in self._quiet.items() if tp not in owned}
        self._quiet = {**gone, **self.quiet()}
        self._before = {**(self._before or {}), **owned}

    def gave_up(self, *, is_lost: bool) -> None:
        """
        Note that the consumer has given up what no completed join has taken away.

        Args:
            is_lost: whether others may have owned that by now.
        """
        if is_lost and self._before is not None:
            self._lost |= self._before.keys() - self._subscription.assignment.keys()
        self.handover.reassigned()

    def departed(self, quiet_before: States) -> States:
        """
        Return partitions that were quiet before and left, unless a join reported it.

        This includes those that left in a join that has not completed, and may never
        do.
        """
        # It is not upstream's assignment, which stays as it was after close().
        owned = self._subscription.ledger.ownership().epochs
        either = {**self._quiet, **quiet_before}
        left = {tp: one for tp, one in either.items() if tp not in owned}
        self.handover.reassigned()
        self._quiet = {tp: one for tp, one in self._quiet.items() if tp not in left}
        return left

    def completed(self, generation: int, member_id: str) -> States:
        """
        Emit what the join changed.

        Return the partitions that were quiet and have departed.
        """
        before, self._before = self._before, None
        quiet, self._quiet = self._quiet, {}
        lost, self._lost = self._lost, frozenset()
        if before is not None:
            self._tell(before, lost, generation, member_id)
        self.handover.reassigned()
        now = self._subscription.assignment
        return {tp: state for tp, state in quiet.items() if now.get(tp) is not state}

    def _tell(
        self,
        before: States,
        lost: frozenset[TopicPartition],
        generation: int,
        member_id: str,
    ) -> None:
        now, ledger = self._subscription.assignment, self._subscription.ledger
        view = ledger.view()
        kept = {tp for tp, state in now.items() if before.get(tp) is state}
        gained, gone = now.keys() - kept, before.keys() - now.keys()
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
        self._subscription.on_joined()
