"""
Runs programs in virtual time, on a clock that jumps from timer to timer.

This module does not depend on Kafka and patches nothing. A task is a greenlet; one task
runs at a time, until it parks. The seed decides which runnable task is next. If no task
is runnable, the clock jumps to the next timer. If no timer is set either, the world is
deadlocked, and raises an error with the stack of every task.
"""

import gc
import heapq
import itertools
import logging
import random
import sys
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, ClassVar

from greenlet import GreenletExit, getcurrent, greenlet

EPOCH = 1_700_000_000.0  # the wall clock's seconds when a world starts
LIMIT = 100_000.0  # virtual seconds; a longer world waits for an event that never comes
_NEVER = float("inf")
_BEGIN = 1000.0  # the monotonic clock's first reading; programs compare it with zero
_LOOK = 1e-6  # seconds by which a reading advances the clock, so that deadlines pass
_TURN = 100e-6  # seconds that a turn costs, about as much as a real one
_LONGEST_TURN = 0.01  # seconds that a turn costs if the process has not slept for long
_UNWINDINGS = 20  # how many times a task may catch GreenletExit and continue
# The most readings of the clock in one turn; our tests' programs make at most 2,416.
_LOOKS = 20_000
_ALL_LOOKS = _LOOKS * _LOOK
_BUSIEST = 50_000  # turns without sleep; our tests' programs take at most 7,649
_OWN_FILES = ("/sim/world.py", "/sim/threads.py", "/threading.py")


class DeadlockError(AssertionError):
    """No task can run and no timer is set; the message has the stack of every task."""


class NotYetError(AssertionError):
    """A condition did not become true within the given virtual time."""


class EndlessError(BaseException):
    """
    A task loops endlessly, and its log would fill the memory.

    This class is not an ``Exception`` because such a loop logs exceptions and continues.
    """


class Timer:
    """A call that is due at a given time and can be cancelled."""

    __slots__ = ("at", "call")

    def __init__(self, at, call):
        self.at = at
        self.call = call

    def cancel(self):
        self.call = None


class Process:
    """Tasks that share a wall clock and are frozen, killed and disconnected together."""

    def __init__(self, name):
        self.name = name
        self.is_frozen = False
        self.is_dead = False
        self.skew = 0.0  # seconds by which its wall clock is ahead
        self._busy = 0  # turns of its tasks since the process last slept
        self._slept = 0  # the world's `_slept` in the last turn

    def __repr__(self):
        return self.name

    @property
    def is_able(self):
        """Return whether the tasks of this process can run."""
        return not (self.is_frozen or self.is_dead)

    def take_turn(self, slept):
        """
        Count a turn, and return how many turns the process has taken without sleeping.

        Each process has a machine of its own, so other processes do not slow it down.

        Args:
            slept: the time that the world has slept so far, counted in turns.
        """
        still = self._busy - (slept - self._slept)
        self._busy = busy = still + 1 if still > 0 else 1
        self._slept = slept
        return busy


class Task(greenlet):
    def __init__(self, world, target, name, process):
        super().__init__(target, parent=world.hub)
        self.world = world
        self.name = name
        self.process = process
        self.number = next(world.serial)
        self.is_parked = False
        self.thread = None  # its threading.Thread, if the task is one
        self.carried = [None] * len(world.carried)

    def wake(self):
        """Let the task run again if it is parked."""
        if self.is_parked:
            self.is_parked = False
            self.world.runnable.append(self)

    def place(self):
        """Return the calls in which the task waits, innermost first."""
        frame = sys._getframe() if self is self.world.task else self.gr_frame
        if frame is None:
            return "before its first turn"
        calls = [
            f"{one.filename.rsplit('/', 1)[-1]}:{one.lineno} {one.name}"
            for one in traceback.extract_stack(frame)
            if not one.filename.endswith(_OWN_FILES)
        ]
        return " < ".join(reversed(calls[-5:]))


class World:
    """
    Runs a function, and all tasks that the function starts, in virtual time.

    Args:
        seed: the seed of all random choices.
        preempt: the probability that a task loses its turn when it acquires a lock.
        limit: virtual seconds after which the world raises an error.
    """

    current: ClassVar["World | None"] = None  # the running world
    # Functions that get and set Python's per-thread state; each task has its own state.
    carried: ClassVar[list[tuple[Callable[[], Any], Callable[[Any], None]]]] = []

    def __init__(self, seed=0, *, preempt=0.0, limit=LIMIT):
        self.seed = seed
        self.rng = random.Random(seed)  # noqa: S311 - its numbers are not secret
        # For the client's random choices; an earlier test's thread may draw from
        # `random` itself.
        self.chance = random.Random(seed)  # noqa: S311 - as above
        self.preempt = preempt
        self.limit = limit
        self.clock = _BEGIN
        self.turns = 0
        self.is_over = False
        self.hub = None
        self.network = None  # the network of its sockets, if it has one
        self.sockets = {}  # sockets by their numbers
        self.task = None  # the running task; None between turns
        self.outside = Process("test")
        self.runnable = []
        self.tasks = []
        self.still_ran = ()  # the tasks that were still running at the end
        # Numbers for objects that could otherwise be ordered only by their addresses.
        self.serial = itertools.count(1)
        self._slept = 0  # the time slept so far, as a number of turns
        self._turn_limit = _NEVER  # a turn that reads a later time loops endlessly
        self._order = itertools.count()
        self._timers = []
        self._first = None
        self._crash = None

    # The clock

    @property
    def now(self):
        """Return the virtual seconds since the world started."""
        return self.clock - _BEGIN

    def monotonic(self):
        """Return the time; each reading advances the clock, so that every deadline passes."""
        self.clock += _LOOK
        if self.clock > self._turn_limit:
            # The hub raises the error again if a task catches it.
            if self._crash is None:
                self._crash = self._endless(f"{_LOOKS} looks at the clock in one turn")
            raise self._crash
        return self.clock

    def wall(self):
        """Return the wall-clock time of the caller's process, in seconds since the epoch."""
        return EPOCH + self.monotonic() - _BEGIN + self.process.skew

    def call_later(self, delay, call):
        """Call a function after a delay, outside any task; the function must not wait."""
        at = self.clock + delay if delay > 0 else self.clock
        timer = Timer(at, call)
        heapq.heappush(self._timers, (at, next(self._order), timer))
        return timer

    # Tasks

    @property
    def process(self):
        return self.outside if self.task is None else self.task.process

    def spawn(self, target, name="task", process=None):
        """Start a task, which first runs after the caller has yielded."""
        task = Task(self, lambda: self._live(target), name, process or self.process)
        self.tasks.append(task)
        task.is_parked = True
        task.wake()
        return task

    def running(self):
        """Return the unfinished tasks of living processes, except the test's own task."""
        return [
            one
            for one in self.tasks
            if not (one.dead or one.process.is_dead or one is self._first)
        ]

    def park(self, timeout=None):
        """Wait until another task wakes the caller, or until the seconds have passed."""
        if self.is_over:
            raise GreenletExit
        task = self.task
        assert task is not None, "only a task can wait; what a timer calls must not"
        timer = None if timeout is None else self.call_later(timeout, task.wake)
        task.is_parked = True
        self._switch()
        if timer is not None:
            timer.cancel()

    def give_way(self):
        """Give up the turn; another task may run first."""
        if self.is_over:
            raise GreenletExit
        task = self.task
        if task is not None:
            self.runnable.append(task)
            self._switch()

    def _switch(self):
        self.hub.switch()
        if self.is_over:
            raise GreenletExit

    def sleep(self, seconds):
        self.park(max(0.0, seconds))

    def until(self, condition, seconds=600.0, what=""):
        """
        Wait until a condition is true, and return its result.

        Args:
            condition: a function that is called every 50 virtual ms.
            seconds: the virtual seconds after which the wait fails.
            what: the condition in words, for the error.

        Raises:
            NotYetError: the condition did not become true in time.
        """
        end = self.clock + seconds
        while not (found := condition()):
            if self.clock >= end:
                text = f"not within {seconds:g} virtual seconds: {what or condition}"
                raise NotYetError(text)
            self.sleep(0.05)
        return found

    # Running

    def run(self, main):
        """Run until ``main`` returns, end all other tasks, and return its result."""
        __tracebackhide__ = True
        assert World.current is None, "one world at a time"
        self.hub = getcurrent()
        result = []
        self._first = self.spawn(lambda: result.append(main()), "main", self.outside)
        with self._alone():
            try:
                while not self._first.dead:
                    self._step()
            finally:
                self._end()
        return result[0]

    @contextmanager
    def _alone(self):
        """Keep this world and the rest of the process from influencing each other."""
        was_collecting, drawn = gc.isenabled(), random.getstate()
        gc.disable()  # the lifetime of an object must not depend on earlier tests
        random.seed(self.seed)
        World.current = self
        try:
            yield
        finally:
            World.current = None
            random.setstate(drawn)
            if was_collecting:
                gc.enable()

    def _live(self, target):
        __tracebackhide__ = True
        try:
            target()
        except (GreenletExit, SystemExit):
            return
        except BaseException as error:  # noqa: BLE001 - the hub raises it again
            if self._crash is None and not self.is_over:
                self._crash = error

    def _step(self):
        """Call the timers that are due; then give one task its turn, or advance the clock."""
        __tracebackhide__ = True
        if self._timers and self._timers[0][0] <= self.clock:
            self._call_what_is_due()
        able = [
            one
            for one in self.runnable
            if not (one.process.is_frozen or one.process.is_dead)
        ]
        if able:
            self._turn(self.rng.choice(able) if len(able) > 1 else able[0])
        else:
            self._jump()
        if self._crash is not None:
            raise self._crash
        if self.now > self.limit:
            message = f"still waiting after {self.limit:g} virtual seconds: "
            raise NotYetError(message + self.picture())

    def _call_what_is_due(self):
        while self._timers and self._timers[0][0] <= self.clock:
            timer = heapq.heappop(self._timers)[2]
            call, timer.call = timer.call, None
            if call is not None:
                call()

    def _turn(self, task):
        """Let a task run; its turn takes longer after many turns without sleep."""
        self.runnable.remove(task)
        self.turns += 1
        busy = task.process.take_turn(self._slept)
        self.clock += min(_LONGEST_TURN, _TURN * (1 + busy / 100))
        # A context manager would cost too much time in each turn.
        self._enter(task)
        try:
            if busy > _BUSIEST:
                what = f"{_BUSIEST} turns without sleep"
                raise self._endless(what)
            task.switch()
        finally:
            self._leave(task)

    def _endless(self, what):
        assert self.task is not None, "only a task has turns"
        name = f"{self.task.process}/{self.task.name}"
        text = f"{name} loops without an end: {what}: {self.picture()}"
        return EndlessError(text)

    def _enter(self, task):
        self.task = task
        self._turn_limit = self.clock + _ALL_LOOKS
        for index, value in enumerate(task.carried):
            if value is not None:
                self.carried[index][1](value)

    def _leave(self, task):
        self.task = None
        self._turn_limit = _NEVER
        for index, (read, write) in enumerate(self.carried):
            value = task.carried[index] = read()
            if value is not None:
                write(None)

    def _jump(self):
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            message = "nothing will ever happen again: "
            raise DeadlockError(message + self.picture())
        ahead = self._timers[0][0] - self.clock
        if ahead > 0:
            self._slept += int(ahead * 1e5) + 1
            self.clock += ahead

    def picture(self):
        """Return the stacks of all unfinished tasks, one task per line."""
        alive = [one for one in self.tasks if not one.dead]
        lines = [f"\n  {one.process}/{one.name}: {one.place()}" for one in alive]
        return f"virtual second {self.now:.3f}, seed {self.seed}{''.join(lines)}"

    def _end(self):
        """
        Unwind every task with GreenletExit; no task can wait any more.

        Logging is disabled, because a client would log the unwinding as a crash.
        """
        self.is_over = True
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            self._unwind()
        finally:
            logging.disable(before)

    def _unwind(self):
        self.still_ran = tuple(f"{one.process}/{one.name}" for one in self.running())
        for task in self.tasks:
            for _ in range(_UNWINDINGS):
                if task.dead:
                    break
                self._enter(task)
                try:
                    task.throw(GreenletExit)
                finally:
                    self._leave(task)
        self._timers.clear()
        self.runnable.clear()
