"""Runs coroutine handlers, on an event loop in a separate thread or on the user's loop."""

import asyncio
import contextlib
import contextvars
import functools
import threading
import time
from collections import deque
from collections.abc import Awaitable
from types import CoroutineType
from typing import Any, Self

from safeconsumer._waits import InterruptibleEvent
from safeconsumer.errors.base import HandlerTimeoutError
from safeconsumer.worker import forks, tracebacks
from safeconsumer.worker.calls import (
    Errors,
    Slot,
    all_done,
    batch_failed,
    blamed,
    broken,
    context_of,
    refuse_undone,
)
from safeconsumer.worker.dead_letters import call_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.base import END_SECONDS, Calls, end_slot
from safeconsumer.worker.executors.lifespan import enter_async, not_left
from safeconsumer.worker.handlers import Context, Handler
from safeconsumer.worker.tasks import Outcome, Task

# The part of the time to end that handlers and the lifespan get before they are
# cancelled once more, together with the tasks that handlers left behind.
_FIRST_PART, _SECOND_PART = 0.7, 0.9


class Coroutines:
    """Runs a given number of coroutines at a time, on one event loop."""

    def __init__(self, decisions: Decisions, calls: Calls, count: int) -> None:
        self._decisions = decisions
        self._calls = calls
        handle = forks.leaving_async(calls.handle)
        self._call = calls.around(in_time(handle, calls.timeout))
        self.slots = [
            Slot(f"safeconsumer-worker-asyncio {at}", calls.overdue)
            for at in range(count)
        ]
        self._loop: asyncio.AbstractEventLoop | None = None
        self._theirs: asyncio.AbstractEventLoop | None = None
        self._ident: int | None = None
        self._main: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_woken = False
        self._is_over = False
        self._seconds = END_SECONDS
        self._until: float | None = None
        self._state: Any = None
        self._error: BaseException | None = None
        self._entered, self._ended = InterruptibleEvent(), InterruptibleEvent()

    def run_in(self, loop: asyncio.AbstractEventLoop) -> None:
        """
        Run handlers in a loop that runs already.

        Call it in that loop, before the start.
        """
        self._theirs = loop
        self._context = contextvars.copy_context()

    def start(self) -> None:
        """Start the loop, or begin in the user's loop."""
        if self._theirs is None:
            threading.Thread(
                target=self._run_loop, name="safeconsumer-worker-asyncio", daemon=True
            ).start()
        else:
            self._theirs.call_soon_threadsafe(self._begin, context=self._context)

    def wait_ready(self, seconds: float) -> bool:
        """Tell whether the lifespan was entered within so many seconds."""
        is_over = self._entered.wait(seconds)
        if self._error is not None:
            raise self._error
        return is_over

    def recall(self) -> None:
        """Do nothing: a coroutine begins at once with a record that it has claimed."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Cancel what still runs, leave the lifespan, and end our own loop."""
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._is_over = True
        self._decisions.queue.listen(None)
        self._decisions.queue.end()
        if self._loop is None:  # it has not begun, and ends when it does
            return
        with contextlib.suppress(RuntimeError):  # it has ended
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
        except BaseException as error:  # noqa: BLE001 - run() raises it, healthy() names it
            self._fail(error)
        finally:
            loop.close()
            self._ended.set()

    def _run_until(
        self, loop: asyncio.AbstractEventLoop, main: "asyncio.Task[None]"
    ) -> None:
        # In a task that a handler began these end the loop, not just the task.
        try:
            loop.run_until_complete(main)
        except (SystemExit, KeyboardInterrupt) as error:
            self._decisions.fail(error)

    def _begin(self) -> None:
        # In the user's loop, tasks that handlers left behind go on as the user's own
        # do.
        assert self._theirs is not None  # noqa: S101 - it runs this
        main = self._begin_in(self._theirs)
        main.add_done_callback(lambda _: self._ended.set())

    def _begin_in(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Task[None]":
        self._ident = threading.get_ident()
        # First: an eager task runs in create_task() already. From here on a stop
        # cancels, in this loop, and so once the task is known.
        self._loop = loop
        main = self._main = loop.create_task(self._live())
        if self._is_over:
            main.cancel()
        return main

    async def _live(self) -> None:
        stack = contextlib.AsyncExitStack()
        try:
            self._state = await enter_async(stack, self._calls.lifespan)
        except BaseException as error:  # noqa: BLE001 - wait_ready() raises it
            self._error = error
            return
        finally:
            self._entered.set()
        try:
            if not self._is_over:
                await self._work_all()
        except BaseException as error:  # noqa: BLE001 - run() raises it, healthy() names it
            self._fail(error)
        try:
            await stack.aclose()
        except BaseException as error:  # noqa: BLE001 - run() raises it
            self._decisions.fail(not_left(error))

    async def _work_all(self) -> None:
        assert self._loop is not None  # noqa: S101 - it runs this
        self._decisions.queue.listen(self._wake)
        self._tasks = [
            self._loop.create_task(self._work_safely(slot)) for slot in self.slots
        ]
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fail(self, error: BaseException) -> None:
        if not self._is_over:
            for slot in self.slots:
                end_slot(slot, self._decisions, error)

    def _cancel(self) -> None:
        assert self._loop is not None  # noqa: S101 - it runs this
        assert self._main is not None  # noqa: S101 - likewise
        for task in self._tasks:
            task.cancel()
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

    # ------------------------------------------------------------ waking

    def _wake(self) -> None:
        # Called under the lock of ``Kept``, by any thread: one call serves many records.
        if not self._is_woken:
            self._is_woken = True
            assert self._loop is not None  # noqa: S101 - it is listened from there
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake_idle)

    def _wake_idle(self) -> None:
        self._is_woken = False
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return

    # ------------------------------------------------------------ handlers

    async def _work_safely(self, slot: Slot) -> None:
        try:
            await self._work(slot)
        except BaseException as error:
            if not self._is_over:
                end_slot(slot, self._decisions, error)
            raise

    async def _work(self, slot: Slot) -> None:
        ours = asyncio.current_task()
        assert ours is not None  # noqa: S101 - it runs this
        slot.stack = functools.partial(tracebacks.of_task, ours, self._ident)
        while not self._is_over:
            try:
                await self._work_once(slot)
            except asyncio.CancelledError:
                # Cancelled by another task, which still has this one from a handler
                # that is over.
                if self._is_over:
                    raise
                forget_cancelling(ours)

    async def _work_once(self, slot: Slot) -> None:
        tasks = self._decisions.queue.claim()
        if not tasks:
            waiting = asyncio.get_running_loop().create_future()
            self._idle.append(waiting)
            await waiting
            return
        outcomes = []
        for task in tasks:
            run = self._run if task.letter is None else self._bury
            outcomes.append(await run(task, slot))
            if self._is_over:
                return
        self._decisions.complete(outcomes)
        await asyncio.sleep(0)

    async def _bury(self, task: Task, slot: Slot) -> Outcome:
        # Its thread is a daemon, so a sink that does not return keeps no process alive.
        ours, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert ours is not None  # noqa: S101 - it runs this
        answer: asyncio.Future[Outcome] = loop.create_future()
        sink = self._decisions.queue.policy.sink

        def call() -> None:
            outcome = call_sink(sink, task, slot)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(answer.set_result, outcome)

        name = f"{slot.name} dead letter"
        threading.Thread(target=call, name=name, daemon=True).start()
        while not answer.done():
            try:
                await asyncio.wait([answer])
            except asyncio.CancelledError:
                if self._is_over:
                    raise
                forget_cancelling(ours)  # by another task; the sink goes on
        return answer.result()

    async def _run(self, task: Task, slot: Slot) -> Outcome:
        slot.index, slot.began, slot.task = task.indexes[0], time.monotonic(), task
        try:
            context = context_of(task, self._calls.deadline, self._state)
            run = self._run_batch if self._calls.is_batch else self._run_each
            return await run(task, slot, context)
        except BaseException as error:
            if self._is_over:
                raise
            return broken(task, error)
        finally:
            slot.task = None

    async def _run_batch(self, task: Task, slot: Slot, context: Context) -> Outcome:
        slot.index, slot.began = task.indexes[0], time.monotonic()
        records = [*task.records]
        if task.epoch.is_held:
            return Outcome(task=task, left=task.indexes)
        try:
            refuse_undone(await Apart(self._call, records, context))
        except BaseException as error:
            if self._is_over:
                raise
            seconds = time.monotonic() - slot.began
            return batch_failed(task, blamed(error), seconds)
        finally:
            await self._clear_cancelling()
        return all_done(task, time.monotonic() - slot.began)

    async def _run_each(self, task: Task, slot: Slot, context: Context) -> Outcome:
        ours = asyncio.current_task()
        assert ours is not None  # noqa: S101 - it runs this
        records, indexes, epoch = task.records, task.indexes, task.epoch
        began = now = time.monotonic()
        until = began + self._calls.seconds
        count, failing = 0, 0.0
        failed: Errors = ()
        try:
            for index in indexes:
                slot.index, slot.began = index, now
                if epoch.is_held:
                    break
                answer = await Apart(self._call, records[index], context)
                if answer is not None:
                    refuse_undone(answer)
                records[index] = None
                count += 1
                if ours.cancelling():
                    await self._clear_cancelling()
                now = time.monotonic()
                if now > until:
                    break
        except BaseException as error:
            if self._is_over:
                raise
            failed = [(indexes[count], blamed(error))]
            failing = time.monotonic() - now
            forget_cancelling(ours)
        return Outcome(
            task=task,
            finished=indexes[:count],
            failed=failed,
            left=indexes[count + len(failed) :],
            seconds=time.monotonic() - began,
            failing=failing,
        )

    async def _clear_cancelling(self) -> None:
        # A handler that cancels its own task and returns would otherwise cancel the
        # next handler in its place.
        ours = asyncio.current_task()
        assert ours is not None  # noqa: S101 - it runs this
        if ours.cancelling() and not self._is_over:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
            forget_cancelling(ours)


class Apart:
    """
    Awaits one call of a handler, in a copy of the context: what it binds ends with it.

    The stack of a task that waits is read through it, as through a coroutine.
    """

    __slots__ = ("_run", "_steps")

    def __init__(self, call: Handler, *given: object) -> None:
        self._run = contextvars.copy_context().run
        awaitable = self._run(call, *given)
        is_coroutine = type(awaitable) is CoroutineType
        # What another awaitable gives may have no send(), throw() and close().
        self._steps: Any = awaitable if is_coroutine else _awaited(awaitable)

    def __await__(self) -> Self:
        return self

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - what is waited for
        return self._run(self._steps.send, None)

    def send(self, value: object) -> Any:  # noqa: ANN401 - what is waited for
        """Go on with what was waited for."""
        return self._run(self._steps.send, value)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - what is waited for
        """Go on with an error."""
        return self._run(self._steps.throw, *error)

    def close(self) -> None:
        """End the call."""
        self._run(self._steps.close)

    @property
    def cr_frame(self) -> Any:  # noqa: ANN401 - a frame
        """The frame of the call."""
        return self._steps.cr_frame

    @property
    def cr_await(self) -> object:
        """What the call waits for."""
        return self._steps.cr_await


async def _awaited(awaitable: Awaitable[object]) -> object:
    return await awaitable


def in_time(handle: Handler, limit: float | None) -> Handler:
    """Return a coroutine handler whose calls are cancelled after so many seconds."""
    if limit is None:
        return handle

    async def call(given: Any, context: Context) -> object:  # noqa: ANN401 - records
        try:
            async with asyncio.timeout(limit) as over:
                return await handle(given, context)
        except TimeoutError as error:
            if not over.expired():  # the handler's own
                raise
            message = f"the handler took longer than {limit:g} s, and was cancelled"
            raise HandlerTimeoutError(message) from error

    return call


def forget_cancelling(task: "asyncio.Task[Any]") -> None:
    """Have a task not be cancelled by what was asked for until now."""
    while task.cancelling():
        task.uncancel()
