"""Runs handlers in separate processes."""

import atexit
import contextlib
import functools
import multiprocessing
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import RawArray
from typing import TYPE_CHECKING, Any

from attrs import define, evolve

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import (
    HandlersCannotRunError,
    HandlerTimeoutError,
    LifespanError,
    ProcessDiedError,
)
from safeconsumer.worker import events as worker_events
from safeconsumer.worker.calls import (
    About,
    Answer,
    Slot,
    StackOf,
    blamed,
    outcome_of,
)
from safeconsumer.worker.executors.base import END_SECONDS, LONGEST, Calls
from safeconsumer.worker.executors.serving import BEGAN, FINISHED, serve
from safeconsumer.worker.executors.threads import Threads
from safeconsumer.worker.executors.travel import check_picklable
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tasks import Outcome, Task
from safeconsumer.worker.tracebacks import shown

if TYPE_CHECKING:
    from safeconsumer.worker.tracing import Attempt

# Seconds for a process to end after it was killed or has closed its pipe.
_GONE_SECONDS = 1.0
# Seconds to wait after an interrupt: the signal that ends a process, such as a Ctrl-C,
# may also be for the worker, which notices it when its loop turns.
_TOLD_SECONDS = 1.0
# Seconds between two looks at which record a process works on.
_WATCH_SECONDS = 1.0
# Nothing of a hand-over is finished, nor is it taken yet.
_NOT_TAKEN = -1.0
# If this many processes in a row end before they take a record, that is no accident.
_STARTS = 3


@define
class _Child:
    process: Any
    pipe: Connection
    progress: Any

    def receive(self) -> Any:  # noqa: ANN401 - whatever it says
        """
        Return what it says, once it says something or has ended.

        Raises:
            EOFError: it has ended.
        """
        # A dead process' end of the pipe may live on in what its handler has forked.
        if not self.pipe.poll(0):
            raise EOFError
        return self.pipe.recv()

    def last_word(self) -> LifespanError | None:
        """Return why it could not leave its lifespan, once it has ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.pipe.poll(0):
                said = self.pipe.recv()
                if isinstance(said, LifespanError):
                    return said
        return None

    def close(self) -> None:
        """Let it end, unless it is in a handler."""
        with contextlib.suppress(OSError):
            self.pipe.close()  # a waiting process then ends

    def kill(self) -> None:
        """Kill it, and wait until it has ended."""
        self.process.kill()
        self.process.join(_GONE_SECONDS)

    @property
    def finished(self) -> int:
        """
        How many records of its hand-over are finished.

        It is below 0 while the process has not taken it.
        """
        return int(self.progress[FINISHED])

    @property
    def began(self) -> float:
        """When it began with its current record."""
        return float(self.progress[BEGAN])


def _about(task: Task, attempt: "Attempt | None") -> About:
    carrier = None if attempt is None else attempt.carrier()
    return task.epoch.tp, task.attempt, carrier


class NotBegunError(Exception):
    """Records that were handed over are back: none of them was begun or has failed."""


class Processes(Threads):
    """
    Runs handlers in separate processes, one task at a time in each.

    They are made by ``forkserver`` where it exists, else by ``spawn``: never by a plain
    fork, since kafka-python's thread is alive. A process that dies, or is killed
    because a record takes too long, is replaced, and only its current record has
    failed; in a batch that record is not known, so all are tried again one by one.

    Raises:
        WorkerSettingError: the handler cannot be sent to another process.
    """

    _ends_late = True

    def __init__(self, schedule: Schedule, calls: Calls, count: int) -> None:
        super().__init__(schedule, evolve(calls, lifespan=None), count)
        check_picklable("the handler, with its deserializers,", calls.handle)
        self._lifespan_there = calls.lifespan
        methods = multiprocessing.get_all_start_methods()
        method = "forkserver" if "forkserver" in methods else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        self._children: dict[int, _Child] = {}
        self._starting = threading.Lock()
        for slot in self.slots:
            slot.goes_on = True
        self._recalled = InterruptibleEvent()
        self._recall, self._recalling = multiprocessing.Pipe(duplex=False)
        self._is_stopped = False

    def start(self) -> None:
        """Start the threads; processes are started when there is work for them."""
        # It runs before multiprocessing's own exit handler, which waits without a
        # limit.
        atexit.register(self._kill)
        super().start()

    def _kill(self) -> None:
        for child in list(self._children.values()):
            child.process.kill()

    def recall(self) -> None:
        """Start no more processes: records that wait for one have not begun."""
        self._recalled.set()
        self._recalling.close()  # ends the waits for a first answer

    def stop(self, seconds: float = END_SECONDS) -> None:
        """End the processes; those that are in a handler are killed."""
        until = time.monotonic() + seconds
        self.recall()
        atexit.unregister(self._kill)
        self._is_stopped = True
        children = list(self._children.items())
        super().stop(seconds)
        busy = {
            id(slot)
            for slot in self.slots
            if (task := slot.task) is not None and task.letter is None
        }
        for place, child in children:
            if place in busy:
                child.process.kill()
                continue
            with contextlib.suppress(OSError):
                child.pipe.send(None)  # it leaves its lifespan, and ends
        for place, child in children:
            child.process.join(max(0.0, until - time.monotonic()))
            if child.process.exitcode is None:
                child.process.kill()
            error = None if place in busy else child.last_word()
            if error is not None:
                self._schedule.fail(error)
            child.close()
        # A process that is being started is killed by the thread that starts it.
        if self._starting.acquire(timeout=max(0.0, until - time.monotonic())):
            self._starting.release()

    def _stack_of(self, _slot: Slot) -> StackOf:
        return lambda: None  # that of the thread here would say nothing

    def _run(self, task: Task, slot: Slot) -> Outcome:
        records = [task.chunk.records[index] for index in task.indexes]
        began, attempt = time.monotonic(), None
        try:
            self._prepare(slot)
            slot.index, slot.began = task.indexes[0], (began := time.monotonic())
            slot.task = task
            if task.epoch.is_held:  # held since it was claimed
                return Outcome(task=task, left=task.indexes)
            attempt = self._attempt(task, records)
            ask = functools.partial(self._ask, slot, records, _about(task, attempt))
            journal = self._schedule.journal
            answer = ask() if journal is None else journal.around_answer(ask, task)
        except NotBegunError:  # a span that is not ended is never exported
            return Outcome(task=task, left=task.indexes)
        except BaseException as error:  # noqa: BLE001 - the error of the other side
            answer = (0, blamed(error))
        finally:
            slot.task = None
        now = time.monotonic()
        last = min(now - began, max(0.0, now - slot.began))
        if attempt is not None:
            attempt.end(answer[1])
        return outcome_of(
            task,
            answer,
            now - began,
            is_batch=self._calls.is_batch,
            last=last,
        )

    def _attempt(self, task: Task, records: list[Any]) -> "Attempt | None":
        # The span lives here, and its context is sent along.
        if self._calls.trace is None:
            return None
        given = records if self._calls.is_batch else records[0]
        return self._calls.trace.begin(given, task.epoch.tp, task.attempt)

    # ------------------------------------------------------------ asking

    def _ask(self, slot: Slot, records: list[Any], about: About) -> Answer:
        for _ in range(_STARTS):
            answer = self._ask_child(slot, self._children[id(slot)], (records, about))
            if answer is not None:
                return answer
            self._prepare(slot)
            if slot.task is None or slot.task.epoch.is_held:  # held just now
                raise NotBegunError
        message = (
            f"{_STARTS} processes one after the other ended before they took a record"
        )
        raise HandlersCannotRunError(message)

    def _ask_child(
        self, slot: Slot, child: _Child, question: tuple[Sequence[Any], Any]
    ) -> Answer | None:
        # Returns None if the process has ended before it took them. The array is
        # copied: a traceback may keep this frame, and a view in it, for the collector,
        # and Python 3.13 reports an error of the buffer behind the view then.
        sent = bytes(ForkingPickler.dumps(question))
        child.progress[FINISHED] = _NOT_TAKEN
        try:
            child.pipe.send_bytes(sent)
            if self._is_late(slot, child):
                return self._end_late(slot, child)
            answer: Answer | LifespanError = child.receive()
            slot.began = child.began
        except (EOFError, OSError) as error:
            return self._bury(slot, child, len(question[0]), error)
        except BaseException:  # else its answer would count for the next question
            self._forget(slot, child)
            raise
        if isinstance(answer, LifespanError):  # it was leaving when it was asked
            return self._bury(slot, child, len(question[0]), answer)
        return answer

    def _forget(self, slot: Slot, child: _Child) -> None:
        self._children.pop(id(slot), None)
        child.kill()
        child.close()

    def _is_late(self, slot: Slot, child: _Child) -> bool:
        # Returns once there is an answer, the process has ended, or one record has
        # taken too long.
        task, limit = slot.task, self._calls.timeout
        assert task is not None  # noqa: S101 - it was just set
        wait = _WATCH_SECONDS if limit is None else min(limit, _WATCH_SECONDS)
        while not connection.wait([child.pipe, child.process.sentinel], wait):
            finished, began = child.finished, child.began
            if not 0 <= finished < len(task.indexes):
                continue
            slot.index, slot.began = task.indexes[finished], began
            if limit is not None:
                left = began + limit - time.monotonic()
                if left <= 0:
                    return True
                wait = min(left, _WATCH_SECONDS)
        return False

    def _end_late(self, slot: Slot, child: _Child) -> Answer:
        self._forget(slot, child)
        finished = child.finished
        if child.began != slot.began:  # it finished in time after all
            return finished, None
        message = (
            f"the handler took longer than {self._calls.timeout:g} s: its process was "
            f"killed and is replaced"
        )
        return finished, HandlerTimeoutError(message)

    def _bury(
        self, slot: Slot, child: _Child, count: int, error: Exception
    ) -> Answer | None:
        self._children.pop(id(slot), None)
        child.process.join(_GONE_SECONDS)
        if child.process.exitcode is None:  # it has closed its pipe but still runs
            child.kill()
        finished, code = child.finished, child.process.exitcode
        is_taken = finished >= 0
        if not self._is_stopped:
            self._calls.emit(
                worker_events.WorkerProcessDied,
                exit_code=code,
                records=count - finished if is_taken else 0,
            )
            child.close()
        if not is_taken or finished == count:
            return (count, None) if is_taken else None
        wrong = ProcessDiedError(f"its process ended with {code}")
        wrong.__cause__ = error
        return finished, wrong

    # ------------------------------------------------------------ starting

    def _prepare(self, slot: Slot) -> None:
        if id(slot) in self._children:
            return
        try:
            self._wait_ready(slot, self._start_child(slot))
        except NotBegunError:
            raise
        except HandlersCannotRunError as error:
            slot.ended = error
            raise
        except Exception as error:
            message = f"no process can be started: {shown(error)}"
            slot.ended = HandlersCannotRunError(message)
            raise slot.ended from error

    def _start_child(self, slot: Slot) -> _Child:
        ours, theirs = self._context.Pipe()
        progress = RawArray("d", 2)
        process = self._context.Process(
            target=serve,
            args=(theirs, progress),
            name="safeconsumer-worker",
            daemon=True,
        )
        child = _Child(process, ours, progress)
        with theirs, self._starting:
            if self._recalled.is_set():
                raise NotBegunError
            self._begin(process)
            self._children[id(slot)] = child
            if self._recalled.is_set():  # a stop may not have seen it
                self._forget(slot, child)
                raise NotBegunError
        return child

    def _begin(self, process: Any) -> None:  # noqa: ANN401 - of either kind
        # The fork server may stand in the import of the script, too.
        begun: Future[None] = Future()

        def begin() -> None:
            try:
                process.start()
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                with contextlib.suppress(InvalidStateError):
                    begun.set_exception(error)
                return
            try:
                begun.set_result(None)
            except InvalidStateError:  # nobody waits any more
                process.kill()

        threading.Thread(target=begin, name=process.name, daemon=True).start()
        limit = min(self._calls.start_seconds, LONGEST)
        try:
            begun.result(limit)
        except TimeoutError:
            if not begun.cancel():
                begun.result()
                return
            message = f"a process was not started within {limit:g} s"
            raise HandlersCannotRunError(message) from None

    def _wait_ready(self, slot: Slot, child: _Child) -> None:
        # If a process ends before it was given a record, no record has failed.
        try:
            wrong = self._first_word(child)
        except BaseException:
            self._forget(slot, child)
            raise
        if wrong is None:
            return
        self._children.pop(id(slot), None)
        if self._is_stopped:
            raise NotBegunError from wrong
        child.close()
        raise wrong

    def _first_word(self, child: _Child) -> HandlersCannotRunError | None:
        calls, limit = self._calls, min(self._calls.start_seconds, LONGEST)
        until = time.monotonic() + limit
        try:
            if self._has_spoken(child, until):
                child.receive()
                # Sent before, it may fill the pipe to a process that is in an import.
                child.pipe.send(
                    (calls.handle, calls.is_batch, calls.seconds, self._lifespan_there)
                )
                if self._has_spoken(child, until):
                    said: HandlersCannotRunError | None = child.receive()
                    return said
        except (EOFError, OSError):
            child.process.join(_GONE_SECONDS)
            if self._recalled.wait(_TOLD_SECONDS):
                raise NotBegunError from None
            return HandlersCannotRunError(
                f"a process ended with {child.process.exitcode} before it took a "
                f"record; its stderr says why: the handler must be importable "
                f"there, and a script needs if __name__ == '__main__':"
            )
        child.kill()
        return HandlersCannotRunError(
            f"a process was not ready within {limit:g} s, and was killed: it was in its "
            f"imports or entered the lifespan; a longer Limits.age gives them more time"
        )

    def _has_spoken(self, child: _Child, until: float) -> bool:
        # Also true if it has ended.
        those = [child.pipe, child.process.sentinel, self._recall]
        heard = connection.wait(those, max(0.0, until - time.monotonic()))
        if heard == [self._recall]:
            raise NotBegunError
        return bool(heard)
