"""Computes how much may be held, and when polling stops and goes on again."""

import math
from typing import Literal

from attrs import field, frozen

from safeconsumer._checks import positive, positive_int, share_of_one
from safeconsumer.errors import WorkerSettingError

MIB = 1024 * 1024


@frozen(kw_only=True)
class Limits:
    """
    Limits what a worker may hold at a time, however slow its handlers are.

    Args:
        records: records held, queued and running together; exact.
        bytes: their keys, values, headers and 400 bytes each; exceeded by one poll at
            most.
        span: how many records of one partition may be completed or begun ahead of its
            first incomplete one; it bounds how much a restart repeats.
        age: seconds after which one running handler, a record that failed for good, or
            refused commits make the worker unhealthy.
        low: where polling goes on again, as a part of the limits: 0 or more, less than
            1.
        partition_share: ``fair`` stops a single partition once it holds its share of
            the room, or as much as is left for all others, or half of its share while
            all its records wait for something; None leaves all of the room to whichever
            partition's records come first.

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
    """The records and bytes that are held now."""

    records: int = 0
    bytes: int = 0

    def __sub__(self, other: "Load") -> "Load":
        return Load(self.records - other.records, self.bytes - other.bytes)


@frozen
class Marks:
    """
    The marks at which to stop and to go on.

    Attributes:
        high: stop at either of these.
        low: go on below both of these.
        ample: go on below both of these if some partition has nothing to do; otherwise
            one that makes no progress, and holds more than the low mark, would stop all
            others.
    """

    high: Load
    low: Load
    ample: Load

    def is_throttled(self, load: Load, *, was: bool, is_starving: bool = False) -> bool:
        """Tell whether to stop, given whether it was stopped before."""
        if was:
            mark = self.ample if is_starving else self.low
            return load.records > mark.records or load.bytes > mark.bytes
        return load.records >= self.high.records or load.bytes >= self.high.bytes


def marks(limits: Limits) -> Marks:
    """Return the marks for everything held together."""
    return _marks(limits.records, limits.bytes, limits.low)


@frozen
class Share:
    """
    The limits of what one partition may hold.

    Attributes:
        moving: the limit while one of its records can be worked on.
        waiting: the limit while none can, because a failed record waits or blocks.
        poll: how many records a poll may take although they may all be of a partition
            that has its share already.
    """

    moving: Marks
    waiting: Marks
    poll: int


def share(limits: Limits, partitions: int, sharing: int) -> Share | None:
    """
    Return the share of each partition; None if they have no separate shares.

    Partitions with records share evenly, and one share is left for the next one: a
    partition that holds its share may never finish a record.

    Args:
        limits: the limits of all partitions together.
        partitions: how many are owned.
        sharing: how many of them have records, here or at the broker.
    """
    if limits.partition_share is None or partitions < 2:  # noqa: PLR2004 - at least two
        return None
    parts = max(sharing, 1) + 1
    records, size = limits.records // parts, limits.bytes // parts
    return Share(
        _marks(max(1, records), max(1, size), limits.low),
        _marks(max(1, records // 2), max(1, size // 2), limits.low),
        max(1, records // 4, limits.records // 64),
    )


def credit(limits: Limits, load: Load, average_bytes: float, most: int) -> int:
    """Return how many records the next poll may take; 0 if there is no room."""
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
