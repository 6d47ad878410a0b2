"""
Where coroutine handlers run: one event loop in a thread of its own.
"""

import asyncio
import contextlib
import functools
import threading
import time
from collections import deque

from safeconsumer.worker import tracebacks
from safeconsumer.worker.executors.base import Calls, end_slot
from safeconsumer.worker.handlers import (
    Errors,
    Slot,
    all_done,
    batch_failed,
    broken,
    context_of,
    refuse_undone,
)
from safeconsumer.worker.queue import Outcome, Task
from safeconsumer.worker.results import Schedule

_END_SECONDS = 1.0


class Coroutines:
    """
    As many coroutines at a time as asked for, on an event loop of their own.
    """

    def __init__(self, schedule: Schedule, calls: Calls, count: int) -> None:
        self._schedule = schedule
        self._calls = calls
        self.slots = [Slot(f"safeconsumer-worker-asyncio {at}") for at in range(count)]
        self._loop = asyncio.new_event_loop()
        self._idle: deque[asyncio.Future[None]] = deque()
        self._is_woken = False
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(
            target=self._run_loop, name="safeconsumer-worker-asyncio", daemon=True
        )

    def start(self) -> None:
        """
        Start the loop.
        """
        self._schedule.queue.listen(self._wake)
        self._thread.start()

    def stop(self) -> None:
        """
        Cancel what still runs, and end the loop.
        """
        self._is_over = True
        self._schedule.queue.listen(None)
        self._schedule.queue.end()
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._cancel)
        if self._thread.is_alive():
            self._thread.join(_END_SECONDS)

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            work = self._loop.create_task(self._work_all())
            while not work.done():
                self._run_until(work)
        except BaseException as error:  # noqa: BLE001 - told by run(), and by healthy()
            for slot in self.slots:
                end_slot(slot, self._schedule, error)
        finally:
            self._loop.close()

    def _run_until(self, work: asyncio.Task[None]) -> None:
        # Out of a task that a handler began these end the loop, not just the task.
        try:
            self._loop.run_until_complete(work)
        except (SystemExit, KeyboardInterrupt) as error:
            self._schedule.fail(error)

    async def _work_all(self) -> None:
        self._tasks = [
            self._loop.create_task(self._work_safely(slot)) for slot in self.slots
        ]
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _wake(self) -> None:
        # Called under the schedule's lock, by any thread: one call for many.
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake_idle)

    def _wake_idle(self) -> None:
        self._is_woken = False
        if self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():
                waiting.set_result(None)

    async def _work_safely(self, slot: Slot) -> None:
        try:
            await self._work(slot)
        except BaseException as error:
            if not self._is_over:
                end_slot(slot, self._schedule, error)
            raise

    async def _work(self, slot: Slot) -> None:
        ours = asyncio.current_task()
        assert ours is not None  # noqa: S101 - it runs this
        slot.stack = functools.partial(tracebacks.of_task, ours, self._thread.ident)
        while not self._is_over:
            tasks = self._schedule.queue.claim()
            if not tasks:
                waiting = self._loop.create_future()
                self._idle.append(waiting)
                await waiting
                continue
            outcomes = []
            for task in tasks:
                outcomes.append(await self._run(task, slot))
                if self._is_over:
                    return
            self._schedule.complete(outcomes)
            await asyncio.sleep(0)

    async def _run(self, task: Task, slot: Slot) -> Outcome:
        slot.task = task
        try:
            if self._calls.is_batch:
                return await self._run_batch(task, slot)
            return await self._run_each(task, slot)
        except BaseException as error:
            if self._is_over:
                raise
            return broken(task, error)
        finally:
            slot.task = None

    async def _run_batch(self, task: Task, slot: Slot) -> Outcome:
        slot.index, slot.began = task.indexes[0], time.monotonic()
        records = [task.chunk.records[index] for index in task.indexes]
        if task.epoch.is_held:
            return Outcome(task=task, left=task.indexes)
        try:
            context = context_of(task, self._calls.deadline)
            refuse_undone(await self._calls.handle(records, context))
        except BaseException as error:
            if self._is_over:
                raise
            return batch_failed(task, error, time.monotonic() - slot.began)
        return all_done(task, time.monotonic() - slot.began)

    async def _run_each(self, task: Task, slot: Slot) -> Outcome:
        handle, context = self._calls.handle, context_of(task, self._calls.deadline)
        chunk, indexes = task.chunk, task.indexes
        began = now = time.monotonic()
        until = began + self._calls.seconds
        count = 0
        failed: Errors = ()
        try:
            for index in indexes:
                slot.index, slot.began = index, now
                if task.epoch.is_held:
                    break
                refuse_undone(await handle(chunk.records[index], context))
                chunk.finish(index)
                count += 1
                now = time.monotonic()
                if now > until:
                    break
        except BaseException as error:
            if self._is_over:
                raise
            failed = [(indexes[count], error)]
        return Outcome(
            task=task,
            finished=indexes[:count],
            failed=failed,
            left=indexes[count + len(failed) :],
            seconds=time.monotonic() - began,
        )
