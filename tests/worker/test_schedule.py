"""
What a schedule hands out next, decided without a broker and while time stands still.
"""

from collections.abc import Callable
from typing import Any

from kafka.structs import TopicPartition

from safeconsumer._core.progress import Chunk
from safeconsumer.worker import Retry, RetryLater
from safeconsumer.worker.calls import batch_failed
from safeconsumer.worker.held import Epoch, Held
from safeconsumer.worker.lanes import Lanes, Order, record_key
from safeconsumer.worker.outcomes import Policy
from safeconsumer.worker.schedule import Schedule
from tests.worker.model.client import Clock, FakeRecord

TP = TopicPartition("orders", 0)


class Desk:
    """
    A schedule for one partition, and the clock it looks at.
    """

    def __init__(
        self,
        order: Order,
        key: Callable[[Any], object] = record_key,
        **policy: Any,  # noqa: ANN401 - the policy's own
    ) -> None:
        self.clock = Clock()
        self.held = Held(self.clock)
        settings = {"retry": Retry(attempts=3, first=1.0, jitter=False), **policy}
        self.told: list[Any] = []
        self.schedule = Schedule(
            self.held,
            Lanes(order, key),
            Policy(**settings),
            lambda kind, **_fields: self.told.append(kind),
            self.clock,
        )
        self.epoch: Epoch = self.held.open(TP, 1, 0)
        self._next = 0

    def admit(self, count: int) -> Chunk:
        """
        Give it the next records.
        """
        records = [FakeRecord(*TP, self._next + n) for n in range(count)]
        self._next += count
        chunk = self.held.admit(self.epoch, records)  # type: ignore[arg-type]  # alike
        self.schedule.admit(self.epoch, chunk)
        return chunk

    def pass_time(self, seconds: float) -> None:
        """
        Let time pass, and turn.
        """
        self.clock.now += seconds
        self.schedule.turn()


def test_a_batch_that_asks_for_later_is_left_alone_until_then() -> None:
    """
    W7: all of it, not just its first record; and it comes again as one batch.
    """
    desk = Desk(Order.UNORDERED, is_batch=True, quantum=4)
    desk.admit(6)
    first, second = desk.schedule.claim()[0], desk.schedule.claim()[0]
    assert [*first.indexes, *second.indexes] == [0, 1, 2, 3, 4, 5]
    desk.schedule.complete([batch_failed(first, RetryLater(2.0), 0.0)])
    assert not desk.schedule.claim()
    desk.pass_time(2.0)
    assert [list(task.indexes) for task in desk.schedule.claim()] == [[0, 1, 2, 3]]
