"""Computes how much may be kept, and when polling stops and continues."""

import math

from attrs import field, frozen

from safeconsumer._checks import positive, positive_int

MIB = 1024 * 1024


@frozen(kw_only=True)
class Limits:
    """
    Limits what a worker may keep at a time, however slow its handlers are.

    Partitions that have records share the room evenly, and one share stays free for the
    next: by default each of 16 partitions keeps up to 588 records. A partition that
    needs room gets it from those that keep more than their share: their records that no
    handler has begun are dropped, and fetched again later. Polling continues once half
    of the room is free.

    Args:
        records: records kept, queued and running together; exceeded, by one poll at
            most, only if a hook or another thread seeks past polled records.
        bytes: their keys, values, headers and 400 bytes each; exceeded by one poll at
            most.
        span: how many records of one partition may be completed or begun ahead of its
            first incomplete one; it bounds how much a restart repeats.
        age: seconds after which one running handler, a pump's batch without an answer,
            a record that failed for good, refused commits, or all room taken while
            nothing is completed make the worker unhealthy.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    records: int = field(default=10_000, validator=positive_int)
    bytes: int = field(default=64 * MIB, validator=positive_int)
    span: int = field(default=50_000, validator=positive_int)
    age: float = field(default=60.0, validator=positive)


@frozen
class Load:
    """The records and bytes that are kept now."""

    records: int = 0
    bytes: int = 0


@frozen
class Marks:
    """
    The marks at which polling stops and continues.

    Attributes:
        high: stop at either of these.
        low: continue below both of these.
    """

    high: Load
    low: Load

    def is_throttled(self, load: Load, *, was: bool) -> bool:
        """Return whether to stop, given whether it was stopped before."""
        if was:
            return load.records > self.low.records or load.bytes > self.low.bytes
        return load.records >= self.high.records or load.bytes >= self.high.bytes


def marks(limits: Limits, parts: int = 1) -> Marks:
    """Return the marks for everything kept together, or for one of this many parts."""
    high = Load(max(1, limits.records // parts), max(1, limits.bytes // parts))
    return Marks(high, Load(high.records // 2, high.bytes // 2))


def share(limits: Limits, partitions: int, sharing: int) -> Marks | None:
    """
    Return the share of each partition; None if a single partition is owned.

    Partitions with records share evenly, and one share is left for the next one: a
    partition with a full share may never finish a record.

    Args:
        limits: the limits of all partitions together.
        partitions: how many are owned.
        sharing: the number of partitions with records, here or at the broker.
    """
    if partitions < 2:  # noqa: PLR2004 - at least two
        return None
    return marks(limits, max(sharing, 1) + 1)


def credit(limits: Limits, load: Load, average_bytes: float, most: int) -> int:
    """Return how many records the next poll may take; 0 if there is no room."""
    room = min(most, limits.records - load.records)
    left = limits.bytes - load.bytes
    if room <= 0 or left <= 0:
        return 0
    return max(1, min(room, math.floor(left / max(1.0, average_bytes))))
