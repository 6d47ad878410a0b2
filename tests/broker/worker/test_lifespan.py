"""What ``lifespan`` makes is entered where handlers run, before the first and once."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from safeconsumer import SafeConsumer
from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker import Drain, HandlersFailError, LifespanError, Worker
from safeconsumer.worker.executors.lifespan import check_lifespan
from tests.harness.kafka.offline import offline
from tests.harness.waiting import wait_for
from tests.harness.worker.bench import bench
from tests.harness.worker.lab import Lab


@frozen
class Noting:
    """A lifespan that writes down when it is entered and left, and in which process."""

    folder: Path

    @contextlib.contextmanager
    def __call__(self) -> Iterator[str]:
        self.note("entered")
        try:
            yield f"state of {os.getpid()}"
        finally:
            self.note("left")

    def note(self, what: str) -> None:
        """Write it down."""
        with (self.folder / "notes").open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def notes(self) -> list[str]:
        """Return what was written down."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []


@frozen
class NotingHandler:
    """A handler that writes down its state."""

    lifespan: Noting

    def __call__(self, _record: Any, context: Any) -> None:  # noqa: ANN401
        self.lifespan.note(context.state)


@frozen
class NotingCoroutine:
    """The same as a coroutine."""

    lifespan: Noting

    async def __call__(self, _record: Any, context: Any) -> None:  # noqa: ANN401
        self.lifespan.note(context.state)


@pytest.mark.parametrize("executor", ["thread", "threads of theirs", "asyncio"])
def test_it_is_entered_once_and_its_value_is_the_state(
    executor: str, tmp_path: Path
) -> None:
    """Before the first record, and left after the last."""
    lifespan = Noting(tmp_path)
    kind = NotingCoroutine if executor == "asyncio" else NotingHandler
    ours = os.getpid()
    with bench(executor, kind(lifespan), lifespan=lifespan) as made:
        assert lifespan.notes() == [f"entered {ours}"]
        made.admit(4)
        made.wait(lambda: not made.held.records, "all to be done")
    state = f"state of {ours} {ours}"
    assert lifespan.notes() == [f"entered {ours}", *[state] * 4, f"left {ours}"]


def test_each_process_has_its_own(tmp_path: Path) -> None:
    """Also one that takes the place of another."""
    lifespan = Noting(tmp_path)
    handle = NotingHandler(lifespan)
    with bench("process", handle, count=1, lifespan=lifespan) as made:
        made.admit(1)
        made.wait(lambda: not made.held.records, "the first to be done")
        first = int(lifespan.notes()[0].split()[1])
        os.kill(first, signal.SIGKILL)
        made.admit(1)
        made.wait(lambda: not made.held.records, "the second to be done")
        runner: Any = made.runner
        (child,) = runner._children.values()
    second = child.process.pid
    assert lifespan.notes() == [
        f"entered {first}",
        f"state of {first} {first}",
        f"entered {second}",
        f"state of {second} {second}",
        f"left {second}",
    ]


def test_an_async_one_is_entered_in_the_handlers_loop() -> None:
    """So that what it makes, such as a session or tasks, is of that loop."""
    noted: list[object] = []

    @contextlib.asynccontextmanager
    async def lifespan() -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.TaskGroup() as group:
            noted.append(asyncio.get_running_loop())
            yield group
            noted.append("leaving")
        noted.append("left")

    async def later() -> None:
        await asyncio.sleep(0.05)
        noted.append("a task of the group")

    async def handle(_record: Any, context: Any) -> None:  # noqa: ANN401
        assert asyncio.get_running_loop() is noted[0]
        context.state.create_task(later())

    with bench("asyncio", handle, lifespan=lifespan) as made:
        made.admit(2)
        made.wait(lambda: not made.held.records, "all to be done")
    # The group's end waits for its tasks: they are not left-over ones.
    last = noted[1:]
    assert sorted(map(str, last)) == sorted(
        ["a task of the group", "a task of the group", "leaving", "left"]
    )
    assert last[-1] == "left"


@contextlib.contextmanager
def cannot_be_entered() -> Iterator[None]:
    """Raise before there is anything."""
    message = "no database"
    raise ConnectionError(message)
    yield


@contextlib.contextmanager
def leaves_the_process() -> Iterator[None]:
    """Raise what is no ``Exception``."""
    raise SystemExit(3)
    yield


@contextlib.contextmanager
def cannot_be_left() -> Iterator[None]:
    """Raise at the end."""
    yield
    message = "no goodbye"
    raise ConnectionError(message)


def no_manager() -> Any:  # noqa: ANN401
    """Return what nobody can enter."""
    return 7


def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
    """Handle a record."""


async def handle_async(_record: Any, _context: Any) -> None:  # noqa: ANN401
    """Handle a record."""


def of(executor: str) -> Callable[..., Any]:
    """Return the handler that fits."""
    return handle_async if executor == "asyncio" else handle


@pytest.mark.embedded_suffices
@pytest.mark.parametrize(
    "lifespan", [cannot_be_entered, leaves_the_process, no_manager]
)
@pytest.mark.parametrize("executor", ["thread", "asyncio", "process"])
def test_one_that_cannot_be_entered_ends_run(
    lab: Lab,
    executor: Any,  # noqa: ANN401
    lifespan: Callable[[], Any],
) -> None:
    """With a typed error that says why; no record is blamed, none is passed over."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(
        of(executor), executor=executor, lifespan=lifespan, on_exhausted="skip"
    )
    running.wait_end()
    error = running.error
    assert isinstance(error, LifespanError)
    assert isinstance(error, HandlersFailError)
    assert "lifespan could not be entered" in str(error)
    assert (lab.committed()[0] or 0) == 0
    if executor != "process":  # a cause does not travel; its text does
        assert error.__cause__ is not None


@pytest.mark.embedded_suffices
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_one_that_cannot_be_left_is_said_at_the_end(
    lab: Lab,
    executor: Any,  # noqa: ANN401
) -> None:
    """By ``run()``, once everything is committed and closed."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(of(executor), executor=executor, lifespan=cannot_be_left)
    running.wait_done(3)
    with pytest.raises(LifespanError, match="no goodbye"):
        running.end()
    assert lab.committed() == {0: 3}
    assert running.worker.stats().state == "closed"


@pytest.mark.embedded_suffices
@pytest.mark.parametrize("executor", ["thread", "asyncio", "process"])
def test_one_that_hangs_at_its_end_is_left_alone(
    lab: Lab,
    executor: Any,  # noqa: ANN401
) -> None:
    """W8: stop is bounded."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(
        of(executor),
        executor=executor,
        lifespan=hangs_at_its_end,
        drain=Drain(shutdown=0.3),
    )
    running.wait_done(3)
    running.worker.stop()
    running.wait_end()
    HANG.set()
    HANG.clear()
    report = running.worker.stop()
    assert report is not None
    assert report.seconds < 0.3 + 2.0 + 1.0
    assert lab.committed() == {0: 3}


HANG = threading.Event()


@contextlib.contextmanager
def hangs_at_its_end() -> Iterator[None]:
    """Wait at the end for what comes late."""
    yield
    HANG.wait(60)


@pytest.mark.embedded_suffices
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_a_worker_can_be_stopped_while_it_is_entered(
    lab: Lab,
    executor: Any,  # noqa: ANN401
) -> None:
    """W8; it is alive meanwhile, and has not joined, so nobody waits for it."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    entering, go_on = threading.Event(), threading.Event()

    @contextlib.contextmanager
    def lifespan() -> Iterator[None]:
        entering.set()
        assert go_on.wait(60)
        yield

    drain = Drain(shutdown=0.3)
    running = lab.run(of(executor), executor=executor, lifespan=lifespan, drain=drain)
    assert entering.wait(30)
    assert running.worker.healthy().is_alive
    assert running.worker.stats().partitions == 0
    running.worker.stop()
    running.wait_end()
    go_on.set()
    assert running.error is None
    assert running.report is not None
    assert running.report.seconds < 0.3 + 2.0 + 1.0


@frozen
class Entering(Noting):
    """A lifespan that says that it is being entered, and is not for a minute."""

    @contextlib.contextmanager
    def __call__(self) -> Iterator[str]:
        self.note("entering")
        time.sleep(60)
        yield "never"


@pytest.mark.embedded_suffices
def test_a_worker_can_be_stopped_while_a_process_enters_it(
    lab: Lab, tmp_path: Path
) -> None:
    """W8; it is not left over, and no handler was given up: none had begun."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    before = set(multiprocessing.active_children())
    lifespan = Entering(tmp_path)
    running = lab.run(
        NotingHandler(lifespan),
        executor="process",
        lifespan=lifespan,
        drain=Drain(shutdown=0.3),
    )
    wait_for(lifespan.notes, "one to enter it")
    assert running.worker.healthy().is_alive
    running.worker.stop()
    running.wait_end()
    assert running.error is None
    assert running.report is not None
    assert running.report.seconds < 0.3 + 2.0 + 1.0
    assert (running.report.dropped, running.report.given_up) == (1, 0)
    wait_for(
        lambda: set(multiprocessing.active_children()) <= before, "them to be gone"
    )
    assert {note.split()[0] for note in lifespan.notes()} == {"entering"}


@pytest.mark.embedded_suffices
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_one_that_is_entered_after_the_stop_is_left(
    lab: Lab,
    executor: Any,  # noqa: ANN401
) -> None:
    """Though nothing runs in it; and no handler is called."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    entering, go_on, left = (threading.Event() for _ in range(3))

    @contextlib.contextmanager
    def lifespan() -> Iterator[None]:
        entering.set()
        assert go_on.wait(60)
        yield
        left.set()

    running = lab.run(of(executor), executor=executor, lifespan=lifespan)
    assert entering.wait(30)
    running.worker.stop()
    go_on.set()
    running.wait_end()
    assert left.wait(30)
    assert running.error is None
    assert running.worker.stats().done == 0


def test_kinds_that_do_not_fit_are_refused() -> None:
    """At construction, with what would do."""

    def generator() -> Iterator[None]:
        yield

    async def async_generator() -> AsyncIterator[None]:
        yield

    wrong: Any
    for wrong in (generator, async_generator):
        with pytest.raises(WorkerSettingError, match="decorate it"):
            check_lifespan(wrong, "thread")
    with pytest.raises(WorkerSettingError, match="must be callable"):
        check_lifespan(contextlib.nullcontext(), "thread")  # type: ignore[arg-type]
    with pytest.raises(WorkerSettingError, match="cannot be imported"):
        check_lifespan(lambda: contextlib.nullcontext(), "process")  # noqa: PLW0108
    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(1, mp_context=context) as pool,
        pytest.raises(WorkerSettingError, match="initializer"),
    ):
        check_lifespan(contextlib.nullcontext, pool)
    check_lifespan(None, "thread")


def test_the_worker_refuses_them_too() -> None:
    """Before anything is started."""

    def generator() -> Iterator[None]:
        yield

    wrong: Any = generator
    with (
        offline(SafeConsumer, group_id="g", enable_auto_commit=False) as consumer,
        pytest.raises(WorkerSettingError, match="decorate it"),
    ):
        Worker(consumer, handle, lifespan=wrong)


def test_waiting_is_bounded_in_its_thread() -> None:
    """Whoever waits for one that hangs can do something else."""
    go_on = threading.Event()

    @contextlib.contextmanager
    def lifespan() -> Iterator[int]:
        assert go_on.wait(30)
        yield 7

    from safeconsumer.worker.executors.lifespan import LifespanThread  # noqa: PLC0415

    thread = LifespanThread(lifespan, lambda _error: None)
    thread.start()
    assert not thread.wait_entered(0.01)
    go_on.set()
    wait_for(lambda: thread.wait_entered(0.1), "it to be entered")
    assert thread.state == 7
    thread.leave(10)
