"""
Sorts records into lanes: the records of one are handled one after the other.

A lane is always in one of the states of :class:`LaneState`, and for each state there is
one who moves it on. Records by key have a lane for each key, those by partition one for
the partition; without an order all are in one lane that is *shared*: it goes on while
tasks of it are out.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from safeconsumer.worker.progress import Chunk, record_at

if TYPE_CHECKING:
    from safeconsumer.worker.partition import Epoch

Indexes: TypeAlias = Sequence[int]

# The most bytes of a key whose empty lane may be kept.
_LIGHT = 95


class Order(enum.Enum):
    """Says which records are handled one after the other."""

    PARTITION = "partition"
    """Those of one partition are."""

    KEY = "key"
    """Those of one key within a partition are."""

    UNORDERED = "unordered"
    """None are."""


class LaneState(enum.Enum):
    """
    Says where a lane is, and so who moves it on.

    ========= ========================================== ==========================
    state     what it waits for                          who moves it on
    ========= ========================================== ==========================
    IDLE      records: it has none                       ``Schedule.admit``
    READY     its turn; meanwhile a hold or a breaker    ``Queue.claim``
              may set aside its partition, with all
              lanes that are ready
    FILLING   more records for a batch                   ``Queue.look_again``
    AHEAD     the watermark: its first record is         ``Queue.look_again``
              ``Limits.span`` beyond it
    FOLLOWING a task of an ownership that has ended,     ``Queue.came_back`` of
              with records of its key                    that task
    RUNNING   its task                                   ``Schedule.complete``
    FAILED    its first record's next time; or for ever,  ``Queue.turn``
              if that blocks, or stops the worker
    ========= ========================================== ==========================
    """

    IDLE = "idle"
    READY = "ready"
    FILLING = "filling"
    AHEAD = "ahead"
    FOLLOWING = "following"
    RUNNING = "running"
    FAILED = "failed"


class Lane:
    """
    Records that are handled one after the other, unless the lane is shared.

    Attributes:
        epoch: the ownership that they belong to.
        key: what they have in common.
        runs: the queued ones in their order, by chunk.
        state: where it is.
        is_light: whether it may be kept while it is empty: its key takes little memory.
        is_shared: whether its records need not wait for each other.
        follows: a lane of an earlier ownership whose task has to come back first.
    """

    __slots__ = ("epoch", "follows", "is_light", "is_shared", "key", "runs", "state")

    def __init__(self, epoch: "Epoch", key: object, is_shared: bool = False) -> None:  # noqa: FBT001, FBT002 - by position it is quicker
        self.epoch = epoch
        self.key = key
        self.is_light = not isinstance(key, bytes) or len(key) <= _LIGHT
        self.is_shared = is_shared
        # Few records, and a lane for each key: an empty deque would take 624 bytes.
        self.runs: list[tuple[Chunk, Indexes]] = []
        self.state = LaneState.IDLE
        self.follows: Lane | None = None

    def __lt__(self, _other: "Lane") -> bool:
        return False  # if two are due at once, either may be first

    @property
    def first(self) -> tuple[Chunk, int]:
        """The first record: its chunk, and its index there."""
        chunk, indexes = self.runs[0]
        return chunk, indexes[0]

    @property
    def is_tried(self) -> bool:
        """Whether the first record has failed, or may have: it is handed out alone."""
        failed = self.epoch.failed
        # Its records may have been dropped while it waited, because they were revoked.
        return bool(failed and self.runs) and self.first_offset() in failed

    def first_offset(self) -> int:
        """Return the offset of the first record."""
        return record_at(*self.first).offset

    def count(self) -> int:
        """Return how many records are queued."""
        return sum(len(indexes) for _, indexes in self.runs)

    def put_back(self, chunk: Chunk, indexes: Indexes) -> None:
        """Put records back in front."""
        if indexes:
            self.runs.insert(0, (chunk, indexes))

    def cut(self, ends: Mapping[Chunk, int]) -> None:
        """Forget what is at or behind these ends of its chunks."""
        runs = []
        for chunk, indexes in self.runs:
            end = ends.get(chunk, len(chunk.done))
            left = indexes if indexes[-1] < end else [at for at in indexes if at < end]
            if left:
                runs.append((chunk, left))
        self.runs = runs

    def take(self, most: int, span: int) -> tuple[Chunk, Indexes] | None:
        """
        Take up to so many records of one chunk; None if all are beyond the span.

        A record that has failed, or may have, is taken by itself.
        """
        chunk, indexes = self.runs[0]
        most = min(most, self.epoch.within_span(chunk, indexes, span))
        if most <= 0:
            return None
        if self.epoch.failed:
            most = min(most, self._untried(chunk, indexes))
        if most >= len(indexes):
            self.runs.pop(0)
            return chunk, indexes
        self.runs[0] = (chunk, indexes[most:])
        return chunk, indexes[:most]

    def _untried(self, chunk: Chunk, indexes: Indexes) -> int:
        # How many come before the first that must run by itself; at least one.
        for count, index in enumerate(indexes):
            if record_at(chunk, index).offset in self.epoch.failed:
                return max(1, count)
        return len(indexes)


Sorted: TypeAlias = list[tuple[Lane, Indexes]]
_IDLE = LaneState.IDLE  # enum members are slow to look up


class Lanes:
    """
    Sorts records into lanes.

    Args:
        order: which records belong together.
    """

    def __init__(self, order: Order) -> None:
        self.order = order

    def sort(self, epoch: "Epoch", chunk: Chunk) -> Sorted:
        """Return the lanes of a chunk's records, each with its records."""
        if self.order is not Order.KEY:
            is_shared = self.order is Order.UNORDERED
            lane = epoch.lanes.get(None) or self._open(epoch, None, is_shared)
            return [(lane, range(len(chunk.records)))]
        groups: dict[object, list[int]] = {}
        found: Sorted = []
        lanes = epoch.lanes
        for index, record in enumerate(chunk.records):
            key: object = record.key  # type: ignore[union-attr]  # queued
            if type(key) is not bytes and key is not None:  # not of a broker
                key = repr(key).encode("utf-8", "replace")
            if key in groups:
                groups[key].append(index)
                continue
            lane = lanes.get(key) or self._open(epoch, key)
            groups[key] = indexes = [index]
            found.append((lane, indexes))
        return found

    def _open(self, epoch: "Epoch", key: object, is_shared: bool = False) -> Lane:  # noqa: FBT001, FBT002 - by position it is quicker
        lane = epoch.lanes[key] = Lane(epoch, key, is_shared)
        for old in epoch.left_behind:
            if old.key == key:
                lane.follows = old
        return lane

    @staticmethod
    def queue(chunk: Chunk, found: Sorted) -> list[Lane]:
        """Queue the records; return the lanes to make ready. The lock is held."""
        idle = []
        for lane, indexes in found:
            lane.runs.append((chunk, indexes))
            if lane.state is _IDLE or (
                # Its tasks are out, and new records need not wait for them.
                lane.is_shared and lane.state is LaneState.RUNNING
            ):
                idle.append(lane)
        return idle
