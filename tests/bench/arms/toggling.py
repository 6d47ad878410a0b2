"""Pauses and resumes all the time while it reads, and counts what is fetched for it."""

import struct
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from kafka import TopicPartition

from tests.bench.arms.clients import make
from tests.harness.regression.wire import Wire

_EVERY = 10
_LENGTH = struct.Struct(">i")
_OFFSET = struct.Struct(">q")
_HEAD = 12  # base offset and length stand before what the length counts


class Toggling:
    """
    A consumer of all partitions of one topic that pauses another one at each turn.

    Args:
        client: "stock" or "safe".
        config: how the broker is reached.
        topic: what is read.
        partitions: how many it has, each with records.
    """

    def __init__(
        self, client: str, config: dict[str, Any], topic: str, partitions: int
    ) -> None:
        self._consumer = make(client, config)
        self._wire = Wire(self._consumer)
        self._partitions = [TopicPartition(topic, one) for one in range(partitions)]
        self._consumer.assign(self._partitions)
        self._paused: deque[TopicPartition] = deque()

    def run(self, how: str, records: int, bound: float) -> dict[str, float]:
        """
        Read so many records, or until the bound; return bytes and records.

        Args:
            how: "poll" or "iterate", pausing in turn the partition that delivered
                last and resuming the one paused before; "all" pauses all, polls
                without a wait, and resumes all.
            records: how many there are.
            bound: seconds.
        """
        turn = self._turn_all if how == "all" else self._turn_one
        start, got = time.monotonic(), 0
        for delivered in self._iterated() if how == "iterate" else self._polled():
            got += len(delivered)
            if got >= records or time.monotonic() - start > bound:
                break
            turn(delivered)
        return {
            "delivered": got,
            "fetched": self._wire.bytes_fetched(),
            "produced": self._bytes_seen(),
            "seconds": time.monotonic() - start,
        }

    def close(self) -> None:
        self._consumer.close()

    def _polled(self) -> Iterator[list[Any]]:
        while True:
            batches = self._consumer.poll(200, max_records=_EVERY)
            yield [record for batch in batches.values() for record in batch]

    def _iterated(self) -> Iterator[list[Any]]:
        self._consumer.config["consumer_timeout_ms"] = 200
        while True:
            ten = []
            while len(ten) < _EVERY:
                record = next(self._consumer, None)
                if record is None:
                    break
                ten.append(record)
            yield ten

    def _turn_one(self, delivered: list[Any]) -> None:
        if self._paused:
            self._consumer.resume(self._paused.popleft())
        if delivered:  # else what is left is in the paused one
            last = TopicPartition(delivered[-1].topic, delivered[-1].partition)
            self._consumer.pause(last)
            self._paused.append(last)

    def _turn_all(self, _: list[Any]) -> None:
        self._consumer.pause(*self._partitions)
        if self._consumer.poll(0):
            message = "records of paused partitions"
            raise ValueError(message)
        self._consumer.resume(*self._partitions)

    def _bytes_seen(self) -> int:
        """
        Return the bytes of all batches that came, each counted once.

        With every record delivered that is what was produced.
        """
        batches = {}
        for name, response in list(self._wire.answered):
            if name != "Fetch":
                continue
            for topic in response.responses:
                for one in topic.partitions:
                    for base, size in _whole_batches(one.records or b""):
                        batches[one.partition_index, base] = size
        return sum(batches.values())


def _whole_batches(data: bytes) -> Iterator[tuple[int, int]]:
    at = 0
    while at + _HEAD <= len(data):
        size = _HEAD + _LENGTH.unpack_from(data, at + 8)[0]
        if at + size <= len(data):
            yield _OFFSET.unpack_from(data, at)[0], size
        at += size
