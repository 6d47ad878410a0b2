"""What surprised a user of a worker in this round's changes. Each test fails today."""

import threading
import time
from collections import deque
from typing import Any

from kafka import ConsumerRebalanceListener

from safeconsumer import Pause
from safeconsumer.errors import HandlersFailError
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, consumer, filled

LOCK = threading.Lock()


@simulated(seeds=1)
def test_a_rate_leaves_the_lag_visible(lab: Lab) -> None:
    """
    The page's recipe takes ``Stats.lag`` away for nearly all of the time.

    ``worker:outage`` is no routine hold, so ``covers`` counts it as another's. metrics.md
    says "held, by whomever but the worker itself".
    """
    filled(lab, 4, *["v"] * 50)
    began: deque[float] = deque(maxlen=5)

    def handle(_record: Any, _context: Any) -> None:
        with LOCK:
            now = time.monotonic()
            if len(began) == 5 and (wait := began[0] + 1.0 - now) > 0:
                raise Pause(wait, scope="topic", reason="the rate is used up")
            began.append(now)

    run = Working(lab, handle)
    run.done(20)
    lags = []
    for _ in range(50):
        lab.sleep(0.1)
        lags.append(run.worker.stats().lag)
    run.stop()
    assert lags.count(None) < 10, f"{lags.count(None)} of 50 times there is no lag"


@simulated(seeds=1)
def test_a_rate_is_no_three_lines_a_second(lab: Lab) -> None:
    """Each pause of the recipe is three INFO lines: placed, paused, expired; for good."""
    filled(lab, 4, *["v"] * 50)
    began: deque[float] = deque(maxlen=5)

    def handle(_record: Any, _context: Any) -> None:
        with LOCK:
            now = time.monotonic()
            if len(began) == 5 and (wait := began[0] + 1.0 - now) > 0:
                raise Pause(wait, scope="topic", reason="the rate is used up")
            began.append(now)

    lines: list[Any] = []
    reading = consumer(lab, "t", hooks=[lines.append])
    run = Working(lab, handle, given=reading)
    run.done(20)
    before, since, worker_before = len(lines), lab.now, len(run.events)
    run.done(150)
    told = [*lines[before:], *run.events[worker_before:]]
    told = [one for one in told if one.severity != "debug"]
    seconds = lab.now - since
    run.stop()
    names = sorted({one.name for one in told})
    assert len(told) <= seconds + 1, f"{len(told)} lines in {seconds:.0f} s: {names}"


class Commits(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.consumer: Any = None
        self.raised: list[Exception] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        if revoked:
            try:
                self.consumer.commit()
            except Exception as error:  # noqa: BLE001
                self.raised.append(error)

    def on_partitions_assigned(self, assigned: Any) -> None:
        pass


@simulated(seeds=1)
def test_a_listeners_commit_is_refused_by_the_workers_error(lab: Lab) -> None:
    """
    ``commit()`` says "use commit_async()", and that raises HandlersFailError next.

    slow-handlers.md: "commit() and commit_async() ... raise HandlersFailError, in
    handlers, listeners and hooks alike"; rebalance-listeners.md the same.
    """
    filled(lab, 2, *["v"] * 3)
    listener = Commits()
    reading = listener.consumer = consumer(lab, heartbeat_interval_ms=200)
    reading.subscribe(["t"], listener=listener)
    first = Working(lab, Handler(lab), given=reading)
    first.done(6)
    second = Working(lab, Handler(lab), name="b")
    second.owns(1)
    first.stop()
    second.stop()
    assert listener.raised
    assert all(isinstance(one, HandlersFailError) for one in listener.raised), (
        listener.raised[0]
    )
    assert "commit_async()" not in str(listener.raised[0])
