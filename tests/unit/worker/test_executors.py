"""Tests each executor with handlers that cancel, hang, fork, exit or raise odd errors."""

import asyncio
import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path
from types import SimpleNamespace

import pytest
from attrs import evolve, frozen

from safeconsumer.errors import HandlersCannotRunError
from safeconsumer.worker import BatchFailure, Reject, Retry, RetryLater, calls
from safeconsumer.worker.durations import BOUNDS
from safeconsumer.worker.executors import aio, processes
from safeconsumer.worker.executors.serving import packed
from safeconsumer.worker.partition import Order
from safeconsumer.worker.tracebacks import CALLS
from tests.harness.holds.lab import Clock
from tests.harness.waiting import end_of, wait_for
from tests.harness.worker.executing import (
    EXECUTORS,
    TwoArgumentsError,
    executing,
    fitting,
)

ONCE = {"retry": Retry(attempts=1)}
TOGETHER = {"order": Order.PARTITION, "lane_seconds": 1e6, **ONCE}
FROM_OUTSIDE = "from outside"


def exhausted(made):
    """Return the offsets of records that failed for good."""
    return [one.offset for one in made.events if one.name == "record_exhausted"]


def names_none(_records, _context):
    """Raise a ``BatchFailure`` without records, like code that raises even without errors."""
    raise BatchFailure({})


async def names_none_in_a_group(_records, _context):
    async with asyncio.TaskGroup() as group:
        group.create_task(_names_none())


async def _names_none():
    raise BatchFailure({})


@pytest.mark.parametrize("executor", EXECUTORS)
def test_batch_failure_that_names_no_record_completes_the_batch(executor):
    handle = names_none_in_a_group if executor == "asyncio" else names_none
    with executing(executor, handle, count=1, batch=4, retry=Retry(attempts=2)) as made:
        made.finish(5)
        assert (made.kept.done, made.decisions.retries, made.events) == (5, 0, [])


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_duration_of_a_failed_call_is_not_added_to_other_records(monkeypatch, executor):
    clock = Clock()
    for module in (calls, aio):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock))

    def handle(record, _context):
        clock.now += 0.02
        if record.offset == 2:
            clock.now += 0.58
            raise ValueError

    how = {"order": Order.PARTITION, "lane_seconds": 1.0, **ONCE}
    with executing(executor, fitting(executor, handle), count=1, **how) as made:
        made.finish(5)
        taken = made.decisions.durations.histogram()
    counted = dict(zip(BOUNDS, taken.counts, strict=False))
    assert {bound: n for bound, n in counted.items() if n} == {0.05: 4, 1.0: 1}
    assert taken.total == pytest.approx(0.68)


# ------------------------------------------------------------ asyncio


async def _forever():
    await asyncio.Event().wait()


async def awaits_a_cancelled_task(record, _context):
    if record.offset == 1:
        task = asyncio.create_task(_forever())
        task.cancel()
        await task


async def cancels_itself(record, _context):
    """Cancel the current task, and wait."""
    if record.offset == 1:
        asyncio.current_task().cancel()
        await _forever()


def raises_cancelled(record, _context):
    """Raise a ``CancelledError``, as if the handler's own event loop had been cancelled."""
    if record.offset == 1:
        raise asyncio.CancelledError


def a_batch_with_a_cancelled_record(records, _context):
    cancelled = asyncio.CancelledError()
    failed = {n: cancelled for n, one in enumerate(records) if one.offset == 1}
    if failed:
        raise BatchFailure(failed)


@pytest.mark.parametrize(
    ("executor", "handle", "batch"),
    [
        ("asyncio", awaits_a_cancelled_task, None),
        ("asyncio", cancels_itself, None),
        ("thread", raises_cancelled, None),
        ("process", raises_cancelled, None),
        ("thread", a_batch_with_a_cancelled_record, 4),
    ],
)
def test_cancelled_handler_fails_its_record(executor, handle, batch):
    with executing(executor, handle, batch=batch, **ONCE) as made:
        made.finish(4)
        assert made.decisions.fatal is None
        assert exhausted(made) == [1]
        assert made.kept.done == 4  # including the failed record


def test_handler_that_cancels_its_task_and_returns_completes_its_record():
    """The next record does not start in the cancelled task."""
    begun = []

    async def handle(record, _context):
        begun.append(record.offset)
        await asyncio.sleep(0)
        asyncio.current_task().cancel()

    with executing("asyncio", handle, count=1, **TOGETHER) as made:
        made.finish(4)
        assert (made.decisions.fatal, exhausted(made)) == (None, [])
        assert [slot.ended for slot in made.runner.slots] == [None]
    assert begun == [0, 1, 2, 3]


def test_late_cancellation_by_an_earlier_handler_does_not_fail_another_record():
    """The interrupted record is returned to the queue and handled again."""
    begun = []

    async def handle(record, _context):
        begun.append(record.offset)
        if record.offset == 0:
            ours = asyncio.current_task()
            asyncio.get_running_loop().call_soon(ours.cancel)
        else:
            await asyncio.sleep(0)

    with executing("asyncio", handle, count=1, **TOGETHER) as made:
        made.finish(4)
        assert (made.decisions.fatal, exhausted(made)) == (None, [])
    assert begun == [0, 1, 1, 2, 3]


def test_tasks_left_by_handlers_are_cancelled_and_awaited():
    ended = []

    async def linger(number):
        try:
            await asyncio.Event().wait()
        finally:
            # unawaited tasks would still run for a few turns of the loop
            await asyncio.sleep(0.01)
            ended.append(number)

    left = set()

    async def handle(record, _context):
        left.add(asyncio.create_task(linger(record.offset)))
        await asyncio.sleep(0)

    with executing("asyncio", handle) as made:
        made.finish(21)
    assert sorted(ended) == [*range(21)]


class _Bare:
    """An awaitable whose iterator has only ``__next__``, not ``send`` or ``throw``."""

    def __init__(self, waits_for):
        self._waits_for = waits_for

    def __await__(self):
        return map(self._step, range(1))

    def _step(self, _):
        self._waits_for._asyncio_future_blocking = True
        return self._waits_for


@pytest.mark.parametrize("then", ["set_result", "cancel"])
def test_custom_awaitable_is_awaited(then):
    """A cancelled awaitable fails its record."""

    def handle(_record, _context):
        loop = asyncio.get_running_loop()
        waits_for = loop.create_future()
        loop.call_soon(getattr(waits_for, then), *[None] * (then == "set_result"))
        return _Bare(waits_for)

    with executing("asyncio", handle, **ONCE) as made:
        made.finish(2)
        gone = [one for one in made.events if one.name == "record_exhausted"]
    failed = ["HandlerCancelledError"] * 2 if then == "cancel" else []
    assert [one.error.partition("(")[0] for one in gone] == failed


# ------------------------------------------------------------ dead letters


@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_stack_of_a_running_dead_letter_call_is_shown(executor):
    begun, go_on = threading.Event(), threading.Event()

    def sink(_record, _failure):
        begun.set()
        go_on.wait()

    def handle(*_):
        raise Reject

    async def wait(*_):
        raise Reject

    called = wait if executor == "asyncio" else handle
    with executing(executor, called, count=1, sink=sink) as made:
        made.admit(1)
        made.wait(begun.is_set, "a call of the sink")
        (slot,) = made.runner.slots
        shown = slot.stack()
        go_on.set()
        made.wait(lambda: not made.kept.records, "the letter")
    assert "go_on.wait()" in shown


# ------------------------------------------------------------ processes


class MadeBy:
    """A handler; unpickling it in another process calls a function."""

    def __init__(self, call, *args):
        self.made_by = call, args

    def __reduce__(self):
        return self.made_by

    def __call__(self, _record, _context):
        pass


HANGS = MadeBy(signal.pause)
# A handler whose pickle does not fit into the buffer of the pipe to the process.
HANGS_WITH_A_TABLE = MadeBy(tuple, (HANGS, bytes(1_000_000)))


@pytest.mark.parametrize(
    "handle", [HANGS, HANGS_WITH_A_TABLE], ids=["alone", "with a table"]
)
def test_process_that_hangs_during_its_import_stops_the_worker(handle, monkeypatch):
    """No record counts as failed, and no record is skipped."""
    first_message = processes.Processes._first_message

    def soon(runner, child):
        # The short limit is set only after the process has started, because starting
        # may take long on a busy machine.
        runner._calls = evolve(runner._calls, start_seconds=0.5)
        return first_message(runner, child)

    monkeypatch.setattr(processes.Processes, "_first_message", soon)
    before = set(multiprocessing.active_children())
    with executing("process", handle, **ONCE) as made:
        made.admit(2)
        made.wait(lambda: made.decisions.fatal, "the worker to give up")
        assert isinstance(made.decisions.fatal, HandlersCannotRunError)
        assert "not ready within 0.5 s" in str(made.decisions.fatal)
        assert any("has ended" in one for one in made.complaints())
        assert exhausted(made) == []
        assert made.kept.records == 2
    # A thread may still be stopping a process that the runner no longer lists.
    wait_for(lambda: set(multiprocessing.active_children()) <= before, "its end")


@pytest.mark.parametrize("start_seconds", [60.0, 0.05])
def test_process_that_cannot_be_started_does_not_delay_a_stop(
    start_seconds, monkeypatch
):
    """If the process starts after all, it is killed."""
    begun, go_on, started = threading.Event(), threading.Event(), []
    how = {"count": 1, "start_seconds": start_seconds, **ONCE}
    with executing("process", HANGS, **how) as made:
        runner = made.runner
        make = runner._context.Process

        def make_stuck(**how):
            process = make(**how)

            def start():
                begun.set()
                go_on.wait()
                del process.start  # this attribute must not be pickled with the process
                process.start()
                started.append(process)

            process.start = start
            return process

        monkeypatch.setattr(runner._context, "Process", make_stuck)
        made.admit(1)
        wait_for(begun.is_set, "the start")
        if start_seconds < 1:
            made.wait(lambda: made.decisions.fatal, "the worker to give up")
            assert "not started within 0.05 s" in str(made.decisions.fatal)
        stopping = threading.Thread(target=runner.stop, args=(0.05,))
        stopping.start()
        try:
            wait_for(lambda: not stopping.is_alive(), "the stop")
        finally:
            go_on.set()
        wait_for(lambda: not made.kept.running, "the record to be given back")
        assert (made.kept.records, exhausted(made)) == (1, [])
        if start_seconds >= 1:
            wait_for(lambda: started and started[0].exitcode == -9, "its end")


def test_process_that_exits_during_its_import_while_the_worker_stops_has_not_failed(
    monkeypatch,
):
    """Ctrl-C signals all processes; the worker may receive it slightly later than others."""
    monkeypatch.setattr(processes, "_RECALL_SECONDS", 30.0)
    ends = MadeBy(os._exit, 1)  # as after a Ctrl-C, which goes to all processes
    with executing("process", ends, count=1, **ONCE) as made:
        made.admit(1)
        runner = made.runner
        wait_for(lambda: runner._children, "a process")
        (child,) = runner._children.values()
        end_of(child.process)
        made.decisions.queue.halt()
        runner.recall()
        wait_for(lambda: not made.kept.running, "the record to be given back")
        assert made.decisions.fatal is None
        assert exhausted(made) == []
        assert (made.kept.records, made.runner.slots[0].ended) == (1, None)


@frozen
class NotesItsAttempt:
    """A handler that records each call."""

    folder: Path

    def __call__(self, record, context):
        with (self.folder / "calls").open("a") as file:
            file.write(f"{record.offset} {context.attempt} {os.getpid()}\n")

    def calls(self):
        lines = (self.folder / "calls").read_text().splitlines()
        return [[int(one) for one in line.split()] for line in lines]


def test_kill_of_an_idle_process_does_not_fail_any_record(tmp_path):
    """Another process handles the next record, as its first attempt."""
    handle = NotesItsAttempt(tmp_path)
    with executing("process", handle, count=1, **ONCE) as made:
        made.finish(1)
        os.kill(handle.calls()[0][2], signal.SIGKILL)
        runner = made.runner
        (child,) = runner._children.values()
        end_of(child.process)
        made.finish(2)  # handles the first record again, and one more record
        assert exhausted(made) == []
        assert made.decisions.retries == 0
        died = [one for one in made.events if one.name == "worker_process_died"]
        assert [(one.exit_code, one.records) for one in died] == [(-9, 0)]
    assert [call[:2] for call in handle.calls()] == [[0, 1], [0, 1], [1, 1]]


@contextlib.contextmanager
def cannot_be_left():
    yield
    raise ConnectionError(FROM_OUTSIDE)


def test_process_that_exits_instead_of_handling_a_record_is_replaced(
    tmp_path, monkeypatch
):
    """The record fails because its process exits, not because its lifespan raises on exit."""
    handle = NotesItsAttempt(tmp_path)
    asked = []

    def end_the_first(question):
        # the worker first checks that the handler can be pickled
        if question is not handle:
            asked.append(question)
        return pickle.dumps(None if len(asked) == 1 else question)

    monkeypatch.setattr(processes, "pickle", SimpleNamespace(dumps=end_the_first))
    with executing(
        "process", handle, count=1, order=Order.PARTITION, lifespan=cannot_be_left
    ) as made:
        made.finish(2)
        (again,) = (one for one in made.events if one.name == "record_retried")
        assert "ProcessDiedError" in again.error
        died = [one for one in made.events if one.name == "worker_process_died"]
        assert [one.records for one in died] == [1]
    assert [call[:2] for call in handle.calls()] == [[0, 2], [1, 1]]


@pytest.mark.parametrize("where", ["_start_child", "_first_message"])
def test_failure_to_start_a_process_does_not_fail_its_record(where):
    """Starting may fail because of too many open files or an unreadable first message."""

    def fail(*_its):
        raise RuntimeError(FROM_OUTSIDE)

    before = set(multiprocessing.active_children())
    # One slot and one record, because with two slots a second process may be starting
    # while the worker gives up the first.
    with executing("process", HANGS, count=1, **ONCE) as made:
        setattr(made.runner, where, fail)
        made.admit(1)
        made.wait(lambda: made.decisions.fatal, "the worker to give up")
        assert isinstance(made.decisions.fatal, HandlersCannotRunError)
        assert "RuntimeError('from outside')" in str(made.decisions.fatal)
        assert any("has ended" in one for one in made.complaints())
        assert exhausted(made) == []
        runner = made.runner
        assert runner._children == {}
    assert set(multiprocessing.active_children()) <= before


def test_answer_left_in_the_pipe_is_not_read_as_the_next_answer(tmp_path, monkeypatch):
    """If waiting for a process's answer fails, the worker stops that process."""
    handle = NotesItsAttempt(tmp_path)
    with executing("process", handle, count=1, retry=Retry(first=0.01)) as made:
        wait, first = processes._Child.has_message, []

        def end(child, seconds):
            if seconds is None and not first:
                first.append(child.process.pid)
                raise RuntimeError(FROM_OUTSIDE)
            return wait(child, seconds)

        monkeypatch.setattr(processes._Child, "has_message", end)
        made.finish(3)
    assert sorted(call[0] for call in handle.calls() if call[2] not in first) == [
        0,
        1,
        2,
    ]


@frozen
class StartsAProcess:
    """A handler that reports how it and a program that it starts treat SIGTERM and SIGINT."""

    folder: Path

    def __call__(self, _record, _context):
        program = (
            "import signal; "
            "print(signal.getsignal(15) is signal.SIG_DFL, "
            "signal.getsignal(2) is signal.default_int_handler)"
        )
        done = subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        ready, reported = os.pipe()
        forked = os.fork()
        if forked == 0:
            os.write(reported, b".")
            signal.pause()
            os._exit(0)
        os.read(ready, 1)  # the child has now reset its signal handlers
        os.kill(forked, signal.SIGTERM)
        _, status = os.waitpid(forked, 0)
        os.kill(os.getpid(), signal.SIGTERM)  # a handler's process ignores this signal
        os.kill(os.getpid(), signal.SIGINT)
        text = f"{done.stdout.strip()} {os.WTERMSIG(status)}"
        (self.folder / "result").write_text(text)


def test_programs_started_by_a_handler_handle_signals_as_usual(tmp_path):
    """The handler's process ignores both signals; its programs and forks do not."""
    with executing("process", StartsAProcess(tmp_path), count=1, **ONCE) as made:
        made.finish(1)
        assert exhausted(made) == []
    assert (tmp_path / "result").read_text() == "True True 15"


class TwoRejectedError(Reject):
    """An exception that can be pickled but not unpickled."""

    def __init__(self, one, _two):
        super().__init__(f"reason {one}")


class SoonError(RetryLater):
    """A ``RetryLater`` with another constructor and an attribute that cannot be pickled."""

    def __init__(self, _why, _who):
        super().__init__(7.0)
        self.lock = threading.Lock()


class WithALockError(ValueError):
    def __init__(self):
        super().__init__("locked", threading.Lock())


class _LocalError(TwoArgumentsError):
    """An error class that cannot be imported by its name."""


_LocalError.__qualname__ = "of_nowhere._LocalError"


@pytest.mark.parametrize(
    ("error", "kind", "args"),
    [
        (TwoArgumentsError(1, 2), TwoArgumentsError, (1,)),
        (TwoRejectedError(1, 2), TwoRejectedError, ("reason 1",)),
        (SoonError(1, 2), SoonError, (7.0,)),
        (WithALockError(), WithALockError, None),
        (_LocalError(1, 2), TwoArgumentsError, ("_LocalError(1)",)),
    ],
)
def test_error_from_a_process_keeps_its_class(error, kind, args):
    """``never=`` and ``except`` therefore match the same errors as with threads."""
    batch = BatchFailure({0: error, 1: KeyError("other")})
    sent = pickle.dumps([packed(error), packed(batch)])
    came, came_as_batch = pickle.loads(sent)  # noqa: S301 - our own data
    assert isinstance(came_as_batch, BatchFailure)
    assert came_as_batch.errors[1].args == ("other",)
    for one in (came, came_as_batch.errors[0]):
        assert type(one) is kind
        assert one.args == args or (args is None and "locked" in str(one))
        assert getattr(one, "after", None) == getattr(error, "after", None)
        assert any(type(error).__name__ in note for note in one.__notes__)


def test_error_that_is_pickled_repeatedly_has_one_note_with_its_stack():
    error = ConnectionError("the client is closed")
    error.add_note("its own")
    for _ in range(120):
        try:
            raise error
        except ConnectionError:
            sent = pickle.dumps([packed(error), packed(BatchFailure({0: error}))])
    one, batch = pickle.loads(sent)  # noqa: S301 - our own data
    for came in (one, batch.errors[0]):
        own, stack = came.__notes__
        assert (own, type(stack)) == ("its own", str)
        assert stack.count("raise error") <= CALLS


def raise_an_error_of_a_plugin(record, _context):
    """Raise an error that only this process can import, such as a plugin's."""
    if record.offset == 15:
        module = types.ModuleType("plugin_of_the_child")
        kind = type("RefusedError", (LookupError,), {"__module__": module.__name__})
        module.RefusedError = kind
        sys.modules[module.__name__] = module
        raise kind(15, "poison")


def raise_an_error_of_a_plugin_for_each(records, context):
    """Raise, for each record of the batch, an error that only this process can import."""
    failed = {}
    for at, record in enumerate(records):
        try:
            raise_an_error_of_a_plugin(record, context)
        except LookupError as error:
            failed[at] = error
    if failed:
        raise BatchFailure(failed)


@pytest.mark.parametrize(
    ("handle", "batch"),
    [(raise_an_error_of_a_plugin, None), (raise_an_error_of_a_plugin_for_each, 8)],
)
def test_error_that_only_its_process_can_import_fails_only_its_record(handle, batch):
    """The preceding records are completed."""
    retry = Retry(attempts=3, first=0.01, never=(LookupError,))
    with executing("process", handle, count=1, batch=batch, retry=retry) as made:
        made.finish(20)
        (gone,) = (one for one in made.events if one.name == "record_exhausted")
        assert (gone.offset, gone.attempt) == (15, 1)
        assert "RefusedError(15, 'poison')" in gone.error
        assert handle.__name__ in gone.traceback or batch
        assert (made.kept.done, made.decisions.retries) == (20, 0)


def test_task_that_ignores_cancellation_does_not_delay_a_stop():
    go_on = asyncio.Event()
    left = set()

    async def linger():
        while not go_on.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    async def handle(_record, _context):
        left.add(asyncio.create_task(linger()))

    with executing("asyncio", handle, count=1) as made:
        made.finish(1)
        made.runner.stop(0.05)
    for task in left:  # otherwise Python warns that a pending task was destroyed
        task.get_coro().close()
