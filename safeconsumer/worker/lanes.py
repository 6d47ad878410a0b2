"""
Defines lanes: the records of one are handled one after the other.

Every ownership has a main lane, with its records as they come. By partition that is
all: one task of it is out at a time. By key, and without an order, the main lane is
*shared*: it goes on while tasks of it are out, and a record that must wait goes to a lane
of its own: a record that has failed, and by key each record of a key that is busy or has
such a lane. A lane of its own is removed when it is empty.
"""

import enum
from collections.abc import Iterator
from typing import TYPE_CHECKING

from safeconsumer.worker.progress import Ordinals

if TYPE_CHECKING:
    from safeconsumer.worker.partition import Epoch


class Order(enum.Enum):
    """Says which records are handled one after the other."""

    PARTITION = "partition"
    """Records of one partition are handled one after the other."""

    KEY = "key"
    """Records of one key within a partition are handled one after the other."""

    UNORDERED = "unordered"
    """Records are handled in any order."""


class LaneState(enum.Enum):
    """
    The reason for which a lane waits; only ``Queue`` changes it.

    ========= ========================================== ==========================
    state     waits for                                  is moved on by
    ========= ========================================== ==========================
    IDLE      records: it has none                       ``Queue.admit``, and
                                                         ``Queue.put_back``
    READY     its turn; meanwhile a hold or a breaker    ``Queue.claim``
              may set aside its partition, with all      ``Queue.claim_letter``
              lanes that are ready
    FILLING   more records for a batch                   ``Queue.resume_main``
    AHEAD     the watermark: its first record is         ``Queue.resume_main``, and
              ``Limits.span`` beyond it                  ``Queue.put_back``
    RUNNING   a task with records of its key, or of      ``Queue.requeue``, once
              its partition; it may be one of an         that task is back
              ownership that has ended
    FAILED    its first record's next time; or for ever,  ``Queue.turn``
              if that blocks, or stops the worker
    ========= ========================================== ==========================

    A shared lane is never RUNNING: it waits for none of its tasks. Only a main lane is
    FILLING or AHEAD.
    """

    IDLE = "idle"
    READY = "ready"
    FILLING = "filling"
    AHEAD = "ahead"
    RUNNING = "running"
    FAILED = "failed"


class Lane:
    """
    Records that are handled one after the other, unless the lane is shared.

    Attributes:
        epoch: the ownership that they belong to.
        key: its key in ``Epoch.lanes``; a main lane has no meaningful key.
        again: the ordinals of records that were taken and put back; they come first.
        fresh: the ordinals of records that were never taken; only a main lane has any.
        state: the reason for which it waits.
    """

    __slots__ = ("again", "epoch", "fresh", "key", "state")

    def __init__(
        self, epoch: "Epoch", key: object = None, state: LaneState = LaneState.IDLE
    ) -> None:
        self.epoch = epoch
        self.key = key
        self.again: list[int] = []
        self.fresh = range(0)
        self.state = state

    def __lt__(self, _other: "Lane") -> bool:
        return False  # if two are due at once, either may be first

    def __len__(self) -> int:
        return len(self.again) + len(self.fresh)

    def __iter__(self) -> Iterator[int]:
        yield from self.again
        yield from self.fresh

    @property
    def is_tried(self) -> bool:
        """Whether the first record has failed, or may have: it is handed out alone."""
        failed = self.epoch.failed
        # Its records may have been dropped while it waited, because they were revoked.
        return bool(failed and self.again) and self.first_offset() in failed

    def first_offset(self) -> int:
        """Return the offset of the first record."""
        return self.epoch.progress.record(next(iter(self))).offset

    def put_back(self, ordinals: Ordinals) -> None:
        """Put records back in front."""
        self.again[:0] = ordinals

    def cut(self, end: int) -> None:
        """Forget the records from the ordinal ``end`` on."""
        self.again = [one for one in self.again if one < end]
        # Others may come at the ordinals of those: a log that was compacted has fewer.
        self.fresh = range(min(self.fresh.start, end), min(self.fresh.stop, end))

    def drop(self) -> None:
        """Forget all records."""
        self.again.clear()
        self.fresh = self.fresh[len(self.fresh) :]

    def take(self, most: int, span: int) -> Ordinals:
        """
        Take up to so many records; none if all are beyond the span.

        A record that has failed, or may have, is taken by itself.
        """
        epoch = self.epoch
        if self.again:
            if epoch.failed:
                most = self._untried(most)
            again = self.again[:most]
            del self.again[:most]
            most = 0 if self.again else most - len(again)
        else:
            again = []
        if self.fresh.start + most > epoch.allowed:
            most = min(most, epoch.allow(span) - self.fresh.start)
        if most <= 0:
            return again
        fresh, self.fresh = self.fresh[:most], self.fresh[most:]
        return [*again, *fresh] if again else fresh

    def _untried(self, most: int) -> int:
        # How many may be taken before the first that must run by itself; at least one.
        for count, ordinal in enumerate(self.again[:most]):
            if self.epoch.progress.record(ordinal).offset in self.epoch.failed:
                return max(1, count)
        return most
