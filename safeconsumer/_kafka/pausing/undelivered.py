"""Knows the positions before a poll took records, until it returns them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from kafka.consumer.subscription_state import TopicPartitionState
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.buffer import Buffer


class Fetch:
    """
    A request for records.

    Attributes:
        answered_at: when it was answered, in monotonic seconds; -inf: it was not.
    """

    answered_at = -math.inf


class OwnedPartitionState(TopicPartitionState):
    """
    Upstream's state of one owned partition, with what was fetched for it.

    Upstream sets positions without a lock: a drain that has just read a position would
    overwrite that of a seek on another thread. Here a seek is one step with respect to
    a drain, and ends what a poll could have put back.

    It is adopted by ``__class__``; then call :meth:`prepare`.
    """

    buffer: Buffer
    """
    What was fetched in this ownership and is not delivered yet; it ends with it.
    """

    lock: AbstractContextManager[object]
    unvalidated: set[OwnedPartitionState]
    unsettle: Callable[[], None]
    before: OffsetAndMetadata | None = None
    """
    The position before a poll took records that it has not returned. None: it has taken
    none, or the position was moved since.
    """

    moves: int = 0
    """
    The number of times the position was set or reset, counted before it is.
    """

    moved_to: OffsetAndMetadata | None = None
    """
    The position that the last of these moves set.
    """

    reset_number: int = 0
    """
    The number of its last reset; it is the same while the answer to that is awaited.
    """

    out_of_range: int | None = None
    """
    The offset of the position, out of range, in place of which another one is asked for.
    """

    lacks_commit: bool = False
    """
    Whether the group has no committed offset of it, by the coordinator's answer.
    """

    commits_sent: int = 0
    """
    How many commits of it were sent: an answer to a question from before the last one
    does not say that there is none.
    """

    topic_id: UUID | None = None
    """
    The id of the topic that the position is of; None: it is not known yet.
    """

    is_presumed: bool = False
    """
    Whether that id is of metadata from before it was gained, which may be older than
    the commit from which reading began.
    """

    is_set_by_program: bool = False
    """
    Whether the program has set the position meanwhile: it knows the topic of now.
    """

    asks_commit: bool = False
    """
    Whether what the group has committed of a recreated topic is asked for, as it may be
    of the new one.
    """

    earlier_ids: frozenset[UUID] = frozenset()
    """
    The ids of topics that had this name before, in this time of being assigned.
    """

    named_at: float = -math.inf
    """
    When an answer about metadata last named that topic, in monotonic seconds.
    """

    last_fetch: Fetch | None = None
    """
    The last fetch of it that was answered, or will be, for the topic of its position.
    """

    waited_since: float | None = None
    """
    Since when, or for which answer, it was left out of fetches last; None: it was not
    since it was fetched.
    """

    committed: int | None = None
    """
    The offset that the group has committed, as far as this ownership knows.
    """

    reset_target: Any = None
    """
    The target of the operator's reset by which this ownership began; None: by none.
    """

    reset_moves: int = 0
    """
    The number of moves when it began so: once the program has sought, it may commit
    where it likes.
    """

    tenure: object = None
    """
    The object that ownerships share of which resets of the group began one from another;
    None: no reset began one.
    """

    read_to: int | None = None
    """
    The end of what was read of a topic that was recreated; None: nothing was.
    """

    @property
    def is_recreated(self) -> bool:
        """Whether what was committed before is of a topic that was deleted since."""
        return bool(self.earlier_ids)

    @property
    def is_unread(self) -> bool:
        """Whether its topic was recreated, and nothing of the new one was read yet."""
        return self.is_recreated and self.read_to is None

    def begin_at_reset(self, target: Any) -> None:  # noqa: ANN401 - of safeconsumer.group
        """Note that it stands where an operator's reset wants it, by which it begins."""
        self.reset_target, self.reset_moves = target, self.moves

    @property
    def least_commit(self) -> int | None:
        """The offset below which a reset lets nothing be committed; None: there is none."""
        target = self.reset_target
        is_bound = target is not None and self.reset_moves == self.moves
        return target.offset if is_bound else None

    def note_read(self, end: int) -> None:
        """Note to where records were taken."""
        if self.is_recreated:
            self.read_to = max(self.read_to or 0, end)

    def has_read(self, offset: int) -> bool:
        """Tell whether a recreated topic was read, or sought, up to an offset."""
        position = self._position
        sought = 0 if position is None else position.offset
        return offset <= max(self.read_to or 0, sought)

    def prepare(
        self,
        lock: AbstractContextManager[object],
        unvalidated: set[OwnedPartitionState],
        unsettle: Callable[[], None],
    ) -> None:
        """
        Make the attributes that this class needs beyond upstream's.

        Args:
            lock: upstream's subscription lock.
            unvalidated: the states whose position was set otherwise than by reading on,
                since positions were last compared with their leaders' epochs.
            unsettle: is called before and after something is done by which the position
                may need a broker's answer: before, should a signal handler raise
                behind it; after, should one look in between.
        """
        self.buffer = Buffer()
        self.lock = lock
        self.unvalidated = unvalidated
        self.unsettle = unsettle

    @property
    def is_settled(self) -> bool:
        """Whether no broker has to be asked for its position, nor whether it is valid."""
        return (
            self._position is not None
            and self.reset_strategy is None
            and not self._awaiting_validation
        )

    def maybe_validate_position(self, current_leader_epoch: int | None) -> bool:
        """Have the position compared with a leader's log if it has another epoch."""
        self.unsettle()
        is_needed: bool = super().maybe_validate_position(current_leader_epoch)
        self.unsettle()
        return is_needed

    def request_position_validation(self) -> bool:
        """Have the position compared with its leader's log."""
        self.unsettle()
        is_needed: bool = super().request_position_validation()
        self.unsettle()
        return is_needed

    def _set_position(self, offset: OffsetAndMetadata) -> None:
        before = self._position
        super()._set_position(offset)
        if before is None or offset.leader_epoch < before.leader_epoch:
            self.unvalidated.add(self)

    position = property(TopicPartitionState._get_position, _set_position)

    def seek(self, offset: int | OffsetAndMetadata) -> None:
        with self.lock:
            self.moves += 1
            super().seek(offset)
            self.unvalidated.add(self)
            self.moved_to, self.before = self._position, None
            self.out_of_range = None

    def reset(self, strategy: int) -> None:
        """Drop the position until a broker has answered where to begin; as upstream's."""
        with self.lock:
            # First: if a handler raises below, the answer that is awaited is dropped,
            # and no other is asked for until request_timeout_ms is over.
            self.next_allowed_retry_time = None
            if self.reset_strategy != strategy:
                self.reset_number += 1
            self.moves += 1
            self.unsettle()
            super().reset(strategy)
            self.moved_to = self.before = self.out_of_range = None
            self.unsettle()

    def settle(self) -> None:
        """
        Undo it if its position was set over that of a seek.

        A step of an iteration takes no lock: that would cost a tenth of its time. A drain
        has it, and a signal handler on its thread, too. So both set the position, and
        then check whether it was moved in between.
        """
        with self.lock:
            self.unsettle()
            self._position = self.moved_to
            self.unvalidated.add(self)
            self.unsettle()

    def put_back(self) -> bool:
        """
        Set the position, and the buffer's cursor, to before what a poll has taken.

        Returns:
            Whether that is possible; otherwise the position was moved since.
        """
        moves, before = self.moves, self.before
        if before is not None:
            self.position = before
            self.before = None
            if self.moves != moves:  # a signal handler has sought on this thread
                self.settle()
                before = None
        self.follow()
        return before is not None

    def forget(self) -> None:
        """Set the buffer's cursor to the position, and forget what is before it."""
        if self._position is not None:
            self.buffer.forget(self._position.offset, self.moves)
        else:
            self.buffer.close_open()

    def follow(self) -> None:
        """Set the buffer's cursor to the position."""
        if self._position is not None:
            self.buffer.follow(self._position.offset, self.moves)
        else:
            self.buffer.close_open()


class Undelivered:
    """
    The partitions of which the last poll has taken records.

    A drain moves positions at once, so that the next fetches go on from its end. Only
    records that the poll returns are delivered, and only those may be committed.

    Thread rules: every method under upstream's subscription lock. A signal handler that
    commits on the thread that drains commits nothing too far: taken records are noted
    before the position moves, and forgotten after it has moved back.

    Attributes:
        taken: their states.
        yielding: the partition of the record that the last step of an iteration yielded,
            and none while it looks for the next; None if a poll came since.
        are_returned: whether the poll has returned them. It is set without a call, as
            the last thing that the poll does: what a signal handler raises comes
            before it, and the records come again, or after the poll has returned.
        is_step: whether a step of an iteration polls: the partitions of all its polls are
            kept until the step knows which records are returned.
        step_starts: the positions at which the polls of a step began to take records,
            by partition, with the states and how often these had been moved.
    """

    def __init__(self) -> None:
        self.are_returned = self.is_step = False
        self.taken: dict[TopicPartition, OwnedPartitionState] = {}
        self.yielding: tuple[TopicPartition, ...] | None = None
        self.step_starts: dict[
            TopicPartition, tuple[OwnedPartitionState, int, int]
        ] = {}

    def in_hand(self) -> frozenset[TopicPartition]:
        """
        Return the partitions of which the last poll, or step, returned records.

        Those of a poll under way are among them before its last check of what is held.
        """
        return frozenset(self.taken if self.yielding is None else self.yielding)

    def note(self, tp: TopicPartition, state: OwnedPartitionState) -> None:
        """Remember the present position, unless an earlier one of this poll still counts."""
        self.taken[tp] = state
        position = state.position
        if state.before is None:
            state.before = position
        if self.is_step and self.step_starts.get(tp, ())[:2] != (state, state.moves):
            self.step_starts[tp] = state, state.moves, position.offset

    def is_delivered(self) -> bool:
        """Tell whether nothing that the last poll took may come again."""
        if self.is_step or not self.are_returned:
            return False
        return not [one for one in self.taken.values() if one.buffer.taken]

    def clear(self) -> None:
        """Forget what was taken: it is delivered."""
        for state in self.taken.values():
            state.before = None
        self.taken.clear()
        self.are_returned = False

    def position(self, state: OwnedPartitionState) -> OffsetAndMetadata | None:
        """Return the position up to which polls have returned records; None if unknown."""
        before = None if self.are_returned else state.before
        position: OffsetAndMetadata | None = state.position
        return position if before is None else before

    def put_back(
        self, comes_again: Callable[[TopicPartition, int], None] | None = None
    ) -> dict[TopicPartition, OwnedPartitionState]:
        """
        Move each position back to the first record that was taken and not returned.

        Records that it returned are forgotten, unless it left their position where it
        was, as in an iteration. A signal handler may interrupt this call; the next one
        does it again.

        Args:
            comes_again: is called with the positions at which records come again.

        Returns:
            The states of which something was taken.
        """
        states = dict(self.taken)
        for tp, state in states.items():
            before = None if self.are_returned else state.before
            if before is not None:
                if comes_again is not None:
                    comes_again(tp, before.offset)
                state.put_back()
            state.before = None
            state.forget()
        if not self.is_step:
            self.taken.clear()
        self.are_returned = False
        return states
