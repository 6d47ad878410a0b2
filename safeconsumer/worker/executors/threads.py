"""Runs handlers in threads of this process."""

import functools
import threading

from safeconsumer.worker import tracebacks
from safeconsumer.worker.calls import (
    END_SECONDS,
    Calls,
    Slot,
    StackOf,
    call_batch,
    call_each,
    context_of,
    end_slot,
    executor_failed,
)
from safeconsumer.worker.dead_letters import call_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors.lifespan import LifespanThread
from safeconsumer.worker.partition import Outcome, Task


class Threads:
    """Runs handlers in daemon threads; a stuck thread does not prevent the program's exit."""

    _ends_late = False  # whether this executor can end a handler that takes too long

    def __init__(self, decisions: Decisions, calls: Calls, count: int) -> None:
        self._decisions = decisions
        self._calls = calls
        self._handle = calls.called(decisions.journal)
        self._lifespan = LifespanThread(calls.lifespan, decisions.fail)
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
        """Start the threads; they get no records before the first poll."""
        self._lifespan.start()
        for thread in self._threads:
            thread.start()

    def wait_ready(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the lifespan; return whether it was entered."""
        return self._lifespan.wait_entered(seconds)

    def recall(self) -> None:
        """Do nothing, because a thread immediately handles the records that it claims."""

    def stop(self, seconds: float = END_SECONDS) -> None:
        """Make the threads end; a thread in a handler ends once the handler returns."""
        self._decisions.queue.end()
        self._lifespan.leave(seconds)

    def _work(self, slot: Slot) -> None:
        slot.stack = self._stack_of(slot)
        claim, complete = self._decisions.queue.wait_claim, self._decisions.complete
        try:
            while (task := claim()) is not None:
                complete(self._run_safely(task, slot))
        except BaseException as error:  # noqa: BLE001 - run() raises the error, healthy() shows it
            end_slot(slot, self._decisions.fail, error)

    def _run_safely(self, task: Task, slot: Slot) -> Outcome:
        try:
            if task.letter is not None:
                return call_sink(self._decisions.queue.policy.sink, task, slot)
            return self._run(task, slot)
        except BaseException as error:  # noqa: BLE001 - an error of this code, not of a handler
            slot.task = None
            return executor_failed(task, error)

    def _stack_of(self, _slot: Slot) -> StackOf:
        return functools.partial(tracebacks.of_thread, threading.get_ident())

    def _run(self, task: Task, slot: Slot) -> Outcome:
        policy, handle = self._decisions.queue.policy, self._handle
        context = context_of(task, self._calls.deadline, self._lifespan.state)
        if policy.is_batch:
            return call_batch(handle, task, slot, context)
        return call_each(handle, task, slot, context, policy.lane_seconds)
