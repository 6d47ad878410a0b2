"""
Two threads use one queue, with a switch between the threads at every point.

In each order no error is raised, the counters equal a recount, no record is handed out twice,
and all owned records are finished in the end.
"""

import asyncio
import itertools
import random
import threading
from pathlib import Path

import pytest

from safeconsumer import worker
from safeconsumer.holds import ledger
from safeconsumer.holds.hold import BREAKER, OUTAGE
from safeconsumer.holds.scope import Topic
from safeconsumer.worker import Breaker, Pause, Reject, RetryLater
from safeconsumer.worker.partition import Order, Outcome
from safeconsumer.worker.revocation import Revocation
from tests.harness.signals import Places
from tests.harness.worker.desk import TP, Desk, ended, incomplete
from tests.sim.world import World

INSIDE = (str(Path(worker.__file__).parent), ledger.__file__)
PLANTED, REJECTED, LATER = ValueError("planted"), Reject("planted"), RetryLater(1.0)
PAUSED, DOWN = Pause(0.5, "all"), ConnectionError("planted")
BREAKS = Breaker(on=(ConnectionError,), failures=1, first=0.5, factor=1.0)


class InfeasibleError(Exception):
    """The step is impossible now, because the other thread has claimed the task."""


class Scene:
    """A partition's queue (``Desk``), and its outstanding tasks."""

    def __init__(self, desk):
        self.desk, self.out = desk, []

    def claim(self):
        task = self.desk.decisions.queue.claim()
        self.out += [] if task is None else [task]

    def end(self, task, error=None):
        """Complete a task; if an error is given, fail the task's first record with it."""
        self.out.remove(task)
        self.desk.decisions.complete(_outcome(task, error))

    def of(self, attempt, which=0):
        """Return one of the outstanding tasks with this attempt number."""
        found = [one for one in self.out if not one.letter and one.attempt == attempt]
        if not found:  # the other thread has claimed the task
            raise InfeasibleError
        return found[which]

    def letter(self):
        """Return the outstanding task that writes a dead letter."""
        found = [task for task in self.out if task.letter is not None]
        if not found:
            raise InfeasibleError
        return found[0]

    def finish(self):
        desk = self.desk
        desk.decisions.queue.go_on()
        desk.resume()
        _lift(self)
        for _ in range(20):
            while self.out:
                self.end(self.out[0])
            desk.pass_time(1.0)
            self.claim()


def _outcome(task, error):
    if error is None:
        return ended(task)
    failed = [(task.indexes[0], error)]
    return Outcome(task=task, failed=failed, left=list(task.indexes[1:]))


def scene(order):
    """Return a scene with first and second attempts, a letter and a retry that is due."""
    desk = Desk(
        order,
        lambda record: record.offset % 6,
        BREAKS,
        sink=print,
        on_exhausted="skip",
        quantum=1,
        span=15,
    )
    made = Scene(desk)
    desk.admit(6)
    for error in (PLANTED, PLANTED, REJECTED):
        made.claim()
        made.end(made.out[0], error)
    made.claim()
    made.claim()
    desk.admit(6)
    desk.pass_time(1.0)
    while sum(task.attempt > 1 for task in made.out) < 2:
        made.claim()
    first = [one for one in made.out if one.attempt == 1 and not one.letter]
    for task in first[2:]:
        made.end(task, PLANTED)
    desk.clock.now += 1.0
    return made


def _drop(made):
    desk = made.desk
    desk.decisions.queue.drop_queued([desk.epoch])
    desk.kept.close(desk.epoch)


def _break_and_try(made):
    made.end(made.of(1, -1), DOWN)
    made.desk.clock.now += 0.5
    before = len(made.out)
    made.claim()
    for task in made.out[before:]:
        made.end(task, DOWN)


def _lift(made):
    made.desk.resume(OUTAGE)
    made.desk.ledger.remove([(Topic(TP.topic), BREAKER)])


def _ask(made):
    desk = made.desk
    desk.kept.watermarks()
    desk.kept.finished([desk.epoch])
    desk.decisions.is_starving(desk.epoch)


STEPS = {
    "admit": lambda made: made.desk.admit(3),
    "turn": lambda made: made.desk.decisions.turn(),
    "drop": _drop,
    "halt": lambda made: made.desk.decisions.queue.halt(),
    "go on": lambda made: made.desk.decisions.queue.go_on(),
    "end": lambda made: made.desk.decisions.queue.end(),
    "ask": _ask,
    "pause": lambda made: made.desk.pause(),
    "resume": lambda made: made.desk.resume(),
    "worker's own pause": lambda made: made.desk.pause("worker:backpressure"),
    "claim": Scene.claim,
    "complete": lambda made: made.end(made.of(1)),
    "complete a retry": lambda made: made.end(made.of(2)),
    "fail": lambda made: made.end(made.of(1, -1), PLANTED),
    "later": lambda made: made.end(made.of(1, -1), LATER),
    "reject": lambda made: made.end(made.of(2, -1), REJECTED),
    "pause by a handler": lambda made: made.end(made.of(1, -1), PAUSED),
    "break": lambda made: made.end(made.of(1, -1), DOWN),
    "break and try": _break_and_try,
    "lift": _lift,
    "letter": lambda made: made.end(made.letter()),
    "letter fails": lambda made: made.end(made.letter(), PLANTED),
    "letter is refused": lambda made: made.end(made.letter(), REJECTED),
}
# Steps that only the polling thread takes.
POLLING = {"admit", "turn", "drop", "halt", "go on", "end", "ask"}
PAIRS = [
    (a, b)
    for a, b in itertools.product(STEPS, STEPS)
    if not {a, b} <= POLLING and (a != b or a == "claim")
]


def _recount(kept, out):
    open_ = sum(len(incomplete(one.progress)) for one in kept.epochs.values())
    if kept.records != open_:
        yield f"{kept.records} are counted, {open_} are kept"
    running = sum(len(task.indexes) for task in out if not task.epoch.is_closed)
    if kept.running != running:
        yield f"{kept.running} are counted as running, {running} run"
    taken = [(id(t.epoch), ordinal) for t in out for ordinal in t.ordinals]
    if len(set(taken)) != len(taken):
        yield "a record was handed out twice"


def _check(made):
    desk = made.desk
    yield from _recount(desk.kept, made.out)
    before = len(made.out)
    if desk.ledger.view().holds.covers(TP):
        made.claim()
        is_ours = all(one.is_routine for one in desk.ledger.view().holds)
        if len(made.out) > before and not is_ours:
            yield "a held record was handed out"
    if desk.decisions.queue._has_ended:
        return
    made.finish()
    if desk.kept.records or desk.kept.running:
        yield f"{desk.kept.records} are never finished"
    if not desk.epoch.is_closed and desk.epoch.failed:
        yield f"{desk.epoch} still knows of failures"


def _met(order, a, b, at):
    """Run step ``b`` at a point inside step ``a``; return the count of points, and errors."""
    world = World()

    def main():
        made, failed, mine = scene(order), [], world.task
        places = Places(INSIDE, lambda: world.task is mine)

        def run(step):
            try:
                STEPS[step](made)
            except Exception as error:  # noqa: BLE001 - any error is wrong
                failed.append(error)

        other = threading.Thread(target=run, args=(b,))

        def come():
            other.start()
            other.join(1.0)  # step b may wait for a lock that step a holds

        if not places.reach(at, lambda: run(a), come):
            come()
        other.join()
        if any(isinstance(one, InfeasibleError) for one in failed):
            return places.seen, []
        return places.seen, [*map(repr, failed)] or [*_check(made)]

    return world.run(main)


@pytest.mark.parametrize(
    "order", [Order.KEY, pytest.param(Order.UNORDERED, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("name", sorted({a for a, _ in PAIRS}))
@pytest.mark.parametrize("places", [1, pytest.param(12, marks=pytest.mark.nightly)])
def test_any_two_steps_may_interleave_at_any_point(order, name, places):
    """While one step is interrupted at a random point, another step runs."""
    wrong = []
    for a, b in PAIRS:
        if a != name:
            continue
        count, found = _met(order, a, b, 10**9)
        chance = random.Random(f"{a} x {b}")  # noqa: S311 - draws have to be repeatable
        for at in chance.sample(range(count), min(places, count)):
            found += _met(order, a, b, at)[1]
        wrong += [f"{a} x {b}: {one}" for one in found]
    assert not wrong, "\n".join(wrong)


class Leaving(list):
    """A list of waiters that all remove themselves when the list is tested for truth."""

    def __bool__(self):
        found = len(self) > 0
        self.clear()
        return found


def test_waiter_that_is_cancelled_while_the_event_is_set_does_not_raise():
    loop = asyncio.new_event_loop()
    revoked = Revocation()
    revoked._waiting = Leaving([loop.create_future()])
    loop.close()  # set() must not raise even if the waiter's loop is closed
    revoked.set()
    assert revoked.is_set()
