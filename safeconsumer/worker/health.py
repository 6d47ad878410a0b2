"""
Whether a worker is well: its loop, its handlers, and what failed for good.
"""

import time
from collections.abc import Callable, Iterator, Sequence

from attrs import field, frozen

from safeconsumer.events import worker as worker_events
from safeconsumer.worker.calls import Slot
from safeconsumer.worker.engine import Engine
from safeconsumer.worker.lanes import Task
from safeconsumer.worker.shown import shown

# A loop that has not polled for two of its polls and this long does not turn.
_GRACE = 1.0


@frozen(kw_only=True)
class Health:
    """
    Whether a worker is well; true if it is.

    Attributes:
        is_alive: its loop turns. A liveness probe asks this: slow handlers, failing
            records and a silent topic are no reason to be restarted.
        reasons: what is wrong; empty if nothing is.
    """

    is_alive: bool
    reasons: tuple[str, ...] = field(factory=tuple)

    def __bool__(self) -> bool:
        return self.is_alive and not self.reasons


def turns(engine: Engine, now: float) -> bool:
    """
    Tell whether the loop turns.
    """
    return now - engine.polled_at <= 2 * engine.poll_timeout + _GRACE


def examine(
    engine: Engine, slots: Sequence[Slot], age: float, *, is_running: bool
) -> Health:
    """
    Look at the loop, at each handler and what runs it, and at what failed for good.
    """
    now = time.monotonic()
    is_alive = not is_running or turns(engine, now)
    reasons = [] if is_alive else [f"no poll for {now - engine.polled_at:.1f} s"]
    reasons += [
        f"{slot.name} has ended: {shown(slot.ended)}"
        for slot in slots
        if slot.ended is not None
    ]
    for slot, task, seconds in stalled(slots, age, now):
        reasons.append(
            f"{place(task, slot.index)}: its handler runs for {seconds:.1f} s\n"
            f"{slot.stack() or ''}".rstrip()
        )
    for tp, offset, since in engine.held.stuck():
        if now - since >= age:
            reasons.append(
                f"{tp.topic}:{tp.partition} offset {offset} failed for good "
                f"{now - since:.1f} s ago and blocks"
            )
    return Health(is_alive=is_alive, reasons=tuple(reasons))


def stalled(
    slots: Sequence[Slot], age: float, now: float
) -> Iterator[tuple[Slot, Task, float]]:
    """
    Yield the places where a handler works on one record for too long.
    """
    for slot in slots:
        task, began = slot.task, slot.began
        if task is not None and now - began >= age:
            yield slot, task, now - began


def tell_stalls(slots: Sequence[Slot], age: float, emit: Callable[..., None]) -> None:
    """
    Emit an event for each new stall.
    """
    for slot, task, seconds in stalled(slots, age, time.monotonic()):
        if slot.told == (task, slot.index):
            continue
        slot.told = (task, slot.index)
        tp = task.epoch.tp
        record = task.chunk.records[slot.index]
        emit(
            worker_events.HandlerStalled,
            partition=f"{tp.topic}:{tp.partition}",
            offset=-1 if record is None else record.offset,
            seconds=seconds,
            stack=slot.stack(),
        )


def place(task: Task, index: int) -> str:
    """
    Name a record.
    """
    record = task.chunk.records[index]
    where = "a finished record" if record is None else f"offset {record.offset}"
    return f"{task.epoch.tp.topic}:{task.epoch.tp.partition} {where}"
