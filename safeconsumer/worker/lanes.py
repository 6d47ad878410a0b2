"""
Lanes: queues of records that must not overlap, and which record belongs to which.
"""

import enum
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from sys import getsizeof
from typing import Any, TypeAlias

from attrs import frozen

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.held import Epoch
from safeconsumer.worker.progress import Chunk

KeyOf: TypeAlias = Callable[[Any], object]

# The lane of a record whose key could not be told.
KEYLESS = object()
# Keys of lanes that may be kept: of these types, and no more bytes than this.
_PLAIN = frozenset({bytes, str, int, type(None)})
_LIGHT = 128
Indexes: TypeAlias = Sequence[int]


class Order(enum.Enum):
    """
    Which records are worked on one after the other.
    """

    PARTITION = "partition"
    """Those of one partition."""

    KEY = "key"
    """Those of one key within a partition."""

    UNORDERED = "unordered"
    """None."""


def order_of(name: str) -> Order:
    """
    Return the order of this name.

    Raises:
        WorkerSettingError: there is none.
    """
    try:
        return Order(name)
    except ValueError:
        message = f"order is 'partition', 'key' or 'unordered', not {name!r}"
        raise WorkerSettingError(message) from None


class State(enum.Enum):
    """
    Where a lane is.
    """

    IDLE = "idle"
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    """For a time, an acknowledgement, the watermark, or for ever."""


_IDLE = State.IDLE  # looking up a member takes its time, and this is per key


class Lane:
    """
    Records that are worked on one after the other, unless it is shared.

    Attributes:
        is_light: whether it may be kept while it is empty: its key takes little memory.
    """

    __slots__ = ("epoch", "is_light", "is_shared", "key", "runs", "state")

    def __init__(self, epoch: Epoch, key: object, is_shared: bool = False) -> None:  # noqa: FBT001, FBT002 - by position it is quicker
        self.epoch = epoch
        self.key = key
        self.is_light = type(key) in _PLAIN and getsizeof(key) <= _LIGHT
        self.is_shared = is_shared
        self.runs: deque[tuple[Chunk, Indexes]] = deque()
        self.state = State.IDLE

    def put_back(self, chunk: Chunk, indexes: Indexes) -> None:
        """
        Put records in front again.
        """
        if indexes:
            self.runs.appendleft((chunk, indexes))

    def join_front(self) -> None:
        """
        Make one run of the first two, if they are of one chunk.
        """
        if len(self.runs) > 1 and self.runs[0][0] is self.runs[1][0]:
            chunk, first = self.runs.popleft()
            _, more = self.runs.popleft()
            self.runs.appendleft((chunk, [*first, *more]))

    def take(self, most: int, span: int) -> tuple[Chunk, Indexes] | None:
        """
        Take up to so many records of one chunk; None if all are beyond the span.

        A record that has failed, or is suspect, comes by itself.
        """
        chunk, indexes = self.runs[0]
        most = min(most, _allowed(self.epoch, chunk, indexes, span))
        if most <= 0:
            return None
        if self.epoch.failures or self.epoch.alone:
            most = min(most, self._untried(chunk, indexes))
        if most >= len(indexes):
            self.runs.popleft()
            return chunk, indexes
        self.runs[0] = (chunk, indexes[most:])
        return chunk, indexes[:most]

    def _untried(self, chunk: Chunk, indexes: Indexes) -> int:
        # How many stand before the first that must run by itself; at least one.
        for count, index in enumerate(indexes):
            record = chunk.records[index]
            assert record is not None  # noqa: S101 - it is queued, so not finished
            if (
                record.offset in self.epoch.failures
                or record.offset in self.epoch.alone
            ):
                return max(1, count)
        return len(indexes)


@frozen
class Task:
    """
    Records of one lane that a handler is to work on, in this order.

    Attributes:
        attempt: of the records, from 1.
        tried: the offset of its one record, if that has failed before or is suspect.
        bundle: several lanes' records of one chunk that travel together, lane by lane;
            ``indexes`` are all of theirs, and ``lane`` is the first.
    """

    lane: Lane
    chunk: Chunk
    indexes: Indexes
    attempt: int = 1
    tried: int | None = None
    bundle: Sequence[tuple[Lane, Indexes]] = ()

    @property
    def epoch(self) -> Epoch:
        """
        The epoch it belongs to.
        """
        return self.lane.epoch


@frozen
class Groups:
    """
    Records of a chunk by their lanes' keys.

    Attributes:
        sorted: each key with its records' indexes.
        failed: the index of the one whose key could not be told, and why.
    """

    sorted: Collection[tuple[object, Indexes]]
    failed: tuple[int, BaseException] | None = None


class Lanes:
    """
    Sorts records into lanes.

    Args:
        order: which records belong together.
        key: of a record, for order by key; any hashable value.
    """

    def __init__(self, order: Order, key: KeyOf) -> None:
        self.order = order
        self._key = key

    def group(self, chunk: Chunk, first: int = 0) -> Groups:
        """
        Return which records of a chunk, from ``first`` on, go to which lane.

        Ends at one whose key cannot be told; what stands behind it may be of its lane.
        """
        if self.order is not Order.KEY:
            return Groups(((None, range(first, len(chunk.records))),))
        key_of, is_own = self._key, self._key is record_key
        groups: dict[object, list[int]] = {}
        index = first
        try:
            for index, record in enumerate(chunk.records[first:], first):
                # In line, as nearly every key is: a call is a third of this.
                key = record.key if is_own else None  # type: ignore[union-attr]  # queued
                if type(key) is not bytes:
                    key = key_of(record)
                if key in groups:
                    groups[key].append(index)
                else:
                    groups[key] = [index]
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is this record's
            return Groups(groups.items(), (index, error))
        return Groups(groups.items())

    def queue(
        self, epoch: Epoch, chunk: Chunk, groups: Iterable[tuple[object, Indexes]]
    ) -> list[Lane]:
        """
        Queue them; return the lanes that are to be made ready. The lock is held.
        """
        lanes: dict[object, Any] = epoch.lanes
        is_shared = self.order is Order.UNORDERED
        idle = []
        for key, indexes in groups:
            lane = lanes.get(key)
            if lane is None:
                lane = lanes[key] = Lane(epoch, key, is_shared)
                idle.append(lane)
            elif lane.state is _IDLE or (
                # Its tasks are out, and nothing that comes has to wait for them.
                lane.is_shared and lane.state is State.RUNNING
            ):
                idle.append(lane)
            lane.runs.append((chunk, indexes))
        return idle


def _allowed(epoch: Epoch, chunk: Chunk, indexes: Indexes, span: int) -> int:
    # How many of these may be started before the watermark moves.
    last = chunk.base + indexes[-1]
    if last < epoch.allowed:
        return len(indexes)
    epoch.allowed = epoch.progress.floor() + span
    if last < epoch.allowed:
        return len(indexes)
    limit = epoch.allowed - chunk.base
    return sum(index < limit for index in indexes)


def record_key(record: Any) -> object:  # noqa: ANN401 - upstream's record
    """
    Return a record's own key; a key that cannot be hashed, by its text.
    """
    key = record.key
    if type(key) is bytes or getattr(key, "__hash__", None):
        return key
    return repr(key)
