"""Computes how many records may be kept, and when to stop and continue polling."""

import math

from attrs import field, frozen

from safeconsumer._checks import positive, positive_int

MIB = 1024 * 1024


@frozen(kw_only=True)
class Limits:
    """
    Limits the records that a worker keeps in memory, however slow its handlers are.

    Partitions that have records get equal shares of the limits, and one share stays
    free for another partition. With the defaults each of 16 partitions keeps up to 588
    records. If a partition needs room, partitions that exceed their share drop records
    that no handler has begun; these are fetched again later. Once polling has stopped,
    it continues when half of each limit is free.

    Args:
        records: the maximum number of queued and running records. It is exceeded only
            if a hook or another thread seeks past records that were just polled, and by
            at most one poll.
        bytes: the maximum size of the kept keys, values and headers, plus 400 bytes per
            record; exceeded by one poll at most.
        span: how many of a partition's records may be started or completed beyond its
            first incomplete record. The span limits how many records a restart repeats.
        age: seconds after which a worker becomes unhealthy because a handler is still
            running, a pump's batch is unanswered, a record that failed for good blocks,
            commits are refused, or the limits are reached and no record completes.

    Raises:
        WorkerSettingError: a value is invalid.
    """

    records: int = field(default=10_000, validator=positive_int)
    bytes: int = field(default=64 * MIB, validator=positive_int)
    span: int = field(default=50_000, validator=positive_int)
    age: float = field(default=60.0, validator=positive)


@frozen
class Load:
    """The number and the total size of the records that are currently kept."""

    records: int = 0
    bytes: int = 0


@frozen
class Marks:
    """
    The loads at which polling stops and at which it continues.

    Attributes:
        high: polling stops when either value is reached.
        low: polling continues as soon as neither value is exceeded.
    """

    high: Load
    low: Load

    def is_throttled(self, load: Load, *, was: bool) -> bool:
        """Return whether polling must stop or, if it ``was`` stopped, must stay stopped."""
        if was:
            return load.records > self.low.records or load.bytes > self.low.bytes
        return load.records >= self.high.records or load.bytes >= self.high.bytes


def marks(limits: Limits, parts: int = 1) -> Marks:
    """Return the limits' :class:`Marks`, or those of one of ``parts`` equal shares."""
    high = Load(max(1, limits.records // parts), max(1, limits.bytes // parts))
    return Marks(high, Load(high.records // 2, high.bytes // 2))


def share(limits: Limits, partitions: int, sharing: int) -> Marks | None:
    """
    Return each share's :class:`Marks`; None if fewer than two partitions are owned.

    Partitions with records get equal shares. One share is left for another partition,
    because the partitions whose shares are full may never finish a record.

    Args:
        limits: the limits of all partitions together.
        partitions: the number of owned partitions.
        sharing: the number of partitions with records, in memory or on the broker.
    """
    if partitions < 2:  # noqa: PLR2004 - at least two
        return None
    return marks(limits, max(sharing, 1) + 1)


def credit(limits: Limits, load: Load, average_bytes: float, most: int) -> int:
    """Return how many records the next poll may return; 0 if there is no room."""
    room = min(most, limits.records - load.records)
    left = limits.bytes - load.bytes
    if room <= 0 or left <= 0:
        return 0
    return max(1, min(room, math.floor(left / max(1.0, average_bytes))))
