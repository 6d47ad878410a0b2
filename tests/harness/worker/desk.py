"""A schedule on a desk: no broker, no threads, and time stands still."""

from collections.abc import Callable, Sequence
from typing import Any

from attrs import frozen
from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.scope import Everything
from safeconsumer.worker import Breaker, Retry
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.held import Held
from safeconsumer.worker.lanes import Lanes, Order
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.progress import Chunk, record_at
from safeconsumer.worker.queue import Policy, Queue
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tasks import Task
from tests.harness.worker.fake_client import Clock, FakeRecord

TP = TopicPartition("orders", 0)


@frozen(kw_only=True)
class KeyedRecord(FakeRecord):
    """A record with a key of its own."""

    given: bytes

    @property
    def key(self) -> bytes:
        return self.given


class Desk:
    """A schedule for one partition, and the clock it looks at."""

    def __init__(
        self,
        order: Order,
        key: Callable[[FakeRecord], object] | None = None,
        breaker: Breaker | None = None,
        lanes: int | None = None,
        records: int = 0,
        **policy: Any,  # noqa: ANN401 - the policy's own
    ) -> None:
        self.clock = Clock()
        self.held = Held(self.clock)
        self.ledger = PauseLedger((), clock=self.clock, wall=self.clock)
        self.ledger.assign([TP])
        settings = {"retry": Retry(attempts=3, first=1.0, jitter=False), **policy}
        self.told: list[Any] = []
        self.events: list[Any] = []
        self.schedule = Schedule(
            Queue(
                self.held,
                Lanes(order, lanes),
                Policy(**settings),
                self.clock,
                self.ledger,
            ),
            self.emit,
            self.place,
            breaker,
        )
        self.ledger.lookers.append(self.schedule.queue.obey)
        self.epoch: Epoch = self.held.open(TP, 1, 0, 0)
        self.key = key
        self._next = 0
        if records:
            self.admit(records)

    def emit(self, kind: Any, **fields: Any) -> None:  # noqa: ANN401 - any event
        self.told.append(kind)
        self.events.append(kind(**fields))

    def place(self, scope: Any, owner: str, reason: str, seconds: float) -> None:  # noqa: ANN401 - any scope
        """Hold a scope, as a worker's consumer does."""
        self.ledger.place([scope], owner=owner, reason=reason, for_=seconds)

    def admit(self, count: int) -> Chunk:
        records = [self._record(self._next + n) for n in range(count)]
        self._next += count
        chunk = self.held.admit(self.epoch, records)  # type: ignore[arg-type]  # alike
        self.schedule.admit(self.epoch, chunk)
        return chunk

    def _record(self, offset: int) -> FakeRecord:
        record = FakeRecord(*TP, offset)
        if self.key is None:
            return record
        key = self.key(record)
        return KeyedRecord(*TP, offset, given=str(key).encode())

    @property
    def failures(self) -> dict[int, int]:
        """How often records have failed, by offset."""
        return {at: one.count for at, one in self.epoch.failed.items()}

    def regain(self) -> None:
        """Lose the partition and get it back, from its first record on."""
        self.held.close(self.epoch)
        self.epoch = self.held.open(TP, self.epoch.number + 1, 0, 0)
        self._next = 0

    def pause(self, owner: str = "app", for_: float | None = None) -> None:
        self.ledger.place([Everything()], owner=owner, for_=for_)

    def resume(self, owner: str = "app") -> None:
        self.ledger.remove([(Everything(), owner)])

    def work(self) -> list[int]:
        """Complete all that can be claimed, and return which records these are."""
        found = []
        while tasks := self.schedule.queue.claim():
            found += done_by(self.schedule, tasks)
        return sorted(found)

    def pass_time(self, seconds: float) -> None:
        self.clock.now += seconds
        self.schedule.turn()


def done_by(schedule: Schedule, tasks: Sequence[Task]) -> list[int]:
    """Complete these, and return the offsets of their records."""
    found = [record_at(task.chunk, at).offset for task in tasks for at in task.indexes]
    schedule.complete([all_done(task, 0.0) for task in tasks])
    return found
