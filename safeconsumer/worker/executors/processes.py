"""
Handlers in processes of their own.
"""

import atexit
import contextlib
import functools
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from multiprocessing.sharedctypes import RawArray
from typing import Any

from attrs import define, evolve, field

from safeconsumer.errors import WorkerSettingError
from safeconsumer.events import worker as worker_events
from safeconsumer.worker import tracebacks
from safeconsumer.worker.executors.base import END_SECONDS, LONGEST, Calls
from safeconsumer.worker.executors.lifespan import MakeLifespan, enter
from safeconsumer.worker.executors.threads import Elsewhere, NotBegunError
from safeconsumer.worker.executors.travel import Parcel, sendable
from safeconsumer.worker.handlers import (
    About,
    Answer,
    Handler,
    HandlersFailError,
    HandlerTimeoutError,
    LifespanError,
    ProcessDiedError,
    Slot,
    StackOf,
    call_in_process,
)
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown

# What a child and its parent both see: how many records of the hand-over are finished,
# and when the next one was begun, by the clock that all processes share.
_FINISHED, _BEGAN = 0, 1
_NOT_TAKEN = -1.0


def serve(  # noqa: PLR0913, PLR0917 - passed by position
    pipe: Connection,
    questions: Connection,
    progress: Any,  # noqa: ANN401 - a shared array
    handle: Handler,
    is_batch: bool,  # noqa: FBT001 - passed by position
    seconds: float,
    lifespan: MakeLifespan | None,
) -> None:
    """
    Work in a child process until the pipe is closed; meanwhile say where it stands.
    """
    _leave_signals_to_the_worker()
    threading.Thread(
        target=_tell_stack, args=(questions, threading.get_ident()), daemon=True
    ).start()

    def begin(count: int) -> None:
        progress[_BEGAN] = time.monotonic()  # first, so that it is never too early
        progress[_FINISHED] = count

    with contextlib.ExitStack() as stack:
        try:
            state = enter(stack, lifespan)
        except LifespanError as error:
            pipe.send(sendable((0, error))[1])
            return
        with contextlib.suppress(EOFError, ConnectionError):
            pipe.send(None)  # the handler is here
            while True:
                records, about = pipe.recv()
                answer = call_in_process(
                    handle,
                    records,
                    about,
                    is_batch=is_batch,
                    seconds=seconds,
                    state=state,
                    begin=begin,
                )
                pipe.send(sendable(answer))


def _leave_signals_to_the_worker() -> None:
    # What a terminal or a service manager sends to all processes at once is for the one
    # that owns the consumer: it drains, and needs this one meanwhile. Not SIG_IGN:
    # programs that the handler starts would inherit that.
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _pass_by)
            signal.siginterrupt(number, False)  # noqa: FBT003 - its signature

    def restore() -> None:
        for number, handler in before.items():
            if signal.getsignal(number) is _pass_by:
                signal.signal(number, handler or signal.SIG_DFL)

    os.register_at_fork(after_in_child=restore)


def _pass_by(*_signal: object) -> None:
    """
    Do nothing.
    """


def _tell_stack(questions: Connection, thread: int) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            questions.recv()
            questions.send(tracebacks.of_thread(thread))


def call_and_send(*args: Any, **settings: Any) -> tuple[int, Parcel | None]:  # noqa: ANN401 - passed on
    """
    Call the handler in a process of somebody's executor.

    An error that cannot be sent back would break that executor with all it has.
    """
    return sendable(call_in_process(*args, **settings))


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
            f"the handler goes to another process by name, and {handle!r} has none "
            f"that can be imported: define it at the top of a module"
        )
        raise WorkerSettingError(message) from error


# For one that was killed, or has closed its pipe, to be gone.
_GONE_SECONDS = 1.0
# Whoever asks where a handler stands may be the one that polls.
_LOOK_SECONDS = 0.25
# What ends a process, such as a Ctrl-C, may be for the worker, which is told when its
# loop turns.
_TOLD_SECONDS = 1.0
# How often it is looked at which record a process is at.
_WATCH_SECONDS = 1.0
# So many processes one after the other that end before they take a record are no
# accident.
_STARTS = 3


@define
class _Child:
    process: Any
    pipe: Connection
    questions: Connection
    progress: Any
    looking: threading.Lock = field(factory=threading.Lock)
    is_asked: bool = False
    asked_at: float = 0.0

    def close(self) -> None:
        """
        Have it end, if it is not in a handler.
        """
        with contextlib.suppress(OSError):
            self.pipe.close()  # which one that waits takes for the end
            self.questions.close()

    def kill(self) -> None:
        """
        End it by force, and wait for that.
        """
        self.process.kill()
        self.process.join(_GONE_SECONDS)

    def ask(self) -> None:
        """
        Have it say where its handler stands.
        """
        with self.looking, contextlib.suppress(EOFError, OSError):
            if self.is_asked and self.questions.poll(0):
                self.questions.recv()  # it came too late, and says where it stood then
                self.is_asked = False
            self._ask()

    def _ask(self) -> None:
        if not self.is_asked:
            self.questions.send(None)
            self.is_asked, self.asked_at = True, time.monotonic()

    def stack(self) -> str | None:
        """
        Return where its handler stands; None if it does not say so soon.
        """
        with self.looking, contextlib.suppress(EOFError, OSError):
            self._ask()
            left = self.asked_at + _LOOK_SECONDS - time.monotonic()
            if self.questions.poll(max(0.0, left)):
                self.is_asked = False
                said: str = self.questions.recv()
                return said
        return None

    @property
    def finished(self) -> int:
        """
        How many records of its hand-over are finished; below 0: it has not taken it.
        """
        return int(self.progress[_FINISHED])

    @property
    def began(self) -> float:
        """
        When it began with the next one.
        """
        return float(self.progress[_BEGAN])


class Processes(Elsewhere):
    """
    Handlers run in processes of their own, one task at a time in each.

    Made by ``forkserver`` where there is one, else by ``spawn``: never by a plain
    fork, since kafka-python's thread is alive. One that dies, or is killed since a
    record takes too long, is replaced, and only the record that it was at has failed;
    of a batch nobody can tell which, so its records are tried again one by one.

    Raises:
        WorkerSettingError: the handler cannot be sent to another process.
    """

    _ends_late = True

    def __init__(self, schedule: Schedule, calls: Calls, count: int) -> None:
        super().__init__(schedule, evolve(calls, lifespan=None), count)
        check_picklable(calls.handle)
        self._lifespan_there = calls.lifespan
        methods = multiprocessing.get_all_start_methods()
        method = "forkserver" if "forkserver" in methods else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        self._children: dict[int, _Child] = {}
        self._starting = threading.Lock()
        for slot in self.slots:
            slot.goes_on = True
        self._recalled = threading.Event()
        self._recall, self._recalling = multiprocessing.Pipe(duplex=False)
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

    def recall(self) -> None:
        """
        Start no process any more: what waits for one has not begun.
        """
        self._recalled.set()
        self._recalling.close()  # whoever waits for a first word sees the end of it

    def stop(self, seconds: float = END_SECONDS) -> None:
        """
        End the processes; those in a handler by force.
        """
        until = time.monotonic() + seconds
        self.recall()
        atexit.unregister(self._kill)
        with self._starting:  # one that starts is there, or never will be
            self._is_stopped = True
            children = list(self._children.items())
        super().stop(seconds)
        busy = {id(slot) for slot in self.slots if slot.task is not None}
        for place, child in children:
            child.close()
            if place in busy:
                child.process.kill()
        for _, child in children:
            child.process.join(max(0.0, until - time.monotonic()))
            if child.process.exitcode is None:
                child.process.kill()

    def _stack_of(self, slot: Slot) -> StackOf:
        slot.ask = functools.partial(self._ask_where, slot)
        return super()._stack_of(slot)

    def _ask_where(self, slot: Slot) -> None:
        child = self._children.get(id(slot))
        if child is not None:
            child.ask()

    def _look(self, slot: Slot) -> str | None:
        child = self._children.get(id(slot))
        return None if child is None else child.stack()

    # ------------------------------------------------------------ asking

    def _ask(self, slot: Slot, records: list[Any], about: About) -> Answer:
        for _ in range(_STARTS):
            answer = self._ask_child(slot, self._children[id(slot)], (records, about))
            if answer is not None:
                return answer
            self._prepare(slot)
            if slot.task is None or slot.task.epoch.is_held:  # since the last one
                raise NotBegunError
        message = (
            f"{_STARTS} processes one after the other ended before they took a record"
        )
        raise HandlersFailError(message)

    def _ask_child(
        self, slot: Slot, child: _Child, question: tuple[Sequence[Any], Any]
    ) -> Answer | None:
        # None if it has ended before it took them.
        # A copy: a traceback may keep this frame, and a view in it, for the collector,
        # which Python 3.13 tells as an error of the buffer behind the view.
        sent = bytes(ForkingPickler.dumps(question))
        child.progress[_FINISHED] = _NOT_TAKEN
        try:
            child.pipe.send_bytes(sent)
            if self._is_late(slot, child):
                return self._end_late(slot, child)
            answer: Answer = child.pipe.recv()
            slot.began = child.began
        except (EOFError, OSError) as error:
            return self._bury(slot, child, len(question[0]), error)
        except BaseException:  # its answer would be taken for that to the next question
            self._forget(slot, child)
            raise
        return answer

    def _forget(self, slot: Slot, child: _Child) -> None:
        self._children.pop(id(slot), None)
        child.kill()
        child.close()

    def _is_late(self, slot: Slot, child: _Child) -> bool:
        # Returns once there is an answer, or one record has taken too long.
        task, limit = slot.task, self._calls.timeout
        assert task is not None  # noqa: S101 - it was just set
        wait = _WATCH_SECONDS if limit is None else min(limit, _WATCH_SECONDS)
        while not child.pipe.poll(wait):
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
        if child.began != slot.began:  # it went on in the last moment: none has failed
            return finished, None
        message = (
            f"the handler took longer than {self._calls.timeout:g} s: its process was "
            f"killed, and is replaced"
        )
        return finished, HandlerTimeoutError(message)

    def _bury(
        self, slot: Slot, child: _Child, count: int, error: Exception
    ) -> Answer | None:
        self._children.pop(id(slot), None)
        child.process.join(_GONE_SECONDS)
        if child.process.exitcode is None:  # it has closed its pipe, and goes on
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
        except HandlersFailError as error:
            slot.ended = error
            raise
        except Exception as error:
            message = f"no process can be started: {shown(error)}"
            slot.ended = HandlersFailError(message)
            raise slot.ended from error

    def _start_child(self, slot: Slot) -> _Child:
        calls = self._calls
        ours, theirs = self._context.Pipe()
        asking, asked = self._context.Pipe()
        progress = RawArray("d", 2)
        process = self._context.Process(
            target=serve,
            args=(
                theirs,
                asked,
                progress,
                calls.handle,
                calls.is_batch,
                calls.seconds,
                self._lifespan_there,
            ),
            name="safeconsumer-worker",
            daemon=True,
        )
        with theirs, asked, self._starting:
            if self._recalled.is_set():
                raise NotBegunError
            process.start()
            child = _Child(process, ours, asking, progress)
            self._children[id(slot)] = child
        return child

    def _wait_ready(self, slot: Slot, child: _Child) -> None:
        # One that ends before it was given a record is the fault of none.
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

    def _first_word(self, child: _Child) -> HandlersFailError | None:
        limit = min(self._calls.start_seconds, LONGEST)
        try:
            heard = connection.wait([child.pipe, self._recall], limit)
            if child.pipe in heard:
                said: HandlersFailError | None = child.pipe.recv()
                return said
            if heard:
                raise NotBegunError
        except (EOFError, OSError):
            child.process.join(_GONE_SECONDS)
            if self._recalled.wait(_TOLD_SECONDS):
                raise NotBegunError from None
            return HandlersFailError(
                f"a process ended with {child.process.exitcode} before it took a "
                f"record; what it wrote says why: the handler must be importable "
                f"there, and a script needs if __name__ == '__main__':"
            )
        stack = child.stack()
        child.kill()
        where = "in its imports" if stack is None else f"at\n{stack}"
        return HandlersFailError(
            f"a process was not ready within {limit:g} s, and was killed: it stood "
            f"{where}; a longer Limits.age gives imports and lifespan more time"
        )
