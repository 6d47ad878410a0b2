"""What keeps handlers from running at all is blamed on no record, and passes over none."""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker import HandlersFailError, Retry, Worker
from tests.broker.worker.handlers import AsyncRecording, Recording
from tests.harness.waiting import wait_for
from tests.harness.worker.bench import bench
from tests.harness.worker.lab import Lab

pytestmark = pytest.mark.embedded_suffices

# The policy under which blame is dearest.
SKIP: dict[str, Any] = {"on_exhausted": "skip", "retry": Retry(attempts=1)}


class NotLoadable:
    """A handler that another process cannot load."""

    def __reduce__(self) -> tuple[Callable[[], None], tuple[()]]:
        return _not_here, ()

    def __call__(self, _record: Any, _context: Any) -> None:  # noqa: ANN401
        pass


def _not_here() -> None:
    message = "planted"
    raise OSError(message)


def test_a_process_that_does_not_start(lab: Lab) -> None:
    """The worker stops, and says what to look at."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(NotLoadable(), executor="process", concurrency=1, **SKIP)
    running.wait_end()
    with pytest.raises(HandlersFailError, match="before it took a record"):
        running.end()
    assert lab.committed() == {0: 0}


def work(_record: Any, _context: Any) -> None:  # noqa: ANN401
    """Do nothing."""


@contextmanager
def never() -> Iterator[None]:
    """Begin for as long as nobody ends the process."""
    threading.Event().wait()
    yield


def test_a_stop_does_not_wait_for_a_process_to_begin() -> None:
    """What it was started for has not begun, and comes again."""
    with bench("process", work, count=1, lifespan=never, start_seconds=600) as made:
        made.admit(1)
        children: Any = made.runner
        wait_for(lambda: children._children, "the process")
        made.schedule.halt()  # first, as a worker does, or it would be claimed again
        made.runner.recall()
        wait_for(lambda: not made.held.running, "the record to be given back")
        assert made.events == []
    assert made.held.records == 1


def test_a_sigterm_for_all_processes_at_once(lab: Lab, recording: Recording) -> None:
    """As systemd sends it: what the processes are at is finished, as in a drain."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "until=go"]})
    before = set(multiprocessing.active_children())
    running = lab.run(recording, executor="process", concurrency=1)
    running.wait_done(1)
    wait_for(lambda: running.worker.stats().running, "the second to run")
    (process,) = set(multiprocessing.active_children()) - before
    process.terminate()
    running.worker.stop()
    (recording.folder / "go").touch()
    running.wait_end()
    report = running.report
    assert report is not None
    assert (report.done, report.dropped) == (2, 0)
    assert lab.committed() == {0: 2}
    process.join(10)
    assert process.exitcode == 0


EXIT = """
import sys
import time
from pathlib import Path
from safeconsumer.worker import Retry
from safeconsumer.worker.executors.base import Calls
from safeconsumer.worker.executors import choose
from safeconsumer.worker.partition import Held
from safeconsumer.worker.queue import (Lanes, Order, record_key, Queue)
from safeconsumer.worker.queue import Policy
from safeconsumer.worker.results import Schedule
from tests.broker.worker.handlers import Recording

if __name__ == "__main__":
    tell = lambda *_, **__: None
    lanes, policy = Lanes(Order.PARTITION, record_key), Policy(retry=Retry())
    queue = Queue(Held(time.monotonic), lanes, policy, time.monotonic, None)
    schedule = Schedule(queue, tell)
    handle = Recording(Path())
    calls = Calls(handle=handle, is_batch=False, seconds=1, deadline=tell, emit=tell)
    processes = choose("process", schedule, calls, 1)
    processes.start()
    processes._prepare(processes.slots[0])
"""


def test_processes_keep_no_program_from_its_end(tmp_path: Path) -> None:
    """Also one that ends without having stopped its worker."""
    script = tmp_path / "program.py"
    script.write_text(EXIT)
    root = str(Path(__file__).parents[3])
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, str(script)],
        cwd=tmp_path,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0


def test_an_executor_that_was_shut_down(lab: Lab) -> None:
    """It stays so for every record; the worker stops."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    running = lab.run(lambda _r, _c: None, executor=pool, **SKIP)
    running.wait_end()
    with pytest.raises(HandlersFailError, match="accepts no more calls"):
        running.end()
    assert lab.committed() == {0: 0}


def test_a_foreign_pool_that_breaks_under_a_record(
    lab: Lab, recording: Recording
) -> None:
    """It takes everything down that is in it, and nothing new: no record is to blame."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "kill", ""]})
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        running = lab.run(recording, executor=pool, concurrency=1, **SKIP)
        running.wait_end()
    with pytest.raises(HandlersFailError, match="abruptly"):
        running.end()
    assert lab.committed() == {0: 1}


def test_a_foreign_executor_that_cancels_what_it_took(
    lab: Lab, recording: Recording
) -> None:
    """As a pool does that is shut down with ``cancel_futures``: nothing has failed."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    gate = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.wait, 30)
        running = lab.run(recording, executor=pool, concurrency=1, **SKIP)
        runner: Any = running.worker._runner
        wait_for(lambda: runner._calls_there, "it to be handed over")
        pool.shutdown(wait=False, cancel_futures=True)
        gate.set()
        running.wait_end()
    with pytest.raises(HandlersFailError, match="cancelled"):
        running.end()
    assert lab.committed() == {0: 0}


@pytest.mark.parametrize("batch", [None, 2])
@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_coroutine_that_nobody_awaits(
    lab: Lab,
    tmp_path: Path,
    batch: int | None,
    is_foreign: bool,  # noqa: FBT001 - a parameter
) -> None:
    """A wrapper hides that the handler is one; nothing was handled, nothing is complete."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", ""]})
    handle = AsyncRecording(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        running = lab.run(
            lambda record, context: handle(record, context),  # noqa: PLW0108 - it hides it
            executor=pool if is_foreign else "thread",
            batch=batch,
            **SKIP,
        )
        running.wait_end()
    with pytest.raises(HandlersFailError, match="nothing awaits"):
        running.end()
    assert lab.committed() == {0: 0}


def test_system_exit_out_of_a_coroutines_own_task(lab: Lab) -> None:
    """It ends an event loop; the worker drains, commits, and raises it again."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "", ""]})

    async def leave() -> None:
        raise SystemExit(7)

    async def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset == 1:
            await asyncio.create_task(leave())

    running = lab.run(handle, executor="asyncio")
    running.wait_end()
    assert isinstance(running.error, SystemExit)
    assert lab.committed() == {0: 1}


def test_a_sink_of_dead_letters_that_is_a_coroutine_function(lab: Lab) -> None:
    """Refused: returning would count as acknowledged, and nothing was written."""
    lab.new_topic(partitions=1)

    async def sink(_record: Any, _failure: Any) -> None:  # noqa: ANN401
        pass

    with pytest.raises(WorkerSettingError, match="coroutine function"):
        Worker(lab.consumer(), lambda _r, _c: None, dead_letter=sink)


def test_a_sink_that_answers_with_a_mapping_has_acknowledged(
    lab: Lab, recording: Recording
) -> None:
    """As the clients of some services do; its ``get`` waits for nothing."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "reject", ""]})
    running = lab.run(recording, dead_letter=lambda _r, _f: {"status": 200})
    running.wait_done(3)
    running.end()
    assert lab.committed() == {0: 3}
