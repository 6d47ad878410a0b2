"""An executor with a queue before it, and neither a consumer nor a broker."""

import math
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from attrs import define, field
from kafka.structs import TopicPartition

from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.worker import Retry, health
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors import choose
from safeconsumer.worker.executors.base import Calls, Runner
from safeconsumer.worker.kept import Kept
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.queue import QUANTUM, Policy, Queue
from tests.harness.holds.lab import assign_to
from tests.harness.waiting import wait_for
from tests.harness.worker.fake_client import FakeRecord

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 0)
EXECUTORS = ("thread", "asyncio", "process")


def _hold_nothing(*_hold):
    raise NotImplementedError


class TellingDecisions(Decisions):
    """
    Decisions that know how many results are being taken over.

    What came of a record is told after it is counted, so a thread that has seen the
    count may not have seen the events yet.
    """

    def __init__(self, queue, emit):
        super().__init__(queue, emit, _hold_nothing)
        self._counting = threading.Lock()
        self.under_way = 0

    def complete(self, outcomes):
        """Take over results, as its parent does."""
        with self._counting:
            self.under_way += 1
        try:
            super().complete(outcomes)
        finally:
            with self._counting:
                self.under_way -= 1


@define(eq=False)
class Bench:
    """Handlers run in it as in a worker; somebody has to turn it."""

    kept: Kept
    decisions: TellingDecisions
    runner: Runner
    events: list[Any] = field(factory=list)

    def admit(self, count):
        """Give it the first records of its partition."""
        epoch = self.kept.open(TP, 1, 0, 0)
        records = [FakeRecord(*TP, offset) for offset in range(count)]
        self.kept.admit(epoch, records)
        self.decisions.queue.admit(epoch)

    def wait(self, is_so, what):
        """Turn until it is so, and until all events of it are there."""

        def turned():
            self.decisions.turn()
            return is_so() and not self.decisions.under_way

        def seen():
            return f"{self.kept.records} kept, {self.events}"

        wait_for(turned, what, seen=seen)

    def finish(self, count):
        """Give it so many records, and wait until all are done or given up."""
        self.admit(count)
        self.wait(lambda: not self.kept.records, "all to be done or given up")

    def complaints(self):
        """Return what ``healthy()`` says of what runs handlers."""
        engine = SimpleNamespace(
            kept=self.kept,
            polled_at=math.inf,
            poll_timeout=0.0,
            why_nothing=None,
            brakes=SimpleNamespace(stands_since=lambda: None),
        )
        return health.examine(engine, self.runner.slots, 60.0).reasons


@contextmanager
def bench(  # noqa: PLR0913 - what a worker takes
    executor,
    handle,
    *,
    count=2,
    batch=None,
    order=None,
    timeout=None,
    lifespan=None,
    start_seconds=30.0,
    **policy,
):
    """Run handlers so, until the block ends."""
    kept, events = Kept(time.monotonic), []
    settings = {"retry": Retry(attempts=2, first=0.01), "on_exhausted": "skip"}
    settings |= {
        "quantum": batch or QUANTUM,
        "is_batch": batch is not None,
        **policy,
    }

    def emit(kind, **fields):
        events.append(kind(**fields))

    order = order or (Order.KEY if batch is None else Order.PARTITION)
    ledger = PauseLedger((), clock=time.monotonic, wall=time.time)
    assign_to(ledger, [TP, OTHER])
    decisions = TellingDecisions(
        Queue(kept, order, Policy(**settings), time.monotonic, ledger), emit
    )
    calls = Calls(
        handle=handle,
        is_batch=batch is not None,
        seconds=0.005,
        deadline=lambda: None,
        emit=emit,
        timeout=timeout,
        lifespan=lifespan,
        start_seconds=start_seconds,
    )
    made = Bench(kept, decisions, choose(executor, decisions, calls, count), events)
    try:
        made.runner.start()
        wait_for(lambda: made.runner.wait_ready(0.1), "it to begin")
        yield made
    finally:
        made.runner.stop()
