"""
A coordinator that hands an owner's pauses to the next owner of the partition.
"""

import threading
import time
from collections.abc import Collection, Iterable
from typing import Any

import kafka.errors as kafka_errors
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.handover.assignor import HoldCarryingAssignor, MarkBook
from safeconsumer._kafka.handover.carrying import (
    Handover,
    arrive,
    marked,
    short_name,
    travelling,
    unmarked,
)
from safeconsumer._kafka.handover.marks import Mark
from safeconsumer._kafka.pausing.coordinator import PauseSafeCoordinator
from safeconsumer.events import group as control_events
from safeconsumer.holds import signals as _signals

# A pause waits so long at most for its mark to be written; a poll tries again.
_SAVE_MS = 2_000
# A coordinator that does not answer must not cost every poll as much.
_RETRY_SECONDS = 1.0


class HandingOverCoordinator(PauseSafeCoordinator):
    """
    Attaches marks to every commit, or to every join, and obeys those it finds.

    Only the application's own pauses of single partitions travel, if they have no time
    limit. With their partition they leave this member's ledger: on return the mark
    decides, which another owner may have lifted meanwhile.

    Adopted by ``__class__``; then call :meth:`prepare_handover`.
    """

    def prepare_handover(self, handover: Handover, client_id: object) -> None:
        """
        Make what this class needs beyond its parent's attributes.
        """
        self._handover = handover
        self._name = short_name(client_id)
        self._assignors: Any  # upstream's
        # what the broker has, as the user wrote it, and which of it is marked
        self._plain: dict[TopicPartition, OffsetAndMetadata] = {}
        self._saved: dict[TopicPartition, Mark] = {}
        # lifted here, but the broker could not be told before the partition departed
        self._lifted: dict[TopicPartition, Mark] = {}
        self._arrived: dict[TopicPartition, int] = {}  # in which ownership
        self._settled: tuple[object, ...] = ()
        self._changes = 0
        self._retry_at = 0.0
        if self._ours is None:
            return
        ledger = self._ours.ledger
        if handover is Handover.OFFSETS:
            ledger.is_carried = self._saved.__contains__
            self._ours.on_seek = self._note_start
            return
        ledger.is_carried = lambda _: True
        self._book = MarkBook(
            lambda tp: travelling(ledger, tp),
            self._subscription.assigned_partitions,
        )
        self._assignors = {
            name: HoldCarryingAssignor(one, self._book, self._take_over)
            for name, one in self._assignors.items()
        }

    # ------------------------------------------------------------ saying it

    def save_marks(self) -> None:
        """
        Write marks that have changed, if this thread may wait; else a poll will.
        """
        if self._handover is not Handover.OFFSETS or not self._has_unsaved():
            return
        on_io_thread = threading.current_thread() is self._net._io_thread
        if not on_io_thread and not _signals.in_signal_handler():
            self._net.run(self._save_async)

    def poll(self, timeout_ms: float | None = None) -> bool:
        """
        As the parent, and write marks that could not be written before.
        """
        if time.monotonic() >= self._retry_at:
            self.save_marks()
        return super().poll(timeout_ms)

    def close(self, autocommit: bool = True, timeout_ms: float | None = None) -> None:  # noqa: FBT001, FBT002 - upstream's signature
        """
        As the parent, and write marks that could not be written before.
        """
        if timeout_ms is None or timeout_ms > 0:
            self.save_marks()
        super().close(autocommit=autocommit, timeout_ms=timeout_ms)

    async def _on_join_prepare_async(
        self, generation: int, member_id: str, timeout_ms: float | None = None
    ) -> None:
        if self._handover is Handover.ASSIGNOR:
            self._book.freeze()
        else:
            if not self._generation.is_lost():
                await self._save_async()
            self._note_lifted()
        try:
            await super()._on_join_prepare_async(generation, member_id, timeout_ms)
        finally:
            self._forget_departed()

    async def _lose_stale_assignment(self) -> None:
        try:
            await super()._lose_stale_assignment()
        finally:
            self._forget_departed()

    def _lose_what_others_had(self, generation: int) -> None:
        super()._lose_what_others_had(generation)
        self._forget_departed()

    async def _on_join_complete_async(
        self,
        generation: int,
        member_id: str,
        protocol: str,
        member_assignment_bytes: bytes,
    ) -> None:
        unsaved = {tp for tp in self._unsaved() if self._is_travelling(tp)}
        await super()._on_join_complete_async(
            generation, member_id, protocol, member_assignment_bytes
        )
        owned = self._forget_departed()
        if unsaved - owned and self._ours is not None:
            self._emit(
                control_events.PauseNotHandedOver,
                partitions=events.sorted_partitions(unsaved - owned),
            )
            self._deliver()

    def marked_offsets(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Return offsets with the marks that a commit of them must have.
        """
        if self._handover is not Handover.OFFSETS:
            return dict(offsets)
        mark = Mark(max(0, self._generation.generation_id), self._name)
        return marked(offsets, filter(self._is_travelling, offsets), mark)

    async def _send_offset_commit_request(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> Any:  # noqa: ANN401 - upstream's
        # The one way of every commit: by hand, automatic, in a listener, at the end.
        if self._handover is not Handover.OFFSETS:
            return await super()._send_offset_commit_request(offsets)
        complete = self.marked_offsets(offsets)
        answer = await super()._send_offset_commit_request(complete)
        self._know(complete)
        return answer

    async def _save_async(self) -> None:
        wanted = {tp: self._plain[tp] for tp in self._unsaved()}
        if not wanted:
            return
        try:
            await self._manager.wait_for(
                self._manager.call_soon(self._send_offset_commit_request, wanted),
                _SAVE_MS,
            )
        except kafka_errors.KafkaError:  # it stays unsaved: a poll or join tries again
            self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _unsaved(self) -> set[TopicPartition]:
        owned = self._subscription.assigned_partitions()
        return {
            tp
            for tp in self._plain
            if tp in owned and self._is_travelling(tp) != (tp in self._saved)
        }

    def _has_unsaved(self) -> bool:
        # Every poll asks; each partition is looked at only after something changed.
        if self._ours is None:
            return False
        ledger = self._ours.ledger
        now = (ledger.view().state.version, id(ledger.ownership()), self._changes)
        if now == self._settled:
            return False
        if self._unsaved():
            return True
        self._settled = now
        return False

    def _is_travelling(self, tp: TopicPartition) -> bool:
        return self._ours is not None and travelling(self._ours.ledger, tp)

    # ------------------------------------------------------------ hearing it

    async def fetch_committed_offsets_async(
        self, partitions: Collection[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Fetch committed offsets as the user wrote them; obey the marks on them.

        A new owner fetches them before it has a position, and so before any record.
        """
        offsets = await super().fetch_committed_offsets_async(partitions, timeout_ms)
        if self._handover is not Handover.OFFSETS:
            return offsets
        plain, found = unmarked(offsets)
        owned = {} if self._ours is None else self._ours.ledger.ownership().epochs
        here = [tp for tp in offsets if tp in owned]
        fresh = [
            tp
            for tp in here
            if tp in found
            and self._arrived.get(tp) != owned[tp]
            and self._lifted.get(tp) != found[tp]
        ]
        self._arrived.update({tp: owned[tp] for tp in here})
        self._know({tp: offsets[tp] for tp in here})
        if self._ours is not None:
            arrive(self._ours.ledger, fresh)
        return plain

    def _take_over(self, paused: Iterable[TopicPartition]) -> None:
        # With the assignment, before anything has a position.
        if self._ours is None:
            return
        owned = self._ours.ledger.ownership().epochs
        fresh = [tp for tp in owned if self._arrived.get(tp) != owned[tp]]
        self._arrived = dict(owned)
        there = set(paused)
        arrive(self._ours.ledger, [tp for tp in fresh if tp in there])

    # ------------------------------------------------------------ what the broker has

    def _know(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        plain, found = unmarked(offsets)
        self._changes += 1
        self._plain.update(plain)
        for tp in offsets:
            self._saved.pop(tp, None)
        self._saved.update(found)

    def _forget_departed(self) -> set[TopicPartition]:
        # Also of what comes back at once: others may have committed meanwhile, and to
        # write what was known before over it would undo that.
        owned: set[TopicPartition] = self._subscription.assigned_partitions()
        self._changes += 1
        for tp in set(self._plain) - owned:
            self._plain.pop(tp, None)
            self._saved.pop(tp, None)
        return owned

    def _note_start(self, tp: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        # Nothing committed yet: the mark goes to where reading begins, whatever is read
        # since, and pins what auto_offset_reset decided.
        self._changes += 1
        first = offset if isinstance(offset, int) else offset.offset
        self._plain.setdefault(tp, OffsetAndMetadata(first, "", -1))

    def _note_lifted(self) -> None:
        # Resumed, and the mark is still on the broker. If this member regains the
        # partition and finds that very mark, nobody has paused it since.
        owned = self._subscription.assigned_partitions()
        self._lifted = {
            tp: mark
            for tp, mark in self._saved.items()
            if tp in owned and not self._is_travelling(tp)
        }
