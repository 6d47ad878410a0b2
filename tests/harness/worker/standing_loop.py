"""An engine with its schedule, in which time stands still, turned by hand."""

from safeconsumer.worker import Commit, Drain, Limits, Retry
from safeconsumer.worker.lanes import Lanes, Order
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.queue import Policy, Queue
from safeconsumer.worker.results import Schedule
from tests.harness.worker.desk import done_by
from tests.harness.worker.fake_client import EVERY, Clock, FakeClient

LIMITS = Limits(records=12, bytes=8000, span=20)
DRAIN = Drain(revoke=2.0, shutdown=3.0)
_OFTEN = Commit(every=0.001)


class StandingEngine(Engine):
    """An engine whose waits move the clock."""

    def _wait_idle(self, seconds):
        self._clock.now += seconds


class Loop:
    """An engine and its schedule, whose next poll joins and is assigned partitions."""

    def __init__(
        self,
        *owned,
        most=4,
        limits=LIMITS,
        commit=_OFTEN,
        order=Order.PARTITION,
        **policy,
    ):
        self.clock = Clock()
        self.client = FakeClient(self.clock, most=most)
        self.events = []
        self.engine = StandingEngine(
            self.client,
            limits=limits,
            drain=DRAIN,
            commit=commit,
            emit=lambda kind, **fields: self.events.append(kind(**fields)),
            clock=self.clock,
        )
        self.schedule = Schedule(
            Queue(
                self.engine.held,
                Lanes(order),
                Policy(**{"retry": Retry(), **policy}),
                self.clock,
                self.client.ledger,
            ),
            lambda *_kind, **_fields: None,
            self.client.pause,
        )
        self.engine.begin(self.schedule)
        self.client.rebalance(*(owned or EVERY[:1]))

    def turn(self, times=1):
        for _ in range(times):
            self.engine.turn()
            self.client.answer_all()

    def work(self):
        found = []
        while tasks := self.schedule.queue.claim():
            found += done_by(self.schedule, tasks)
        return found
