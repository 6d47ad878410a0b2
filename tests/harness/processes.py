"""Starts programs, reads their output line by line, and stops them by process id."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from tests.harness.brokers.java import tied_to_us
from tests.harness.waiting import (
    END_LIMIT,
    LIMIT,
    TURN,
    Bound,
    NotReachedError,
    code_of,
    end_of,
    output_of,
    wait_for,
)

ROOT = Path(__file__).parents[2]


def module(name, *arguments):
    """Return the command that runs a module of this test suite."""
    return [sys.executable, "-m", name, *arguments]


class Process:
    """
    A program that reads lines from stdin and writes lines to stdout.

    Leaving the context manager kills the program. The thread that creates the object
    must outlive the program, because the program is killed when that thread ends.

    Attributes:
        lines: the lines that the program has printed so far, except those that
            :meth:`take` has returned.
    """

    def __init__(self, command, *, read=str.rstrip, log=None, env=None):
        self.lines = []
        self._read = read
        self._is_at_end = False
        self._changed = threading.Condition()
        with contextlib.ExitStack() as opened:
            errors = None if log is None else opened.enter_context(log.open("ab"))
            self._popen = subprocess.Popen(  # noqa: S603 - our own code
                tied_to_us(list(command)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, **(env or {})},
                text=True,
            )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def _listen(self):
        try:
            for line in self._popen.stdout or ():
                kept = self._read(line)
                with self._changed:
                    self.lines.append(kept)
                    self._changed.notify_all()
        finally:
            with self._changed:
                self._is_at_end = True
                self._changed.notify_all()

    # ------------------------------------------------------------ input and output

    def tell(self, line):
        """Write a line to the program's stdin, unless the program has exited."""
        stdin = self._popen.stdin
        if stdin is None or stdin.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            stdin.write(f"{line}\n")
            stdin.flush()

    def take(self, limit):
        """Wait for the next line, remove it and return it; None at the end of the output."""
        bound = Bound(limit)
        with self._changed:
            while not self._changed.wait_for(
                lambda: self.lines or self._is_at_end, min(limit, TURN)
            ):
                if bound.is_over():
                    message = f"a line of {self._popen.args}: not within {bound}"
                    raise NotReachedError(message)
            return self.lines.pop(0) if self.lines else None

    def last(self, key):
        """Return a key's value in the newest line that has the key; None without one."""
        return next((one[key] for one in reversed(self.lines) if key in one), None)

    # ------------------------------------------------------------ its life

    @property
    def is_over(self):
        return self._popen.poll() is not None

    def send_signal(self, number):
        self._popen.send_signal(number)

    def freeze(self):
        self.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.send_signal(signal.SIGCONT)

    def kill(self):
        """Kill the program as a crash would; a second call does nothing."""
        self._popen.kill()
        self._clear_up()

    def begin_to_end(self):
        """Close the program's stdin, which makes our own programs exit."""
        if self._popen.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._popen.stdin.close()

    def end(self, limit=END_LIMIT):
        """Close the program's stdin, and wait for its exit; return False if it was killed."""
        self.begin_to_end()
        return self.wait(limit)

    def wait(self, limit=END_LIMIT):
        """Wait until the program exits; kill it at the limit, and return False if so."""
        try:
            code_of(self._popen, limit)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self._clear_up()
        return True

    def _clear_up(self):
        self._popen.wait()  # needs no limit: the program has exited or was killed
        with contextlib.suppress(NotReachedError):  # a child may keep the pipe open
            end_of(self._listener, END_LIMIT)
        self.begin_to_end()
        if self._popen.stdout is not None:
            self._popen.stdout.close()


def forked(do):
    """Call a function in a forked child; return the child's wait status."""
    child = os.fork()
    if child == 0:
        try:
            do()
            os._exit(0)
        finally:
            os._exit(1)
    return status_of(child)


def status_of(child, limit=LIMIT):
    """Return the wait status of a forked child; kill a child that does not exit in time."""
    ended = []

    def is_over():
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            ended.append(status)
        return ended

    try:
        wait_for(is_over, "the end of a child", limit)
    except NotReachedError:
        os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    return ended[0]


def ran(*command, timeout=LIMIT, check=False, **how):
    """
    Run a program until it exits; return the completed process with its output as text.

    ``timeout=None`` means no time limit.

    Raises:
        TimeoutExpired: the program was killed at the limit; time spent waiting for a
            core does not count.
    """
    arguments, given = [str(one) for one in command], how.pop("input", None)
    pipes = (
        {"text": True} if given is None else {"text": True, "stdin": subprocess.PIPE}
    )
    if how.pop("capture_output", True):
        pipes |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(arguments, **(pipes | how)) as process:  # noqa: S603 - our own
        try:
            output, errors = output_of(process, timeout, given)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(arguments, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def ran_python(*arguments, **how):
    """Run this Python interpreter until it exits, as :func:`ran` does."""
    return ran(sys.executable, *arguments, **how)


@contextlib.contextmanager
def begun(command, **how):
    """
    Run a program, which the block must tell to stop; then wait until it exits.

    The program is killed if it does not exit in time or if the block fails. Without the
    kill the test would wait for the program beyond pytest's time limit.

    Raises:
        TimeoutExpired: the program had to be killed.
    """
    with subprocess.Popen(command, **how) as process:  # noqa: S603 - our own code
        try:
            yield process
            code_of(process)
        except BaseException:
            process.kill()
            raise


@contextlib.contextmanager
def logged(command, log, env=None):
    """Run a program that logs to a file; kill it and its children after the block."""
    with log.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - our own command line
            tied_to_us(list(command)),
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # all have exited
            os.killpg(process.pid, signal.SIGKILL)
        code_of(process)
