"""
Handlers in an executor that is somebody else's.
"""

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

from safeconsumer.worker import tracebacks
from safeconsumer.worker.executors.base import END_SECONDS, Calls
from safeconsumer.worker.executors.processes import call_and_send, check_picklable
from safeconsumer.worker.executors.threads import Elsewhere, NotBegunError
from safeconsumer.worker.handlers import Answer, HandlersFailError, Slot, call_elsewhere
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.tracebacks import shown


class Foreign(Elsewhere):
    """
    Handlers run in somebody's ``concurrent.futures`` executor, which stays theirs.

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
        self._futures: dict[int, Future[Answer]] = {}
        self._is_recalled = False

    def recall(self) -> None:
        """
        Cancel the calls that wait in the executor.
        """
        self._is_recalled = True
        for future in list(self._futures.values()):
            future.cancel()  # not one that runs

    def stop(self, seconds: float = END_SECONDS) -> None:
        """
        Cancel what waits, and let the threads end.
        """
        self.recall()
        super().stop(seconds)

    def _look(self, slot: Slot) -> str | None:
        return tracebacks.of_thread(self._threads_there.get(id(slot)))

    def _call_there(self, slot: Slot, *args: Any, **settings: Any) -> Answer:  # noqa: ANN401 - passed on
        self._threads_there[id(slot)] = threading.get_ident()
        slot.began = time.monotonic()
        try:
            return call_elsewhere(*args, **settings, state=self._lifespan.state)
        finally:
            del self._threads_there[id(slot)]

    def _ask(self, slot: Slot, records: list[Any], about: Any) -> Answer:  # noqa: ANN401 - its parent's
        future = self._submit(slot, records, about)
        self._futures[id(slot)] = future
        if self._is_recalled:  # before it was known to be there
            future.cancel()
        try:
            return future.result()
        except (BrokenExecutor, CancelledError) as error:
            if self._is_recalled and isinstance(error, CancelledError):
                raise NotBegunError from error
            # With all that was in it, whoever is to blame.
            message = f"the executor broke, or cancelled what it took: {shown(error)}"
            raise HandlersFailError(message) from error
        finally:
            del self._futures[id(slot)]

    def _submit(self, slot: Slot, records: list[Any], about: Any) -> Future[Answer]:  # noqa: ANN401 - passed on
        call: Any = call_and_send
        if isinstance(self._executor, ThreadPoolExecutor):
            call = functools.partial(self._call_there, slot)
            slot.began = math.inf  # it may wait there, and that is no handler's time
        try:
            return self._executor.submit(
                call,
                self._calls.handle,
                records,
                about,
                is_batch=self._calls.is_batch,
                seconds=self._calls.seconds,
            )
        except RuntimeError as error:  # shut down or broken, and stays so
            message = f"the executor takes nothing more: {shown(error)}"
            raise HandlersFailError(message) from error
