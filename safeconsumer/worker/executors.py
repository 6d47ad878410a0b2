"""
Where handlers run: threads, and other executors driven by threads.
"""

import atexit
import contextlib
import multiprocessing
import pickle
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor
from multiprocessing.connection import Connection
from typing import Any, Protocol

from attrs import frozen

from safeconsumer._core import worker_events
from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.calls import (
    Answer,
    Handler,
    Slot,
    call_batch,
    call_each,
    call_elsewhere,
    context_of,
    outcome_of,
)
from safeconsumer.worker.control import HandlersFailError, ProcessDiedError
from safeconsumer.worker.lanes import Task
from safeconsumer.worker.outcomes import Outcome
from safeconsumer.worker.schedule import Schedule

# Time for the records of a hand-over that goes elsewhere: what it costs to get there
# must not matter.
ELSEWHERE_SECONDS = 0.02
ELSEWHERE_QUANTUM = 512
_END_SECONDS = 1.0


class Runner(Protocol):
    """
    Runs handlers on what a schedule hands out.
    """

    @property
    def slots(self) -> Sequence[Slot]:
        """
        Where handlers run.
        """

    def start(self) -> None:
        """
        Begin.
        """

    def stop(self) -> None:
        """
        End soon, without waiting for handlers that do not.
        """


@frozen(kw_only=True)
class Calls:
    """
    What is called, and how.

    Attributes:
        deadline: when running handlers are no longer waited for; None while nobody is.
    """

    handle: Handler
    is_batch: bool
    seconds: float
    deadline: Callable[[], float | None]
    emit: Callable[..., None]


class Threads:
    """
    Handlers run in daemon threads of this process, so that a stuck one stops no exit.
    """

    def __init__(self, schedule: Schedule, calls: Calls, count: int) -> None:
        self._schedule = schedule
        self._calls = calls
        self.slots = [Slot() for _ in range(count)]
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(slot,),
                name=f"safeconsumer-worker-{number}",
                daemon=True,
            )
            for number, slot in enumerate(self.slots)
        ]

    def start(self) -> None:
        """
        Start the threads.
        """
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """
        Let the threads end; one that is in a handler ends after it.
        """
        self._schedule.end()

    def _work(self, slot: Slot) -> None:
        slot.thread = threading.get_ident()
        wait_claim, complete = self._schedule.wait_claim, self._schedule.complete
        while (tasks := wait_claim()) is not None:
            complete([self._run(task, slot) for task in tasks])

    def _run(self, task: Task, slot: Slot) -> Outcome:
        calls = self._calls
        context = context_of(task, calls.deadline)
        if calls.is_batch:
            return call_batch(calls.handle, task, slot, context)
        return call_each(calls.handle, task, slot, context, calls.seconds)


class Elsewhere(Threads):
    """
    A thread per place drives it and waits for its answer; subclasses know the place.
    """

    def _run(self, task: Task, slot: Slot) -> Outcome:
        calls = self._calls
        slot.task, slot.index, slot.began = task, task.indexes[0], time.monotonic()
        records = [task.chunk.records[index] for index in task.indexes]
        about = (task.epoch.tp, task.attempt, task.epoch.number)
        try:
            answer = self._ask(slot, records, about)
        except ProcessDiedError as error:
            failed = [(index, error) for index in task.indexes]
            return Outcome(task=task, failed=failed, is_suspect=len(failed) > 1)
        except BaseException as error:  # noqa: BLE001 - what came back from there
            answer = (0, error)
        finally:
            slot.task = None
        seconds = time.monotonic() - slot.began
        return outcome_of(task, answer, seconds, is_batch=calls.is_batch)

    def _ask(self, slot: Slot, records: list[Any], about: Any) -> Answer:  # noqa: ANN401 - passed on
        raise NotImplementedError


class Foreign(Elsewhere):
    """
    Handlers run in somebody's ``concurrent.futures`` executor, which stays theirs.
    """

    def __init__(
        self, schedule: Schedule, calls: Calls, count: int, executor: Executor
    ) -> None:
        super().__init__(schedule, calls, count)
        self._executor = executor

    def _ask(self, slot: Slot, records: list[Any], about: Any) -> Answer:  # noqa: ARG002, ANN401 - its parent's
        try:
            future = self._executor.submit(
                call_elsewhere,
                self._calls.handle,
                records,
                about,
                is_batch=self._calls.is_batch,
                seconds=self._calls.seconds,
            )
        except RuntimeError as error:  # shut down or broken, and stays so
            message = f"the executor takes nothing more: {error}"
            raise HandlersFailError(message) from error
        try:
            return future.result()
        except (BrokenExecutor, CancelledError) as error:
            # With all that was in it, whoever is to blame.
            message = f"the executor broke, or cancelled what it took: {error!r}"
            raise HandlersFailError(message) from error


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
        self._children: dict[int, tuple[Any, Connection]] = {}
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
        for process, _ in list(self._children.values()):
            process.kill()

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
        for place, (process, pipe) in children:
            with contextlib.suppress(OSError):
                pipe.close()  # which one that waits takes for the end
            if place in busy:
                process.kill()
        until = time.monotonic() + _END_SECONDS
        for _, (process, _) in children:
            process.join(max(0.0, until - time.monotonic()))
            if process.exitcode is None:
                process.kill()

    def _ask(self, slot: Slot, records: list[Any], about: Any) -> Answer:  # noqa: ANN401 - its parent's
        process, pipe = self._child(slot)
        try:
            pipe.send((records, about))
            answer: Answer = pipe.recv()
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

    def _child(self, slot: Slot) -> tuple[Any, Connection]:
        child = self._children.get(id(slot))
        if child is not None:
            return child
        calls = self._calls
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_serve,
            args=(theirs, calls.handle, calls.is_batch, calls.seconds),
            name="safeconsumer-worker",
            daemon=True,
        )
        with theirs, self._starting:
            if self._is_stopped:
                message = "no process starts once the worker has stopped"
                raise ProcessDiedError(message)
            try:
                process.start()
            except OSError as error:
                message = f"no process can be started: {error}"
                raise HandlersFailError(message) from error
            child = self._children[id(slot)] = (process, ours)
        self._wait_ready(slot, process, ours)
        return child

    def _wait_ready(self, slot: Slot, process: Any, pipe: Connection) -> None:  # noqa: ANN401 - multiprocessing's
        # One that ends before it was given a record is the fault of none.
        try:
            pipe.recv()
        except (EOFError, OSError) as error:
            del self._children[id(slot)]
            process.join(_END_SECONDS)
            message = (
                f"a process ended with {process.exitcode} before it took a record; "
                f"what it wrote says why: the handler must be importable there, and a "
                f"script needs if __name__ == '__main__':"
            )
            raise HandlersFailError(message) from error


def _serve(
    pipe: Connection,
    handle: Handler,
    is_batch: bool,  # noqa: FBT001 - passed by position
    seconds: float,
) -> None:
    """
    Work in a child process until the pipe is closed.
    """
    # What a terminal or a service manager sends to all processes at once is for the one
    # that owns the consumer: it drains, and needs this one meanwhile.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pipe.send(None)  # the handler is here
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            records, about = pipe.recv()
            answer = call_elsewhere(
                handle, records, about, is_batch=is_batch, seconds=seconds
            )
            pipe.send(_sendable(answer))


def _sendable(answer: Answer) -> Answer:
    count, error = answer
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes, made just now
    except Exception:  # noqa: BLE001 - whatever its class does
        return count, RuntimeError(repr(error))
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
