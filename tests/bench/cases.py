"""What throughput is measured with: kinds of records, ways of reading, clients."""

import itertools
from collections.abc import Iterator

from attrs import frozen

CLIENTS = (
    "kafka-python",
    "safe-python",
    "safe-compiled",
    "safe-compiled profile",
    "aiokafka",
    "confluent poll",
    "confluent poll tuned",
    "confluent consume",
    "confluent consume tuned",
)
# More records of 100 B than confluent-kafka's queue holds at its defaults (100,000): it
# waits for a second then.
_BYTES = 36_000_000
_SMOKE_RECORDS = 480


@frozen(kw_only=True)
class Case:
    """
    One kind of records in one topic.

    Attributes:
        partitions: how many the topic has, all of them with records.
        size: bytes of a value.
        codec: the producer's ``compression.type``.
        headers: whether each record has two.
    """

    partitions: int = 8
    size: int = 100
    codec: str = "none"
    headers: bool = False

    @property
    def name(self) -> str:
        headers = ", headers" if self.headers else ""
        return f"{self.partitions} x {self.size} B, {self.codec}{headers}"

    def records(self, *, smoke: bool) -> int:
        """Return how many records one lap reads: about as many bytes in each case."""
        return _SMOKE_RECORDS if smoke else max(2_400, _BYTES // (self.size + 20))


@frozen(kw_only=True)
class Mode:
    """
    One way of reading.

    Attributes:
        name: as kafka-python calls it.
        max_records: at most so many in one call; None for one by one.
    """

    name: str
    max_records: int | None

    def clients(self) -> Iterator[str]:
        """Yield the clients that can read so; confluent's ``poll`` gives one at a time."""
        single = self.max_records is None
        other = "confluent consume" if single else "confluent poll"
        return (client for client in CLIENTS if not client.startswith(other))


POLL_5000 = Mode(name="poll(max_records=5000)", max_records=5000)
POLL_500 = Mode(name="poll(max_records=500)", max_records=500)
ITERATION = Mode(name="iteration", max_records=None)
MODES = (POLL_5000, POLL_500, ITERATION)

# Each differs from the first in one thing; the second is the other with a target.
DEFAULT = (
    Case(),
    Case(size=1_000, codec="lz4"),
    Case(size=1_000),
    Case(size=10_000),
    Case(codec="zstd"),
    Case(headers=True),
    Case(partitions=1),
    Case(partitions=64),
)
TARGETS = DEFAULT[:2]
SMOKE = (Case(size=1_000, codec="lz4", headers=True),)


def everything() -> tuple[Case, ...]:
    """Return all combinations."""
    return tuple(
        Case(partitions=partitions, size=size, codec=codec, headers=headers)
        for partitions, size, codec, headers in itertools.product(
            (1, 8, 64), (100, 1_000, 10_000), ("none", "lz4", "zstd"), (False, True)
        )
    )
