"""Implements an iteration's steps over one partition, like ``decoding/steps.c`` in C."""

from collections.abc import Mapping
from typing import Self

from kafka.structs import OffsetAndMetadata, TopicPartition

from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer._kafka.structs import ConsumerRecord
from safeconsumer.holds.ledger import PauseLedger

# A named tuple's own __new__ calls this function; calling it directly saves a frame.
_new = tuple.__new__


class Steps:
    """
    Yields the records that a poll has taken from one partition, until a hold covers it.

    The position moves past each record as it is yielded. The steps also end when the
    ownership has changed, or the position has been moved since the last record.

    Attributes:
        tp: the partition.
        state: its state in this ownership.
        moves: the state's ``moves`` when the records were taken.
        records: the records.
        at: the number of yielded records.
        position: the position after the last yielded record.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - a step looks at all of these
        self,
        ledger: PauseLedger,
        assignment: Mapping[TopicPartition, OwnedPartitionState],
        tp: TopicPartition,
        state: OwnedPartitionState,
        position: OffsetAndMetadata,
        records: list[ConsumerRecord],
    ) -> None:
        self._quiet, self._assignment = ledger.quiet, assignment
        self._checked: frozenset[TopicPartition] | None = None
        self.tp, self.state, self.moves = tp, state, state.moves
        self.records, self.at, self.position = records, 0, position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        if self.at == len(self.records):
            raise StopIteration
        # Checked before each record, because a hold may be placed at any time. The set
        # of quiet partitions is not searched again while it is the same object.
        if (quiet := self._quiet()) is not self._checked:
            if self.tp in quiet:
                raise StopIteration
            self._checked = quiet
        state = self.state
        if (
            self._assignment.get(self.tp) is not state
            or state._position is not self.position
            or not state.is_fetchable()
        ):
            raise StopIteration
        record = self.records[self.at]
        self.position = _new(
            OffsetAndMetadata, (record.offset + 1, "", record.leader_epoch)
        )
        state._position = self.position  # valid, because it is fetchable
        if state.moves != self.moves:  # a seek came in between
            state.restore_move()
            raise StopIteration
        self.at += 1
        return record
