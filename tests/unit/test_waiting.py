"""The test suite's waits fail because of a hang, but not because of a busy machine."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest

from tests.harness import processes, timeouts, waiting
from tests.harness.processes import (
    Process,
    begun,
    forked,
    ran_python,
    status_of,
)
from tests.harness.waiting import (
    Bound,
    NotReachedError,
    code_of,
    core_waits,
    end_of,
    result_of,
    wait_for,
)
from tests.sim.lab import play


class Machine:
    """A fake clock, and threads that wait for a CPU core for part of each second."""

    def __init__(self, **parts):
        self.now = 0.0
        self.parts, self.waits = parts, dict.fromkeys(parts, 1000.0)

    def step(self, seconds):
        self.now += seconds
        for thread, part in self.parts.items():
            self.waits[thread] += part * seconds

    def until_over(self, bound):
        """Return the time at which a ``Bound`` is over; None if it is not within an hour."""
        while not bound.is_over():
            self.step(0.5)
            if self.now > 3600:
                return None
        return self.now

    def bound(self, limit):
        return Bound(limit, clock=lambda: self.now, waits=lambda: dict(self.waits))


@pytest.mark.parametrize(
    ("parts", "over"),
    [
        ({}, 10.5),
        ({"1": 0.0, "2": 0.0}, 10.5),
        ({"1": 0.0, "2": 0.5}, 19.5),
        ({"1": 0.25, "2": 0.25}, 19.5),
        ({"1": 0.0, "2": 1.0}, 600.5),
        ({"1": 1.0, "2": 1.0}, 600.5),
    ],
    ids=[
        "no kernel figures",
        "idle",
        "half",
        "half in two threads",
        "starved",
        "spin",
    ],
)
def test_time_in_which_a_thread_waits_for_a_core_does_not_count(parts, over):
    """Waits for a core before the ``Bound`` was created do not extend the limit."""
    machine = Machine(**parts)
    assert machine.until_over(machine.bound(10.0)) == over


def test_long_limit_is_extended_to_at_most_ten_times_its_length():
    """A thread that hangs in a busy loop also waits for a core."""
    machine = Machine(**{"1": 1.0})
    assert machine.until_over(machine.bound(90.0)) == 900.5


def test_wait_without_a_limit_never_ends_by_itself():
    machine = Machine(**{"1": 1.0})
    assert machine.until_over(machine.bound(None)) is None


def test_all_core_waits_of_a_thread_that_starts_during_a_wait_extend_the_limit():
    machine = Machine()
    bound = machine.bound(10.0)
    assert not bound.is_over()
    machine.now = 2.0
    assert not bound.is_over()
    machine.waits["3"], machine.now = 7.0, 12.0
    assert not bound.is_over()
    assert (bound.starved, str(bound)) == (7.0, "10 s beside 7 s of waits for a core")
    machine.now = 17.5
    assert bound.is_over()


@pytest.mark.skipif(sys.platform != "linux", reason="the figures are of Linux's kernel")
def test_threads_and_processes_of_a_test_are_counted():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:  # noqa: S603 - our own code
        found = core_waits()
        child.communicate(b"\n")
    over.set()
    end_of(thread)
    assert {str(threading.get_native_id()), str(child.pid)} <= found.keys()
    assert str(thread.native_id) in found
    assert min(found.values()) >= 0.0


def test_simulated_world_does_not_measure_waits_for_a_core():
    """Otherwise simulated histories would depend on the machine."""

    def read(_):
        machine = Machine(**{"1": 1.0})
        return machine.until_over(machine.bound(10.0))

    assert play(read) == 10.5


def test_process_that_has_exited_is_ignored(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "_PROC", tmp_path)
    assert core_waits(7) == {}
    (tmp_path / "7/task/8").mkdir(parents=True)
    (tmp_path / "9/task/9").mkdir(parents=True)
    (tmp_path / "9/stat").write_text("9 (a ) name) S 7 7 7")
    (tmp_path / "9/task/9/schedstat").write_text("1 2000000000 3\n")
    assert core_waits(7) == {"9": 2.0}


def test_hang_raises_an_error_with_the_last_state(monkeypatch):
    monkeypatch.setattr(waiting, "core_waits", dict)
    message = "an answer: not within 0.05 s; last seen: nothing"
    with pytest.raises(NotReachedError, match=message):
        wait_for(lambda: False, "an answer", 0.05, seen=lambda: "nothing")


@pytest.mark.parametrize(
    ("part", "over"), [(0.0, 32.0), (0.5, 61.0)], ids=["idle", "half"]
)
def test_time_limit_of_a_test_is_longer_on_a_busy_machine(part, over, monkeypatch):
    """After the first limit, a second limit applies, which excludes waits for a core."""
    machine = Machine(**{"1": part})
    timers = []
    monkeypatch.setattr(timeouts.signal, "setitimer", lambda *its: timers.append(its))
    ends = []
    alarm = timeouts.Alarm(lambda *its: ends.append(its), machine.bound, 30.0)
    while not ends:
        alarm(signal.SIGALRM, None)
        assert len(timers) == machine.now + (not ends)
        machine.step(1.0)
    assert ends == [(signal.SIGALRM, None)]
    assert {*timers} == {(signal.ITIMER_REAL, 1.0)}
    assert machine.now == over


@pytest.mark.skipif(
    not hasattr(signal, "SIGALRM"), reason="pytest-timeout has another method there"
)
def test_time_limit_of_each_test_excludes_waits_for_a_core():
    assert isinstance(signal.getsignal(signal.SIGALRM), timeouts.Alarm)


def test_interrupt_of_a_wait_reports_the_last_state():
    """For example, pytest's time limit interrupts a wait."""

    def interrupt():
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting.time, "sleep", lambda _: interrupt())
        with pytest.raises(KeyboardInterrupt) as caught:
            wait_for(lambda: False, "an answer", seen=lambda: "nothing")
    (note,) = caught.value.__notes__
    assert note == "the test waited for this: an answer; last seen: nothing"


def test_child_that_does_not_exit_is_killed():
    child = os.fork()
    if child == 0:
        signal.pause()
        os._exit(0)
    assert os.WTERMSIG(status_of(child, 0.01)) == signal.SIGKILL


@pytest.mark.parametrize("code", [0, 3])
def test_status_of_a_child_process_is_its_exit_code(code):
    assert os.waitstatus_to_exitcode(forked(lambda: os._exit(code))) == code


def test_program_that_does_not_exit_is_killed():
    """The message names the limit that was given for the program."""
    with pytest.raises(subprocess.TimeoutExpired, match=r"after 0\.01 seconds"):
        ran_python("-c", "import signal; signal.pause()", timeout=0.01)


@pytest.fixture
def machine(monkeypatch):
    """Make each check of a time limit take a second, half of it spent waiting for a core."""
    machine = Machine(**{"1": 0.5})

    def bound(limit):
        found = machine.bound(limit)
        is_over = found.is_over

        def look():
            machine.step(1.0)
            return is_over()

        found.is_over = look
        return found

    for module in (processes, waiting):
        monkeypatch.setattr(module, "Bound", bound)
        monkeypatch.setattr(module, "TURN", 0.001)
    return machine


PAUSES = [sys.executable, "-c", "import signal; signal.pause()"]


def test_awaited_line_may_take_longer_on_a_busy_machine(machine):
    with (
        Process(PAUSES) as process,
        pytest.raises(NotReachedError, match="not within 20 s beside 20 s of waits"),
    ):
        process.take(20.0)
    assert machine.now >= 40.0


def test_exit_of_a_program_may_take_longer_on_a_busy_machine(machine):
    with Process(PAUSES) as process:
        assert not process.wait()
    assert machine.now >= 40.0


@pytest.mark.usefixtures("machine")
def test_killed_program_may_exit_late_on_a_busy_machine(monkeypatch):
    """The program exits only during a wait that has no time limit."""
    with Process(PAUSES) as process:
        kill, wait = process._popen.kill, process._popen.wait

        def kill_and_wait(timeout=None):
            if timeout is None:
                kill()
            return wait(timeout)

        monkeypatch.setattr(process._popen, "kill", lambda: None)
        monkeypatch.setattr(process._popen, "wait", kill_and_wait)
    assert process.is_over


def test_program_that_does_not_exit_in_time_keeps_running(machine):
    with subprocess.Popen(PAUSES) as process:  # noqa: S603 - ours
        with pytest.raises(subprocess.TimeoutExpired, match=r"after 20\.0 seconds"):
            code_of(process)
        assert process.poll() is None
        process.kill()
    assert machine.now == 40.0


def test_started_program_may_exit_late_on_a_busy_machine(machine):
    with pytest.raises(subprocess.TimeoutExpired), begun(PAUSES):
        pass
    assert machine.now == 40.0


def test_input_is_sent_once_even_if_the_program_is_awaited_several_times(machine):
    """Each wait for the program is shorter than the interpreter takes to start."""
    done = ran_python("-c", "print(input())", input="a\n", timeout=None)
    assert done.stdout == "a\n"
    assert machine.now > 1.0


def test_call_on_another_thread_may_take_longer_on_a_busy_machine(machine):
    with pytest.raises(NotReachedError, match="the result of a call: not within 20 s"):
        result_of(Future(), 20.0)
    assert machine.now == 40.0


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("error", [TimeoutError, ValueError])
def test_error_of_a_call_on_another_thread_is_raised(error):
    called = Future()
    called.set_exception(error())
    with pytest.raises(error):
        result_of(called)
    answered = Future()
    answered.set_result(3)
    assert result_of(answered) == 3
