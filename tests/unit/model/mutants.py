"""Our consumer with one fault planted each: what the model must find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka.structs import TopicPartition

from safeconsumer import Hold, SafeConsumer
from safeconsumer._kafka.pausing.buffers import StampedOffset
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Partition
from tests.unit.model.subject import SafeSubject


class _Forgetful(LedgerSubscription):
    def _apply_assignment(
        self,
        partitions: Iterable[TopicPartition],
        randomize: bool = False,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> None:
        before = set(self.assignment)
        super()._apply_assignment(partitions, randomize)
        gone = before.difference(self.assignment)
        holds = [hold for hold in self.ledger.view().state if _is_of(hold, gone)]
        self.ledger.remove(hold.key for hold in holds)


def _is_of(hold: Hold, partitions: Iterable[TopicPartition]) -> bool:
    return isinstance(hold.scope, Partition) and any(
        hold.scope.covers(tp) for tp in partitions
    )


class PauseForgottenOnRebalance(SafeSubject):
    """A partition's holds go with its ownership, as upstream's flag does."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._subscription.__class__ = _Forgetful


class _Hoarding(PauseSafeFetcher):
    def _purge(self) -> None:
        """Keep what earlier ownerships left."""


class NoPurge(SafeSubject):
    """Buffers outlive the ownership they were filled in."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._fetcher.__class__ = _Hoarding


class _Gullible(PauseSafeFetcher):
    def _handle_fetch_response(
        self,
        node_id: int,
        fetch_offsets: dict[TopicPartition, int],
        send_time: float,
        response: Any,  # noqa: ANN401 - upstream's
    ) -> None:
        fresh = {
            tp: StampedOffset.of(offset, self._epochs().get(tp, -1))
            for tp, offset in fetch_offsets.items()
        }
        super()._handle_fetch_response(node_id, fresh, send_time, response)


class StaleAnswerAccepted(SafeSubject):
    """An answer counts for whoever owns the partition when it arrives."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._fetcher.__class__ = _Gullible


class _Starving(PauseSafeFetcher):
    def _unparked(self) -> None:
        return None


class ParkedDataNeverRestored(SafeSubject):
    """A half-read batch that was parked once stays parked."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._fetcher.__class__ = _Starving


class _Careless(PauseLedger):
    def remove(self, keys: Iterable[tuple[Any, str]]) -> tuple[Hold, ...]:
        wanted = tuple(keys)
        narrower = (
            hold.key
            for hold in self.view().state
            for scope, owner in wanted
            if isinstance(hold.scope, Partition)
            and owner == hold.owner
            and scope.covers((hold.scope.topic, hold.scope.partition))
        )
        return super().remove((*wanted, *narrower))


class ResumeOfTheWrongScope(SafeSubject):
    """Resuming a topic, a pattern or everything lifts the holds of its partitions too."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._safe_ledger.__class__ = _Careless


class _Hasty(PauseSafeFetcher):
    def return_quiet(self, records: dict[Any, Any]) -> dict[Any, Any]:
        return records


class NoFinalCheck(SafeSubject):
    """What was drained is delivered, whatever was paused since."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._fetcher.__class__ = _Hasty


class _Open(PauseLedger):
    def begin_call(self) -> bool:
        return False  # and does not note it


class NoGate(SafeSubject):
    """What is gained in a poll that began all paused flows at once (KAFKA-13463)."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._safe_ledger.__class__ = _Open


class _Wavering(LedgerSubscription):
    def pin(self) -> None:
        """Pin nothing."""


class NoSnapshotOfADrain(SafeSubject):
    """A drain asks anew for each batch, and throws away what was paused between."""

    def plant(self, consumer: SafeConsumer) -> None:
        consumer._subscription.__class__ = _Wavering


PLANTED = (
    PauseForgottenOnRebalance,
    NoPurge,
    StaleAnswerAccepted,
    ParkedDataNeverRestored,
    ResumeOfTheWrongScope,
    NoFinalCheck,
    NoGate,
    NoSnapshotOfADrain,
)
