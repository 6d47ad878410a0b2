"""A worker in the user's own event loop."""

import asyncio
import contextlib
import contextvars
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from safeconsumer.errors import WorkerStateError
from safeconsumer.worker import Drain, RecordFailedError, Retry, Worker
from tests.harness.waiting import looks
from tests.harness.worker.lab import Lab

pytestmark = pytest.mark.embedded_suffices

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE")


async def until(
    condition: Callable[[], object],
) -> None:
    """Return once the condition holds; the loop goes on meanwhile."""
    for _ in looks(condition, "what a coroutine waits for"):
        await asyncio.sleep(0.01)


def made(lab: Lab, handle: Callable[..., Any], **settings: Any) -> Worker:  # noqa: ANN401
    """Make a worker that the lab stops in the end."""
    settings = {"executor": "asyncio", **settings}
    return Worker(lab.consumer(), handle, **settings)


def test_coroutines_run_in_the_loop_that_serves(lab: Lab) -> None:
    """With its context variables; all is done and committed, and the loop is free."""
    lab.new_topic(partitions=2)
    count = lab.produce({0: ["v"] * 20, 1: ["v"] * 20})
    seen: list[tuple[object, str]] = []

    async def main() -> None:
        VARIABLE.set("ours")

        async def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
            await asyncio.sleep(0)
            seen.append((asyncio.get_running_loop(), VARIABLE.get()))

        worker = made(lab, handle)
        serving = asyncio.create_task(worker.serve())
        await until(lambda: worker.stats().done == count)
        worker.stop()
        report = await serving
        assert (report.done, report.committed) == (count, True)
        assert {*seen} == {(asyncio.get_running_loop(), "ours")}
        with pytest.raises(WorkerStateError, match="runs once"):
            await worker.serve()

    asyncio.run(main())
    assert lab.committed() == {0: 20, 1: 20}


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_cancelling_drains(lab: Lab, executor: str) -> None:
    """W6, W8: what runs is finished and committed, then ``CancelledError`` is raised."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 5})
    began = threading.Event()
    go_on = threading.Event()

    def wait(_record: Any, _context: Any) -> None:  # noqa: ANN401
        began.set()
        assert go_on.wait(30)

    async def wait_async(_record: Any, _context: Any) -> None:  # noqa: ANN401
        began.set()
        await until(go_on.is_set)

    async def main() -> None:
        handle = wait if executor == "thread" else wait_async
        worker = made(lab, handle, executor=executor, concurrency=1)
        serving = asyncio.create_task(worker.serve())
        await until(began.is_set)
        serving.cancel()
        await until(lambda: worker.stats().state == "draining")
        assert not serving.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await serving
        report = worker.stop()
        assert report is not None
        assert (report.given_up, report.committed) == (0, True)

    asyncio.run(main())
    assert (lab.committed()[0] or 0) >= 1


def test_cancelled_again_it_gives_up(lab: Lab) -> None:
    """As a second signal does."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    began = threading.Event()

    async def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        began.set()
        await asyncio.sleep(60)

    async def main() -> None:
        worker = made(lab, handle, drain=Drain(shutdown=60.0))
        serving = asyncio.create_task(worker.serve())
        await until(began.is_set)
        serving.cancel()
        await until(lambda: worker.stats().state == "draining")
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        report = worker.stop()
        assert report is not None
        assert report.given_up == 1
        assert report.seconds < 10

    asyncio.run(main())


def test_a_timeout_around_it_is_a_timeout(lab: Lab) -> None:
    """Whoever cancels sees what he expects of a coroutine."""
    lab.new_topic(partitions=1)

    async def handle(_record: Any, _context: Any) -> None: ...  # noqa: ANN401

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await made(lab, handle).serve()

    asyncio.run(main())


def test_what_stops_it_is_raised_where_it_is_awaited(lab: Lab) -> None:
    """W7: as by ``run()``."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})

    async def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset == 1:
            message = "planted"
            raise ValueError(message)

    async def main() -> None:
        with pytest.raises(RecordFailedError) as caught:
            await made(lab, handle, retry=Retry(attempts=1)).serve()
        assert isinstance(caught.value.__cause__, ValueError)

    asyncio.run(main())
    assert lab.committed() == {0: 1}


@pytest.mark.any_broker
def test_a_signal_drains_it(lab: Lab) -> None:
    """As in ``run()``, and the handlers from before are put back."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 3})
    before = signal.getsignal(signal.SIGTERM)

    async def handle(_record: Any, _context: Any) -> None: ...  # noqa: ANN401

    async def main() -> None:
        worker = made(lab, handle)
        serving = asyncio.create_task(worker.serve(signals=(signal.SIGTERM,)))
        await until(lambda: worker.stats().done == count)
        os.kill(os.getpid(), signal.SIGTERM)
        report = await serving
        assert (report.done, report.committed) == (count, True)

    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is before
    assert lab.committed() == {0: 3}


def test_lifespan_and_left_over_tasks_are_of_that_loop(lab: Lab) -> None:
    """The lifespan is entered and left there; tasks are the loop's, and go on."""
    lab.new_topic(partitions=1)
    count = lab.produce({0: ["v"] * 3})
    noted: list[object] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[str]:
        noted.append(asyncio.get_running_loop())
        yield "state"
        noted.append("left")

    async def main() -> None:
        left: list[asyncio.Task[Any]] = []
        go_on = asyncio.Event()

        async def handle(_record: Any, context: Any) -> None:  # noqa: ANN401
            assert context.state == "state"
            left.append(asyncio.create_task(go_on.wait()))

        worker = made(lab, handle, lifespan=lifespan)
        serving = asyncio.create_task(worker.serve())
        await until(lambda: worker.stats().done == count)
        worker.stop()
        await serving
        assert noted == [asyncio.get_running_loop(), "left"]
        assert not any(task.done() for task in left)
        go_on.set()
        assert await asyncio.gather(*left) == [True] * 3

    asyncio.run(main())


def test_a_task_group_runs_several(lab: Lab) -> None:
    """One that fails has the others drain."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    workers: list[Worker] = []
    failures = ["planted"]  # the other one may get the record, too

    async def fail(_record: Any, _context: Any) -> None:  # noqa: ANN401
        if failures:
            raise ValueError(failures.pop())

    def serving(handle: Callable[..., Awaitable[None]], **settings: Any) -> Any:  # noqa: ANN401
        worker = made(lab, handle, **settings)
        workers.append(worker)
        return worker.serve()

    async def main() -> None:
        with pytest.RaisesGroup(RecordFailedError):
            async with asyncio.TaskGroup() as group:
                group.create_task(serving(fail, retry=Retry(attempts=1)))
                group.create_task(serving(fail, retry=Retry(attempts=1)))

    asyncio.run(main())
    assert [worker.stats().state for worker in workers] == ["closed", "closed"]
