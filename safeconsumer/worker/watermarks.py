"""
How much may be held, and when to stop and to go on: high and low water marks.
"""

import math
from typing import Literal

from attrs import field, frozen

from safeconsumer._checks import positive, positive_int, share_of_one
from safeconsumer.errors import WorkerSettingError

MIB = 1024 * 1024


@frozen(kw_only=True)
class Limits:
    """
    What a worker may hold at a time, whatever its handlers do.

    Args:
        records: records held, queued and running together; exact.
        bytes: their keys, values, headers and 400 bytes each; exact but for one poll.
        span: how far completion of one partition may run ahead of its first
            incomplete record; it bounds what a restart repeats.
        age: seconds after which one running handler, something that failed for good,
            or commits that are refused make the worker unhealthy.
        low: where polling goes on again, as a part of the limits.
        partition_share: ``fair`` stops a partition by itself once it holds its share of
            the room, or as much as is left for all others, or half of its share while
            all that it holds waits for something; None leaves all of the room to
            whoever comes first.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    records: int = field(default=10_000, validator=positive_int)
    bytes: int = field(default=64 * MIB, validator=positive_int)
    span: int = field(default=50_000, validator=positive_int)
    age: float = field(default=60.0, validator=positive)
    low: float = field(default=0.5, validator=share_of_one)
    partition_share: Literal["fair"] | None = field(default="fair")

    @partition_share.validator
    def _known_share(self, _attribute: object, value: object) -> None:
        if value not in ("fair", None):
            message = f"partition_share must be 'fair' or None, not {value!r}"
            raise WorkerSettingError(message)


@frozen
class Load:
    """
    What is held now.
    """

    records: int = 0
    bytes: int = 0

    def __sub__(self, other: "Load") -> "Load":
        return Load(self.records - other.records, self.bytes - other.bytes)


@frozen
class Marks:
    """
    Where to stop and where to go on.

    Attributes:
        high: stop at either of these.
        low: go on below both of these.
        ample: go on below both of these if somebody has nothing to do; else one who
            does not move, and holds more than the low mark, would stop all others.
    """

    high: Load
    low: Load
    ample: Load

    def is_throttled(self, load: Load, *, was: bool, is_starving: bool = False) -> bool:
        """
        Tell whether to stop, given whether it was stopped before.
        """
        if was:
            mark = self.ample if is_starving else self.low
            return load.records > mark.records or load.bytes > mark.bytes
        return load.records >= self.high.records or load.bytes >= self.high.bytes


def marks(limits: Limits) -> Marks:
    """
    Return the marks for everything held together.
    """
    return _marks(limits.records, limits.bytes, limits.low)


@frozen
class Share:
    """
    What one partition may hold.

    Attributes:
        moving: while something of it can be worked on.
        waiting: while nothing can: what failed waits, or blocks.
        poll: records of one poll, at most, or one would take much more than its share.
    """

    moving: Marks
    waiting: Marks
    poll: int


def share(limits: Limits, partitions: int, sharing: int) -> Share | None:
    """
    Return the share of each partition; None if they share freely.

    Even between those that have something, and one share is left for who comes next:
    what holds its share may never let go of it again.

    Args:
        limits: of all together.
        partitions: how many are owned.
        sharing: how many of them have records, here or at the broker.
    """
    if limits.partition_share is None or partitions < 2:  # noqa: PLR2004 - to share with
        return None
    parts = max(sharing, 1) + 1
    records, size = limits.records // parts, limits.bytes // parts
    return Share(
        _marks(max(1, records), max(1, size), limits.low),
        _marks(max(1, records // 2), max(1, size // 2), limits.low),
        max(1, records // 4, limits.records // 64),
    )


def credit(limits: Limits, load: Load, average_bytes: float, most: int) -> int:
    """
    Return how many records the next poll may take; 0 if there is no room.
    """
    room = min(most, limits.records - load.records)
    left = limits.bytes - load.bytes
    if room <= 0 or left <= 0:
        return 0
    return max(1, min(room, math.floor(left / max(1.0, average_bytes))))


def _marks(records: int, size: int, low: float) -> Marks:
    ample = 1 - (1 - low) / 16
    return Marks(
        Load(records, size),
        Load(int(records * low), int(size * low)),
        Load(int(records * ample), int(size * ample)),
    )
