"""Runs an executor with a queue, but without a consumer or a broker."""

import math
import multiprocessing
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

from kafka.structs import TopicPartition

from safeconsumer.worker import Retry, health
from safeconsumer.worker.calls import Calls
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors import choose
from safeconsumer.worker.partition import Order
from safeconsumer.worker.queue import QUANTUM
from tests.harness.holds.lab import assign_to
from tests.harness.waiting import wait_for
from tests.harness.worker.desk import TP, Desk

OTHER = TopicPartition("other", 0)
EXECUTORS = ("thread", "asyncio", "process")

# The fork server imports this module and pytest in advance, because the modules with
# handlers need them. Each handler process is then ready immediately.
multiprocessing.set_forkserver_preload([__name__, "pytest"])


class TwoArgumentsError(Exception):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, one, _two):
        super().__init__(one)


class Awaiting:
    """A coroutine function that calls a plain handler."""

    def __init__(self, handle):
        self.handle = handle

    async def __call__(self, *given):
        return self.handle(*given)


def fitting(executor, handle):
    """Return the handler; for asyncio return it as a coroutine function."""
    return Awaiting(handle) if executor == "asyncio" else handle


class CountingDecisions(Decisions):
    """
    Decisions that count how many calls of ``complete`` are in progress.

    ``KeptRecords`` counts a record before the record's events are emitted, so a thread
    that sees the new count may have to wait for the events.
    """

    def __init__(self, *given):
        super().__init__(*given)
        self._counting = threading.Lock()
        self.under_way = 0

    def complete(self, outcome):
        """Complete a result as the parent class does."""
        with self._counting:
            self.under_way += 1
        try:
            super().complete(outcome)
        finally:
            with self._counting:
                self.under_way -= 1


class ExecutorFixture(Desk):
    """
    Runs handlers as a worker does; the test calls each turn of the worker's decisions.

    Attributes:
        runner: the executor of the handlers.
    """

    make_decisions = CountingDecisions

    def __init__(self, order, **policy):
        super().__init__(order, clock=time.monotonic, **policy)
        assign_to(self.ledger, [TP, OTHER])
        self.runner = None

    def admit(self, count):
        """Lose and regain the partition, and admit its first records."""
        self.regain()
        return super().admit(count)

    def wait(self, condition, what):
        """
        Call turns until a condition holds and no call of ``complete`` is in progress.

        Raises:
            HandlersCannotRunError: no handler can run any more, so the condition would
                never hold.
        """

        def turned():
            self.decisions.turn()
            # Read ``fatal`` before the condition, which may test it.
            fatal = self.decisions.fatal
            if condition():
                return not self.decisions.under_way
            if fatal is not None:
                raise fatal
            return False

        def seen():
            return f"{self.kept.records} kept, {self.events}"

        wait_for(turned, what, seen=seen)

    def finish(self, count):
        """Admit this many records, and wait until each is done or given up."""
        self.admit(count)
        self.wait(lambda: not self.kept.records, "all to be done or given up")

    def complaints(self):
        """Return the complaints of ``healthy()`` about the executor."""
        engine = SimpleNamespace(
            kept=self.kept,
            polled_at=math.inf,
            poll_timeout=0.0,
            idle_reason=None,
            brakes=SimpleNamespace(stalled_since=lambda: None),
        )
        return health.examine(engine, self.runner.slots, 60.0).reasons


@contextmanager
def executing(  # noqa: PLR0913 - a worker has many settings
    executor,
    handle,
    *,
    count=2,
    batch=None,
    order=None,
    timeout=None,
    lifespan=None,
    start_seconds=1e12,
    **policy,
):
    """
    Run handlers with these settings during the block.

    The time limit for the start of a process is practically infinite, so that no test
    fails on a busy machine.
    """
    settings = {"retry": Retry(attempts=2, first=0.01), "on_exhausted": "skip"}
    settings |= {
        "quantum": batch or QUANTUM,
        "is_batch": batch is not None,
        **policy,
    }
    usual = Order.KEY if batch is None else Order.PARTITION
    made = ExecutorFixture(order or usual, **settings)
    calls = Calls(
        handle=handle,
        deadline=lambda: None,
        emit=made.emit,
        timeout=timeout,
        lifespan=lifespan,
        start_seconds=start_seconds,
    )
    made.runner = choose(executor, made.decisions, calls, count)
    try:
        made.runner.start()
        wait_for(lambda: made.runner.wait_ready(0.1), "it to begin")
        yield made
    finally:
        made.runner.stop()
