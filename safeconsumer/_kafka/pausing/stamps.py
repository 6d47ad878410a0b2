"""
What is told from fetched data without reading it: whose it is, how much it is.
"""

import struct
from collections.abc import Mapping
from typing import Any

# Layout of a record batch, https://kafka.apache.org/documentation/#recordbatch:
# base offset int64, length int32, leader epoch int32, magic int8 at 16, ...,
# record count int32 at 57. The length counts from behind itself, 12 bytes in.
_LENGTH = struct.Struct(">i")
_LENGTH_AT, _HEAD, _MAGIC_AT, _COUNT_AT = 8, 12, 16, 57
_BATCH_HEAD = 61
_COUNTED_MAGIC = 2


# Stamped on what was asked for before its partition was gained: never current.
NO_EPOCH = -1


class StampedOffset(int):
    """
    A fetch offset that remembers in which ownership it was asked for.

    It is a plain int to upstream, which carries it from the request through the
    answer into the parsed records; so every fetch can be told from one of an
    earlier ownership, also when both were made at the same offset.
    """

    epoch: int

    @classmethod
    def of(cls, offset: int, epoch: int) -> "StampedOffset":
        """
        Stamp an offset.
        """
        stamped = cls(offset)
        stamped.epoch = epoch
        return stamped


class StampedOffsets(dict[tuple[str, int], int]):
    """
    The offsets of one request, stamped when the answer is matched with them.

    Most partitions of a request are not in its answer; they cost nothing here.
    """

    def __init__(
        self, offsets: Mapping[Any, int], epochs: Mapping[tuple[str, int], int]
    ) -> None:
        super().__init__(offsets)
        self._epochs = epochs

    def __getitem__(self, tp: tuple[str, int]) -> StampedOffset:
        return StampedOffset.of(super().__getitem__(tp), self._epochs.get(tp, NO_EPOCH))


def epoch_of(offset: int) -> int | None:
    """
    Return the epoch an offset was stamped with, None if it never was.
    """
    return getattr(offset, "epoch", None)


def count_records(data: bytes | memoryview | None) -> int | None:
    """
    Count the records in the batches of one answer by their headers alone.

    Returns:
        The number, control records and records below the fetch offset included;
        None if a batch of an old format (before Kafka 0.11) does not tell.
    """
    total, at = 0, 0
    size = len(data) if data is not None else 0
    while data is not None and at + _BATCH_HEAD <= size:
        if data[at + _MAGIC_AT] < _COUNTED_MAGIC:
            return None
        total += _LENGTH.unpack_from(data, at + _COUNT_AT)[0]
        at += _HEAD + max(0, _LENGTH.unpack_from(data, at + _LENGTH_AT)[0])
    return total
