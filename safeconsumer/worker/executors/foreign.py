"""Runs handlers in an executor that belongs to the user."""

import functools
import math
import threading
import time
from concurrent.futures import (
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from typing import Any

from attrs import define

from safeconsumer.worker import tracebacks
from safeconsumer.worker.executors.base import END_SECONDS, Calls
from safeconsumer.worker.executors.processes import call_and_send, check_picklable
from safeconsumer.worker.executors.threads import Elsewhere, NotBegunError
from safeconsumer.worker.executors.travel import opened
from safeconsumer.worker.handlers import (
    About,
    Answer,
    Handler,
    HandlersFailError,
    Slot,
    call_elsewhere,
    context_of,
)
from safeconsumer.worker.queue import Task
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown


@define(eq=False)
class _Call:
    """
    A call in the executor.

    Attributes:
        is_recalled: whether this package cancelled the call, and not the executor.
    """

    task: Task
    future: Future[Any]
    is_recalled: bool = False

    def recall(self) -> None:
        """Cancel it, unless it runs already."""
        self.is_recalled = True
        self.future.cancel()


class Foreign(Elsewhere):
    """
    Runs handlers in the user's ``concurrent.futures`` executor, which stays open.

    Raises:
        WorkerSettingError: the handler cannot be sent to another process.
    """

    def __init__(
        self, schedule: Schedule, calls: Calls, count: int, executor: Executor
    ) -> None:
        super().__init__(schedule, calls, count)
        if isinstance(executor, ProcessPoolExecutor):
            check_picklable(calls.handle)
        self._executor = executor
        self._threads_there: dict[int, int] = {}
        self._calls_there: dict[int, _Call] = {}
        self._is_recalled = False
        self._is_here = isinstance(executor, ThreadPoolExecutor)

    def _first(self, task: Task) -> int:
        is_known = self._is_here or self._calls.is_batch or not task.indexes[1:]
        return task.indexes[0] if is_known else -1

    def recall(self) -> None:
        """Cancel the calls that wait in the executor."""
        self._is_recalled = True
        for call in list(self._calls_there.values()):
            call.recall()

    def recall_held(self) -> None:
        """Cancel the waiting calls whose partitions are held."""
        for call in list(self._calls_there.values()):
            if call.task.epoch.is_held:
                call.recall()

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Cancel the waiting calls, and let the threads end."""
        self.recall()
        super().stop(seconds)

    def _look(self, slot: Slot) -> str | None:
        return tracebacks.of_thread(self._threads_there.get(id(slot)))

    def _call_there(
        self,
        slot: Slot,
        handle: Handler,
        records: list[Any],
        _about: About,
        **settings: Any,  # noqa: ANN401 - passed on
    ) -> Answer:
        # The call may have waited in the executor for long, and can no longer be
        # cancelled.
        task = slot.task
        if task is None or task.epoch.is_held:
            raise NotBegunError
        self._threads_there[id(slot)] = threading.get_ident()

        def begin(count: int) -> bool:
            slot.began = time.monotonic()
            if count < len(task.indexes):
                slot.index = task.indexes[count]
            return not task.epoch.is_held  # checked after the start was noted

        context = context_of(task, self._calls.deadline, self._lifespan.state)
        try:
            return call_elsewhere(handle, records, context, **settings, begin=begin)
        finally:
            slot.trace = context.trace
            del self._threads_there[id(slot)]

    def _ask(self, slot: Slot, records: list[Any], about: About) -> Answer:
        task = slot.task
        assert task is not None  # noqa: S101 - it was just set
        call = _Call(task, self._submit(slot, records, about))
        self._calls_there[id(slot)] = call
        if self._is_recalled or task.epoch.is_held:  # before the call was noted here
            call.recall()
        try:
            return opened(call.future.result())
        except (BrokenExecutor, CancelledError) as error:
            if call.is_recalled and isinstance(error, CancelledError):
                raise NotBegunError from error
            # The executor broke with all its calls, whichever one was the cause.
            message = f"the executor broke, or cancelled a call: {shown(error)}"
            raise HandlersFailError(message) from error
        finally:
            del self._calls_there[id(slot)]

    def _submit(self, slot: Slot, records: list[Any], about: About) -> Future[Any]:
        call: Any = call_and_send
        handle = self._calls.handle
        if self._is_here:
            handle = self._handle
            call = functools.partial(self._call_there, slot)
            slot.began = math.inf  # waiting there is not a handler's time
        try:
            return self._executor.submit(
                call,
                handle,
                records,
                about,
                is_batch=self._calls.is_batch,
                seconds=self._calls.seconds,
            )
        except RuntimeError as error:  # shut down or broken, and stays so
            message = f"the executor accepts no more calls: {shown(error)}"
            raise HandlersFailError(message) from error
