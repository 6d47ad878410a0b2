"""
arroyo: the record that a poll returns after a rebalance inside it is thrown away.

Under backpressure it pauses and polls on, to stay a member. A rebalance inside that
poll ends the pause and may bring a record; only two ``assert`` look at it; both hold.
"""

from datetime import UTC, datetime
from typing import Any

_OFFSETS = 5


def shown() -> str | None:
    from arroyo.processing import processor

    processor.BACKPRESSURE_THRESHOLD = 0  # seconds until it pauses, else 5
    consumer, seen = Consumer(), Seen()
    loop: Any = processor.StreamProcessor(consumer, consumer.topic, seen)
    for _ in range(20):
        loop._run_once()
    lost = sorted(set(consumer.returned) - set(seen.offsets))
    said = f"polled {consumer.returned}, handed on {seen.offsets}: {lost} is lost"
    return said if lost else None


class Quiet:
    """Answers whatever else is asked with nothing."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever is asked
        return lambda *_args, **_kwargs: None


class Consumer(Quiet):
    """Rebalances once, in the first poll while it is paused; nothing is committed then."""

    def __init__(self) -> None:
        from arroyo.types import Partition, Topic

        self.topic = Topic("orders")
        self.partition = Partition(self.topic, 0)
        self.position = 0
        self.is_paused = False
        self.returned: list[int] = []

    def subscribe(self, topics: Any, on_assign: Any, on_revoke: Any) -> None:  # noqa: ANN401 - arroyo's
        del topics
        self.assign, self.revoke = on_assign, on_revoke
        on_assign({self.partition: 0})

    def tell(self) -> dict[Any, int]:
        return {self.partition: self.position}

    def pause(self, partitions: Any) -> None:  # noqa: ANN401 - arroyo's
        del partitions
        self.is_paused = True

    def poll(self, timeout: float) -> Any:  # noqa: ANN401 - arroyo's
        from arroyo.types import BrokerValue

        del timeout
        if self.is_paused:
            self.is_paused, self.position = False, 0
            self.returned.clear()
            self.revoke([self.partition])
            self.assign({self.partition: 0})
        if self.position == _OFFSETS:
            return None
        offset, self.position = self.position, self.position + 1
        self.returned.append(offset)
        return BrokerValue(b"", self.partition, offset, datetime.now(UTC))


class Seen(Quiet):
    """Makes strategies; the first is full, the next ones take everything."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.made = 0

    def create_with_partitions(self, commit: Any, partitions: Any) -> Any:  # noqa: ANN401 - arroyo's
        del commit, partitions
        self.made += 1
        return Full() if self.made == 1 else Taking(self.offsets)


class Full(Quiet):
    """Takes nothing."""

    def submit(self, message: Any) -> None:  # noqa: ANN401 - arroyo's
        from arroyo.processing.strategies import MessageRejected

        raise MessageRejected(message)


class Taking(Quiet):
    """Notes what it is given."""

    def __init__(self, offsets: list[int]) -> None:
        self.offsets = offsets

    def submit(self, message: Any) -> None:  # noqa: ANN401 - arroyo's
        self.offsets.append(message.value.offset)
