"""Keeps of each commit in which ownerships it was asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.errors.kafka_python import NotOwnedError

States = Mapping[TopicPartition, OwnedPartitionState]
Offsets = dict[TopicPartition, OffsetAndMetadata]

_NOT_OWNED = (
    "it is not this member's, and its owner may be further. Under subscribe() "
    "commit what is assigned, or in on_partitions_revoked() what that is told "
    "of; what is not committed by then comes again at its next owner"
)
_NOT_JOINED = "this member has not joined its group yet, or again: poll() does"
_LOST = (
    "the membership was lost, because too much time passed between two polls "
    "(max_poll_interval_ms) or no heartbeat came through, and others may own it "
    "by now; the next poll() joins again, and what was not committed comes again"
)
_RECREATED = (
    "the topic was deleted and recreated, and the offset is of the one that was "
    "deleted, or was not read yet; commit what poll() has returned since, or seek there "
    "first"
)
_RESET = (
    "an operator has moved it to another offset since, by reset-offsets; commit what "
    "poll() has returned after that, or seek there first"
)


def _told_to_nobody(*, is_done: bool) -> None:
    pass


class OwnedOffsets(Offsets):
    """
    Offsets to commit, and the ownerships in which that was asked for.

    A plain dict to upstream, which carries it from the call to the request. Between the
    two it may look for the coordinator, or try again for ``request_timeout_ms``, and a
    partition may leave, be read on by others, and come back.

    Attributes:
        states: upstream's state object of each ownership.
        is_given_up: whether who asked for it was interrupted, so that it is sent no more.
        is_of_worker: whether the worker or pump that has the consumer asked for it.
        is_implicit: whether the consumer has collected it, for a commit without offsets;
            then it leaves out what it may not commit any more of recreated topics.
        is_journaled: whether a journal has it.
        note: names that journal, for the metadata of the commit; "" without one.
        answered: tells the journal, if there is one, the result.

    Args:
        offsets: what to commit.
        assigned: the assigned partitions.
        generation: an object of this generation; until the next one begins, nobody else
            gets what is revoked.
        revoked: what the listener that is running was called with, or a worker has
            finished.
    """

    def __init__(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        assigned: States,
        generation: object,
        revoked: States,
    ) -> None:
        super().__init__(offsets)
        # The IO thread may take some away.
        found = {tp: assigned.get(tp) or revoked.get(tp) for tp in self}
        self.states: States = {tp: one for tp, one in found.items() if one is not None}
        self._revoked = frozenset(revoked)
        self._generation = generation
        self.is_given_up = self.is_journaled = self.is_of_worker = False
        self.is_implicit = False
        self.note = ""
        self.answered: Callable[..., None] = _told_to_nobody

    def bare(self) -> Offsets:
        """Return the offsets that the note goes with: those without other metadata."""
        if not self.note:
            return {}
        return {tp: one for tp, one in self.items() if not one.metadata}

    def noted_size(self) -> tuple[int, int]:
        """Return the bytes of the longest note, and of all metadata, in :meth:`noted`."""
        note, bare = len(self.note.encode()), len(self.bare())
        others = sum(len(one.metadata.encode()) for one in self.values())
        return note if bare else 0, note * bare + others

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Carry the note in the block where the program gives no metadata of its own."""
        bare = self.bare()
        for tp, one in bare.items():
            self[tp] = OffsetAndMetadata(one.offset, self.note, one.leader_epoch)
        try:
            yield
        finally:
            # Some may have been deleted in the block, by refuse_deleted.
            self.update({tp: one for tp, one in bare.items() if tp in self})

    def __reduce__(self) -> tuple[type, tuple[object, ...]]:
        """Copy it as a plain dict: callbacks get it."""
        return dict, (dict(self),)

    def refuse_deleted(
        self, assigned: States, newest_id: Callable[[str], UUID | None]
    ) -> NotOwnedError | None:
        """
        Return the error if an offset in it is of a topic that was deleted since.

        That is so if the topic was recreated after the commit was asked for. And it is
        if nobody has read the new topic up to there: a program commits by itself, from
        its own records of the old one. One that the consumer has collected loses those
        offsets, and is no error.

        Args:
            assigned: the assigned partitions now.
            newest_id: returns the id that the newest metadata have for a topic.
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
        if self.is_implicit:
            for tp in foreign:
                del self[tp]
            return None
        return NotOwnedError(_refused(foreign, _RECREATED)) if foreign else None

    def refuse_undoing(
        self, assigned: States, delivered: Callable[[OwnedPartitionState], Any]
    ) -> NotOwnedError | None:
        """
        Return the error if it would undo an operator's reset.

        In an ownership that a reset began nothing is committed but what lies between its
        target and what was delivered since, until the program seeks: anything else is
        from before, out of a thread of the program's own, say.

        Args:
            assigned: the assigned partitions now.
            delivered: returns the position up to which records were delivered.
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
        return NotOwnedError(_refused(undoing, _RESET)) if undoing else None

    def refusal(self, assigned: States, generation: Any) -> NotOwnedError | None:  # noqa: ANN401 - upstream's
        """
        Return the error if something in it is not owned any more, or never was.

        Args:
            assigned: the assigned partitions now.
            generation: the one of now; if it is lost, nothing is owned.
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
        return NotOwnedError(_refused(foreign, why))


def _refused(partitions: Iterable[TopicPartition], why: str) -> str:
    names = ", ".join(f"{tp.topic}:{tp.partition}" for tp in sorted(partitions))
    return f"commit of {names} refused, and nothing sent: {why}"
