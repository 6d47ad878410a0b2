"""A handler's time limit: enforced for coroutines and processes, told of for threads."""

import asyncio
import math
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.errors import SafeConsumerError, WorkerSettingError
from safeconsumer.worker import (
    DeadLetter,
    Drain,
    HandlerTimeoutError,
    Retry,
    Worker,
    health,
)
from safeconsumer.worker.executors.processes import Processes
from safeconsumer.worker.partition import Epoch
from safeconsumer.worker.queue import Order
from tests.harness.kafka.offline import offline
from tests.harness.waiting import wait_for
from tests.harness.worker.bench import Bench, bench
from tests.harness.worker.lab import Lab

ONCE = {"retry": Retry(attempts=1)}


def failed(made: Bench) -> dict[int, str]:
    """Return what each record failed with for good."""
    gone = [one for one in made.events if one.name == "record_exhausted"]
    return {one.offset: one.error for one in gone}


@frozen
class Slow:
    """A handler that notes each call, and stays for a minute with one record."""

    folder: Path
    at: int = 2

    def note(self, record: Any) -> None:  # noqa: ANN401
        """Write down that it was called."""
        with (self.folder / "calls").open("a") as file:
            file.write(f"{record.offset}\n")

    def calls(self) -> list[int]:
        """Return the offsets of all calls."""
        return [*map(int, (self.folder / "calls").read_text().split())]

    def __call__(self, given: Any, _context: Any) -> None:  # noqa: ANN401
        for record in given if isinstance(given, list) else [given]:
            self.note(record)
            if record.offset == self.at:
                time.sleep(60)


@frozen
class SlowCoroutine(Slow):
    """The same as a coroutine."""

    async def __call__(self, given: Any, _context: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        for record in given if isinstance(given, list) else [given]:
            self.note(record)
            if record.offset == self.at:
                await asyncio.sleep(60)


def slow(executor: str, folder: Path) -> Slow:
    """Return the handler that fits."""
    return (SlowCoroutine if executor == "asyncio" else Slow)(folder)


@pytest.mark.parametrize("executor", ["asyncio", "process"])
def test_only_the_record_that_takes_too_long_fails(
    executor: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W7: what came with it is done, each once; no other is to blame."""
    handle = slow(executor, tmp_path)
    # One hand-over of all of them, as of records that take no time.
    monkeypatch.setattr(Epoch, "_FIRST_PACE", 1e-6)
    how = {"count": 1, "order": Order.PARTITION, "timeout": 0.3, **ONCE}
    with bench(executor, handle, **how) as made:
        made.admit(6)
        made.wait(lambda: not made.held.records, "all to be done or given up")
        assert [*failed(made)] == [2]
        assert "HandlerTimeoutError" in failed(made)[2]
        assert "longer than 0.3 s" in failed(made)[2]
        assert made.schedule.fatal is None
        assert made.schedule.retries == 0
        # A killed process is no accident here.
        assert not [one for one in made.events if one.name == "worker_process_died"]
    assert handle.calls() == [*range(6)]


@frozen
class WaitsAtFirst:
    """A handler that waits at its first record for a file."""

    folder: Path

    def __call__(self, record: Any, _context: Any) -> None:  # noqa: ANN401
        while record.offset == 0 and not (self.folder / "go").exists():
            time.sleep(0.01)


def test_what_ends_as_its_limit_passes_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W7: it is done, and its process is killed all the same."""
    monkeypatch.setattr(Epoch, "_FIRST_PACE", 1e-6)
    is_late = Processes._is_late

    def decide(self: Processes, slot: Any, child: Any) -> bool:  # noqa: ANN401
        decided = is_late(self, slot, child)
        if decided:
            (tmp_path / "go").touch()
            wait_for(lambda: child.finished == 1, "the record to be done")
        return decided

    monkeypatch.setattr(Processes, "_is_late", decide)
    how = {"count": 1, "order": Order.PARTITION, "timeout": 0.3, **ONCE}
    with bench("process", WaitsAtFirst(tmp_path), **how) as made:
        made.admit(3)
        made.wait(lambda: not made.held.records, "all to be done")
        assert failed(made) == {}
        assert made.schedule.fatal is None


@pytest.mark.parametrize("executor", ["asyncio", "process"])
def test_a_batch_that_takes_too_long_is_tried_record_by_record(
    executor: str, tmp_path: Path
) -> None:
    """W7: nobody can tell whose fault it was; only the one that is slow alone has failed."""
    handle = slow(executor, tmp_path)
    how = {"count": 1, "order": Order.PARTITION, "timeout": 0.3, **ONCE}
    with bench(executor, handle, batch=4, **how) as made:
        made.admit(4)
        made.wait(lambda: not made.held.records, "all to be done or given up")
        assert [*failed(made)] == [2]
    assert sorted(handle.calls()) == [0, 0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("executor", ["asyncio", "process"])
def test_a_record_that_took_too_long_is_retried(executor: str, tmp_path: Path) -> None:
    """W7: as any other failure, and ``never`` knows its class."""
    handle = slow(executor, tmp_path)
    retry = Retry(attempts=2, first=0.01)
    with bench(executor, handle, count=1, timeout=0.2, retry=retry) as made:
        made.admit(3)
        made.wait(lambda: not made.held.records, "all to be done or given up")
        assert made.schedule.retries == 1
    assert handle.calls() == [0, 1, 2, 2]
    never = Retry(attempts=2, never=(TimeoutError,))
    with bench(executor, handle, count=1, timeout=0.2, retry=never) as made:
        made.admit(3)
        made.wait(lambda: not made.held.records, "all to be done or given up")
        assert made.schedule.retries == 0


def test_it_is_a_timeout_and_ours() -> None:
    """Whoever catches either has it."""
    assert issubclass(HandlerTimeoutError, TimeoutError)
    assert issubclass(HandlerTimeoutError, SafeConsumerError)


def test_a_coroutines_own_timeout_is_its_own() -> None:
    """Its error is what the record fails with."""

    async def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    with bench("asyncio", handle, timeout=30.0, **ONCE) as made:
        made.admit(1)
        made.wait(lambda: not made.held.records, "it to be given up")
        assert failed(made) == {0: "TimeoutError()"}


def test_a_coroutine_may_tidy_up_at_its_limit() -> None:
    """It is cancelled, as by ``asyncio.timeout``; other handlers go on meanwhile."""
    tidied: list[int] = []

    async def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        try:
            await asyncio.sleep(60 if record.offset == 0 else 0)
        finally:
            await asyncio.sleep(0)
            tidied.append(record.offset)

    with bench("asyncio", handle, timeout=0.2, **ONCE) as made:
        made.admit(4)
        made.wait(lambda: not made.held.records, "all to be done or given up")
        assert [*failed(made)] == [0]
    assert sorted(tidied) == [0, 1, 2, 3]


def reasons(made: Bench) -> str:
    """Return what ``healthy()`` says of handlers."""

    class Engine:
        held = made.held
        polled_at, poll_timeout = math.inf, 0.0
        why_nothing = None

    engine: Any = Engine()
    return str(health.examine(engine, made.runner.slots, 60.0))


@pytest.mark.parametrize("executor", ["thread", "threads of theirs"])
def test_a_thread_that_takes_too_long_is_told_of(executor: str) -> None:
    """It cannot be ended: unhealthy, an event with its stack, and it may still succeed."""
    go_on = threading.Event()

    def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        assert go_on.wait(30)

    with bench(executor, handle, count=1, timeout=0.2) as made:
        made.admit(1)
        wait_for(lambda: "handler has run for" in reasons(made), "it to be unhealthy")
        assert "orders:0 offset 0" in reasons(made)

        def emit(kind: Any, **fields: Any) -> None:  # noqa: ANN401
            made.events.append(kind(**fields))

        health.tell_stalls(made.runner.slots, 60.0, emit)
        (told,) = [one for one in made.events if one.name == "handler_stalled"]
        assert "go_on.wait(30)" in told.stack
        go_on.set()
        made.wait(lambda: not made.held.records, "it to be done")
        assert failed(made) == {}
        assert "handler has run for" not in reasons(made)


def test_what_waits_in_an_executor_takes_no_time() -> None:
    """A limit is for the handler, and one that has not begun is not slow."""
    gate = threading.Event()

    def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        assert gate.wait(30)

    began = threading.Event()

    def wait() -> None:
        began.set()
        assert gate.wait(30)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(wait)
        assert began.wait(30)
        with bench(pool, handle, count=1, timeout=0.2) as made:
            made.admit(1)
            wait_for(lambda: made.runner.slots[0].task, "it to be handed over")
            until = time.monotonic() + 0.3
            wait_for(lambda: time.monotonic() > until, "its limit to pass")
            assert "handler has run for" not in reasons(made)
            gate.set()
            made.wait(lambda: not made.held.records, "it to be done")


def test_a_coroutine_that_blocks_its_loop_is_told_of() -> None:
    """Nothing can cancel it there."""
    go_on = threading.Event()

    async def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        assert go_on.wait(30)

    with bench("asyncio", handle, count=1, timeout=0.1) as made:
        made.admit(1)
        wait_for(lambda: "go_on.wait(30)" in reasons(made), "it to be unhealthy")
        go_on.set()
        made.wait(lambda: not made.held.records, "it to be done")


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "1"])
def test_an_impossible_limit_is_refused(seconds: Any) -> None:  # noqa: ANN401
    """Before anything is started."""
    with (
        offline(SafeConsumer, group_id="g", enable_auto_commit=False) as consumer,
        pytest.raises(WorkerSettingError, match="handler_timeout must be"),
    ):
        Worker(consumer, lambda _r, _c: None, handler_timeout=seconds)


# ------------------------------------------------------------ with a broker


@frozen
class SlowAtFive:
    """A handler that hangs at one record, for each attempt."""

    folder: Path

    def __call__(self, record: Any, _context: Any) -> None:  # noqa: ANN401
        with (self.folder / "calls").open("a") as file:
            file.write(f"{record.offset} {os.getpid()}\n")
        if record.offset == 5:
            time.sleep(60)


@frozen
class AsyncSlowAtFive:
    """The same as a coroutine."""

    folder: Path

    async def __call__(self, record: Any, _context: Any) -> None:  # noqa: ANN401
        with (self.folder / "calls").open("a") as file:
            file.write(f"{record.offset} {os.getpid()}\n")
        if record.offset == 5:
            await asyncio.sleep(60)


@pytest.mark.any_broker
@pytest.mark.parametrize("executor", ["asyncio", "process"])
def test_what_takes_too_long_becomes_a_dead_letter(
    lab: Lab, tmp_path: Path, executor: str
) -> None:
    """W7: with the class of its error; order is kept, and all of it is committed."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 10})
    dead = lab.other_topic()
    handle = {"asyncio": AsyncSlowAtFive, "process": SlowAtFive}[executor](tmp_path)
    running = lab.run(
        handle,
        executor=executor,
        handler_timeout=0.3,
        retry=Retry(attempts=2, first=0.01),
        dead_letter=DeadLetter(lab.producer, dead),
    )
    running.wait_done(count)
    report = running.end()
    assert (report.dead_letters, lab.committed()) == (1, {0: 10})
    lines = (tmp_path / "calls").read_text().splitlines()
    offsets = [int(line.split()[0]) for line in lines]
    assert offsets == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    gone = [one for one in running.events if one.name == "record_exhausted"]
    assert "HandlerTimeoutError" in gone[0].error


@pytest.mark.any_broker
@pytest.mark.parametrize("executor", ["asyncio", "process"])
def test_a_limit_ends_a_drain_early(lab: Lab, tmp_path: Path, executor: str) -> None:
    """W8: a hanging handler is waited for until its limit, not until the drain's."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 10})
    handle: Callable[..., Any]
    handle = {"asyncio": AsyncSlowAtFive, "process": SlowAtFive}[executor](tmp_path)
    running = lab.run(handle, executor=executor, handler_timeout=1.0, concurrency=1)
    calls = tmp_path / "calls"
    wait_for(lambda: calls.exists() and "5 " in calls.read_text(), "it to hang")
    report = running.end()
    assert report.seconds < 10
    assert (report.done, report.given_up) == (5, 0)
    assert lab.committed() == {0: 5}


@pytest.mark.any_broker
def test_a_rebalance_waits_for_a_handler_until_its_limit(
    lab: Lab, tmp_path: Path
) -> None:
    """W6: a drain before a join ends with the limit; the record fails, and comes again."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 6, 1: ["v"] * 6})
    handle = AsyncSlowAtFive(tmp_path)
    how: dict[str, Any] = {
        "executor": "asyncio",
        "handler_timeout": 2.0,
        "on_exhausted": "skip",
        "retry": Retry(attempts=1),
        "drain": Drain(revoke=60.0),
    }
    first = lab.run(handle, lab.consumer(max_poll_interval_ms=300_000), **how)
    calls = tmp_path / "calls"
    wait_for(lambda: calls.exists() and "5 " in calls.read_text(), "it to hang")
    second = lab.run(handle, lab.consumer(max_poll_interval_ms=300_000), **how)
    wait_for(second.worker._client.epochs, "the second to get a partition")
    first.end()
    second.end()
    drained = [one for one in first.events if one.name == "work_drained"]
    assert all(one.seconds < 10 for one in drained), drained
    assert lab.committed() == {0: 6, 1: 6}


@pytest.mark.any_broker
@pytest.mark.parametrize("executor", ["asyncio", "process"])
def test_a_limit_is_reached_under_a_hold(
    lab: Lab, tmp_path: Path, executor: str
) -> None:
    """W10: quiet from then on, and the record begins again after the resume only."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 10})
    handle = {"asyncio": AsyncSlowAtFive, "process": SlowAtFive}[executor](tmp_path)
    consumer = lab.consumer()
    running = lab.run(
        handle,
        consumer,
        executor=executor,
        handler_timeout=2.0,
        retry=Retry(attempts=2, first=0.01),
        on_exhausted="skip",
    )
    calls = tmp_path / "calls"

    def offsets() -> list[int]:
        return [int(line.split()[0]) for line in calls.read_text().splitlines()]

    wait_for(lambda: calls.exists() and 5 in offsets(), "it to hang")
    consumer.pause_all(owner="somebody")
    assert consumer._safe_ledger.busy() == {TopicPartition(lab.topic, 0)}
    wait_for(lambda: running.worker.stats().retries, "its limit")
    assert consumer._safe_ledger.busy() == set()
    engine, since = running.worker._engine, time.monotonic()
    wait_for(lambda: engine.polled_at > since + 0.5, "many times its wait")
    assert offsets() == [0, 1, 2, 3, 4, 5]
    consumer.resume_all(owner="somebody")
    running.wait_done(count, limit=90)  # two processes start meanwhile
    running.end()
    assert offsets() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert lab.committed() == {0: 10}
