"""Tests handlers in real processes: time limits, signals, forks and lifespans."""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import threading
from multiprocessing import forkserver
from pathlib import Path

import pytest
from attrs import frozen
from kafka import TopicPartition

from safeconsumer.errors import HandlersCannotRunError, LifespanError
from safeconsumer.worker import Drain, Retry
from safeconsumer.worker.executors.serving import ENDS_LATE
from tests.harness.processes import forked, ran_python
from tests.harness.waiting import end_of, wait_for
from tests.harness.worker.desk import Record
from tests.harness.worker.executing import OTHER, executing

pytestmark = pytest.mark.embedded_suffices


QUICK_ONCE = {"retry": Retry(attempts=1)}


def failed(made):
    gone = [one for one in made.events if one.name == "record_exhausted"]
    return {one.offset: one.error for one in gone}


def stack_of(made):
    """Return the stack that was reported for the only record that failed for good."""
    (gone,) = (one for one in made.events if one.name == "record_exhausted")
    return gone.traceback


def keeps_the_gil(_record, _context):
    """Compute without ever releasing the global interpreter lock."""
    sum(range(10**12))


def takes_the_signal(_record, _context):
    """Ignore the signal that should end the process, and wait forever."""
    signal.signal(ENDS_LATE, lambda *_its: None)
    threading.Event().wait()


def stops(_record, _context):
    """Stop all threads of the process, as a debugger does."""
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.mark.parametrize(
    ("handler", "has_stack"),
    [(keeps_the_gil, True), (takes_the_signal, False), (stops, False)],
)
def test_handler_process_is_terminated_at_its_time_limit(handler, has_stack):
    """If a signal does not end the process, the worker kills the process a second later."""
    with executing("process", handler, count=1, timeout=0.3, **QUICK_ONCE) as made:
        made.finish(2)
        gone = [one for one in made.events if one.name == "record_exhausted"]
        assert [one.offset for one in gone] == [0, 1]
        for one in gone:
            assert "HandlerTimeoutError" in one.error
            assert (f" in {handler.__name__}" in one.traceback) is has_stack
        assert made.decisions.fatal is None
        # The worker does not report the death of a process that it kills at the limit
        # as unexpected.
        assert not [one for one in made.events if one.name == "worker_process_died"]


def goes_deep(_record, _context):
    """Wait in many threads and frames, whose stacks are too large for a pipe."""

    def wait(depth):
        if depth:
            wait(depth - 1)
        threading.Event().wait()

    for _ in range(50):
        threading.Thread(target=wait, args=(90,), daemon=True).start()
    wait(90)


def test_process_whose_stacks_do_not_fit_into_its_pipe_ends_at_its_time_limit():
    with executing("process", goes_deep, count=1, timeout=1.0, **QUICK_ONCE) as made:
        made.finish(1)
        assert "HandlerTimeoutError" in failed(made)[0]
        assert " in goes_deep" in stack_of(made) or " in wait" in stack_of(made)


@frozen
class KeepsALock:
    """A handler that locks a file during each call, until the test releases it."""

    folder: Path

    def __call__(self, record, _context):
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with (self.folder / "calls").open("a") as calls:
                calls.write(f"{record.offset}\n")
            wait_for((self.folder / "go").exists, "to be let go")

    def calls(self):
        path = self.folder / "calls"
        return [*map(int, path.read_text().split())] if path.exists() else []

    def is_free(self):
        """Return whether no process holds the lock."""
        with (self.folder / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True


def kill_the_fork_server():
    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGKILL)


@pytest.mark.contract("W3")
def test_handler_process_survives_the_death_of_its_fork_server(tmp_path):
    """The handler process finishes its current record."""
    handle = KeepsALock(tmp_path)
    with executing("process", handle, count=1, **QUICK_ONCE) as made:
        made.admit(3)
        wait_for(handle.calls, "the first call")
        (child,) = made.runner._children.values()
        kill_the_fork_server()
        wait_for(lambda: child._is_orphan, "it to be noticed")
        (tmp_path / "go").touch()
        made.wait(lambda: not made.kept.records, "all to be done")
        assert (failed(made), made.decisions.retries) == ({}, 0)
        assert [*made.runner._children.values()] == [child]
        os.kill(child.process.pid, signal.SIGKILL)
        wait_for(lambda: child.has_message(0.0), "its end")
        epoch = made.kept.open(OTHER, 1, 0, 0)
        made.kept.admit(epoch, [Record(*OTHER, 3)])
        made.decisions.queue.admit(epoch)
        made.wait(lambda: not made.kept.records, "another process to do the next")
    assert handle.calls() == [0, 1, 2, 3]


@pytest.mark.contract("W8")
def test_stop_kills_a_process_whose_fork_server_was_killed(tmp_path):
    """``multiprocessing`` wrongly reports that such a process has exited."""
    handle = KeepsALock(tmp_path)
    with executing("process", handle, count=1, **QUICK_ONCE) as made:
        made.admit(1)
        wait_for(handle.calls, "the first call")
        (child,) = made.runner._children.values()
        kill_the_fork_server()
        wait_for(lambda: child._is_orphan, "it to be noticed")
    try:
        wait_for(handle.is_free, "its end", limit=20.0)
    finally:
        (tmp_path / "go").touch()


@frozen
class Noting:
    """A lifespan that records its process id on entry and on exit."""

    folder: Path

    @contextlib.contextmanager
    def __call__(self):
        self.note("entered")
        try:
            yield f"state of {os.getpid()}"
        finally:
            self.note("left")

    def note(self, what):
        with (self.folder / "notes").open("a") as file:
            file.write(f"{what} {os.getpid()}\n")

    def notes(self):
        """Return the lines that all processes have written."""
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []


@frozen
class NotingHandler:
    """A handler that records the state that its lifespan has returned."""

    lifespan: Noting

    def __call__(self, _record, context):
        self.lifespan.note(context.state)


def test_each_process_has_its_own_lifespan(tmp_path):
    lifespan = Noting(tmp_path)
    handle = NotingHandler(lifespan)
    with executing("process", handle, count=1, lifespan=lifespan) as made:
        made.finish(1)
        first = int(lifespan.notes()[0].split()[1])
        os.kill(first, signal.SIGKILL)
        made.finish(1)
        runner = made.runner
        (child,) = runner._children.values()
    second = child.process.pid
    assert lifespan.notes() == [
        f"entered {first}",
        f"state of {first} {first}",
        f"entered {second}",
        f"state of {second} {second}",
        f"left {second}",
    ]


@contextlib.contextmanager
def cannot_be_entered():
    message = "no database"
    raise ConnectionError(message)
    yield


@contextlib.contextmanager
def leaves_the_process():
    raise SystemExit(3)
    yield


def handle(_record, _context):
    """Do nothing."""


@pytest.mark.parametrize("lifespan", [cannot_be_entered, leaves_the_process])
def test_worker_fails_if_a_lifespan_cannot_be_entered(lab, lifespan):
    """No record counts as failed, and no record is skipped."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(
        handle, executor="process", lifespan=lifespan, on_exhausted="skip"
    )
    running.wait_end()
    error = running.error
    assert isinstance(error, LifespanError)
    assert isinstance(error, HandlersCannotRunError)
    assert "lifespan could not be entered" in str(error)
    assert (lab.committed()[0] or 0) == 0


@contextlib.contextmanager
def cannot_be_left():
    yield
    message = "the buffer is not flushed"
    raise ConnectionError(message)


def test_worker_fails_after_its_commits_if_exiting_a_lifespan_raises(lab):
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(handle, executor="process", lifespan=cannot_be_left)
    running.wait_done(3)
    running.worker.stop()
    running.wait_end()
    assert isinstance(running.error, LifespanError)
    assert "lifespan could not be left" in str(running.error)
    assert "the buffer is not flushed" in str(running.error)
    assert lab.committed() == {0: 3}


@frozen
class Entering(Noting):
    """A lifespan that records its entry and then hangs until its process is killed."""

    @contextlib.contextmanager
    def __call__(self):
        self.note("entering")
        threading.Event().wait()
        yield "never"


def test_stop_while_a_lifespan_is_entered_does_not_abandon_any_handler(lab, tmp_path):
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
    assert (running.report.dropped, running.report.given_up) == (1, 0)
    wait_for(
        lambda: set(multiprocessing.active_children()) <= before, "them to be gone"
    )
    assert {note.split()[0] for note in lifespan.notes()} == {"entering"}


SKIP = {"on_exhausted": "skip", "retry": Retry(attempts=1)}


class NotLoadable:
    """A handler that another process cannot load."""

    def __reduce__(self):
        return open, ("/nowhere/at/all",)

    def __call__(self, _record, _context): ...


def test_worker_fails_if_its_processes_cannot_start(lab):
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 3})
    running = lab.run(NotLoadable(), executor="process", concurrency=1, **SKIP)
    running.wait_end()
    with pytest.raises(HandlersCannotRunError, match="before it took a record"):
        running.end()
    assert lab.committed() == {0: 0}


@pytest.mark.contract("W10")
def test_hold_during_a_call_prevents_further_calls(lab, recording):
    lab.new_topic(partitions=1)
    lab.produce({0: [*[""] * 50, "touch=here;until=go", *[""] * 20]})
    tp = TopicPartition(lab.topic, 0)
    consumer = lab.consumer()
    running = lab.run(recording, consumer, executor="process", concurrency=1)
    wait_for((recording.folder / "here").exists, "the one that waits")
    consumer.pause(tp)
    assert running.worker.running() == {tp: [50]}
    (recording.folder / "go").touch()
    wait_for(lambda: not running.worker.stats().running, "its end")
    assert recording.offsets() == {0: [*range(51)]}
    consumer.resume(tp)
    running.wait_done(71)
    running.end()


@pytest.mark.contract("W8")
def test_handler_processes_of_a_draining_worker_survive_sigterm(lab, recording):
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
    end_of(process)
    assert process.exitcode == 0


EXIT = """
from pathlib import Path
from tests.broker.worker.handlers import Recording
from tests.harness.worker.executing import executing

if __name__ == "__main__":
    running = executing("process", Recording(Path()))
    running.__enter__().runner._make_ready()
"""


def test_handler_processes_do_not_delay_the_exit_of_their_program(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(EXIT)
    root = str(Path(__file__).parents[3])
    env = {**os.environ, "PYTHONPATH": root}
    # do not capture the output: child processes would keep the pipes open
    done = ran_python(script, cwd=tmp_path, env=env, capture_output=False)
    assert done.returncode == 0


def test_exit_of_a_forked_child_does_not_kill_any_handler_process(tmp_path):
    """A forked child runs the exit handlers that it has inherited from the program."""
    handle = KeepsALock(tmp_path)
    with executing("process", handle, count=1, **QUICK_ONCE) as made:
        made.admit(1)
        wait_for(handle.calls, "the call")
        assert forked(made.runner._kill) == 0
        (tmp_path / "go").touch()
        made.wait(lambda: not made.kept.records, "it to be done")
        assert failed(made) == {}


@frozen
class LeavesAFork:
    """A handler that forks a child with all open files, and may then kill itself."""

    folder: Path
    dies: bool = True

    def __call__(self, record, _context):
        if record.offset == 1:
            child = os.fork()
            if child == 0:
                wait_for((self.folder / "end").exists, "the test to end")
                os._exit(0)
            (self.folder / "pid").write_text(str(os.getpid()))
            if self.dies:
                os.kill(os.getpid(), signal.SIGKILL)


def test_killed_process_is_detected_while_its_fork_still_runs(tmp_path):
    """The forked child keeps the pipes of the killed handler process open."""
    try:
        with executing("process", LeavesAFork(tmp_path), count=1, **QUICK_ONCE) as made:
            made.finish(3)
            assert [*failed(made)] == [1]
            assert "ProcessDiedError" in failed(made)[1]
            assert made.decisions.fatal is None
    finally:
        (tmp_path / "end").touch()


@frozen
class LargeRecord(Record):
    """A record that does not fit into the buffer of a pipe."""

    load: bytes = bytes(4_000_000)


def test_killed_idle_process_is_detected_while_its_forked_child_still_runs(tmp_path):
    handler = LeavesAFork(tmp_path, dies=False)
    try:
        with executing("process", handler, count=1) as made:
            made.finish(2)
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            epoch = made.kept.open(OTHER, 1, 0, 0)
            records = [LargeRecord(*OTHER, offset) for offset in (2, 3)]
            made.kept.admit(epoch, records)
            made.decisions.queue.admit(epoch)
            made.wait(lambda: not made.kept.records, "all to be done or given up")
            assert not failed(made)
    finally:
        (tmp_path / "end").touch()
