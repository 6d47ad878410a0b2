"""Sentences that are not so."""

import asyncio
from collections import deque
from typing import Any

from kafka import ConsumerRebalanceListener, TopicPartition

from safeconsumer import Pause
from safeconsumer.errors import HandlersFailError
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, consumer, filled


class Ported(ConsumerRebalanceListener):
    """As programs have it that come from a loop of their own."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.consumer: Any = None
        self.raised: list[BaseException] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        try:
            getattr(self.consumer, self.call)()
        except Exception as error:
            self.raised.append(error)
            raise

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


@simulated(seeds=1)
def test_commit_in_a_listener_of_a_worker_raises_handlers_fail_error(lab: Lab) -> None:
    """
    slow-handlers.md: commit() raises it "in handlers, listeners and hooks alike".

    It is BlockingCallInListenerError, whose advice is commit_async(), which is refused.
    """
    filled(lab, 1, *[""] * 4)
    listener = Ported("commit")
    reading = listener.consumer = consumer(lab)
    reading.subscribe(["t"], listener=listener)
    Working(lab, Handler(lab), given=reading).ends()
    assert isinstance(listener.raised[0], HandlersFailError), listener.raised


@simulated(seeds=1)
def test_run_names_a_commit_that_was_refused_in_a_listener(lab: Lab) -> None:
    """
    HandlersFailError: "``run()`` raises it"; W4: refused by name, in a listener too.

    run() ends at the first join with "User rebalance callback throws an error".
    """
    filled(lab, 1, *[""] * 4)
    listener = Ported("commit_async")
    reading = listener.consumer = consumer(lab)
    reading.subscribe(["t"], listener=listener)
    error = Working(lab, Handler(lab), given=reading).ends()
    assert isinstance(listener.raised[0], HandlersFailError)
    assert "commit" in str(error), repr(error)


@simulated(seeds=1)
def test_lag_is_there_while_a_worker_holds_for_a_rate(lab: Lab) -> None:
    """
    design/metrics.md: no figure "by whomever but the worker itself".

    With the recipe of slow-handlers.md for a rate there never is one.
    """
    filled(lab, 1, *["x"] * 100)
    began: deque[float] = deque(maxlen=5)

    def handle(_record: Any, _context: Any) -> None:
        if len(began) == began.maxlen and (wait := began[0] + 1 - lab.now) > 0:
            raise Pause(wait, scope="topic", reason="the rate is used up")
        began.append(lab.now)

    run = Working(lab, handle)
    lags = []
    for _ in range(100):
        lab.sleep(0.1)
        lags.append(run.worker.stats().lag)
    run.worker.stop(drain=False)
    run.ends()
    assert set(lags) != {None}


@simulated(seeds=1)
def test_a_seek_takes_no_partition_away(lab: Lab) -> None:
    """Context.revoked: "set once the partition is being taken away"; a seek sets it."""
    filled(lab, 1, *["x"] * 6)
    seen: list[str] = []

    async def handle(record: Any, context: Any) -> None:
        if record.offset == 3 and not seen:
            seen.append("begun")
            try:
                async with asyncio.timeout(20):
                    await context.revoked
                seen.append("revoked")
            except TimeoutError:
                seen.append("never")

    run = Working(lab, handle, executor="asyncio", order="partition")
    lab.until(lambda: seen)
    run.consumer.seek(TopicPartition("t", 0), 0)
    lab.sleep(30)
    run.stop()
    assert seen == ["begun", "never"]
