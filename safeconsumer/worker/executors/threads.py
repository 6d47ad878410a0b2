"""
Handlers in threads of this process, and threads that drive handlers elsewhere.
"""

import functools
import threading
import time
from abc import ABC, abstractmethod
from typing import Any

from attrs import evolve

from safeconsumer.worker import tracebacks
from safeconsumer.worker.executors.base import END_SECONDS, Calls, end_slot
from safeconsumer.worker.executors.lifespan import LifespanThread
from safeconsumer.worker.handlers import (
    About,
    Answer,
    Slot,
    StackOf,
    blamed,
    broken,
    call_batch,
    call_each,
    context_of,
    outcome_of,
)
from safeconsumer.worker.queue import Outcome, Task
from safeconsumer.worker.results import Schedule


class Threads:
    """
    Handlers run in daemon threads of this process, so that a stuck one stops no exit.
    """

    _ends_late = False  # whether a handler that takes too long can be ended

    def __init__(self, schedule: Schedule, calls: Calls, count: int) -> None:
        self._schedule = schedule
        self._calls = calls
        self._handle = calls.around(calls.handle)
        self._lifespan = LifespanThread(calls.lifespan, schedule.fail)
        limit = calls.overdue if self._ends_late else calls.timeout
        self.slots = [Slot(f"safeconsumer-worker-{at}", limit) for at in range(count)]
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(slot,),
                name=slot.name,
                daemon=True,
            )
            for slot in self.slots
        ]

    def start(self) -> None:
        """
        Start the threads; nothing is handed over before the first poll.
        """
        self._lifespan.start()
        for thread in self._threads:
            thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """
        Tell whether the lifespan is entered, within so many seconds.
        """
        return self._lifespan.wait_entered(seconds)

    def recall(self) -> None:
        """
        Do nothing: what a thread has claimed it begins at once.
        """

    def recall_held(self) -> None:
        """
        Do nothing: what a thread has claimed it begins at once.
        """

    def stop(self, seconds: float = END_SECONDS) -> None:
        """
        Let the threads end; one that is in a handler ends after it.
        """
        self._schedule.queue.end()
        self._lifespan.leave(seconds)

    def _work(self, slot: Slot) -> None:
        slot.stack = self._stack_of(slot)
        wait_claim, complete = self._schedule.queue.wait_claim, self._schedule.complete
        try:
            while (tasks := wait_claim()) is not None:
                complete([self._run_safely(task, slot) for task in tasks])
        except BaseException as error:  # noqa: BLE001 - told by run(), and by healthy()
            end_slot(slot, self._schedule, error)

    def _run_safely(self, task: Task, slot: Slot) -> Outcome:
        try:
            return self._run(task, slot)
        except BaseException as error:  # noqa: BLE001 - ours: what handlers raise is seen
            slot.task = None
            return broken(task, error)

    def _stack_of(self, _slot: Slot) -> StackOf:
        return functools.partial(tracebacks.of_thread, threading.get_ident())

    def _run(self, task: Task, slot: Slot) -> Outcome:
        calls = self._calls
        context = context_of(task, calls.deadline, self._lifespan.state)
        if calls.is_batch:
            return call_batch(self._handle, task, slot, context)
        return call_each(self._handle, task, slot, context, calls.seconds)


class NotBegunError(Exception):
    """
    What was handed over is back: nothing of it was begun, and it has not failed.
    """


class Elsewhere(Threads, ABC):
    """
    A thread per place drives it and waits for its answer; subclasses know the place.
    """

    _is_here = False  # whether that is in this process

    def _stack_of(self, slot: Slot) -> StackOf:
        return functools.partial(self._look, slot)

    @abstractmethod
    def _look(self, slot: Slot) -> str | None:
        """
        Return the stack of what runs there; None if it cannot be seen.
        """

    def _run(self, task: Task, slot: Slot) -> Outcome:
        records = [task.chunk.records[index] for index in task.indexes]
        slot.trace = None
        began = time.monotonic()
        try:
            self._prepare(slot)
            slot.index, slot.began = self._first(task), (began := time.monotonic())
            slot.task = task
            if task.epoch.is_held:  # since it was claimed
                return Outcome(task=task, left=task.indexes)
            answer = self._ask_traced(task, slot, records)
        except NotBegunError:
            return Outcome(task=task, left=task.indexes)
        except BaseException as error:  # noqa: BLE001 - what came back from there
            answer = (0, blamed(error))
        finally:
            slot.task = None
        now = time.monotonic()
        last = min(now - began, max(0.0, now - slot.began))
        if answer[1] is not None and slot.trace is not None:
            task = evolve(task, trace=slot.trace)
        return outcome_of(
            task,
            answer,
            now - began,
            is_batch=self._calls.is_batch,
            last=None if slot.index < 0 else last,
        )

    def _ask_traced(self, task: Task, slot: Slot, records: list[Any]) -> Answer:
        # The span lives here, and its context travels. One that is not ended was not
        # begun for anybody: no exporter gets it.
        epoch, tracer = task.epoch, self._calls.trace
        about: About = (epoch.tp, task.attempt, epoch.number, None)
        if tracer is None or self._is_here:
            return self._ask(slot, records, about)
        given = records if self._calls.is_batch else records[0]
        carrier = tracer.carrier(given, epoch.tp, task.attempt)
        try:
            count, error = answer = self._ask(slot, records, (*about[:3], carrier))
        except NotBegunError:
            raise
        except BaseException as wrong:
            slot.trace = carrier.end(wrong)
            raise
        if count or error is not None:
            slot.trace = carrier.end(error)
        return answer

    def _first(self, task: Task) -> int:
        """
        Return the index of the record that is begun with; -1 if nobody ever knows.
        """
        return task.indexes[0]

    def _prepare(self, slot: Slot) -> None:
        """
        Get ready what takes its time, and is not the handler's.

        Raises:
            NotBegunError: it is too late for that.
        """

    @abstractmethod
    def _ask(self, slot: Slot, records: list[Any], about: About) -> Answer:
        """
        Have the records handled there, and wait for the answer.

        Raises:
            NotBegunError: nobody has begun with them.
        """
