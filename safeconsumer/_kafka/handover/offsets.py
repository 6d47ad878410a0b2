"""Hands pauses over as marks on committed offsets."""

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import kafka.errors as kafka_errors
from attrs import evolve, frozen
from kafka.future import Future
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.structs import OffsetAndMetadata, TopicPartition
from rpds import HashTrieMap

from safeconsumer import events
from safeconsumer._kafka.errors import BlockingCallInListenerError
from safeconsumer._kafka.handover.carrying import (
    HandOver,
    Question,
    arrive,
    marked,
    short_name,
    travelling,
    unmarked,
)
from safeconsumer._kafka.handover.marks import Mark
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.events import group as control_events
from safeconsumer.holds import signals as _signals

if TYPE_CHECKING:
    from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator

# Seconds. A pause waits this long at most for its mark; then the IO thread goes on
# alone.
_PATIENCE = 2.0
# Seconds between two attempts of polls to write marks that could not be written.
_RETRY = 1.0
# Seconds; the default transaction.timeout.ms of producers. After it a producer has
# committed an offset that it was given, or never will.
_TRANSACTION = 60.0


@frozen
class _Given:
    """
    The offset that a producer was given last, and commits soon or has committed.

    Attributes:
        offset: the position of the application then.
        is_marked: whether it was given with a mark.
        shows: whether it was higher than any offset that the broker could have then, so
            that the broker's answer shows whether it is committed.
        until: when it is either committed or never will be; seconds, on the monotonic
            clock.
    """

    offset: int
    is_marked: bool
    shows: bool
    until: float


@frozen
class _Known:
    """
    What is known of a partition's committed offset in one ownership.

    Attributes:
        epoch: the epoch of the ownership.
        offset: the last offset known to be committed; None: no answer yet.
        mark: the last mark known to be on the committed offset.
        is_sure: whether the broker certainly has that mark, or certainly none.
        is_read: whether the committed offset was fetched in this ownership.
        over: what a producer was given and, as an answer has shown, has committed.
    """

    epoch: int
    offset: int | None = None
    mark: Mark | None = None
    is_sure: bool = False
    is_read: bool = False
    over: _Given | None = None


class MarksOnOffsets(HandOver):
    """
    Attaches marks to every commit, and obeys those it finds.

    Only the application's own pauses of single partitions are handed over, if they have
    no time limit. They leave this member's ledger with their partition: when it returns
    the mark decides, since another owner may have lifted the pause meanwhile.

    Writing a mark commits the offset that is committed already. To be sure that it is
    that offset, the writer, a coroutine on the IO thread, of which one runs at a time:

    1. waits until no commit of the partition is in flight;
    2. asks the broker what is committed, and whether a transaction is about to change
       it;
    3. sends the mark, unless a commit was begun meanwhile, which has the mark on it, or
       a producer was given an offset that is not committed yet.

    Later requests of this consumer go through the same connection and come after the
    mark. A producer has another connection: so :meth:`given` waits for marks on their
    way.

    Args:
        coordinator: the consumer's; it sends the requests.
        subscription: the consumer's; its ledger has the pauses.
        client_id: distinguishes members, for people.

    Thread rules: as the parent's. What is known is one immutable map, replaced under a
    lock that is innermost; no call is made under it.
    """

    def __init__(
        self,
        coordinator: "PauseSafeCoordinator",
        subscription: LedgerSubscription,
        client_id: object,
    ) -> None:
        self._coordinator = coordinator
        self._commits = coordinator.commits
        self._subscription = subscription
        self._ledger = subscription.ledger
        self._name = short_name(client_id)
        self._lock = threading.Lock()
        self._known: HashTrieMap[TopicPartition, _Known] = HashTrieMap()
        self._owned: Mapping[TopicPartition, int] = {}
        # lifted here, but not written to the broker before the partition departed
        self._lifted: Mapping[TopicPartition, Mark] = {}
        self._given: dict[TopicPartition, _Given] = {}
        self._settled: tuple[int, object, object] | None = None
        self._writer: Future | None = None
        self._running: Future | None = None  # the IO thread's
        self._on_their_way: tuple[frozenset[TopicPartition], Future] | None = None
        self._retry_at = 0.0
        self._is_failing = False
        self._is_closed = False
        self._ledger.is_carried = self._is_marked

    # ------------------------------------------------------------ when to write

    def changed(self) -> None:
        """
        Write marks that have changed, and wait for them; once per outage at most.

        In a listener the join that follows waits for them; in a signal handler nothing
        is sent and no lock is taken, and a later ``poll`` writes them.
        """
        if self._is_closed or _signals.in_signal_handler() or not self._has_unsaved():
            return
        net = self._coordinator._net
        if self._is_failing or threading.current_thread() is net._io_thread:
            self._start()
        else:
            self._write_within(_PATIENCE)

    def polled(self) -> None:
        """Start writing marks that could not be written before; it does not wait."""
        writer = self._writer
        is_idle = writer is None or writer.is_done
        is_due = is_idle and not self._is_closed and time.monotonic() >= self._retry_at
        if is_due and self._has_unsaved():
            self._start()

    def closing(self, timeout_ms: float | None) -> None:
        """Write marks that could not be written before; after this none is written."""
        seconds = _PATIENCE if timeout_ms is None else min(_PATIENCE, timeout_ms / 1000)
        if not self._is_closed and seconds > 0 and self._has_unsaved():
            self._write_within(seconds)
        self._is_closed = True

    async def before_join(self) -> None:
        """Write marks that could not be written before."""
        if not self._coordinator._generation.is_lost():
            await self._finish()
        self._note_lifted()

    async def revoked(self) -> None:
        """Write the marks that the listener has changed."""
        if not self._is_failing:
            await self.before_join()

    def _write_within(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        # A writer that was running already may have looked before the change.
        for _ in range(1 if self._writer is None or self._writer.is_done else 2):
            writer, done = self._start(), threading.Event()
            if writer is None:
                return
            writer.add_both(lambda _, done=done: done.set())
            if not done.wait(max(0.0, end - time.monotonic())):
                self._is_failing = True
                return
            if self._is_failing or not self._has_unsaved():
                return

    async def _finish(self) -> None:
        for _ in range(2):
            if self._is_closed or not self._has_unsaved():
                return
            try:
                await self._coordinator._manager.wait_for(
                    self._start(), _PATIENCE * 1000
                )
            except kafka_errors.KafkaTimeoutError:
                self._is_failing = True
            if self._is_failing:
                return

    def _start(self) -> Future | None:
        writer = self._writer
        if writer is None or writer.is_done:
            try:
                writer = self._coordinator._manager.call_soon(self._write_marks)
            except Exception:  # noqa: BLE001 - the IO thread has ended, and poll raises that
                return None
            self._writer = writer
        return writer

    # ------------------------------------------------------------ writing (IO thread)

    async def _write_marks(self) -> None:
        while self._running is not None:
            await self._running
        self._running = Future()
        is_done = False
        try:
            is_done = await self._write_unsaved()
            self._is_failing = False
        except Exception:  # noqa: BLE001 - the marks stay unsaved; a poll or join tries again
            self._is_failing = True
        finally:
            if not is_done:
                self._retry_at = time.monotonic() + _RETRY
            running, self._running = self._running, None
            running.success(None)

    async def _write_unsaved(self) -> bool:
        while unsaved := self._unsaved():
            await self._commits.none_in_flight(unsaved)
            question = self.asking(unsaved)
            offsets, unstable = await self._ask_stable(question.epochs)
            plain = self._hear(offsets, question, unstable)
            is_sent = await self._send(plain, unstable, question)
            if not is_sent and all(map(question.is_current, question.begun)):
                return not self._unsaved()
        return True

    async def _send(
        self,
        plain: Mapping[TopicPartition, OffsetAndMetadata],
        unstable: Collection[TopicPartition],
        question: Question,
    ) -> bool:
        # Step 1 publishes what is about to be sent, step 2 reads what producers were
        # given. given() does it the other way round, so that one of the two sees the
        # other.
        done = Future()
        self._on_their_way = (frozenset(question.epochs), done)
        try:
            due = {
                tp: at
                for tp in question.epochs
                if tp not in unstable
                and self._is_current(tp, question)
                and self._differs(tp)
                and (at := plain.get(tp) or self._start_of(tp)) is not None
                and at.offset >= self._commits.floor(tp)
            }
            if due:
                await self._coordinator._send_offset_commit_request(due)
            return bool(due)
        finally:
            self._on_their_way = None
            done.success(None)

    async def _ask_stable(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata], set[TopicPartition]]:
        # As upstream does, but upstream asks for stable offsets with read_committed
        # only. Brokers before 2.5 do not know the difference: there the floor has to
        # do.
        coordinator = self._coordinator
        node = coordinator.coordinator()
        if node is None:
            raise kafka_errors.CoordinatorNotAvailableError
        request = _stable_offsets(coordinator.group_id, partitions)
        try:
            response = await coordinator._manager.send(request, node_id=node)
        except Exception as error:
            coordinator._failed_request(node, request, error)
            raise
        unstable = _without_unstable(response)
        offsets: dict[TopicPartition, OffsetAndMetadata]
        offsets = coordinator._handle_offset_fetch_response(response)
        return offsets, unstable

    # ------------------------------------------------------------ what is to be written

    def _is_marked(self, tp: TopicPartition) -> bool:
        known = self._known.get(tp)
        return known is not None and known.is_sure and known.mark is not None

    def _is_unsaved(self, tp: TopicPartition) -> bool:
        known = self._of(tp)
        return known is not None and (not known.is_sure or self._differs(tp))

    def _differs(self, tp: TopicPartition) -> bool:
        known = self._of(tp)
        is_marked = known is not None and known.mark is not None
        return is_marked != self._is_travelling(tp)

    def _unsaved(self) -> list[TopicPartition]:
        return [tp for tp in self._ledger.ownership().epochs if self._is_unsaved(tp)]

    def _has_unsaved(self) -> bool:
        # Every poll calls this; partitions are looked at only after something changed.
        ledger = self._ledger
        version, ownership = ledger.view().state.version, ledger.ownership()
        known, settled = self._known, self._settled
        if (
            settled is not None
            and settled[0] == version
            and settled[1] is ownership
            and settled[2] is known
        ):
            return False
        self._note_sought()
        if self._unsaved():
            return True
        if all(tp in known for tp in ownership.epochs):
            self._settled = (version, ownership, known)
        return False

    def _is_travelling(self, tp: TopicPartition) -> bool:
        return travelling(self._ledger, tp)

    def _start_of(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        # Nothing is committed yet: the mark goes to where reading began, even if more
        # was read since, and fixes what auto_offset_reset decided.
        state = self._subscription.assignment.get(tp)
        now = None if state is None else state.delivered_position()
        if now is None or state.began_at is None:
            return None  # a reset under way may lead to an earlier offset
        return OffsetAndMetadata(min(state.began_at, now.offset), "", -1)

    # ------------------------------------------------------------ what passes by

    def outgoing(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return offsets with the marks that a commit of them must have."""
        generation = self._coordinator._generation.generation_id
        mark = Mark(max(0, generation), self._name)
        return marked(offsets, filter(self._is_travelling, offsets), mark)

    def given(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Return offsets as a producer may commit them, once no mark is on its way.

        Raises:
            BlockingCallInListenerError: called on the IO thread while a mark is on its
            way.
            KafkaTimeoutError: a mark did not arrive within ``request_timeout_ms``.
        """
        complete = self.outgoing(offsets)
        _, found = unmarked(complete)
        until = time.monotonic() + _TRANSACTION
        for tp, one in complete.items():
            shows = self._is_ahead(tp, one.offset)
            self._given[tp] = _Given(one.offset, tp in found, shows, until)
        self._wait_for_marks(offsets)
        # Only now: a mark that was on its way has recorded what it wrote by now.
        for tp in complete:
            known = self._of(tp)
            if known is not None and (known.mark is not None) != (tp in found):
                self._note(tp, is_sure=False)
        return complete

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note which offsets the broker has now."""
        _, found = unmarked(offsets)
        for tp, one in offsets.items():
            self._note_mark(tp, one.offset, found.get(tp))

    def failed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note that it is unknown whether the broker has these offsets."""
        for tp in offsets:
            if self._of(tp) is not None:
                self._note(tp, is_sure=False)

    def asking(self, partitions: Iterable[TopicPartition]) -> Question:
        """Remember the present ownership of each partition, and the count of its commits."""
        owned = self._ledger.ownership().epochs
        epochs = {tp: owned[tp] for tp in partitions if tp in owned}
        return Question(epochs, self._commits)

    def fetched(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], question: Question
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Obey the marks on committed offsets; return the offsets as the user wrote them.

        A new owner fetches them before it has a position, and so before any record; if
        the application sets the position itself, the mark is read soon after that.
        """
        return self._hear(offsets, question)

    def reassigned(self) -> None:
        """
        Forget what is known of ended ownerships; report which pauses were left behind.

        Partitions that come back at once count too: others may have committed
        meanwhile.
        """
        owned = self._ledger.ownership().epochs
        before, self._owned = self._owned, owned
        gone = [tp for tp, epoch in before.items() if owned.get(tp) != epoch]
        with self._lock:
            for tp in gone:
                known = self._known.get(tp)
                if known is not None and known.epoch != owned.get(tp):
                    self._known = self._known.remove(tp)
        left = [tp for tp in gone if self._is_travelling(tp)]  # not carried
        if left:
            self._ledger.emit(
                control_events.PauseNotHandedOver,
                partitions=events.sorted_partitions(left),
            )
        self._note_sought()

    # ------------------------------------------------------------ what the broker has

    def _hear(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        question: Question,
        unstable: Collection[TopicPartition] = (),
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        plain, found = unmarked(offsets)
        fresh = {}
        for tp, epoch in question.epochs.items():
            if tp in unstable or not self._is_owned_since(tp, question):
                continue
            known, mark = self._of(tp), found.get(tp)
            is_first = known is None or not known.is_read
            if mark is not None and is_first and self._lifted.get(tp) != mark:
                fresh[tp] = epoch
            self._note(tp, is_read=True)
            if question.is_current(tp):
                at = offsets.get(tp)
                offset = -1 if at is None else at.offset
                self._note_over(tp, known, offset, mark)
                self._note_mark(tp, offset, mark)
        arrive(self._ledger, fresh)
        return plain

    def _is_current(self, tp: TopicPartition, question: Question) -> bool:
        return question.is_current(tp) and self._is_owned_since(tp, question)

    def _is_owned_since(self, tp: TopicPartition, question: Question) -> bool:
        return self._ledger.ownership().epochs.get(tp) == question.epochs[tp]

    def _of(self, tp: TopicPartition) -> _Known | None:
        known = self._known.get(tp)
        epoch = self._ledger.ownership().epochs.get(tp)
        return known if known is not None and known.epoch == epoch else None

    def _note(self, tp: TopicPartition, **changed: Any) -> None:  # noqa: ANN401 - the fields
        epoch = self._ledger.ownership().epochs.get(tp)
        if epoch is None:
            return
        with self._lock:
            known = self._known.get(tp)
            if known is None or known.epoch != epoch:
                known = _Known(epoch)
            self._known = self._known.insert(tp, evolve(known, **changed))

    def _note_mark(self, tp: TopicPartition, offset: int, mark: Mark | None) -> None:
        # A producer may still commit an offset that it was given, with or without a
        # mark.
        given = self._given.get(tp)
        is_sure = (
            given is None
            or given.is_marked == (mark is not None)
            or self._is_over(tp, given, offset)
        )
        self._note(tp, offset=offset, mark=mark, is_sure=is_sure)

    def _is_ahead(self, tp: TopicPartition, offset: int) -> bool:
        # Ahead of the broker's offset, and of every offset that may still be sent to
        # it.
        known, before = self._of(tp), self._given.get(tp)
        return (
            known is not None
            and known.is_sure
            and known.offset is not None
            and offset > known.offset
            and (before is None or offset > before.offset)
            and not self._commits.is_in_flight(tp)
        )

    def _is_over(self, tp: TopicPartition, given: _Given, offset: int) -> bool:
        if offset < self._commits.floor(tp):
            return False
        known = self._of(tp)
        return (
            offset > given.offset
            or given.shows
            or (known is not None and known.over is given)
            or time.monotonic() >= given.until
        )

    def _note_over(
        self, tp: TopicPartition, known: _Known | None, offset: int, mark: Mark | None
    ) -> None:
        # The broker has an offset that a producer was given, and this member had left
        # another mark on it, or none: so the producer has committed it.
        given = self._given.get(tp)
        if (
            given is not None
            and known is not None
            and offset == given.offset
            and (mark is not None) == given.is_marked
            and (known.mark is not None) != given.is_marked
        ):
            self._note(tp, over=given)

    def _note_sought(self) -> None:
        # The application set a position itself, so no committed offset was fetched.
        for tp in self._ledger.ownership().epochs:
            if self._of(tp) is None:
                state = self._subscription.assignment.get(tp)
                position = None if state is None else state.position
                if position is not None:
                    self._note(tp)

    def _note_lifted(self) -> None:
        # Resumed, and the mark is still on the broker. If this member regains the
        # partition and finds that same mark, nobody has paused it since.
        self._lifted = {
            tp: known.mark
            for tp, known in self._known.items()
            if known.mark is not None and not self._is_travelling(tp)
        }

    def _wait_for_marks(self, partitions: Iterable[TopicPartition]) -> None:
        now = self._on_their_way
        if now is None or now[0].isdisjoint(partitions):
            return
        if threading.current_thread() is self._coordinator._net._io_thread:
            message = (
                "marked_offsets() waits for the mark of a paused partition, on the "
                "thread that listeners run on: end the transaction before poll()"
            )
            raise BlockingCallInListenerError(message)
        done, limit = threading.Event(), self._coordinator.config["request_timeout_ms"]
        now[1].add_both(lambda _: done.set())
        if not done.wait(limit / 1000):
            message = f"the mark of a paused partition did not arrive in {limit} ms"
            raise kafka_errors.KafkaTimeoutError(message)


def _stable_offsets(
    group_id: str, partitions: Iterable[TopicPartition]
) -> OffsetFetchRequest:
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    one, group = (
        OffsetFetchRequest.OffsetFetchRequestTopic,
        OffsetFetchRequest.OffsetFetchRequestGroup,
    )
    of_group = group.OffsetFetchRequestTopics
    return OffsetFetchRequest(
        group_id=group_id,
        topics=[one(name=name, partition_indexes=n) for name, n in by_topic.items()],
        groups=[
            group(
                group_id=group_id,
                topics=[
                    of_group(name=name, partition_indexes=n)
                    for name, n in by_topic.items()
                ],
            )
        ],
        require_stable=True,
        min_version=0,
        max_version=8,  # as in upstream's request
    )


def _without_unstable(response: Any) -> set[TopicPartition]:  # noqa: ANN401 - upstream's
    # Upstream would fail the whole answer for one partition in an open transaction.
    unstable = set()
    topics = response.groups[0].topics if response.API_VERSION >= 8 else response.topics  # noqa: PLR2004 - as upstream
    for topic in topics:
        for one in topic.partitions:
            if one.error_code == kafka_errors.UnstableOffsetCommitError.errno:
                unstable.add(TopicPartition(topic.name, one.partition_index))
                one.error_code, one.committed_offset = 0, -1
    return unstable
