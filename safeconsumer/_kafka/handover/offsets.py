"""
Marks on committed offsets: a pause travels where the offset of its partition goes.
"""

import threading
import time
from collections.abc import Mapping

import kafka.errors as kafka_errors
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer import events
from safeconsumer._kafka.handover.carrying import (
    HandOver,
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

# A pause waits so long at most for its mark to be written; a poll tries again.
_SAVE_MS = 2_000
# A coordinator that does not answer must not cost every poll as much.
_RETRY_SECONDS = 1.0


class MarksOnOffsets(HandOver):
    """
    Attaches marks to every commit, and obeys those it finds.

    Only the application's own pauses of single partitions travel, if they have no time
    limit. With their partition they leave this member's ledger: on return the mark
    decides, which another owner may have lifted meanwhile.

    Args:
        coordinator: of the consumer; it sends what this asks for.
        subscription: of the consumer; its ledger has the pauses.
        client_id: tells members apart, for people.
    """

    def __init__(
        self,
        coordinator: ConsumerCoordinator,
        subscription: LedgerSubscription,
        client_id: object,
    ) -> None:
        self._coordinator = coordinator
        self._subscription = subscription
        self._ledger = subscription.ledger
        self._name = short_name(client_id)
        # what the broker has, as the user wrote it, and which of it is marked
        self._plain: dict[TopicPartition, OffsetAndMetadata] = {}
        self._saved: dict[TopicPartition, Mark] = {}
        # lifted here, but the broker could not be told before the partition departed
        self._lifted: dict[TopicPartition, Mark] = {}
        self._arrived: dict[TopicPartition, int] = {}  # in which ownership
        self._settled: tuple[object, ...] = ()
        self._changes = 0
        self._retry_at = 0.0
        self._unmarked: set[TopicPartition] = set()
        self._ledger.is_carried = self._saved.__contains__
        subscription.on_seek = self._note_start

    # ------------------------------------------------------------ saying it

    def changed(self) -> None:
        """
        Write marks that have changed, if this thread may wait; else a poll will.
        """
        if not self._has_unsaved():
            return
        net = self._coordinator._net
        on_io_thread = threading.current_thread() is net._io_thread
        if not on_io_thread and not _signals.in_signal_handler():
            net.run(self._save_async)

    def polled(self) -> None:
        """
        Write marks that could not be written before.
        """
        if time.monotonic() >= self._retry_at:
            self.changed()

    def closing(self, timeout_ms: float | None) -> None:
        """
        Write marks that could not be written before.
        """
        if timeout_ms is None or timeout_ms > 0:
            self.changed()

    async def before_join(self) -> None:
        """
        Write marks that could not be written before.
        """
        if not self._coordinator._generation.is_lost():
            await self._save_async()
        self._note_lifted()

    def reassigned(self) -> None:
        """
        Forget what the broker had of what has departed; say which marks were missing.
        """
        owned = self._forget_departed()
        departed = self._unmarked - owned
        self._unmarked = {tp for tp in self._unsaved() if self._is_travelling(tp)}
        if departed:
            self._ledger.emit(
                control_events.PauseNotHandedOver,
                partitions=events.sorted_partitions(departed),
            )

    def outgoing(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Return offsets with the marks that a commit of them must have.
        """
        generation = self._coordinator._generation.generation_id
        mark = Mark(max(0, generation), self._name)
        return marked(offsets, filter(self._is_travelling, offsets), mark)

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """
        Take note of what the broker has now.
        """
        self._know(offsets)

    async def _save_async(self) -> None:
        wanted = {tp: self._plain[tp] for tp in self._unsaved()}
        if not wanted:
            return
        manager = self._coordinator._manager
        send = self._coordinator._send_offset_commit_request
        try:
            await manager.wait_for(manager.call_soon(send, wanted), _SAVE_MS)
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
        ledger = self._ledger
        now = (ledger.view().state.version, id(ledger.ownership()), self._changes)
        if now == self._settled:
            return False
        if self._unsaved():
            return True
        self._settled = now
        return False

    def _is_travelling(self, tp: TopicPartition) -> bool:
        return travelling(self._ledger, tp)

    # ------------------------------------------------------------ hearing it

    def fetched(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """
        Obey the marks on committed offsets; return them as the user wrote them.

        A new owner fetches them before it has a position, and so before any record.
        """
        plain, found = unmarked(offsets)
        owned = self._ledger.ownership().epochs
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
        arrive(self._ledger, fresh)
        return plain

    # ------------------------------------------------------------ what the broker has

    def _know(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
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
