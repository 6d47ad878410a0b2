"""A process that a handler forks exits at the end of the handler's call."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from safeconsumer.worker.kept import KeptRecords
from safeconsumer.worker.signals import taking
from tests.harness.holds.forking import is_true_in_child
from tests.harness.processes import status_of
from tests.harness.worker.executing import executing

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

RECORDS = 20
FORKING = 3


class Forking:
    """A handler that records each record, forks at one record, and waits for the child."""

    def __init__(self, folder, in_child):
        self._notes = folder / "handled"
        self._in_child = in_child
        self.status = None

    def __call__(self, given, _context):
        records = given if isinstance(given, list) else [given]
        with self._notes.open("a") as notes:
            notes.writelines(f"{record.offset}\n" for record in records)
        if FORKING in [record.offset for record in records]:
            self._fork()

    async def wait(self, given, context):
        self(given, context)

    def _fork(self):
        child = os.fork()
        if child == 0:
            self._in_child()
            return
        # a child that continues its parent's work is killed
        self.status = os.waitstatus_to_exitcode(status_of(child, 5.0))

    def handled(self):
        return sorted(map(int, self._notes.read_text().split()))


def exits(code):
    return lambda: sys.exit(code)


def fails():
    message = "planted"
    raise ValueError(message)


def returns(): ...


@pytest.mark.contract("W5")
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
@pytest.mark.parametrize("batch", [None, 4])
@pytest.mark.parametrize(
    ("in_child", "status"),
    [
        pytest.param(exits(7), 7, id="sys.exit(7)"),
        pytest.param(exits(None), 0, id="sys.exit()"),
        pytest.param(exits("why"), 1, id="sys.exit(text)"),
        pytest.param(fails, 1, id="raises"),
        pytest.param(returns, 1, id="returns"),
        pytest.param(lambda: os._exit(3), 3, id="os._exit(3)"),
    ],
)
def test_forked_child_exits_at_the_end_of_the_call_without_handling_records(
    tmp_path, in_child, status, batch, executor
):
    handle = Forking(tmp_path, in_child)
    called = handle.wait if executor == "asyncio" else handle
    with executing(executor, called, count=2, batch=batch) as made:
        made.finish(RECORDS)
    assert handle.status == status
    assert handle.handled() == [*range(RECORDS)]


def test_traceback_of_a_forked_child_is_printed(tmp_path, capfd):
    with executing("thread", Forking(tmp_path, fails), count=1) as made:
        made.finish(RECORDS)
    assert "ValueError: planted" in capfd.readouterr().err


def _exits_with_seven():
    sys.exit(7)


def test_processes_that_a_handler_starts_through_libraries_exit_as_usual():
    statuses = []

    def handle(record, _context):
        if record.offset == FORKING:
            context = multiprocessing.get_context("fork")
            process = context.Process(target=_exits_with_seven)
            process.start()
            process.join()
            statuses.append(process.exitcode)
            command = [sys.executable, "-c", "raise SystemExit(9)"]
            statuses.append(subprocess.run(command, check=False).returncode)  # noqa: S603 - our own code

    with executing("thread", handle, count=2) as made:
        made.finish(RECORDS)
    assert statuses == [7, 9]


def test_forked_child_is_killed_by_the_signal_that_stops_the_worker():
    taken = []
    with taking([signal.SIGTERM], taken.append):
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert (status, taken) == (-signal.SIGTERM, [])


def test_second_signal_restores_the_previous_signal_handlers():
    before = signal.getsignal(signal.SIGUSR1)
    seen = []

    def take(count):
        seen.append((count, signal.getsignal(signal.SIGUSR1) is before))

    with taking([signal.SIGUSR1], take):
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGUSR1)
    assert seen == [(1, False), (2, True)]


def test_reading_counts_in_a_forked_child_does_not_wait_for_a_parents_thread():
    kept = KeptRecords(time.monotonic)
    has_lock, leave = threading.Event(), threading.Event()

    def keep_lock():
        with kept.lock:
            has_lock.set()
            leave.wait()

    thread = threading.Thread(target=keep_lock)
    thread.start()
    has_lock.wait()
    assert is_true_in_child(lambda: kept.finished() == 0)
    leave.set()
    thread.join()
