"""
Handlers in processes of their own.
"""

import atexit
import contextlib
import multiprocessing
import pickle
import signal
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from attrs import define, field

from safeconsumer.errors import WorkerSettingError
from safeconsumer.events import worker as worker_events
from safeconsumer.worker import tracebacks
from safeconsumer.worker.executors.base import Calls
from safeconsumer.worker.executors.threads import Elsewhere
from safeconsumer.worker.handlers import (
    Answer,
    Handler,
    HandlersFailError,
    ProcessDiedError,
    Slot,
    call_elsewhere,
)
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import chain, shown


def serve(
    pipe: Connection,
    questions: Connection,
    handle: Handler,
    is_batch: bool,  # noqa: FBT001 - passed by position
    seconds: float,
) -> None:
    """
    Work in a child process until the pipe is closed; meanwhile say where it stands.
    """
    # What a terminal or a service manager sends to all processes at once is for the one
    # that owns the consumer: it drains, and needs this one meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Thread(
        target=_tell_stack, args=(questions, threading.get_ident()), daemon=True
    ).start()
    pipe.send(None)  # the handler is here
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            records, about = pipe.recv()
            answer = call_elsewhere(
                handle, records, about, is_batch=is_batch, seconds=seconds
            )
            pipe.send(_sendable(answer))


def _tell_stack(questions: Connection, thread: int) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            questions.recv()
            questions.send(tracebacks.of_thread(thread))


def call_and_send(*args: Any, **settings: Any) -> Answer:  # noqa: ANN401 - passed on
    """
    Call the handler in a process of somebody's executor.

    An error that cannot be sent back would break that executor with all it has.
    """
    return _sendable(call_elsewhere(*args, **settings))


def _sendable(answer: Answer) -> Answer:
    count, error = answer
    if error is None:
        return answer
    with contextlib.suppress(Exception):  # whatever its class does
        error.add_note(chain(error))  # a traceback does not travel by itself
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, made just now
    except BaseException:  # noqa: BLE001 - whatever its class does
        plain = RuntimeError(shown(error))
        plain.add_note(chain(error))
        return count, plain
    return answer


def check_picklable(handle: Handler) -> None:
    """
    Return if a handler can be sent to another process.

    Raises:
        WorkerSettingError: it cannot.
    """
    try:
        pickle.dumps(handle)
    except Exception as error:
        message = (
            f"executor='process' sends the handler by name, and {handle!r} has none "
            f"that can be imported: define it at the top of a module"
        )
        raise WorkerSettingError(message) from error


_END_SECONDS = 1.0
# Whoever asks where a handler stands may be the one that polls.
_LOOK_SECONDS = 0.25


@define
class _Child:
    process: Any
    pipe: Connection
    questions: Connection
    looking: threading.Lock = field(factory=threading.Lock)
    is_asked: bool = False

    def close(self) -> None:
        """
        Have it end, if it is not in a handler.
        """
        with contextlib.suppress(OSError):
            self.pipe.close()  # which one that waits takes for the end
            self.questions.close()

    def stack(self) -> str | None:
        """
        Ask where its handler stands; None if it does not answer soon.
        """
        with self.looking, contextlib.suppress(EOFError, OSError):
            if not self.is_asked:
                self.questions.send(None)
            self.is_asked = not self.questions.poll(_LOOK_SECONDS)
            return None if self.is_asked else self.questions.recv()
        return None


class Processes(Elsewhere):
    """
    Handlers run in processes of their own, one task at a time in each.

    Made by ``forkserver`` where there is one, else by ``spawn``: never by a plain
    fork, since kafka-python's thread is alive. One that dies is replaced, and what it
    was working on is tried again record by record.

    Raises:
        WorkerSettingError: the handler cannot be sent to another process.
    """

    def __init__(self, schedule: Schedule, calls: Calls, count: int) -> None:
        super().__init__(schedule, calls, count)
        check_picklable(calls.handle)
        methods = multiprocessing.get_all_start_methods()
        method = "forkserver" if "forkserver" in methods else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        self._children: dict[int, _Child] = {}
        self._starting = threading.Lock()
        self._is_stopped = False

    def start(self) -> None:
        """
        Start the threads; processes when there is work for them.
        """
        # Before multiprocessing's own, which asks them to end and waits for good.
        atexit.register(self._kill)
        super().start()

    def _kill(self) -> None:
        for child in list(self._children.values()):
            child.process.kill()

    def stop(self) -> None:
        """
        End the processes; those in a handler by force.
        """
        atexit.unregister(self._kill)
        with self._starting:  # one that starts is there, or never will be
            self._is_stopped = True
            children = list(self._children.items())
        super().stop()
        busy = {id(slot) for slot in self.slots if slot.task is not None}
        for place, child in children:
            child.close()
            if place in busy:
                child.process.kill()
        until = time.monotonic() + _END_SECONDS
        for _, child in children:
            child.process.join(max(0.0, until - time.monotonic()))
            if child.process.exitcode is None:
                child.process.kill()

    def _look(self, slot: Slot) -> str | None:
        child = self._children.get(id(slot))
        return None if child is None else child.stack()

    def _ask(self, slot: Slot, records: list[Any], about: Any) -> Answer:  # noqa: ANN401 - its parent's
        child = self._children[id(slot)]
        process = child.process
        try:
            child.pipe.send((records, about))
            answer: Answer = child.pipe.recv()
        except (EOFError, OSError) as error:
            del self._children[id(slot)]
            process.join(_END_SECONDS)
            if not self._is_stopped:
                self._calls.emit(
                    worker_events.WorkerProcessDied,
                    exit_code=process.exitcode,
                    records=len(records),
                )
            message = f"its process ended with {process.exitcode}"
            raise ProcessDiedError(message) from error
        return answer

    def _prepare(self, slot: Slot) -> None:
        if id(slot) in self._children:
            return
        calls = self._calls
        ours, theirs = self._context.Pipe()
        asking, asked = self._context.Pipe()
        process = self._context.Process(
            target=serve,
            args=(theirs, asked, calls.handle, calls.is_batch, calls.seconds),
            name="safeconsumer-worker",
            daemon=True,
        )
        with theirs, asked, self._starting:
            if self._is_stopped:
                message = "no process starts once the worker has stopped"
                raise ProcessDiedError(message)
            try:
                process.start()
            except OSError as error:
                message = f"no process can be started: {error}"
                raise HandlersFailError(message) from error
            child = self._children[id(slot)] = _Child(process, ours, asking)
        self._wait_ready(slot, child)

    def _wait_ready(self, slot: Slot, child: _Child) -> None:
        # One that ends before it was given a record is the fault of none.
        try:
            child.pipe.recv()
        except (EOFError, OSError) as error:
            del self._children[id(slot)]
            child.process.join(_END_SECONDS)
            message = (
                f"a process ended with {child.process.exitcode} before it took a "
                f"record; what it wrote says why: the handler must be importable "
                f"there, and a script needs if __name__ == '__main__':"
            )
            raise HandlersFailError(message) from error
