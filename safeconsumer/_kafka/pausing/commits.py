"""Defines the offsets of a commit, with the ownerships in which it was requested."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.errors.kafka_python import NotOwnedError
from safeconsumer.holds.scope import partition_text

States = Mapping[TopicPartition, OwnedPartitionState]
Offsets = dict[TopicPartition, OffsetAndMetadata]

_NOT_OWNED = (
    "this member does not own it, and its owner may be ahead. Under subscribe() "
    "commit assigned partitions, or in on_partitions_revoked() those passed to it; "
    "the next owner reads all records again that are not committed by then"
)
_NOT_JOINED = "this member has not joined its group yet, or not again; poll() joins"
_LOST = (
    "the membership was lost, because too much time passed between two polls "
    "(max_poll_interval_ms) or no heartbeat came through, and others may own it "
    "by now; the next poll() joins again, and uncommitted records are read again"
)
_RECREATED = (
    "the topic was deleted and recreated, and the offset belongs to the deleted topic "
    "or was not read yet; commit only records that poll() has returned since, or seek "
    "to the offset first"
)
_RESET = (
    "an operator has moved it to another offset with reset-offsets since; commit only "
    "records that poll() has returned after that, or seek to the offset first"
)


def _ignore_result(sent: Iterable[TopicPartition], *, is_done: bool) -> None:
    pass


class OwnedOffsets(Offsets):
    """
    The offsets of a commit, and the ownerships in which it was requested.

    Upstream treats this object as a plain dict, and passes it on from the program's
    call to the request. In between, upstream may look up the coordinator, or retry for
    ``request_timeout_ms``. During that time a partition may be revoked, be read by
    other members, and be assigned again.

    Attributes:
        states: upstream's state object of each ownership.
        is_given_up: whether the call that commits was interrupted, so that the commit
            must not be sent any more.
        is_of_worker: whether the commit comes from the worker or pump that uses the
            consumer.
        is_implicit: whether the consumer has collected the offsets, because the program
            specified none.
        is_journaled: whether the commit was written to a journal.
        note: the text that refers to the journal, for the commit's metadata; "" without
            a journal.
        answered: a function that reports which partitions were sent, and the result, to
            the journal, if there is one.

    Args:
        offsets: the offsets.
        assigned: the assigned partitions.
        generation: upstream's object for this generation; until the next generation
            starts, no other member gets a revoked partition.
        revoked: revoked partitions that may still be committed: those of the listener's
            current call, and those that a worker has drained.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        assigned: States,
        generation: object,
        revoked: States,
    ) -> None:
        super().__init__(offsets)
        # The IO thread may remove assigned partitions at any time.
        found = {tp: assigned.get(tp) or revoked.get(tp) for tp in self}
        self.states: States = {tp: one for tp, one in found.items() if one is not None}
        self._revoked = frozenset(revoked)
        self._generation = generation
        self.is_given_up = self.is_journaled = self.is_of_worker = False
        self.is_implicit = False
        self.note = ""
        self.answered: Callable[..., None] = _ignore_result

    def without_metadata(self) -> Offsets:
        """Return the offsets to which the note is added, because they have no metadata."""
        if not self.note:
            return {}
        return {tp: one for tp, one in self.items() if not one.metadata}

    def metadata_sizes(self) -> tuple[int, int]:
        """Return the size of the note, and of all metadata with the note, in bytes."""
        note, count = len(self.note.encode()), len(self.without_metadata())
        others = sum(len(one.metadata.encode()) for one in self.values())
        return note if count else 0, note * count + others

    @property
    def is_collected(self) -> bool:
        """Whether the program did not specify the offsets, so that some may be left out."""
        return self.is_implicit or self.is_of_worker

    def leave_out(self, is_missing: Callable[[str], bool]) -> bool:
        """Remove the offsets of missing topics, unless the program has specified them."""
        missing = [tp for tp in self if self.is_collected and is_missing(tp.topic)]
        for tp in missing:
            del self[tp]
        return bool(missing)

    @contextmanager
    def with_note(self) -> Iterator[None]:
        """Use the note, in the ``with`` block, for offsets without metadata."""
        bare = self.without_metadata()
        for tp, one in bare.items():
            self[tp] = OffsetAndMetadata(one.offset, self.note, one.leader_epoch)
        try:
            yield
        finally:
            # The block may have removed offsets of deleted topics.
            self.update({tp: one for tp, one in bare.items() if tp in self})

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Let a copy of the offsets, such as one that a callback makes, be a plain dict."""
        return dict, (dict(self),)

    def refuse_deleted(
        self, assigned: States, newest_id: Callable[[str], UUID | None]
    ) -> NotOwnedError | None:
        """
        Return an error if an offset belongs to a topic that has been deleted.

        An offset belongs to a deleted topic if the topic was recreated after the commit
        was requested. It also belongs to one if the new topic was not read up to the
        offset, because the program may have derived it from records of the old topic.
        If the program has not specified the offsets, these offsets are only removed
        from the commit.

        Args:
            assigned: the currently assigned partitions.
            newest_id: a function that returns a topic's id in the newest metadata.
        """
        foreign: list[TopicPartition] = []
        for tp, state in self.states.items():
            now = assigned.get(tp)
            is_foreign = state.is_recreated and not state.has_read(self[tp].offset)
            if now is None:  # revoked
                known = newest_id(tp.topic)
                ids = {None, state.topic_id, *state.earlier_ids}
                is_foreign |= state.topic_id is not None and known not in ids
            elif now.is_recreated:
                is_foreign |= now is not state
            if is_foreign:
                foreign.append(tp)
        if self.is_collected:
            for tp in foreign:
                del self[tp]
            return None
        return NotOwnedError(_refusal_text(foreign, _RECREATED)) if foreign else None

    def refuse_undoing(
        self, assigned: States, delivered: Callable[[OwnedPartitionState], Any]
    ) -> NotOwnedError | None:
        """
        Return an error if the commit would undo an operator's reset.

        If a reset started the ownership, an offset must lie between the reset's target
        and the delivered position, until the program calls ``seek()``. Any other offset
        was determined before the reset, perhaps by another thread of the program.

        Args:
            assigned: the currently assigned partitions.
            delivered: a function that returns the position after the delivered records.
        """
        undoing: list[TopicPartition] = []
        for tp, state in self.states.items():
            now = assigned.get(tp)
            least = getattr(now, "least_commit", None)
            if now is None or least is None:
                continue
            position = delivered(now)
            most = least if position is None else position.offset
            if now is not state or not least <= self[tp].offset <= most:
                undoing.append(tp)
        return NotOwnedError(_refusal_text(undoing, _RESET)) if undoing else None

    def refusal(self, assigned: States, generation: Any) -> NotOwnedError | None:  # noqa: ANN401 - upstream's
        """
        Return an error if the member does not own a partition, or no longer owns it.

        Args:
            assigned: the currently assigned partitions.
            generation: upstream's object for the current generation; if the generation
                is lost, no partition is owned.
        """
        is_lost = generation.is_lost()
        owned = {tp for tp, state in self.states.items() if assigned.get(tp) is state}
        revoked = self._revoked if generation is self._generation else frozenset()
        foreign = self.keys() - revoked - (frozenset() if is_lost else owned)
        if not foreign:
            return None
        why = _NOT_OWNED
        if is_lost:
            why = _LOST if assigned else _NOT_JOINED
        return NotOwnedError(_refusal_text(foreign, why))


def _refusal_text(partitions: Iterable[TopicPartition], why: str) -> str:
    names = ", ".join(partition_text(*tp) for tp in sorted(partitions))
    return f"commit of {names} refused, and nothing sent: {why}"
