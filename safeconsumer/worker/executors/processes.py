"""Runs handlers in separate processes."""

import atexit
import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import threading
import time
from concurrent.futures import Future, InvalidStateError
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from attrs import define, evolve

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import (
    HandlersCannotRunError,
    HandlerTimeoutError,
    LifespanError,
    ProcessDiedError,
    WorkerSettingError,
)
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.calls import END_SECONDS, LONGEST, Calls, Slot, StackOf
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.serving import ENDS_LATE, serve
from safeconsumer.worker.executors.threads import Threads
from safeconsumer.worker.handlers import Context
from safeconsumer.worker.partition import Outcome, Task
from safeconsumer.worker.tracebacks import shown

# Seconds within which a process must exit after a signal, or after it has closed its
# pipe.
_GONE_SECONDS = 1.0
# Seconds to wait for the worker to stop after one of its processes has exited early. A
# signal such as that of a Ctrl-C may have ended the process, and may also be meant for
# the worker, which notices it on the next turn of its loop.
_RECALL_SECONDS = 1.0
# The exit code that multiprocessing reports for a process, which may still be alive, if
# the fork server has exited.
_UNKNOWN = 255
# The maximum size of a stack in bytes, which is the capacity of a pipe, because the
# pipe is read only after the process has exited.
_STACK_BYTES = 65_536


@define(eq=False)
class _Child:
    """
    A process, the pipe to the process, and a second pipe for the process's stack.

    Only EOF on the pipe shows reliably that the process has exited. ``multiprocessing``
    reports living processes as exited if the fork server was killed.
    """

    process: Any
    pipe: Connection
    stack: Connection
    _is_orphan: bool = False

    def readables(self) -> list[Any]:
        """Return the objects that become readable on a message or on the process's exit."""
        return [self.pipe] if self._is_orphan else [self.pipe, self.process.sentinel]

    def has_message(self, seconds: float | None) -> bool:
        """
        Wait for a message; return False if no message arrives in time.

        Raises:
            EOFError: the process has exited, and a process that a handler forked keeps
                the pipe open. If no process keeps the pipe open, the method returns
                True, and ``recv()`` raises this error.
        """
        poller = select.poll()
        for readable in self.readables():
            poller.register(readable, select.POLLIN)
        ready = poller.poll(None if seconds is None else seconds * 1000)
        if not ready:
            return False
        if self.pipe.fileno() in [one for one, _ in ready]:
            return True
        if self.process.exitcode != _UNKNOWN:
            raise EOFError
        self._is_orphan = True
        return self.has_message(seconds)

    def last_message(self, seconds: float) -> LifespanError | None:
        """Wait until the process exits; return why it could not exit its lifespan."""
        with contextlib.suppress(EOFError, OSError):
            while self.has_message(seconds):
                message = self.pipe.recv()
                if isinstance(message, LifespanError):
                    return message
        return None

    def last_stack(self) -> str:
        """Return the stacks that the process wrote after the signal, or an empty string."""
        with contextlib.suppress(OSError):  # stop() has closed the pipe
            if self.stack.poll(0):
                found = os.read(self.stack.fileno(), _STACK_BYTES)
                return found.decode("utf-8", "replace")
        return ""

    def close(self) -> None:
        """Close the pipes, so that the process exits unless it is in a handler."""
        for one in (self.pipe, self.stack):
            with contextlib.suppress(OSError):
                one.close()

    def signal(self, number: int) -> None:
        """Send the process a signal if it may be alive."""
        if self.process.exitcode in (None, _UNKNOWN):
            with contextlib.suppress(OSError):
                os.kill(self.process.pid, number)

    def kill(self) -> None:
        """Kill the process if it may be alive."""
        self.signal(signal.SIGKILL)

    def end(self) -> int | None:
        """Wait for the process and return its exit code; kill it if it does not exit soon."""
        until = time.monotonic() + _GONE_SECONDS
        self.last_message(_GONE_SECONDS)
        self.process.join(max(0.0, until - time.monotonic()))
        self.kill()
        self.process.join(_GONE_SECONDS)
        code: int | None = self.process.exitcode
        return code


def check_picklable(what: str, thing: object) -> None:
    """
    Refuse an object that cannot be sent to another process.

    Raises:
        WorkerSettingError: the object cannot be sent.
    """
    try:
        pickle.dumps(thing)
    except Exception as error:
        message = (
            f"executor='process' sends {what} by name, and it cannot be imported "
            f"({shown(error)}): define it at the top of a module"
        )
        raise WorkerSettingError(message) from error


class NotBegunError(Exception):
    """A record was not handed over to a process, because no more processes are started."""


class Processes(Threads):
    """
    Runs handlers in processes; each process gets one record or one batch at a time.

    Each thread has its own process, and replaces that process if it exits. If an idle
    process exits, no record fails. If a process exits after a hand-over, the record or
    the batch fails, because the handler may have started.

    The processes are started by ``forkserver``, never by a plain fork, because a fork
    is not safe while kafka-python's thread is running.

    Raises:
        WorkerSettingError: the handler cannot be sent to another process.
    """

    _ends_late = True

    def __init__(self, decisions: Decisions, calls: Calls, count: int) -> None:
        here = evolve(calls, handle=self._call_in_child, lifespan=None)
        super().__init__(decisions, here, count)
        check_picklable("the handler, with its deserializers,", calls.handle)
        self._sent_work = calls.handle, calls.lifespan
        self._limit = calls.timeout
        if calls.timeout is not None and calls.timeout > LONGEST:
            self._limit = None
        self._context: Any = multiprocessing.get_context("forkserver")
        # maps the identifier of each thread to the thread's process
        self._children: dict[int, _Child] = {}
        self._starting = threading.Lock()
        self._recalled = InterruptibleEvent()
        self._recall, self._recalling = multiprocessing.Pipe(duplex=False)
        self._is_stopped = False
        self._pid = os.getpid()

    def start(self) -> None:
        """Start the threads; each thread starts its process once there is work for it."""
        # This exit handler runs before multiprocessing's own, which waits for the
        # processes without a time limit.
        atexit.register(self._kill)
        super().start()

    def _kill(self) -> None:
        # a forked child runs the exit handlers, too
        if os.getpid() == self._pid:
            for child in list(self._children.values()):
                child.kill()

    def recall(self) -> None:
        """Start no more processes, so that records that wait for a process are put back."""
        self._recalled.set()
        self._recalling.close()  # ends all waits for a first message

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Stop the processes; kill those that are in a handler."""
        until = time.monotonic() + seconds
        self.recall()
        atexit.unregister(self._kill)
        self._is_stopped = True
        children = list(self._children.items())
        super().stop(seconds)
        busy = self._in_a_handler()
        for place, child in children:
            if place in busy:
                child.kill()
                continue
            with contextlib.suppress(OSError):
                child.pipe.send(None)  # the process exits its lifespan and ends
        for place, child in children:
            if place not in busy:
                error = child.last_message(max(0.0, until - time.monotonic()))
                if error is not None:
                    self._decisions.fail(error)
            child.process.join(max(0.0, until - time.monotonic()))
            child.kill()
            child.close()
        # A process that is still being started is killed by the thread that starts it.
        if self._starting.acquire(timeout=max(0.0, until - time.monotonic())):
            self._starting.release()

    def _in_a_handler(self) -> set[int | None]:
        return {
            thread.ident
            for thread, slot in zip(self._threads, self.slots, strict=True)
            if (task := slot.task) is not None and task.letter is None
        }

    def _stack_of(self, _slot: Slot) -> StackOf:
        return lambda: None  # this thread's stack would not show the handler

    # ------------------------------------------------------------ asking

    def _run(self, task: Task, slot: Slot) -> Outcome:
        try:
            self._make_ready()  # done before the record begins
        except NotBegunError:
            return Outcome(task=task, left=task.indexes)
        except HandlersCannotRunError as error:
            slot.ended = error
            first, left = task.indexes[0], task.indexes[1:]
            return Outcome(task=task, failed=[(first, error)], left=left)
        outcome = super()._run(task, slot)
        for _, wrong in outcome.failed:
            # The traceback shows only calls in this process; a note on the exception
            # has the handler's own traceback.
            wrong.__traceback__ = None
        return outcome

    def _call_in_child(self, given: Any, context: Context) -> None:  # noqa: ANN401 - records
        """Call the handler in this thread's process, and raise its exception here."""
        tracer = self._calls.trace
        carrier = None if tracer is None else tracer.carrier()
        question = given, context.partition, context.attempt, carrier
        sent = pickle.dumps(question)  # twice as fast as in pipe.send()
        child = self._children[threading.get_ident()]
        wrong = self._answer(
            child, sent, len(given) if self._decisions.queue.policy.is_batch else 1
        )
        if wrong is not None:
            raise wrong

    def _answer(self, child: _Child, sent: bytes, count: int) -> BaseException | None:
        answer: tuple[BaseException | None] | LifespanError | None = None
        try:
            child.pipe.send_bytes(sent)
            if child.has_message(self._limit):
                answer = child.pipe.recv()
        except (EOFError, OSError) as error:
            return self._ended(child, count, error)
        except BaseException:  # otherwise a later call would read this answer
            self._discard(child)
            raise
        if answer is None:
            return self._late(child)
        # the process was already exiting when it received the record
        if isinstance(answer, LifespanError):
            return self._ended(child, count, answer)
        return answer[0]

    def _ended(
        self, child: _Child, count: int, error: Exception | None = None
    ) -> Exception:
        # Returns the failure of the ``count`` records that the process was handling.
        self._children.pop(threading.get_ident(), None)
        code = child.end()
        if not self._is_stopped:
            self._calls.emit(
                worker_events.WorkerProcessDied, exit_code=code, records=count
            )
            child.close()
        wrong = ProcessDiedError(f"its process ended with {code}")
        wrong.__cause__ = error
        return wrong

    def _late(self, child: _Child) -> HandlerTimeoutError:
        self._children.pop(threading.get_ident(), None)
        child.signal(ENDS_LATE)
        child.end()
        stack = child.last_stack()
        child.close()
        wrong = HandlerTimeoutError(
            f"the handler took longer than {self._calls.timeout:g} s: its process was "
            f"killed and is replaced"
        )
        if stack:
            wrong.add_note(stack)
        return wrong

    def _discard(self, child: _Child) -> None:
        self._children.pop(threading.get_ident(), None)
        child.kill()
        child.end()
        child.close()

    # ------------------------------------------------------------ starting

    def _make_ready(self) -> None:
        # Raises NotBegunError or HandlersCannotRunError if no process could be made
        # ready.
        child = self._children.get(threading.get_ident())
        if child is not None:
            with contextlib.suppress(EOFError, OSError):
                if not child.has_message(0.0):
                    return
            self._ended(child, 0)
        try:
            self._start_child()
        except (NotBegunError, HandlersCannotRunError):
            raise
        except Exception as error:
            message = f"no process can be started: {shown(error)}"
            raise HandlersCannotRunError(message) from error

    def _start_child(self) -> None:
        # If a process exits before it gets a record, no record fails.
        child = self._begin()
        try:
            wrong = self._first_message(child)
        except BaseException:
            self._discard(child)
            raise
        if wrong is None:
            return
        self._children.pop(threading.get_ident(), None)
        if self._is_stopped:
            raise NotBegunError from wrong
        child.close()
        raise wrong

    def _begin(self) -> _Child:
        ours, theirs = self._context.Pipe()
        reading, writing = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=serve,
            args=(theirs, writing),
            name="safeconsumer-worker",
            daemon=True,
        )
        child = _Child(process, ours, reading)
        with theirs, writing, self._starting:
            if self._recalled.is_set():
                raise NotBegunError
            self._start(process)
            self._children[threading.get_ident()] = child
            if self._recalled.is_set():  # stop() may have missed this process
                self._discard(child)
                raise NotBegunError
        return child

    def _start(self, process: Any) -> None:  # noqa: ANN401 - multiprocessing's own
        # The start has a time limit, because the fork server may block, too, while it
        # imports the script.
        begun: Future[None] = Future()

        def start() -> None:
            try:
                process.start()
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises the error
                with contextlib.suppress(InvalidStateError):
                    begun.set_exception(error)
                return
            try:
                begun.set_result(None)
            except InvalidStateError:  # the waiting thread has given up
                process.kill()

        threading.Thread(target=start, name=process.name, daemon=True).start()
        limit = min(self._calls.start_seconds, LONGEST)
        try:
            begun.result(limit)
        except TimeoutError:
            if not begun.cancel():
                begun.result()
                return
            message = f"a process was not started within {limit:g} s"
            raise HandlersCannotRunError(message) from None

    def _first_message(self, child: _Child) -> HandlersCannotRunError | None:
        limit = min(self._calls.start_seconds, LONGEST)
        until = time.monotonic() + limit
        try:
            if self._has_message(child, until):
                child.pipe.recv()
                # The handler is sent only now. If it were sent while the process is
                # still importing, it could fill the pipe, and sending would block.
                child.pipe.send(self._sent_work)
                if self._has_message(child, until):
                    error: HandlersCannotRunError | None = child.pipe.recv()
                    return error
        except (EOFError, OSError):
            code = child.end()
            if self._recalled.wait(_RECALL_SECONDS):
                raise NotBegunError from None
            return HandlersCannotRunError(
                f"a process ended with {code} before it took a record; see its stderr "
                f"for the reason: the handler must be importable there, and a script "
                f"needs if __name__ == '__main__':"
            )
        child.kill()
        return HandlersCannotRunError(
            f"a process was not ready within {limit:g} s, and was killed: it was still "
            f"importing or entering the lifespan; a longer Limits.age gives it more time"
        )

    def _has_message(self, child: _Child, until: float) -> bool:
        while ready := connection.wait(
            [*child.readables(), self._recall], max(0.0, until - time.monotonic())
        ):
            if ready == [self._recall]:
                raise NotBegunError
            if child.has_message(0.0):
                return True
        return False
