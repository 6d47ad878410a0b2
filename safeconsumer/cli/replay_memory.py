"""
Remembers which dead letters were sent back, in the committed offsets of a group.

The committed offset of each partition is that of the first letter that was not sent
back. The metadata beside it says which of those behind it were, which were about to be,
and since when.
"""

import base64
import time
import zlib
from collections.abc import Iterable
from typing import Any

from attrs import define
from kafka import TopicPartition
from kafka.errors import CommitFailedError
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli.errors import CommandError, Status

_VERSION = "r1"
# Kafka's offset.metadata.max.bytes is 4,096 by default.
_MOST = 4_000
_BITS = 8


class _Bits:
    """A set of offsets, one bit each, from a first one on."""

    def __init__(self, first: int, data: bytes = b"") -> None:
        self._base = first - first % _BITS
        self._data = bytearray(data)

    def add(self, offset: int) -> None:
        at, bit = divmod(offset - self._base, _BITS)
        self._data.extend(bytes(max(0, at + 1 - len(self._data))))
        self._data[at] |= 1 << bit

    def discard(self, offset: int) -> None:
        if offset in self:
            at, bit = divmod(offset - self._base, _BITS)
            self._data[at] &= ~(1 << bit)

    def __contains__(self, offset: int) -> bool:
        at, bit = divmod(offset - self._base, _BITS)
        return 0 <= at < len(self._data) and bool(self._data[at] >> bit & 1)

    def __bool__(self) -> bool:
        return any(self._data)

    def text(self, first: int) -> str:
        gone = (first - self._base) // _BITS
        del self._data[:gone]
        self._base += gone * _BITS
        data = bytes(self._data).rstrip(b"\0")
        if not data:
            return ""
        return base64.b64encode(zlib.compress(data, 9)).decode("ascii")


@define
class _Partition:
    """
    What is remembered of one partition.

    Attributes:
        first: all offsets before it were sent back, or are gone.
        sent: those after it that were sent back.
        doubtful: those that may have been: a replay was interrupted while it sent them.
        since: when it began to send them, in milliseconds, or the oldest timestamp that
            it gave them, if that is earlier.
    """

    first: int
    sent: _Bits
    doubtful: _Bits
    since: int = 0

    def advance(self) -> None:
        while self.first in self.sent:
            self.first += 1

    def text(self) -> str:
        since = self.since if self.doubtful else 0
        bits = (one.text(self.first) for one in (self.sent, self.doubtful))
        return ":".join((_VERSION, *bits, str(since)))


class Memory:
    """
    Remembers which letters earlier replays with the same group sent back.

    Args:
        consumer: a consumer of the group, with the partitions assigned by hand.
        begins: the first offset that still exists, by partition.

    Raises:
        CommandError: the group's offsets were not written by a replay. From later
            calls: the group has members, or another replay.
    """

    def __init__(self, consumer: Any, begins: dict[TopicPartition, int]) -> None:  # noqa: ANN401 - upstream's
        self._consumer = consumer
        self._known = {tp: consumer.committed(tp, metadata=True) for tp in begins}
        self._partitions = {
            tp: _read(tp, self._known[tp], begin) for tp, begin in begins.items()
        }

    def has(self, tp: TopicPartition, offset: int) -> bool:
        """Tell whether the letter was certainly sent back."""
        one = self._partitions[tp]
        return offset < one.first or offset in one.sent

    def doubtful_since(self, tp: TopicPartition, offset: int) -> int | None:
        """
        Return a time in milliseconds; the letter's record, if it arrived, is not older.

        It is None if no replay was interrupted before it knew whether the letter
        arrived.
        """
        one = self._partitions[tp]
        return one.since if offset in one.doubtful else None

    def begin(
        self,
        letters: Iterable[tuple[TopicPartition, int]],
        oldest: int | None = None,
    ) -> None:
        """
        Write down that these letters are about to be sent.

        Args:
            letters: their partitions and offsets.
            oldest: the oldest of the timestamps that they get, in milliseconds, if that
                is not the present time.

        Raises:
            CommandError: it cannot be written; nothing has changed.
        """
        now = int(time.time() * 1000)
        since = now if oldest is None else min(now, oldest)
        changed = set()
        for tp, offset in letters:
            one = self._partitions[tp]
            if offset >= one.first:  # otherwise it is sent once more
                one.since = min(one.since, since) if one.doubtful else since
                one.doubtful.add(offset)
                changed.add(tp)
        self._commit(changed)

    def end(
        self,
        sent: Iterable[tuple[TopicPartition, int]],
        unsent: Iterable[tuple[TopicPartition, int]],
    ) -> None:
        """Write down which letters are acknowledged, and which certainly were not written."""
        changed = set()
        for letters, is_sent in ((sent, True), (unsent, False)):
            for tp, offset in letters:
                one = self._partitions[tp]
                one.doubtful.discard(offset)
                if is_sent and offset >= one.first:
                    one.sent.add(offset)
                changed.add(tp)
        self._commit(changed)

    def _commit(self, changed: Iterable[TopicPartition]) -> None:
        marks = {}
        for tp in changed:
            one = self._partitions[tp]
            one.advance()
            marks[tp] = OffsetAndMetadata(one.first, _fitting(one.text()), -1)
        if not marks:
            return
        self._refuse_others(marks)
        try:
            self._consumer.commit(marks)
        except CommitFailedError as error:
            message = "the group has members, whose commits these are: use --memory"
            raise CommandError(message) from error
        self._known |= marks

    def _refuse_others(self, partitions: Iterable[TopicPartition]) -> None:
        # This is not certain, as both may look before either writes; but between two
        # windows of 100 letters there is time enough.
        for tp in partitions:
            if _plain(self._consumer.committed(tp, metadata=True)) != _plain(
                self._known[tp]
            ):
                message = "another replay writes to the same --memory at this moment"
                raise CommandError(message)


def _fitting(text: str) -> str:
    if len(text) > _MOST:
        message = (
            "too many single letters to remember which were sent back: replay without "
            "filters, or with another --memory"
        )
        raise CommandError(message, Status.LEFT)
    return text


def _plain(committed: Any) -> object:  # noqa: ANN401 - upstream's
    return None if committed is None else (committed.offset, committed.metadata)


def _read(tp: TopicPartition, committed: Any, begin: int) -> _Partition:  # noqa: ANN401 - upstream's
    if committed is None:
        return _Partition(begin, _Bits(begin), _Bits(begin))
    try:
        found = _partition(max(begin, committed.offset), committed)
    except (ValueError, zlib.error) as error:
        message = (
            f"the group's commit for {tp.topic}:{tp.partition} was not "
            "written by a replay of this version: give another --memory"
        )
        raise CommandError(message) from error
    found.advance()
    return found


def _partition(first: int, committed: Any) -> _Partition:  # noqa: ANN401 - upstream's
    version, sent, doubtful, since = committed.metadata.split(":")
    if version != _VERSION:
        raise ValueError(version)
    return _Partition(
        first,
        _Bits(committed.offset, _unpacked(sent)),
        _Bits(committed.offset, _unpacked(doubtful)),
        int(since),
    )


def _unpacked(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text, validate=True)) if text else b""
