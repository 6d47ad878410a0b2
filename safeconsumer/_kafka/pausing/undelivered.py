"""Keeps the position before the records that a poll has taken, until it returns them."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from kafka.consumer.fetcher import ConsumerRecord
from kafka.consumer.subscription_state import TopicPartitionState
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.buffer import Buffer


class Fetch:
    """
    A request for records.

    Attributes:
        answered_at: the time at which the broker answered, at the latest, in monotonic
            seconds; -inf until the response arrives. A response that was late on its
            way counts from the end of the broker's longest wait.
        until: the end of the broker's longest wait, in monotonic seconds. After that
            time the fetch no longer proves that its topic exists, even if the response
            has not arrived.
    """

    answered_at = -math.inf
    until = math.inf


class OwnedPartitionState(TopicPartitionState):
    """
    Upstream's state of one owned partition, with the partition's buffer.

    Upstream sets positions without a lock, so a drain that has just read a position
    could overwrite the position that another thread has set by ``seek()``. In this
    class a seek takes the same lock as a drain, and after a seek no poll can put
    records back.

    To convert upstream's state, set its ``__class__`` to this class and call
    :meth:`prepare`.
    """

    buffer: Buffer
    """
    The records of this ownership that were not delivered yet.
    """

    lock: AbstractContextManager[object]
    unvalidated: set[OwnedPartitionState]
    unsettle: Callable[[], None]
    before: OffsetAndMetadata | None = None
    """
    The position before the records that a poll has taken but not returned. None means
    that the poll has taken no record, or that the position was moved since.
    """

    moves: int = 0
    """
    How often a seek or a reset moved the position, counted before each move.
    """

    takes: int = 0
    """
    How often a poll has taken records.
    """

    moved_to: OffsetAndMetadata | None = None
    """
    The position after the last seek; None after a reset.
    """

    reset_number: int = 0
    """
    The number of the last reset; repeated requests for the same reset do not count.
    """

    out_of_range: int | None = None
    """
    The offset of an out-of-range position, until a broker has reported another one.
    """

    has_commit: bool | None = None
    """
    Whether the group has a committed offset, by the coordinator's last response. None
    means that no request of this ownership was answered, for example because the
    program has set the first position.
    """

    commits_sent: int = 0
    """
    How many commits of the partition were sent. A request that is older than the last
    commit cannot prove that the group has no offset.
    """

    topic_id: UUID | None = None
    """
    The id of the topic to which the position belongs; None if unknown.
    """

    is_presumed: bool = False
    """
    Whether that id comes from metadata that is older than the ownership, and that may
    be older than the commit at which reading started.
    """

    is_set_by_program: bool = False
    """
    Whether the program set the position while the id was presumed, so that it stays.
    """

    asks_commit: bool = False
    """
    Whether to request the committed offset of a recreated topic, because that offset
    may belong to the new topic.
    """

    earlier_ids: frozenset[UUID] = frozenset()
    """
    The ids of earlier topics of this name, since the partition was assigned.
    """

    named_at: float = -math.inf
    """
    The time of the assignment, or of the last metadata request whose response had that
    topic id, in monotonic seconds.
    """

    unknown_at: float = -math.inf
    """
    The time at which a broker did not know the topic of a fetch, in monotonic seconds. A
    metadata response to an earlier request does not prove that the topic still exists.
    """

    last_fetch: Fetch | None = None
    """
    The last fetch from the topic to which the position belongs.
    """

    read_in_doubt: tuple[float, int] | None = None
    """
    The time of the response to a fetch that did not prove that the position is valid,
    because the topic was in doubt, in monotonic seconds; and the fetch's ``moves``. If a
    later metadata request shows the same topic id, the fetch was one of that topic.
    """

    waited_since: float | None = None
    """
    The time since which fetches leave the partition out, to wait for topic ids; None if
    the last fetch included it.
    """

    committed: int | None = None
    """
    The group's committed offset from the first response to this ownership, or from its
    own last commit; None if the group had none, or if ``has_commit`` is None.
    """

    reset_target: Any = None
    """
    The target of the operator's reset that started this ownership, or None.
    """

    reset_moves: int = 0
    """
    The number of moves when ``reset_target`` was set. After a later seek the program
    may commit any offset.
    """

    tenure: object = None
    """
    An object that consecutive ownerships share if only resets of the group separate
    them; None if no reset has separated this ownership from another.
    """

    read_to: int | None = None
    """
    The end of the records read from a recreated topic; None before the first record.
    """

    @property
    def is_recreated(self) -> bool:
        """Whether the topic was recreated; earlier commits are for the deleted topic."""
        return bool(self.earlier_ids)

    @property
    def is_unread(self) -> bool:
        """Whether the topic was recreated, and no record of the new topic was read yet."""
        return self.is_recreated and self.read_to is None

    def is_proof(self, topic_id: UUID | None, asked_at: float) -> bool:
        """
        Return whether a metadata response shows if the topic of the position exists.

        Args:
            topic_id: the topic's id in the response; None if the response lacks it.
            asked_at: the time of the request, in monotonic seconds.
        """
        if topic_id is None:
            return self.topic_id is None
        return asked_at >= self.unknown_at or self.topic_id not in {None, topic_id}

    def begin_at_reset(self, target: Any) -> None:  # noqa: ANN401 - of safeconsumer.group
        """Record that this ownership starts at the target offset of an operator's reset."""
        self.reset_target, self.reset_moves = target, self.moves

    @property
    def least_commit(self) -> int | None:
        """The smallest offset that a reset allows to be committed; None if any is allowed."""
        target = self.reset_target
        is_bound = target is not None and self.reset_moves == self.moves
        return target.offset if is_bound else None

    def note_read(self, end: int) -> None:
        """Record the offset after the records that were taken."""
        if self.is_recreated:
            self.read_to = max(self.read_to or 0, end)

    def has_read(self, offset: int) -> bool:
        """Return whether a read or a seek has reached an offset of a recreated topic."""
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
        Set the attributes that this class needs in addition to upstream's.

        Args:
            lock: upstream's subscription lock.
            unvalidated: the partitions whose position was set, and not just advanced by
                reading, since positions were last compared with their leaders' epochs.
            unsettle: a function to call before and after each change that may make the
                position depend on a broker's response. The first call is for signal
                handlers that raise after the change. The second call is for signal
                handlers that read ``is_settled`` in between.
        """
        self.buffer = Buffer()
        self.lock = lock
        self.unvalidated = unvalidated
        self.unsettle = unsettle

    @property
    def is_settled(self) -> bool:
        """Whether the partition has a position that does not wait for a broker's response."""
        return (
            self._position is not None
            and self.reset_strategy is None
            and not self._awaiting_validation
        )

    def maybe_validate_position(self, current_leader_epoch: int | None) -> bool:
        """Request a check of the position against the leader's log if the epochs differ."""
        self.unsettle()
        is_needed: bool = super().maybe_validate_position(current_leader_epoch)
        self.unsettle()
        return is_needed

    def request_position_validation(self) -> bool:
        """Request a check of the position against the leader's log."""
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
        """Drop the position until a broker has reported where to start."""
        with self.lock:
            # Cleared first: if a signal handler raises below, the awaited response is
            # dropped, and otherwise no new request would be sent for
            # request_timeout_ms.
            self.next_allowed_retry_time = None
            if self.reset_strategy != strategy:
                self.reset_number += 1
            self.moves += 1
            self.unsettle()
            super().reset(strategy)
            self.moved_to = self.before = self.out_of_range = None
            self.unsettle()

    def restore_move(self) -> None:
        """
        Restore the position that a seek has set and that was then overwritten.

        A step of an iteration takes no lock, because a lock would make steps 10 %
        slower. A drain takes the lock, but a signal handler on the same thread can
        acquire it again. Therefore both a step and a drain first set the position, and
        then check whether a seek came in between.
        """
        with self.lock:
            self.unsettle()
            self._position = self.moved_to
            self.unvalidated.add(self)
            self.unsettle()

    def put_back(self) -> bool:
        """
        Move the position and the cursor back to the first record that a poll has taken.

        Returns:
            Whether this was possible; it is not if the position has been moved since.
        """
        moves, before = self.moves, self.before
        if before is not None:
            self.position = before
            self.before = None
            if self.moves != moves:  # a signal handler called seek()
                self.restore_move()
                before = None
        self.move_cursor()
        return before is not None

    def forget(self) -> None:
        """Set the buffer's cursor to the position, and drop the records before it."""
        if self._position is not None:
            self.buffer.forget(self._position.offset, self.moves)
        else:
            self.buffer.close_open()

    def move_cursor(self) -> None:
        """Set the buffer's cursor to the position."""
        if self._position is not None:
            self.buffer.move_cursor(self._position.offset, self.moves)
        else:
            self.buffer.close_open()


class Undelivered:
    """
    Tracks the partitions from which the last poll has taken records.

    A drain moves positions immediately, so that the next fetches start after the
    drained records. Only records that the poll returns count as delivered and may be
    committed.

    Thread rules: the caller holds upstream's subscription lock. A signal handler may
    commit on the draining thread, so taken records are recorded before the position
    moves, and forgotten after it has moved back.

    Attributes:
        taken: maps the partitions to their states.
        yielding: the partition of the record that an iteration yielded last; empty
            while the iteration fetches the next record; None after a poll.
        are_returned: whether the poll has returned the records. The poll sets this
            last, by an assignment that calls no function. A signal handler therefore
            raises either before that, and the records are delivered again, or after the
            poll has returned.
        is_step: whether a step of an iteration is polling. The partitions of all its
            polls are kept until the step has determined which records it yields.
        step_starts: maps each partition to its state, the state's ``moves``, the offset
            at which the polls of a step began to take records, and whether a seek moved
            the position there after the step had taken records.
    """

    def __init__(self) -> None:
        self.are_returned = self.is_step = False
        self.taken: dict[TopicPartition, OwnedPartitionState] = {}
        self.yielding: tuple[TopicPartition, ...] | None = None
        self.step_starts: dict[
            TopicPartition, tuple[OwnedPartitionState, int, int, bool]
        ] = {}

    def in_hand(self) -> frozenset[TopicPartition]:
        """
        Return the partitions whose records the last poll or step returned.

        The partitions of an unfinished poll are included, until its final check for
        holds has removed some.
        """
        return frozenset(self.taken if self.yielding is None else self.yielding)

    def note(self, tp: TopicPartition, state: OwnedPartitionState) -> None:
        """Remember a partition's current position, unless an earlier one is remembered."""
        self.taken[tp] = state
        state.takes += 1
        position = state.position
        if state.before is None:
            state.before = position
        if self.is_step:
            self._note_start(tp, state, position.offset)

    def _note_start(
        self, tp: TopicPartition, state: OwnedPartitionState, offset: int
    ) -> None:
        earlier, moves, *_ = self.step_starts.get(tp, (None, 0))
        if earlier is not state or moves != state.moves:
            is_sought = earlier is state and state.moved_to is not None
            self.step_starts[tp] = state, state.moves, offset, is_sought

    def taken_since_seek(
        self,
        tp: TopicPartition,
        state: OwnedPartitionState,
        records: list[ConsumerRecord],
    ) -> list[ConsumerRecord]:
        """
        Return a step's records, except records that were taken before its last seek.

        A program's own ``poll`` may poll several times, call ``seek()`` in between, and
        return all records. If the consumer itself has reset the position, no records
        are left out.
        """
        earlier, moves, offset, is_sought = self.step_starts.get(
            tp, (None, 0, 0, False)
        )
        if earlier is not state:
            return records
        if moves != state.moves and state.moved_to is not None:
            return []
        if not is_sought:
            return records
        offsets = [one.offset for one in records]
        falls = [at for at in range(1, len(offsets)) if offsets[at] <= offsets[at - 1]]
        last = records[falls[-1] :] if falls else records
        return [one for one in last if one.offset >= offset]

    def is_delivered(self) -> bool:
        """Return whether the last poll's records were all returned, and are not buffered."""
        if self.is_step or not self.are_returned:
            return False
        return not [one for one in self.taken.values() if one.buffer.taken]

    def clear(self) -> None:
        """Forget the taken records, because they were delivered."""
        for state in self.taken.values():
            state.before = None
        self.taken.clear()
        self.are_returned = False

    def position(self, state: OwnedPartitionState) -> OffsetAndMetadata | None:
        """Return the position after the last returned record; None if unknown."""
        before = None if self.are_returned else state.before
        position: OffsetAndMetadata | None = state.position
        return position if before is None else before

    def put_back(
        self, comes_again: Callable[[TopicPartition, int], None] | None = None
    ) -> dict[TopicPartition, OwnedPartitionState]:
        """
        Move each position back to the first record that was taken but not returned.

        Returned records before the position are dropped from the buffers. In an
        iteration the position may still precede them. If a signal handler interrupts
        this call, the next call repeats it.

        Args:
            comes_again: a function that is called with each partition, and the offset
                from which its records are delivered again.

        Returns:
            The states of the partitions with taken records.
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
