"""
Remembers where partitions stood before a poll took records that it still holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from kafka.consumer.subscription_state import TopicPartitionState
from kafka.structs import OffsetAndMetadata, TopicPartition

_resets = itertools.count(1)


class OwnedPartitionState(TopicPartitionState):
    """
    Upstream's state of one owned partition, with the position up to where it delivered.

    Upstream sets positions without a lock: a drain that has just looked at one would
    set its own over that of a seek on another thread. Here a seek is one step against
    a drain, and ends what a poll could have put back.

    Adopted by ``__class__``; then call :meth:`prepare`.
    """

    lock: AbstractContextManager[object]
    before: OffsetAndMetadata | None = None
    """
    The position before a poll took records that it has not returned. None: it holds
    none, or the position was moved since.
    """

    moves: int = 0
    """
    How often the position was set or reset, counted before it is.
    """

    moved_to: OffsetAndMetadata | None = None
    """
    Where the last of these moves led.
    """

    began_at: int | None = None
    """
    The lowest offset at which reading began in this ownership, whoever set it.
    """

    reset_number: int = 0
    """
    Which of all resets of this process the last one was.
    """

    def prepare(self, lock: AbstractContextManager[object]) -> None:
        """
        Make what this class needs beyond upstream's attributes.

        Args:
            lock: upstream's subscription lock.
        """
        self.lock = lock

    def seek(self, offset: int | OffsetAndMetadata) -> None:
        """
        Set the position; as upstream's.
        """
        with self.lock:
            self.moves += 1
            super().seek(offset)
            self.moved_to, self.before = self._position, None
            at = offset.offset if isinstance(offset, OffsetAndMetadata) else offset
            self.began_at = at if self.began_at is None else min(self.began_at, at)

    def reset(self, strategy: int) -> None:
        """
        Give the position up until a broker has said where to begin; as upstream's.

        Asking for the same again while it is awaited is the same reset.
        """
        with self.lock:
            if self.reset_strategy != strategy:
                self.reset_number = next(_resets)
            self.moves += 1
            super().reset(strategy)
            self.moved_to = self.before = None

    def settle(self) -> None:
        """
        Undo that a step of an iteration has set its position over a seek.

        A step takes no lock: that would cost a tenth of its time. It sets the position,
        and then looks whether somebody has moved it since it looked at it.
        """
        with self.lock:
            self._position = self.moved_to

    def delivered_position(self) -> OffsetAndMetadata | None:
        """
        Return up to where polls have returned records; None if that is not known.
        """
        position: OffsetAndMetadata | None = self.position
        return position if self.before is None else self.before

    def move_back(self) -> OffsetAndMetadata | None:
        """
        Set the position to what it was before the drain.

        Returns:
            That position; None, and nothing was done, if somebody moved it since.
        """
        before = self.before
        if before is not None:
            self.position = before
            self.before = None
        return before


class Undelivered:
    """
    The partitions of which a poll has taken records and not returned them yet.

    A drain moves positions at once, so that the next fetches go on from its end.
    Delivered is what the poll returns, and only that may be committed.

    Thread rules: every method under upstream's subscription lock. A signal handler that
    commits on the thread that drains finds nothing committed too far: what is taken is
    noted before the position moves, and forgotten after it has moved back.
    """

    def __init__(self) -> None:
        self._taken: dict[TopicPartition, tuple[OwnedPartitionState, int | None]] = {}

    def note(
        self, tp: TopicPartition, state: OwnedPartitionState, epoch: int | None
    ) -> None:
        """
        Remember the position of now, unless an earlier one of this poll still counts.
        """
        self._taken[tp] = state, epoch
        if state.before is None:
            state.before = state.position

    def epochs(self) -> dict[TopicPartition, int | None]:
        """
        Return the partitions with the ownership epochs in which records were taken.
        """
        return {tp: epoch for tp, (_, epoch) in self._taken.items()}

    def move_back(
        self, tp: TopicPartition, assignment: Mapping[TopicPartition, Any]
    ) -> OffsetAndMetadata | None:
        """
        Set one partition's position to what it was before the drain.

        Returns:
            That position; None, and nothing was done, if somebody moved it since or the
            ownership has ended.
        """
        state, _ = self._taken[tp]
        return state.move_back() if assignment.get(tp) is state else None

    def move_all_back(self) -> None:
        """
        Set all positions to what they were: nothing of it reached the application.
        """
        for state, _ in self._taken.values():
            state.move_back()
        self._taken.clear()

    def clear(self) -> None:
        """
        Forget it: all of it was delivered.
        """
        for state, _ in self._taken.values():
            state.before = None
        self._taken.clear()
