"""Outages with a consumer and a broker: every executor, rebalances, endings, a group."""

import functools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from safeconsumer import Breaker, Pause, Retry
from safeconsumer.events import worker as worker_events
from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.worker import Drain
from tests.broker.worker.handlers import Recording
from tests.harness.waiting import wait_for
from tests.harness.worker.bench import EXECUTORS
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker


@frozen
class Service:
    """Something handlers call that is down while a file is there; all processes see it."""

    folder: Path

    @property
    def _switch(self) -> Path:
        return self.folder / "down"

    def fail(self) -> None:
        self._switch.touch()

    def mend(self) -> None:
        self._switch.unlink()

    def call(self) -> None:
        if self._switch.exists():
            message = "the service is down"
            raise ConnectionError(message)


@frozen
class Calling(Recording):
    """Calls the service, and pauses while it is down, or says that it is."""

    scope: Any = "topic"
    for_: float = 3600.0

    def __call__(self, record: Any, context: Any) -> None:  # noqa: ANN401
        try:
            Recording.__call__(self, record, context)
            Service(self.folder).call()
        except ConnectionError as error:
            if self.scope is None:
                raise
            raise Pause(self.for_, self.scope, "the service is down") from error


@frozen
class AsyncCalling(Calling):
    """The same as a coroutine."""

    async def __call__(self, record: Any, context: Any) -> None:  # type: ignore[override]  # noqa: ANN401 - a coroutine on purpose
        Calling.__call__(self, record, context)


def owners(running: Running) -> tuple[str, ...]:
    return tuple(
        one for one in running.worker.stats().paused if one in {OUTAGE, BREAKER}
    )


def finish(count: int, running: dict[Running, Any]) -> None:
    """Resume, also what is paused by handlers that have not heard yet, until all is done."""

    def is_done() -> bool:
        for consumer in running.values():
            consumer.resume_all(OUTAGE)
        return sum(one.worker.stats().done for one in running) >= count

    wait_for(is_done, "all to be done")
    for one in running:
        one.end()


def begun_after(handle: Recording, at: float) -> int:
    return sum(one.began > at for one in handle.traces())


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_handler_pauses_its_topic_wherever_it_runs(
    lab: Lab, tmp_path: Path, executor: str
) -> None:
    """The exception travels; what is held does not begin; attempts are as they were."""
    pools: dict[str, Callable[[], Any]] = {
        "threads of theirs": functools.partial(ThreadPoolExecutor, 2),
        "processes of theirs": functools.partial(ProcessPoolExecutor, 2),
    }
    pool = pools[executor]() if executor in pools else executor
    service = Service(tmp_path)
    service.fail()
    handle = (AsyncCalling if executor == "asyncio" else Calling)(tmp_path)
    lab.new_topic(partitions=2)
    count = lab.produce({0: ["sleep=0.001"] * 50, 1: ["sleep=0.001"] * 50})
    consumer = lab.consumer()
    try:
        running = lab.run(handle, consumer, executor=pool, concurrency=2)
        wait_for(lambda: owners(running) == (OUTAGE,), "a hold")
        wait_for(lambda: not running.worker.stats().running, "all to be over")
        at = time.monotonic()
        wait_for(lambda: time.monotonic() > at + 0.5, "half a second to pass")
        assert begun_after(handle, at) == 0
        assert running.worker.stats().done == 0
        (line,) = consumer.explain(f"{lab.topic}:0")
        assert f"{lab.topic} held by worker:outage" in line
        assert "because the service is down" in line
        service.mend()
        consumer.resume(lab.topic, owner=OUTAGE)
        running.wait_done(count)
        assert {one.attempt for one in handle.traces()} == {1}
        running.end()
    finally:
        if pool is not executor:
            pool.shutdown()


def test_a_pause_ends_by_itself_and_its_record_comes_first(
    lab: Lab, tmp_path: Path
) -> None:
    """Never early."""
    service = Service(tmp_path)
    service.fail()
    calling = Calling(tmp_path, for_=1.0)

    def handle(record: Any, context: Any) -> None:  # noqa: ANN401
        try:
            calling(record, context)
        except Pause:
            service.mend()
            raise

    lab.new_topic(partitions=1)
    count = lab.produce({0: [""] * 20})
    running = lab.run(handle, concurrency=4)
    running.wait_done(count)
    first, second, *others = calling.traces()
    assert (first.offset, second.offset) == (0, 0)
    assert second.began - first.ended >= 1.0
    assert [one.offset for one in others] == list(range(1, 20))
    assert running.worker.stats().pauses == 1


def test_what_is_not_paused_goes_on(lab: Lab) -> None:
    """The other partitions, with a pause of one."""

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.value == b"bad":
            raise Pause(3600, "partition")

    lab.new_topic(partitions=2)
    lab.produce({0: ["bad"] + ["good"] * 30, 1: ["good"] * 30})
    consumer = lab.consumer()
    running = lab.run(handle, consumer)
    running.wait_done(30)
    wait_for(lambda: owners(running) == (OUTAGE,), "a hold")
    assert not consumer.explain(f"{lab.topic}:1")
    assert running.worker.stats().done == 30


def test_a_worker_stops_at_once_while_all_is_paused(lab: Lab, tmp_path: Path) -> None:
    """W8: nothing waits for the pause; what is paused is not committed past."""
    Service(tmp_path).fail()
    lab.new_topic(partitions=1)
    lab.produce({0: [""] * 20})
    consumer = lab.consumer()
    running = lab.run(Calling(tmp_path, "all"), consumer, drain=Drain(shutdown=20.0))
    wait_for(lambda: owners(running) == (OUTAGE,), "a hold")
    report = running.end()
    assert report.seconds < 10
    assert (report.done, report.committed) == (0, True)
    assert lab.committed() == {0: 0}
    assert not consumer.holds()


def test_a_paused_partition_may_move_to_another_worker(
    lab: Lab, tmp_path: Path
) -> None:
    """W6: the other one begins with the paused record, and finds out for itself."""
    service = Service(tmp_path)
    service.fail()
    handle = Calling(tmp_path)
    lab.new_topic(partitions=2)
    count = lab.produce({0: [""] * 20, 1: [""] * 20})
    consumers = [lab.consumer(), lab.consumer()]
    one = lab.run(handle, consumers[0])
    wait_for(lambda: owners(one) == (OUTAGE,), "a hold")
    two = lab.run(handle, consumers[1])
    wait_for(lambda: owners(two) == (OUTAGE,), "a hold of the other's own")
    wait_for(lambda: len(consumers[0].assignment()) == 1, "one partition each")
    assert owners(one) == (OUTAGE,)
    service.mend()
    finish(count, {one: consumers[0], two: consumers[1]})
    assert lab.committed() == {0: 20, 1: 20}


def test_a_pause_outlives_a_lost_membership(lab: Lab, tmp_path: Path) -> None:
    """P6: what is gained again is held, and begins where it was."""
    service = Service(tmp_path)
    service.fail()
    handle = Calling(tmp_path)
    lab.new_topic(partitions=1)
    count = lab.produce({0: [""] * 20})
    consumer = lab.consumer(session_timeout_ms=2000)
    running = lab.run(handle, consumer)
    wait_for(lambda: owners(running) == (OUTAGE,), "a hold")
    before = consumer._safe_facade.epochs()
    consumer._coordinator.reset_generation()
    wait_for(
        lambda: consumer._safe_facade.epochs() != before, "the partition to be back"
    )
    at = time.monotonic()
    wait_for(lambda: time.monotonic() > at + 0.5, "half a second to pass")
    assert begun_after(handle, at) == 0
    service.mend()
    consumer.resume_all(OUTAGE)
    running.wait_done(count)


def test_a_breaker_holds_a_topic_through_an_outage(lab: Lab, tmp_path: Path) -> None:
    """Nothing is given up, few calls are made, and an operator sees it all."""
    service = Service(tmp_path)
    handle = Calling(tmp_path, None)
    lab.new_topic(partitions=2)
    values = ["sleep=0.002"] * 20 + ["until=failed"] * 180
    count = lab.produce({0: values, 1: values})
    consumer = lab.consumer()
    breaker = Breaker(on=(ConnectionError,), failures=3, first=0.3, most=0.6)
    running = lab.run(
        handle,
        consumer,
        order="unordered",
        breaker=breaker,
        retry=Retry(attempts=2, first=2.0),  # not before the breaker opens
    )
    running.wait_done(20)
    service.fail()
    (tmp_path / "failed").touch()
    wait_for(lambda: running.worker.stats().breaker_open, "it to open")
    wait_for(
        lambda: "ConnectionError" in str(consumer.explain(f"{lab.topic}:0")), "a hold"
    )
    wait_for(_tries(running, 3), "some tries")
    health = running.worker.healthy()
    assert health.is_alive
    assert any("stopped by a breaker" in one for one in health.reasons)
    at = time.monotonic()
    wait_for(lambda: time.monotonic() > at + 1.5, "some time to pass")
    begun = begun_after(handle, at)
    assert begun <= 2 + (time.monotonic() - at) / 0.6
    service.mend()
    running.wait_done(count)
    stats = running.worker.stats()
    assert (stats.breaker_open, stats.breaker_opened, stats.skipped) == (0, 1, 0)
    assert running.worker.healthy()
    assert _of(running, worker_events.BreakerClosed)[0].tries >= 3
    running.end()
    assert lab.committed() == {0: 200, 1: 200}


def _of(running: Running, kind: type) -> list[Any]:
    return [one for one in running.events if isinstance(one, kind)]


def _tries(running: Running, count: int) -> Callable[[], bool]:
    def tried() -> bool:
        opened = _of(running, worker_events.BreakerOpened)
        return bool(opened) and opened[-1].tries >= count

    return tried


def test_a_breaker_finds_a_record_to_try_where_none_is_left(
    lab: Lab, tmp_path: Path
) -> None:
    """The ones that failed went with their partition: one is polled, and it alone begins."""
    service = Service(tmp_path)
    service.fail()
    handle = Calling(tmp_path, None)
    lab.new_topic(partitions=1)
    count = lab.produce({0: [""] * 30})
    consumer = lab.consumer(session_timeout_ms=2000)
    breaker = Breaker(on=(ConnectionError,), failures=1, first=1.0, factor=1.0)
    running = lab.run(handle, consumer, order="unordered", breaker=breaker)
    wait_for(lambda: owners(running) == (BREAKER,), "a hold")
    consumer._coordinator.reset_generation()
    wait_for(lambda: _of(running, worker_events.WorkDropped), "all to be dropped")
    before = len(handle.traces())
    wait_for(lambda: len(handle.traces()) > before, "a try")
    wait_for(_tries(running, 2), "another one")
    service.mend()
    running.wait_done(count)


def test_who_resumes_the_breakers_owner_closes_it(lab: Lab, tmp_path: Path) -> None:
    """Long before a record would have tried."""
    service = Service(tmp_path)
    service.fail()
    handle = Calling(tmp_path, None)
    lab.new_topic(partitions=1)
    count = lab.produce({0: [""] * 30})
    consumer = lab.consumer()
    breaker = Breaker(on=(ConnectionError,), failures=1, first=3600.0, most=3600.0)
    running = lab.run(handle, consumer, breaker=breaker)
    wait_for(lambda: owners(running) == (BREAKER,), "a hold")
    service.mend()
    consumer.resume(lab.topic, owner=BREAKER)
    running.wait_done(count)
    wait_for(lambda: _of(running, worker_events.BreakerClosed), "it to close")
    assert _of(running, worker_events.BreakerClosed)[0].is_lifted


def test_a_worker_that_drains_for_a_join_may_pause_meanwhile(lab: Lab) -> None:
    """The record that ran when the join was asked for is not lost, nor committed past."""
    begun, go_on = threading.Event(), threading.Event()
    is_down = [True]

    def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        if is_down[0]:
            begun.set()
            go_on.wait(20)
            raise Pause(3600)

    lab.new_topic(partitions=2)
    count = lab.produce({0: [""] * 10, 1: [""] * 10})
    consumers = [lab.consumer(), lab.consumer()]
    one = lab.run(handle, consumers[0], concurrency=1, drain=Drain(revoke=10.0))
    assert begun.wait(20)
    two = lab.run(handle, consumers[1], concurrency=1)
    wait_for(lambda: one.worker._engine.departures.deadline, "a drain")
    go_on.set()
    wait_for(lambda: len(consumers[0].assignment()) == 1, "one partition each")
    is_down[0] = False
    finish(count, {one: consumers[0], two: consumers[1]})
    assert lab.committed() == {0: 10, 1: 10}
