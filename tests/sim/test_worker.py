"""Workers in virtual time: slow handlers, coroutines, partitions that stop."""

import asyncio
import threading
from typing import Any

import pytest

from safeconsumer import Limits, Retry, RetryLater, SafeConsumer, Worker
from tests.sim.lab import GROUP, Lab, play
from tests.sim.playing import simulated


class Working:
    """A worker that runs in a thread of its own, and its report."""

    def __init__(self, lab: Lab, handler: Any, *topics: str, **options: Any) -> None:  # noqa: ANN401 - a Worker's own
        settings = options.pop("settings", {})
        self.consumer = SafeConsumer(
            *topics, **lab.settings(group_id=GROUP, **settings)
        )
        self.worker = Worker(self.consumer, handler, **options)
        self.reports: list[Any] = []
        self._thread = threading.Thread(
            target=lambda: self.reports.append(self.worker.run()), name="worker"
        )
        self._thread.start()

    def stop(self) -> Any:  # noqa: ANN401 - the report
        """Stop it, and return its report."""
        self.worker.stop()
        self._thread.join()
        return self.reports[0]


@pytest.mark.contract("W2", "W4")
@simulated(seeds=2)
def test_handlers_of_400_s_evict_nobody(lab: Lab) -> None:
    """W2: the poll loop never stops; W4: what was done is committed."""
    lab.topic("t", 2, records=1)
    run = Working(
        lab,
        lambda *_: lab.sleep(400),
        "t",
        settings={"max_poll_interval_ms": 300_000},
    )
    lab.until(lambda: run.worker.stats().done == 2, 1000)
    assert lab.members() == 1
    assert lab.generation() <= 3
    assert run.stop().committed
    assert [lab.committed(tp) for tp in lab.partitions("t")] == [1, 1]
    assert lab.running() == []


@pytest.mark.contract("W1")
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a partition that stops takes the room of others",
)
@simulated(seeds=1)
def test_a_partition_that_flows_waits_for_none_that_is_blocked(lab: Lab) -> None:
    """W1: no partition that may be worked on waits for those that do not move."""
    *blocked, last = lab.topic("t", 12)
    handled: list[float] = []

    def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        if record.value == b"0":
            later = 3600
            raise RetryLater(later)
        if record.partition == last.partition:
            handled.append(lab.now)

    run = Working(
        lab,
        handle,
        "t",
        settings={"max_poll_records": 100, "fetch_max_wait_ms": 5000},
        retry=Retry(attempts=1),
        on_exhausted="block",
        limits=Limits(records=1000),
    )
    lab.until(lambda: len(run.consumer.assignment()) == 12)
    for tp in blocked:
        lab.append(tp, 1001)
        lab.sleep(1)
    lab.append(last, 1, first=1)
    lab.sleep(120)
    run.stop()
    assert handled


@pytest.mark.contract("W2", "W3")
@simulated(seeds=2)
def test_handlers_that_are_coroutines(lab: Lab) -> None:
    """W3: in each partition one after the other; the partitions beside each other."""
    lab.topic("t", 2, records=5)
    seen: list[tuple[int, int]] = []

    async def handle(record: Any, _: Any) -> None:  # noqa: ANN401 - a handler's own
        await asyncio.sleep(30)
        seen.append((record.partition, record.offset))

    run = Working(lab, handle, "t", executor="asyncio")
    lab.until(lambda: run.worker.stats().done == 10, 1000)
    assert 150 <= lab.now < 160
    assert [offset for number, offset in seen if number == 0] == [0, 1, 2, 3, 4]
    assert run.stop().committed
    assert lab.running() == []


@pytest.mark.contract("W2", "W4")
@simulated(seeds=2)
def test_two_workers_with_coroutines_share_a_group(lab: Lab) -> None:
    """W4: each commits what it has done, and nothing of the other."""
    partitions = lab.topic("t", 4, records=5)

    async def handle(*_: object) -> None:
        await asyncio.sleep(10)

    runs = [Working(lab, handle, "t", executor="asyncio") for _ in range(2)]
    lab.until(lambda: all(lab.committed(tp) == 5 for tp in partitions), 1000)
    for run in runs:
        run.stop()
    assert lab.running() == []


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_the_same_seed_is_the_same_work(executor: str) -> None:
    """Pools, loops and all: every request comes at the same microsecond once more."""

    async def soon(*_: object) -> None:
        await asyncio.sleep(3)

    def life(lab: Lab) -> tuple[Any, ...]:
        partitions = lab.topic("t", 3, records=10)
        handler = soon if executor == "asyncio" else lambda *_: lab.sleep(3)
        run = Working(lab, handler, "t", executor=executor)
        lab.until(lambda: all(lab.committed(tp) == 10 for tp in partitions))
        run.stop()
        return lab.history()

    assert play(life, seed=7, preempt=0.02) == play(life, seed=7, preempt=0.02)
