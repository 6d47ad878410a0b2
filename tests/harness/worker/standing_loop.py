"""An engine with its schedule that owns one partition, turned by hand."""

from safeconsumer import Commit, Retry
from safeconsumer.worker.queue import Lanes, Order, Policy, Queue, record_key
from safeconsumer.worker.results import Schedule
from tests.harness.worker.desk import done_by
from tests.harness.worker.fake_client import EVERY, Clock, FakeClient
from tests.harness.worker.standing import DRAIN, LIMITS, StandingEngine

_OFTEN = Commit(every=0.001)


class Loop:
    """An engine on one partition that owns it, and its schedule."""

    def __init__(self, *, latest: bool = False, commit: Commit = _OFTEN) -> None:
        clock = Clock()
        self.client = FakeClient(clock, cooperative=False, most=4, latest=latest)
        self.engine = StandingEngine(
            self.client,
            limits=LIMITS,
            drain=DRAIN,
            commit=commit,
            emit=lambda *_kind, **_fields: None,
            clock=clock,
        )
        queue = Queue(
            self.engine.held,
            Lanes(Order.PARTITION, record_key),
            Policy(retry=Retry()),
            clock,
            None,
        )
        self.schedule = Schedule(queue, lambda *_: None)
        self.engine.begin(self.schedule)
        self.client.rebalance(frozenset(EVERY[:1]), 0)

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.engine.turn()
            self.client.answer_all()

    def work(self) -> list[int]:
        """Do what there is, and return its offsets."""
        found = []
        while tasks := self.schedule.queue.claim():
            found += done_by(self.schedule, tasks)
        return found
