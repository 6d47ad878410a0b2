"""Defines how a pause is handed over: which pauses travel, and a carrier's methods."""

import zlib
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.handover import marks
from safeconsumer._kafka.handover.marks import Mark
from safeconsumer._kafka.pausing.commits import KnownCommits
from safeconsumer.errors import HoldSettingError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import APP, Lifetime
from safeconsumer.holds.ledger import PauseLedger

ARRIVED = "paused by its previous owner"


class Handover(Enum):
    """Names the ways in which a partition's pause reaches its next owner."""

    OFF = "off"
    """It does not, so that a slow worker's backpressure cannot stop its successor."""

    OFFSETS = "offsets"
    """It is in the metadata of the partition's committed offset."""

    ASSIGNOR = "assignor"
    """It is in the group's join, as KAFKA-13463 suggests; an owner's crash loses it."""


class Question:
    """
    A question about committed offsets, with the state when it was asked.

    Args:
        epochs: the ownership epoch of each partition.
        commits: what is known of commits.
    """

    def __init__(
        self, epochs: Mapping[TopicPartition, int], commits: KnownCommits
    ) -> None:
        self.epochs = epochs
        self._commits = commits
        self.begun = {tp: commits.begun(tp) for tp in epochs}

    def is_current(self, tp: TopicPartition) -> bool:
        """Tell whether no commit of the partition was begun since it was asked."""
        return self._commits.begun(tp) == self.begun[tp]


class HandOver:
    """
    Hands nothing over; a class that does overrides the methods it needs.

    A coordinator calls it at every commit, join and change of the assignment.

    Thread rules: :meth:`polled` and :meth:`closing` on the polling thread;
    :meth:`changed`, :meth:`given` and :meth:`reassigned` on any; the rest on the IO
    thread.
    """

    def changed(self) -> None:
        """Note a pause or a resume."""

    def polled(self) -> None:
        """Do what could not be done before; called when a ``poll`` begins."""

    def closing(self, timeout_ms: float | None) -> None:
        """Do what could not be done before; called before the consumer leaves its group."""

    async def before_join(self) -> None:
        """Do what could not be done before; called before a join begins."""

    async def revoked(self) -> None:
        """Do what the listener's changes need; called before the join begins."""

    def joined(self, assignment: bytes) -> None:
        """Note the answer to a join; the partitions that it takes away depart after this."""

    def reassigned(self) -> None:
        """Note which partitions have departed since the last call."""

    def outgoing(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return offsets as the consumer shall commit them."""
        return offsets

    def given(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return offsets as a producer may commit them."""
        return offsets

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note which offsets the broker has now, as they were sent."""

    def failed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Note a commit whose result is not known."""

    def asking(self, partitions: Iterable[TopicPartition]) -> Question | None:
        """Note a question about committed offsets."""

    def fetched(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        question: Any,  # noqa: ANN401, ARG002 - what asking() returned
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Note what the broker has; return it as the user wrote it."""
        return offsets


def checked_handover(value: object, group_id: object) -> Handover:
    """
    Return the kind of hand-over.

    Raises:
        HoldSettingError: it is not one of the kinds, or there is no group to hand over
            to.
    """
    try:
        handover = Handover(value)
    except ValueError:
        kinds = ", ".join(repr(one.value) for one in Handover)
        message = f"pause_handover must be one of {kinds}, not {value!r}"
        raise HoldSettingError(message) from None
    if handover is not Handover.OFF and not group_id:
        message = "pause_handover needs a group_id: only a group has a next owner"
        raise HoldSettingError(message)
    return handover


def travelling(ledger: PauseLedger, tp: TopicPartition) -> bool:
    """Tell whether a pause is handed over: the application's own, without a time limit."""
    scope = scopes.Partition(tp[0], tp[1])
    return any(
        hold.owner == APP
        and hold.lifetime is Lifetime.UNTIL_RESUMED
        and hold.expires_at is None
        for hold in ledger.view().state.of(scope)
    )


def arrive(ledger: PauseLedger, epochs: Mapping[TopicPartition, int]) -> None:
    """
    Take pauses over: they become the application's own here, and ``resume`` lifts them.

    A pause or resume of the partition since it was assigned goes before them.

    Args:
        ledger: where they are placed.
        epochs: the paused partitions, with the ownerships in which that was heard.
    """
    ledger.take_over(epochs, ARRIVED)


def short_name(client_id: object) -> str:
    """Return eight hexadecimal digits that distinguish members."""
    return f"{zlib.crc32(str(client_id).encode()):08x}"


def marked(
    offsets: Mapping[TopicPartition, Any], paused: Iterable[TopicPartition], mark: Mark
) -> dict[TopicPartition, Any]:
    """
    Return offsets for a commit, with marks for the paused partitions and no others.

    The user's own metadata stays behind the mark. If there is no room for both, the
    offset gets both all the same: the broker refuses it, as it refuses any metadata
    that is too long.
    """
    wanted = set(paused)
    return {
        tp: _with(one, mark if tp in wanted else None) for tp, one in offsets.items()
    }


def unmarked(
    offsets: Mapping[TopicPartition, Any],
) -> tuple[dict[TopicPartition, Any], dict[TopicPartition, Mark]]:
    """Return fetched offsets as the user wrote them, and the marks that were on them."""
    plain, found = {}, {}
    for tp, one in offsets.items():
        mark, metadata = marks.split(one.metadata)
        plain[tp] = one if mark is None else _saying(one, metadata)
        if mark is not None:
            found[tp] = mark
    return plain, found


def _with(one: OffsetAndMetadata, mark: Mark | None) -> OffsetAndMetadata:
    _, metadata = marks.split(one.metadata)
    if mark is None:
        return _saying(one, metadata)
    text = marks.attach(mark, metadata)
    if text is None:  # too long for a broker by default, which then says so
        text = f"{marks.attach(mark, '')}{metadata}"
    return _saying(one, text)


def _saying(one: OffsetAndMetadata, metadata: str) -> OffsetAndMetadata:
    return OffsetAndMetadata(one.offset, metadata, one.leader_epoch)
