"""Runs coroutine handlers in an event loop, in a separate thread or the user's own."""

import asyncio
import contextlib
import contextvars
import functools
import threading
import time
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import HandlerCancelledError
from safeconsumer.worker import tracebacks
from safeconsumer.worker.calls import (
    END_SECONDS,
    Calls,
    Slot,
    all_done,
    batch_failed,
    context_of,
    end_slot,
    executor_failed,
    failure_of,
    refuse_unfinished,
)
from safeconsumer.worker.dead_letters import call_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.lifespan import enter_async, not_left
from safeconsumer.worker.handlers import Context
from safeconsumer.worker.partition import Outcome, Task

T = TypeVar("T")
# While the executor stops, handlers, the lifespan and the tasks that handlers left
# behind are cancelled again after these fractions of the time for stopping.
_FIRST_PART, _SECOND_PART = 0.7, 0.9


class Coroutines:
    """
    Runs a given number of coroutines at a time, in one event loop.

    Each hand-over of records has its own asyncio task, so a handler that cancels its
    task affects no other hand-over. The task runs in a copy of the ``contextvars``
    context in which the lifespan was entered. Each call of a handler has its own copy.
    """

    def __init__(self, decisions: Decisions, calls: Calls, count: int) -> None:
        self._decisions = decisions
        self._calls = calls
        self._call = calls.called(decisions.journal)
        self.slots = [
            Slot(f"safeconsumer-worker-asyncio {at}", calls.overdue)
            for at in range(count)
        ]
        self._free = self.slots[::-1]
        self._running = set[asyncio.Task[None]]()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._theirs: asyncio.AbstractEventLoop | None = None
        self._ident: int | None = None
        self._main: asyncio.Task[None] | None = None
        self._context = contextvars.copy_context()
        self._is_woken = False
        self._is_over = False
        self._stopping = asyncio.Event()
        self._seconds = END_SECONDS
        self._until: float | None = None
        self._state: Any = None
        self._error: BaseException | None = None
        self._entered, self._ended = InterruptibleEvent(), InterruptibleEvent()

    def run_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """
        Use an event loop that is already running for the handlers.

        Call this method in that loop, before :meth:`start`.
        """
        self._theirs = loop
        self._context = contextvars.copy_context()

    def start(self) -> None:
        """Start a loop in a thread, or use the user's loop."""
        if self._theirs is None:
            threading.Thread(
                target=self._run_loop, name="safeconsumer-worker-asyncio", daemon=True
            ).start()
        else:
            self._theirs.call_soon_threadsafe(self._begin, context=self._context)

    def wait_ready(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the lifespan; return whether it was entered."""
        is_over = self._entered.wait(seconds)
        if self._error is not None:
            raise self._error
        return is_over

    def recall(self) -> None:
        """Do nothing, because a coroutine immediately handles the records that it claims."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Cancel running handlers, exit the lifespan, and stop the loop if we started it."""
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._is_over = True
        self._decisions.queue.listen(None)
        self._decisions.queue.end()
        if self._loop is None:  # a loop that starts later stops immediately
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._cancel)
        self._ended.wait(seconds)

    # ------------------------------------------------------------ the loop

    def _run_loop(self) -> None:
        loop = asyncio.new_event_loop()
        try:
            asyncio.set_event_loop(loop)
            main = self._begin_in(loop)
            while not main.done():
                self._run_until(loop, main)
            loop.run_until_complete(self._end_left_over())
        except BaseException as error:  # noqa: BLE001 - run() raises the error, healthy() shows it
            self._fail(error)
        finally:
            loop.close()
            self._ended.set()

    def _run_until(
        self, loop: asyncio.AbstractEventLoop, main: "asyncio.Task[None]"
    ) -> None:
        # The loop stops if any task in it raises one of these exceptions, even a task
        # that a handler started.
        try:
            loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as error:
            self._decisions.fail(error)

    def _begin(self) -> None:
        # Tasks that handlers left behind continue in the user's loop, like any other
        # task.
        assert self._theirs is not None  # noqa: S101 - the loop runs this
        main = self._begin_in(self._theirs)
        main.add_done_callback(lambda _: self._ended.set())

    def _begin_in(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
        self._ident = threading.get_ident()
        # self._loop is set first, because create_task() may already run the task, if
        # the loop has an eager task factory. From this point on, stop() can cancel the
        # task.
        self._loop = loop
        main = self._main = loop.create_task(self._live())
        if self._is_over:
            main.cancel()
        return main

    async def _live(self) -> None:
        stack = contextlib.AsyncExitStack()
        try:
            self._state = await enter_async(stack, self._calls.lifespan)
            self._context = contextvars.copy_context()
        except BaseException as error:  # noqa: BLE001 - wait_ready() raises the error
            self._error = error
            return
        finally:
            self._entered.set()
        try:
            if not self._is_over:
                await self._work_all()
        except BaseException as error:  # noqa: BLE001 - run() raises the error, healthy() shows it
            self._fail(error)
        try:
            await stack.aclose()
        except BaseException as error:  # noqa: BLE001 - run() raises the error
            self._decisions.fail(not_left(error))

    async def _work_all(self) -> None:
        self._decisions.queue.listen(self._wake)
        self._hand_out()
        while not self._stopping.is_set():
            # A program that cancels all tasks of its loop must not stop the worker.
            with contextlib.suppress(asyncio.CancelledError):
                await self._stopping.wait()
        try:
            await self._end_calls(None)
        except asyncio.CancelledError:  # _FIRST_PART of the time has passed
            await self._end_calls(self._seconds * (_SECOND_PART - _FIRST_PART))

    async def _end_calls(self, seconds: float | None) -> None:
        for running in self._running:
            running.cancel()
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)

    def _fail(self, error: BaseException) -> None:
        if not self._is_over:
            for slot in self.slots:
                end_slot(slot, self._decisions.fail, error)

    def _cancel(self) -> None:
        assert self._loop is not None  # noqa: S101 - the loop runs this
        assert self._main is not None  # noqa: S101 - likewise
        self._stopping.set()
        if not self._entered.is_set():
            self._main.cancel()
        self._loop.call_later(self._seconds * _FIRST_PART, self._main.cancel)

    async def _end_left_over(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        until = time.monotonic() + END_SECONDS if self._until is None else self._until
        until -= self._seconds * (1 - _SECOND_PART)
        if left:
            await asyncio.wait(left, timeout=max(0.0, until - time.monotonic()))
        generators = asyncio.ensure_future(
            asyncio.get_running_loop().shutdown_asyncgens()
        )
        await asyncio.wait([generators], timeout=max(0.05, until - time.monotonic()))

    # ------------------------------------------------------------ handing out

    def _wake(self) -> None:
        # The queue calls this method under its lock, on any thread. One scheduled call
        # of _hand_out serves many records. If no slot is free, no call is scheduled,
        # because the next slot that becomes free claims work itself.
        if self._free and not self._is_woken:
            self._is_woken = True
            assert self._loop is not None  # noqa: S101 - the loop has called listen()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        self._is_woken = False
        try:
            while self._free and not self._is_over:
                task = self._decisions.queue.claim()
                if task is None:
                    return
                self._start_task(task, self._free.pop())
        except BaseException as error:  # noqa: BLE001 - run() raises the error, healthy() shows it
            self._fail(error)

    def _start_task(self, task: Task, slot: Slot) -> None:
        assert self._loop is not None  # noqa: S101 - the loop runs this
        slot.index, slot.began, slot.task = task.indexes[0], time.monotonic(), task
        if task.letter is not None:
            # The thread is a daemon, so that a sink that does not return does not keep
            # the process alive.
            threading.Thread(
                target=self._call_sink,
                args=(task, slot),
                name=f"{slot.name} dead letter",
                daemon=True,
            ).start()
            return
        running = self._context.run(self._loop.create_task, self._work(task, slot))
        self._running.add(running)
        running.add_done_callback(functools.partial(self._finish_task, task, slot))

    def _finish_task(
        self, task: Task, slot: Slot, running: "asyncio.Task[None]"
    ) -> None:
        self._running.discard(running)
        error = None if running.cancelled() else running.exception()
        if error is not None:
            if not self._is_over:
                end_slot(slot, self._decisions.fail, error)
            return
        if slot.task is task:  # the asyncio task was cancelled before it started
            self._complete(Outcome(task=task, left=task.indexes), slot)
        self._take_back(slot)

    def _take_back(self, slot: Slot) -> None:
        self._free.append(slot)
        self._hand_out()

    def _complete(self, outcome: Outcome, slot: Slot) -> None:
        slot.task = None
        if not self._is_over:
            self._decisions.complete(outcome)

    # ------------------------------------------------------------ handlers

    def _call_sink(self, task: Task, slot: Slot) -> None:
        assert self._loop is not None  # noqa: S101 - the loop started this thread
        slot.stack = functools.partial(tracebacks.of_thread, threading.get_ident())
        try:
            # The outcome is not kept in a variable. The traceback of a sink's error
            # refers to this frame, so the variable would keep the sink's local
            # variables alive until the next garbage collection.
            self._complete(self._outcome_of_sink(task, slot), slot)
        except BaseException as error:  # noqa: BLE001 - run() raises the error, healthy() shows it
            end_slot(slot, self._decisions.fail, error)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._take_back, slot)

    def _outcome_of_sink(self, task: Task, slot: Slot) -> Outcome:
        try:
            return call_sink(self._decisions.queue.policy.sink, task, slot)
        except BaseException as error:  # noqa: BLE001 - an error of this code, not of the sink
            return executor_failed(task, error)

    async def _work(self, task: Task, slot: Slot) -> None:
        self._complete(await self._run_safely(task, slot), slot)

    async def _run_safely(self, task: Task, slot: Slot) -> Outcome:
        try:
            return await self._run(task, slot)
        except BaseException as error:  # noqa: BLE001 - an error of this code, not of a handler
            return executor_failed(task, error)

    async def _run(self, task: Task, slot: Slot) -> Outcome:
        context = context_of(task, self._calls.deadline, self._state)
        if self._decisions.queue.policy.is_batch:
            return await self._run_batch(task, slot, context)
        ours = asyncio.current_task()
        assert ours is not None  # noqa: S101 - the loop runs this
        records, indexes, epoch = task.records, task.indexes, task.epoch
        began = now = time.monotonic()
        until = began + self._decisions.queue.policy.lane_seconds
        for count, index in enumerate(indexes):
            slot.index, slot.began = index, now
            if epoch.is_held or now > until or ours.cancelling():
                break  # a cancellation was meant for an earlier record
            error = await self._raised_by(records[index], slot, context)
            before, now = now, time.monotonic()
            if error is not None:
                try:
                    if (
                        count
                        and ours.cancelling()
                        and isinstance(error, HandlerCancelledError)
                    ):
                        # The cancellation was meant for an earlier record, so this
                        # record has not failed, and is handed out again.
                        break
                    return Outcome(
                        task=task,
                        finished=indexes[:count],
                        failed=[(index, error)],
                        left=indexes[count + 1 :],
                        seconds=now - began,
                        failing=now - before,
                    )
                finally:
                    # The error's traceback refers to this frame; see _call_sink().
                    error = None
            records[index] = None
        else:
            count = len(indexes)
        finished, left = indexes[:count], indexes[count:]
        return Outcome(task=task, finished=finished, left=left, seconds=now - began)

    async def _run_batch(self, task: Task, slot: Slot, context: Context) -> Outcome:
        if task.epoch.is_held:
            return Outcome(task=task, left=task.indexes)
        records = [*task.records]
        slot.began = time.monotonic()
        error = await self._raised_by(records, slot, context)
        seconds = time.monotonic() - slot.began
        if error is None:
            return all_done(task, seconds)
        try:
            return batch_failed(task, error, seconds)
        finally:
            error = None  # see _call_sink()

    async def _raised_by(
        self,
        given: Any,  # noqa: ANN401 - records
        slot: Slot,
        context: Context,
    ) -> BaseException | None:
        call = self._call_with(given, context)
        slot.stack = functools.partial(tracebacks.of_coroutine, call, self._ident)
        try:
            await in_copied_context(call)
        except BaseException as error:  # noqa: BLE001 - any error is the record's failure
            return failure_of(error)
        return None

    async def _call_with(self, given: Any, context: Context) -> None:  # noqa: ANN401 - records
        refuse_unfinished(await self._call(given, context))


@types.coroutine
def in_copied_context(
    coroutine: Coroutine[Any, Any, T],
) -> Generator[Any, Any, T]:
    """
    Await a coroutine in a copy of the context; variables that it sets are discarded.

    An asyncio task for each call would have the same effect, but costs four times as
    much.
    """
    run = contextvars.copy_context().run
    step, value = coroutine.send, None
    while True:
        try:
            waits_for = run(step, value)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # the coroutine's result
        finally:
            # As in call_each(), no variable keeps the error after the return.
            value = None
        try:
            step, value = coroutine.send, (yield waits_for)
        except BaseException as error:  # noqa: BLE001 - passed to the coroutine
            step, value = coroutine.throw, error
        finally:
            del waits_for  # a failed future keeps the error, too
