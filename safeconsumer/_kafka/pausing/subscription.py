"""Extends upstream's subscription state: the ledger decides which partitions are paused."""

from __future__ import annotations

import base64
import functools
import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Protocol
from uuid import UUID

from kafka.consumer.subscription_state import (
    OffsetResetStrategy,
    SubscriptionState,
    SubscriptionType,
    TopicPartitionState,
)
from kafka.errors import IllegalStateError
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.pausing.ids import TopicIds
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState, Undelivered
from safeconsumer.errors.kafka_python import ConcurrentPollError, ConsumerInUseError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP, Lifetime
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.ownership import Cause, Reassignment
from safeconsumer.holds.scope import partition_text


class Journal(Protocol):
    """The calls with which a consumer reports to its journal, on any thread."""

    def reassigned(self, change: Reassignment) -> None:
        """Record a change of the assignment, under upstream's lock, without raising."""

    def begins_at(self, tp: TopicPartition, offset: int) -> None:
        """Record a position that a commit, a reset or the program has set."""

    def reset(self, tp: TopicPartition, offset: int, owner: str) -> None:
        """Record that an ownership starts at the target offset of an operator's reset."""

    def log_starts_at(self, tp: TopicPartition, first: int, asked: int) -> None:
        """Record a log's start, as reported in the response to a fetch at ``asked``."""

    def comes_again(self, tp: TopicPartition, offset: int) -> None:
        """Record that records from an offset on were not returned and will come again."""

    def named(self, tp: TopicPartition, topic_id: str) -> None:
        """Record a topic's id, if it was unknown when the ownership started."""

    def transactional(self, tp: TopicPartition) -> None:
        """Record that a transactional batch was read, before its records are returned."""

    def committing(
        self, offsets: Mapping[TopicPartition, int]
    ) -> tuple[str, Callable[..., None]]:
        """
        Record the request for a commit.

        Returns:
            The note that refers to the journal, for the commit's metadata; and the
            function that records the result, with the argument ``is_done``.

        Raises:
            JournalError: the entry for the request cannot be written.
        """

    def is_note(self, metadata: str) -> bool:
        """Return whether the metadata of a commit is the note of some journal."""
        ...

    def committed(
        self, answers: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        """Record the committed offsets at which ownerships start."""

    def clock(self, at: float, sent: float, received: float) -> None:
        """Record that a broker's clock showed ``at`` between two monotonic times."""

    def unseen(self) -> None:
        """Record that a producer may commit for this member from now on."""


_NAMES = {
    OffsetResetStrategy.EARLIEST: "earliest",
    OffsetResetStrategy.LATEST: "latest",
    OffsetResetStrategy.NONE: "none",
}


def id_text(topic_id: UUID) -> str:
    """Return an id in Kafka's text form (``org.apache.kafka.common.Uuid.toString``)."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _of_assigned(upstream: Callable[..., None]) -> Callable[..., None]:
    # Returns a method that calls ``upstream`` with the partitions that are still
    # assigned.
    @functools.wraps(upstream)
    def call(
        self: SubscriptionState, partitions: Iterable[TopicPartition], at: float
    ) -> None:
        with self._lock:
            upstream(self, [tp for tp in partitions if tp in self.assignment], at)

    return call


class ConsumedOffsets(dict[TopicPartition, OffsetAndMetadata]):
    """The offsets that the consumer collects for a commit that specifies none."""


class LedgerSubscription(SubscriptionState):
    """
    Consults the ledger, instead of a flag, to decide whether a partition is paused.

    A flag is lost with upstream's state object, which belongs to one ownership. A hold
    stays until its owner lifts it. Therefore pauses survive rebalances, and no fetch
    can start between an assignment and the restoring of a pause.

    Attributes:
        ledger: the holds.
        ids: the object that decides when the ids of topics must be requested.
        newest_id: returns a topic's id in the newest metadata, or None.
        is_missing: returns whether a topic does not exist, according to the newest
            metadata.
        ask_ids: requests new metadata.
        undelivered: tracks the records that a poll has taken but not returned; used
            only under upstream's lock.
        cause: the cause to report for the next change of the group's assignment.
        journal: the object that gets this consumer's reports; None without a journal.
        taken_by: the object of the worker or pump that uses the consumer; None if the
            program uses the consumer itself.
        own_call: the thread and the method name of that object's current call, or None.
        unvalidated: the partitions whose position was set, and not just advanced by
            reading, since positions were last compared with their leaders' epochs.
        worker_busy: returns the partitions whose records a worker's handlers are
            processing; None without a worker.
        on_joined: a function that is called after each completed join, under upstream's
            locks.
        is_closing: whether the consumer is being closed, so that no records are in use.
    """

    _user_assignment: set[TopicPartition]  # upstream's

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - upstream's
        super().__init__(*args, **kwargs)
        self.prepare(PauseLedger())

    def prepare(self, ledger: PauseLedger) -> None:
        self.ledger = ledger
        self.newest_id: Callable[[str], UUID | None] = lambda _: None
        self.is_missing: Callable[[str], bool] = lambda _: False
        self.ask_ids: Callable[[], object] = tuple
        self.ids = TopicIds(ledger)
        self.undelivered = Undelivered()
        self.unvalidated: set[OwnedPartitionState] = set()
        self.cause = Cause.JOINED
        self.journal: Journal | None = None
        self.taken_by: object | None = None
        self.own_call: tuple[int, str] | None = None
        self.worker_busy: Callable[[], Collection[TopicPartition]] | None = None
        self.on_joined: Callable[[], object] = tuple
        self.is_closing = False
        self._pinned: frozenset[TopicPartition] | None = None
        # Maps topics to the smallest known number of partitions, and the topic's id.
        self._first_seen: dict[str, tuple[int, UUID | None]] = {}
        # The subscribed pattern, once a metadata response has listed all topics that
        # match.
        self._answered_pattern: re.Pattern[str] | None = None
        self._skips_no_record = False
        self._is_whole = True
        self._is_settled = False

    # ------------------------------------------------------------ queries

    def refuse_other_poll(self) -> None:
        """
        Refuse a poll that is not from the worker or pump that uses the consumer.

        The worker or pump would commit past the records that another poll returned.

        Raises:
            ConcurrentPollError: a worker or pump uses the consumer, and this is not its
                poll.
        """
        if self._is_taken_from("poll"):
            message = (
                "a Worker or Pump uses this consumer and polls it: leave out poll() "
                "and iteration; the handler, or the Pump's program, receives the "
                "records"
            )
            raise ConcurrentPollError(message)

    def refuse_other_end(self, call: str) -> None:
        """
        Refuse a call that would end a worker's membership or assignment.

        Only the worker or pump knows which finished records are not committed yet. If
        the call were allowed, these records would be handled again.

        Raises:
            ConsumerInUseError: a worker or pump uses the consumer, and this is not its
                call.
        """
        if self._is_taken_from(call):
            message = (
                f"{call}() was called while a Worker or Pump uses this consumer: call "
                "worker.stop(), which commits finished records and closes the "
                "consumer, or leave the block of the Pump first; nothing was changed"
            )
            raise ConsumerInUseError(message)

    def _is_taken_from(self, call: str) -> bool:
        # The name is compared, too, because a hook or a signal handler may make a
        # different call on the worker's thread.
        own = threading.get_ident(), call
        return self.taken_by is not None and self.own_call != own

    def quiet(self) -> frozenset[TopicPartition]:
        """Return the quiet partitions; during a drain, those that were quiet at its start."""
        pinned = self._pinned
        return self.ledger.quiet() if pinned is None else pinned

    def pin(self) -> None:
        """
        Use one snapshot of the quiet partitions until :meth:`unpin`.

        Upstream queries the quiet partitions twice per batch. If a pause took effect in
        between, upstream would discard the batch instead of parking it.
        """
        self._pinned = self.ledger.quiet()

    def unpin(self) -> None:
        self._pinned = None

    def is_paused(self, partition: TopicPartition) -> bool:
        return partition in self.quiet()

    def paused_partitions(self) -> set[TopicPartition]:
        """Return the assigned partitions that the application has paused."""
        return {TopicPartition(*tp) for tp in self.ledger.view().held_by(APP)}

    def is_fetchable(self, partition: TopicPartition) -> bool:
        state = self.assignment.get(partition)
        return (
            state is not None and partition not in self.quiet() and state.is_fetchable()
        )

    def fetchable_partitions(self) -> list[TopicPartition]:
        """Return the partitions that may be fetched, in upstream's order."""
        quiet = self.ledger.quiet()
        with self._lock:
            return [
                tp
                for tp, one in self.assignment.items()
                if tp not in quiet and one.is_fetchable()
            ]

    # ------------------------------------------------------------ positions

    def all_consumed_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Return the offsets after the last returned records, committed by default.

        A poll moves positions when it drains records. If another thread or a rebalance
        commits during the poll, the commit must not include records that the poll may
        put back or never return.

        The result leaves out a held partition whose position was committed already,
        because no record was read since, and the topic may have been recreated. There
        are two exceptions. Under ``assign`` such a position is committed again, because
        there the offset's retention counts from the last commit. It is also committed
        again if the topic has no id, as with brokers before 2.8.
        """
        quiet, is_renewed = self.ledger.quiet(), self.partitions_auto_assigned()
        with self._lock:
            return ConsumedOffsets(
                (tp, position)
                for tp, state in self.assignment.items()
                if (position := self.undelivered.position(state)) is not None
                and not (
                    is_renewed
                    and tp in quiet
                    and state.topic_id is not None
                    and state.committed == position.offset
                )
            )

    def delivered_position(self, partition: TopicPartition) -> int | None:
        """
        Return the offset of the next record to be delivered; None if unknown.

        Records that a poll has taken but not returned yet do not count as delivered.
        """
        with self._lock:
            state = self.assignment.get(partition)
            position = None if state is None else self.undelivered.position(state)
        return None if position is None else int(position.offset)

    def places(
        self,
    ) -> dict[
        TopicPartition, tuple[OwnedPartitionState, int, int, OffsetAndMetadata | None]
    ]:
        """Map partitions to state, ``moves``, ``takes`` and position for the program."""
        # A worker calls this method before each poll, so for speed it only reads
        # attributes.
        with self._lock:
            is_returned = self.undelivered.are_returned
            return {
                tp: (
                    state,
                    state.moves,
                    state.takes,
                    state._position if is_returned else state.before or state._position,
                )
                for tp, state in self.assignment.items()
            }

    # If a partition of a response is no longer assigned, upstream would raise a
    # KeyError, and all other partitions would wait for request_timeout_ms.

    set_reset_pending = _of_assigned(SubscriptionState.set_reset_pending)
    reset_failed = _of_assigned(SubscriptionState.reset_failed)
    set_validation_pending = _of_assigned(SubscriptionState.set_validation_pending)
    validation_failed = _of_assigned(SubscriptionState.validation_failed)

    def in_hand(self) -> frozenset[TopicPartition]:
        """
        Return the partitions whose records the program may be processing.

        The client assumes that the program processes the records of the last poll, or
        the record of the last step of an iteration, until the next poll or step starts
        or the consumer is closed. Any thread may call this.
        """
        with self._lock:
            return frozenset() if self.is_closing else self.undelivered.in_hand()

    def busy(self) -> Collection[TopicPartition]:
        """Return the partitions whose records a worker (or else the program) uses."""
        return (self.worker_busy or self.in_hand)()

    # ------------------------------------------------------------ settled positions

    # Upstream checks all partitions three times in each poll. With a thousand
    # partitions this takes most of the poll's time, although nearly always all
    # positions are already settled.

    def unsettle(self) -> None:
        """Make the next check examine every position again."""
        self._is_settled = False

    def has_all_fetch_positions(self) -> bool:
        return self._are_settled() or super().has_all_fetch_positions()

    def partitions_needing_reset(self) -> set[TopicPartition]:
        return set() if self._are_settled() else super().partitions_needing_reset()

    def partitions_needing_validation(self) -> set[TopicPartition]:
        return set() if self._are_settled() else super().partitions_needing_validation()

    def _are_settled(self) -> bool:
        with self._lock:
            if self._is_settled:
                return True
            try:
                # Set first, because a signal handler may call unsettle() below.
                self._is_settled = True
                if not all(state.is_settled for state in self.assignment.values()):
                    self._is_settled = False
            except BaseException:
                self._is_settled = False
                raise
            return self._is_settled

    # ------------------------------------------------------------ upstream's own pause

    def pause(self, partition: TopicPartition) -> None:
        scope = scopes.partition(partition.topic, partition.partition)
        self.ledger.place((scope,), owner=APP, lifetime=Lifetime.PLAIN)

    def resume(self, partition: TopicPartition) -> None:
        scope = scopes.partition(partition.topic, partition.partition)
        self.ledger.remove(((scope, APP),), by_application=True)

    # ------------------------------------------------------------ the assignment

    def assign_from_user(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Assign partitions manually.

        If a signal handler has interrupted a call, a repeated call starts over, even if
        upstream would detect no change.
        """
        if not self._is_whole:
            self._user_assignment = set()
        self._is_whole = False
        super().assign_from_user(partitions)
        self._is_whole = True

    def _apply_assignment(
        self,
        partitions: Iterable[TopicPartition],
        randomize: bool = False,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> None:
        # This runs under upstream's lock, before any fetch and before the user's
        # listener.
        self.unsettle()
        super()._apply_assignment(partitions, randomize)
        gained = [
            (tp, state)
            for tp, state in self.assignment.items()
            if not isinstance(state, OwnedPartitionState)
        ]
        earlier: Mapping[TopicPartition, Any] = self.ledger.given_up()
        for tp, state in gained:
            self._adopt(tp, state, earlier.get(tp))
        self.unsettle()
        # Ids are also requested if one is only presumed, because a signal handler may
        # have interrupted the last call.
        if gained or any(state.is_presumed for state in self.assignment.values()):
            self.ask_ids()
        by_hand = self.subscription_type == SubscriptionType.USER_ASSIGNED
        self.ledger.assign(self.assignment, Cause.ASSIGNED if by_hand else self.cause)

    def _adopt(
        self,
        tp: TopicPartition,
        state: Any,  # noqa: ANN401 - upstream's, ours from then on
        earlier: OwnedPartitionState | None,
    ) -> None:
        # The id is only presumed, because the current metadata may be older than the
        # commit at which reading starts. That cannot be the case for an id that was
        # known before the join.
        OwnedPartitionState.prepare(state, self._lock, self.unvalidated, self.unsettle)
        state.named_at = self.ledger.now()[0]
        state.topic_id, state.is_presumed = self.newest_id(tp.topic), True
        if earlier is not None:
            state.topic_id, state.is_presumed = earlier.topic_id, earlier.is_presumed
        begins = None
        if earlier is not None and earlier.is_unread:
            state.earlier_ids, begins = earlier.earlier_ids, self._strategy_of(tp)
        # Set last, so that after an interrupt the next call starts over.
        state.__class__ = OwnedPartitionState
        if begins not in {None, OffsetResetStrategy.NONE}:
            state.reset(begins)

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        super().seek(partition, offset)
        if self.journal is not None:
            at = offset if isinstance(offset, int) else offset.offset
            self.journal.begins_at(partition, at)

    def go_back(self, partition: TopicPartition, offset: int) -> None:
        """
        Seek back to a record that was read before; the position keeps its leader epoch.

        The epoch of a later record may be used: if the log was truncated below the
        offset, that epoch ends below the offset, too. After a seek forward, for example
        past an unreadable record, the position has no epoch, because another epoch may
        start in between.
        """
        with self._lock:
            position = self.assignment[partition].position
            is_back = position is not None and offset <= position.offset
            epoch = position.leader_epoch if is_back else -1
            self.seek(partition, OffsetAndMetadata(offset, "", epoch))

    def skip_no_record(self, topics: Mapping[str, Collection[int]]) -> None:
        """
        Read partitions that are added later from their start, even under ``latest``.

        ``latest`` keeps its meaning for the partitions that :meth:`note_partitions` has
        recorded. If unread records are deleted, reading continues as for a held
        partition.

        Args:
            topics: the partitions of each topic that is known now.
        """
        with self._lock:
            if not self._skips_no_record:
                self._first_seen = {}
                self._note_partitions(topics)  # the topics that exist already
            self._skips_no_record = True
            self._note_partitions(topics)

    def note_partitions(self, topics: Mapping[str, Collection[int]]) -> None:
        """
        Record each topic's number of partitions; the smallest number so far is kept.

        A topic that has fewer partitions now, or another id, was recreated. If its id
        has changed, all its partitions count as added. Topics that are neither given
        nor subscribed are forgotten, unless the subscription is a pattern. After a
        join, ``topics`` may be those of an earlier subscription. While a worker uses
        the consumer, all partitions of a topic that did not exist in an earlier call
        count as added, unless the topic's id shows that it existed before.
        """
        with self._lock:
            self._note_partitions(topics)

    def _note_partitions(
        self, topics: Mapping[str, Collection[int]], *, is_of_all: bool = False
    ) -> None:
        noted, pattern = self._first_seen, self.subscribed_pattern
        is_complete = self._skips_no_record and pattern is not None
        is_complete = is_complete and pattern is self._answered_pattern
        kept: Collection[str] = noted
        if pattern is None:
            kept = self.subscription or ()
        elif is_of_all and is_complete:
            kept = ()  # topics that are missing from the response will count as new
        now = {topic: noted[topic] for topic in kept if topic in noted}
        for topic, partitions in topics.items():
            count, topic_id = len(partitions), self.newest_id(topic)
            first = 0 if is_complete else count
            least, first_id = noted.get(topic, (first, topic_id))
            if count:
                is_same = topic_id is None or first_id in {None, topic_id}
                now[topic] = (min(least, count) if is_same else 0, first_id or topic_id)
            elif topic in noted and noted[topic][1] is not None:
                now[topic] = noted[topic]  # the ids show whether it was recreated
            elif self._skips_no_record and self.is_missing(topic):
                now[topic] = 0, None
            elif topic in noted:  # the topic is not known yet
                now[topic] = noted[topic]
        self._first_seen = now
        if pattern is None:
            self._answered_pattern = None

    def note_missing_topics(
        self, topics: Mapping[str, Collection[int]], *, is_of_all: bool
    ) -> None:
        """
        Record, while a worker uses the consumer, which topics do not exist.

        If a pattern is subscribed, topics that are missing from a response with all
        topics are forgotten, so that they count as added when they appear again.

        Args:
            topics: the partitions of each subscribed topic, according to a metadata
                response.
            is_of_all: whether the response lists all topics of the cluster.

        Thread rules: only the IO thread calls this.
        """
        if self._skips_no_record:
            with self._lock:
                self._note_partitions(topics, is_of_all=is_of_all)
        self._answered_pattern = self.subscribed_pattern if is_of_all else None

    def reset_missing_positions(self) -> None:
        """
        Set missing positions according to ``auto_offset_reset``.

        Other rules apply to added partitions (see :meth:`skip_no_record`) and to
        recreated topics.
        """
        with self._lock:
            for tp, state in self.assignment.items():
                if state.is_missing_position() and getattr(state, "asks_commit", False):
                    begins = self._strategy_of(tp)
                    if begins != OffsetResetStrategy.NONE:
                        state.reset(begins)
        if self._default_offset_reset_strategy == OffsetResetStrategy.LATEST:
            with self._lock:
                for tp, state in self.assignment.items():
                    if state.is_missing_position() and self._begins_at_its_start(tp):
                        state.reset(OffsetResetStrategy.EARLIEST)
        super().reset_missing_positions()

    def _begins_at_its_start(self, tp: TopicPartition) -> bool:
        # Returns whether the partition was added while a worker uses the consumer, or
        # its topic was recreated while the partition was held and not assigned.
        count, _ = self._first_seen.get(tp.topic, (math.inf, None))
        if self._skips_no_record:
            return int(tp.partition) >= count
        return count == 0 and self.ledger.was_held(tp)

    # ------------------------------------------------------------ recreated topics

    def compare_ids(self, ids: Mapping[str, UUID], asked_at: float) -> bool:
        """
        Restart the partitions whose positions belong to an earlier id of their topic.

        Each partition gets a new state object, as if it had been lost and assigned
        again, so that fetches, commits and records of the old topic refer to the old
        state.

        Args:
            ids: the ids in a metadata response, by topic.
            asked_at: the time of the request, in monotonic seconds.

        Returns:
            Whether another response is needed, because after the request a partition was
            gained, a broker did not know a topic, or a wait for topic ids began.

        Thread rules: only the IO thread calls this.
        """
        is_older, is_proof = False, True
        with self._lock:
            again = []
            for tp, state in self.assignment.items():
                topic_id = ids.get(tp.topic)
                if not isinstance(state, OwnedPartitionState):
                    # A signal handler has interrupted the adoption, which will be
                    # repeated.
                    continue
                if not state.is_proof(topic_id, asked_at):
                    is_proof, is_older = False, is_older or topic_id is not None
                    continue
                if topic_id is None or topic_id in state.earlier_ids:
                    continue  # an earlier id, from a broker with outdated metadata
                if state.topic_id is None and self.journal is not None:
                    self.journal.named(tp, id_text(topic_id))
                if state.is_presumed and asked_at < state.named_at:
                    state.topic_id, is_older = topic_id, True
                elif state.topic_id in {None, topic_id} or state.is_set_by_program:
                    self._confirm_read(tp, topic_id, asked_at)
                    state.topic_id, state.named_at = topic_id, asked_at
                    state.is_presumed = state.is_set_by_program = False
                else:
                    again.append(tp)
            again.sort()
            for tp in again:
                self._restart_recreated(tp, ids[tp.topic], asked_at)
            if again:
                self.ledger.assign(self.assignment, Cause.RENEWED)
        is_waiting = self.ids.answered(asked_at, is_proof=is_proof)
        return is_older or is_waiting

    def restart(
        self, targets: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, OwnedPartitionState]:
        """
        Start new ownerships, as if other members had owned the partitions in between.

        Fetches, queued records and commits of the earlier ownerships are no longer
        valid.

        Args:
            targets: maps each partition to the target of the operator's reset at which
                its new ownership starts; None means a start at the committed offset.

        Returns:
            The new states of those of the partitions that are owned.
        """
        begun: dict[TopicPartition, Any] = {}
        with self._lock:
            self.unsettle()
            for tp, target in targets.items():
                old = self.assignment.get(tp)
                if isinstance(old, OwnedPartitionState):
                    begun[tp] = self.assignment[tp] = self._restarted_state(
                        tp, old, target
                    )
            self.unsettle()
            if begun:
                self.ledger.assign(self.assignment, Cause.RENEWED)
            for tp, state in begun.items():
                self._write_reset(tp, state.reset_target)
        return begun

    def begin_at_reset(
        self,
        tp: TopicPartition,
        target: Any,  # noqa: ANN401 - of safeconsumer.group
    ) -> None:
        """Record that an owned partition is already at the target of an operator's reset."""
        with self._lock:
            state = self.assignment.get(tp)
            if isinstance(state, OwnedPartitionState):
                state.begin_at_reset(target)
                self._write_reset(tp, target)

    def _write_reset(self, tp: TopicPartition, target: Any) -> None:  # noqa: ANN401
        if self.journal is not None and target is not None:
            self.journal.reset(tp, target.offset, target.owner)

    def _restarted_state(
        self,
        tp: TopicPartition,
        old: OwnedPartitionState,
        target: Any,  # noqa: ANN401 - of safeconsumer.group
    ) -> Any:  # noqa: ANN401 - upstream's
        state: Any = TopicPartitionState()
        self._adopt(tp, state, None)
        state.topic_id, state.is_presumed = old.topic_id, old.is_presumed
        state.named_at, state.unknown_at = old.named_at, old.unknown_at
        state.earlier_ids = old.earlier_ids
        state.tenure = old.tenure = old.tenure or object()
        state.read_to, state.asks_commit = old.read_to, target is None
        state.has_commit, state.committed = old.has_commit, old.committed
        state.mark_pending_revocation(old._pending_revocation)
        if target is not None:
            state.seek(OffsetAndMetadata(target.offset, "", -1))
            state.begin_at_reset(target)
        return state

    def note_seek(self, partitions: Iterable[TopicPartition]) -> None:
        """
        Mark positions that the program sets while their topic's id is presumed.

        Such a position is kept, even if the topic turns out to have another id.
        """
        with self._lock:
            for tp in partitions:
                state = self.assignment.get(tp)
                if state is not None:
                    state.is_set_by_program = state.is_presumed

    def recreated(self) -> list[str]:
        """Return the recreated topics from which no record was read yet, sorted."""
        with self._lock:
            owned = tuple(self.assignment.items())
        unread = {tp.topic for tp, one in owned if getattr(one, "is_unread", False)}
        return sorted(unread)

    def _confirm_read(
        self, tp: TopicPartition, topic_id: UUID, asked_at: float
    ) -> None:
        # 1. After a hold, a fetch waits for metadata, which takes longer than a tenth of
        #    a second. So the topic may have been recreated before the fetch.
        # 2. The fetch is answered, but does not confirm the position.
        # 3. The response to a later request has the same id, which Kafka never reuses.
        # Without this step a partition would stay in doubt, and its fetches would wait
        # every second, as long as the network is that slow.
        state = self.assignment[tp]
        if state.read_in_doubt is None or state.topic_id != topic_id:
            return
        answered_at, moves = state.read_in_doubt
        if asked_at >= answered_at:
            state.read_in_doubt = None
            self.ledger.confirm({tp}, moves)

    def _restart_recreated(
        self, tp: TopicPartition, topic_id: UUID, asked_at: float
    ) -> None:
        old = self.assignment[tp]
        begins, position = self._strategy_of(tp), old.position
        self.ledger.emit(
            events.TopicRecreated,
            partition=tp,
            position=None if position is None else position.offset,
            old_id=id_text(old.topic_id),
            new_id=id_text(topic_id),
            begins="committed" if old.is_presumed else _NAMES[begins],
        )
        state: Any = TopicPartitionState()
        self._adopt(tp, state, None)
        state.topic_id, state.earlier_ids = topic_id, old.earlier_ids | {old.topic_id}
        state.is_presumed, state.asks_commit = False, old.is_presumed
        state.named_at = asked_at
        state.has_commit = old.has_commit = False
        state.mark_pending_revocation(old._pending_revocation)
        if begins != OffsetResetStrategy.NONE and not state.asks_commit:
            state.reset(begins)
        self.unsettle()
        self.assignment[tp] = state
        self.unsettle()

    def _strategy_of(self, tp: TopicPartition) -> Any:  # noqa: ANN401 - upstream's
        # Returns the strategy that determines the first position in a recreated topic.
        if self._must_not_skip(tp):
            return OffsetResetStrategy.EARLIEST
        return self._default_offset_reset_strategy

    def _must_not_skip(self, tp: TopicPartition) -> bool:
        # Returns whether a hold or a worker forbids skipping records.
        return self._skips_no_record or self.ledger.was_held(tp)

    # ------------------------------------------------------------ out of range

    def request_offset_reset(
        self, partition: TopicPartition, offset_reset_strategy: int | None = None
    ) -> None:
        """
        Drop a position until a broker has reported where to start.

        A call without a strategy means that the position is out of range. The broker
        does not report whether the records there were deleted, or the position is
        beyond the end of the log. If the partition was held, the start of the log is
        requested first.

        Raises:
            IllegalStateError: the partition is not assigned, for example because
                another thread has just unsubscribed.
        """
        with self._lock:
            state = self.assignment.get(partition)
            if state is None:
                message = f"{partition_text(*partition)} is not assigned"
                raise IllegalStateError(message)
            position = state.position
            if offset_reset_strategy is not None or position is None:
                super().request_offset_reset(partition, offset_reset_strategy)
                return
            asked = (
                OffsetResetStrategy.EARLIEST if self._must_not_skip(partition) else None
            )
            super().request_offset_reset(partition, asked)
            state.out_of_range = position.offset

    def report_truncated(
        self, before: Mapping[TopicPartition, OffsetAndMetadata | None]
    ) -> None:
        """
        Emit an event for each position that was moved to the end of a truncated log.

        Each such move counts as a reset, so that a worker starts again at the new
        position.

        Args:
            before: the positions before the broker's response was applied.

        Thread rules: the caller holds upstream's lock.
        """
        for tp, position in before.items():
            state = self.assignment[tp]
            now = state.position
            if position is None or now is None or now.offset >= position.offset:
                continue
            state.reset_number += 1
            self.ledger.emit(
                events.LogTruncated,
                partition=tp,
                position=position.offset,
                offset=now.offset,
            )

    def answer_out_of_range(
        self, partition: TopicPartition, begin: OffsetAndMetadata
    ) -> None:
        """
        Move an out-of-range position to the offset from the broker; emit an event.

        If the position is beyond the end of the log, ``auto_offset_reset`` decides, as
        in upstream.

        Thread rules: the caller holds upstream's lock.
        """
        state, offset = self.assignment[partition], begin.offset
        position, asked = state.out_of_range, state.reset_strategy
        if asked == OffsetResetStrategy.EARLIEST and position < offset:
            self.seek(partition, begin)
            self.ledger.emit(
                events.UnreadRecordsDeleted,
                partition=partition,
                position=position,
                start=offset,
                gone=offset - position,
            )
        elif asked == self._default_offset_reset_strategy:
            self.seek(partition, begin)
            self.ledger.emit(
                events.PositionOutOfRange,
                partition=partition,
                position=position,
                offset=offset,
                skipped=max(0, offset - position),
            )
        else:
            super().request_offset_reset(partition)
            state.out_of_range = position

    def unsubscribe(self) -> None:
        """Clear the subscription and the assignment; fetched records are purged."""
        with self._lock:
            super().unsubscribe()
            self.ledger.assign({}, Cause.UNSUBSCRIBED)
