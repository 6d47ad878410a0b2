"""Runs handlers in threads of this process, and drives handlers that run elsewhere."""

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
    """Runs handlers in daemon threads of this process; a stuck one does not block exit."""

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
        """Start the threads; nothing is handed over before the first poll."""
        self._lifespan.start()
        for thread in self._threads:
            thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """Tell whether the lifespan was entered within so many seconds."""
        return self._lifespan.wait_entered(seconds)

    def recall(self) -> None:
        """Do nothing: a thread begins at once with a record that it has claimed."""

    def recall_held(self) -> None:
        """Do nothing: a thread begins at once with a record that it has claimed."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Let the threads end; a thread that is in a handler ends after it."""
        self._schedule.queue.end()
        self._lifespan.leave(seconds)

    def _work(self, slot: Slot) -> None:
        slot.stack = self._stack_of(slot)
        wait_claim, complete = self._schedule.queue.wait_claim, self._schedule.complete
        try:
            while (tasks := wait_claim()) is not None:
                complete([self._run_safely(task, slot) for task in tasks])
        except BaseException as error:  # noqa: BLE001 - run() raises it, healthy() names it
            end_slot(slot, self._schedule, error)

    def _run_safely(self, task: Task, slot: Slot) -> Outcome:
        try:
            return self._run(task, slot)
        except BaseException as error:  # noqa: BLE001 - our own: handlers' errors were caught
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
    """Records that were handed over are back: none of them was begun or has failed."""


class Elsewhere(Threads, ABC):
    """Has one thread per slot that drives it and waits for answers; subclasses run them."""

    _is_here = False  # whether handlers run in this process

    def _stack_of(self, slot: Slot) -> StackOf:
        return functools.partial(self._look, slot)

    @abstractmethod
    def _look(self, slot: Slot) -> str | None:
        """Return the stack of what runs in a slot; None if it cannot be seen."""

    def _run(self, task: Task, slot: Slot) -> Outcome:
        records = [task.chunk.records[index] for index in task.indexes]
        slot.trace = None
        began = time.monotonic()
        try:
            self._prepare(slot)
            slot.index, slot.began = self._first(task), (began := time.monotonic())
            slot.task = task
            if task.epoch.is_held:  # held since it was claimed
                return Outcome(task=task, left=task.indexes)
            answer = self._ask_traced(task, slot, records)
        except NotBegunError:
            return Outcome(task=task, left=task.indexes)
        except BaseException as error:  # noqa: BLE001 - the error of the other side
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
        # The span lives here, and its context is sent along. A span that is not ended
        # is never exported.
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
        """Return the index of the record that is begun first; -1 if it is never known."""
        return task.indexes[0]

    def _prepare(self, slot: Slot) -> None:
        """
        Prepare what takes time that is not the handler's.

        Raises:
            NotBegunError: it is too late to begin.
        """

    @abstractmethod
    def _ask(self, slot: Slot, records: list[Any], about: About) -> Answer:
        """
        Have the records handled there, and wait for the answer.

        Raises:
            NotBegunError: none of the records was begun.
        """
