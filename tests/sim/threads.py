"""
Simulates time, threads, locks and queues in a world.

The module replaces only names of the standard library. In addition, `network.register`
gives kafka-python's tasks and batches an order, and the churn tests keep the garbage
collector from closing producers. Outside a running world, and in other threads of the
operating system, the real functions stay in use, so a pytest process that has called
``install()`` can run ordinary tests, too. ``install()`` must run before kafka,
safeconsumer and concurrent.futures are imported, because these modules copy the names
into default arguments and globals.

Condition, Event, Semaphore, Barrier, Timer, queue.Queue, thread pools and asyncio stay
Python's own, because they are built from Lock, RLock, Thread and get_ident, which this
module simulates.
"""

import asyncio
import asyncio.events
import multiprocessing  # noqa: F401 - imported first, to use the real names
import queue
import random
import ssl  # noqa: F401 - imported first for the same reason
import threading
import time
import uuid

from greenlet import GreenletExit

from tests.sim import network
from tests.sim.world import World

_OS_THREAD = threading.get_ident()
# The ident of the first simulated thread; the idents of real threads are far larger.
_FIRST_IDENT = 10_000_000

_real_lock = threading.Lock
_real_rlock = threading.RLock
_played_rlock = threading._PyRLock
_real_start = threading.Thread.start
_real_join = threading.Thread.join
_real_is_alive = threading.Thread.is_alive
_real_ident = threading.get_ident
_real_current = threading.current_thread
_real_enumerate = threading.enumerate
_real_queue = queue.SimpleQueue
_real_uuid4 = uuid.uuid4
_real_sleep = time.sleep

cpu_seconds = time.process_time  # the real CPU clock, for programs that measure a world


def world():
    """Return the world in which the caller runs, or None outside a world."""
    one = World.current
    return one if one is not None and _real_ident() == _OS_THREAD else None


def _task():
    # The body of world(), inlined because every lock operation calls this function.
    one = World.current
    return one.task if one is not None and _real_ident() == _OS_THREAD else None


class Lock:
    """A lock for simulated threads; any waiting thread may acquire it next, as in CPython."""

    __slots__ = ("__weakref__", "_is_held", "_waiters")

    def __init__(self):
        self._is_held = False
        self._waiters = []

    def acquire(self, blocking=True, timeout=-1):
        """Acquire the lock; return False if the timeout passes first."""
        one = World.current
        if one is None or one.is_over:
            return self._take_at_the_end(one, may_wait=blocking)
        if one.preempt and one.rng.random() < one.preempt:
            one.give_way()
        if self._is_held and blocking and timeout != 0:
            self._wait(one, None if timeout is None or timeout < 0 else timeout)
        if self._is_held:
            return False
        self._is_held = True
        return True

    def _take_at_the_end(self, one, *, may_wait):
        """Acquire the lock at the end of a world, when no task can wait any more."""
        if self._is_held:
            if may_wait and one is not None:
                raise GreenletExit
            return may_wait
        self._is_held = True
        return True

    def _wait(self, one, timeout):
        end = None if timeout is None else one.clock + timeout
        task = one.task
        assert task is not None, "what a timer calls must not wait for a lock"
        while self._is_held:
            left = None if end is None else end - one.clock
            if left is not None and left <= 0:
                return
            self._waiters.append(task)
            one.park(left)
            if task in self._waiters:
                self._waiters.remove(task)

    def release(self):
        if not self._is_held:
            message = "release unlocked lock"
            raise RuntimeError(message)
        self._is_held = False
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for one in waiters:
                one.wake()

    def locked(self):
        return self._is_held

    def _at_fork_reinit(self):
        self._is_held = False

    __enter__ = acquire

    def __exit__(self, kind, error, trace):
        self.release()


class EitherLock:
    """A lock for a module imported before ``install()``; it is simulated only in a world."""

    def __init__(self):
        self._real = _real_lock()
        self._played = Lock()

    def __enter__(self):
        return self._fitting.acquire()

    def __exit__(self, *_):
        self._fitting.release()

    @property
    def _fitting(self):
        return self._real if world() is None else self._played


class SimpleQueue:
    """A queue.SimpleQueue: the C implementation outside a world, the Python one inside."""

    def __new__(cls):
        return _real_queue() if world() is None else queue._PySimpleQueue()

    __class_getitem__ = classmethod(lambda cls, _: cls)


class _Life:
    """The task of a simulated thread, and whether the thread has ended."""

    def __init__(self, task):
        self.task = task
        self.is_over = False
        self.joiners = []

    def end(self):
        self.is_over = True
        for one in self.joiners:
            one.wake()


def _start(thread):
    one = world()
    if one is None:
        _real_start(thread)
        return
    if life_of(thread) is not None:
        message = "threads can only be started once"
        raise RuntimeError(message)
    task = one.spawn(lambda: _play(thread), thread.name)
    task.thread = thread
    thread._sim_life = _Life(task)
    thread._ident = thread._native_id = _FIRST_IDENT + task.number
    thread._started.set()


def _play(thread):
    try:
        thread.run()
    finally:
        thread._sim_life.end()


def _is_alive(thread):
    life = life_of(thread)
    return _real_is_alive(thread) if life is None else not life.is_over


def _join(thread, timeout=None):
    life, one = life_of(thread), world()
    if life is None:
        _real_join(thread, timeout)
        return
    if one is None:  # the thread's world has ended
        return
    end = None if timeout is None else one.clock + timeout
    while not life.is_over and (end is None or one.clock < end):
        life.joiners.append(one.task)
        one.park(None if end is None else end - one.clock)


def life_of(thread):
    """Return the ``_Life`` of a simulated thread, or None for a real thread."""
    return getattr(thread, "_sim_life", None)


def make_lock():
    return _real_lock() if world() is None else Lock()


def make_rlock():
    return _real_rlock() if world() is None else _played_rlock()


def get_ident():
    task = _task()
    return _real_ident() if task is None else _FIRST_IDENT + task.number


def current_thread():
    """Return the caller's thread, which is the main thread for the first task of a world."""
    task = _task()
    if task is None:
        return _real_current()
    # Python's own function would create a dummy thread for this number and keep it
    # forever.
    return threading.main_thread() if task.thread is None else task.thread


def enumerate_threads():
    """Return the living threads, including those of the caller's world."""
    one = world()
    played = [] if one is None else [task.thread for task in one.running()]
    return [*_real_enumerate(), *(thread for thread in played if thread is not None)]


def _uuid4():
    one = world()
    if one is None:
        return _real_uuid4()
    return uuid.UUID(int=one.rng.getrandbits(128), version=4)


def _drawing(name):
    real = getattr(random, name)

    def draw(*args, **more):
        one = world()
        return (real if one is None else getattr(one.chance, name))(*args, **more)

    return draw


def _sleep(seconds):
    one = world()
    if one is None:
        _real_sleep(seconds)
    else:
        one.sleep(seconds)


def _clock(real, played):
    def tell():
        # The body of world(), inlined because this function is called most often.
        one = World.current
        if one is None or _real_ident() != _OS_THREAD:
            return real()
        return played(one)

    return tell


def _nanoseconds(played):
    return lambda one: int(played(one) * 1e9)


def install():
    """Simulate time and threads in every world from now on; a second call does nothing."""
    if threading.get_ident is get_ident:
        return
    _install_clocks()
    _install_threads()
    network.install(world)
    # asyncio keeps the running event loop per thread, so each task has its own.
    World.carried.append((asyncio._get_running_loop, asyncio._set_running_loop))
    # concurrent.futures holds this lock while it starts a thread.
    import concurrent.futures.thread as pool  # noqa: PLC0415 - imported late, to use the simulated names

    pool._global_shutdown_lock = EitherLock()


def _install_clocks():
    clocks = {
        "monotonic": World.monotonic,
        "perf_counter": World.monotonic,
        "time": World.wall,
    }
    for name, played in clocks.items():
        setattr(time, name, _clock(getattr(time, name), played))
        in_ns = f"{name}_ns"
        setattr(time, in_ns, _clock(getattr(time, in_ns), _nanoseconds(played)))
    time.sleep = _sleep
    # These modules have their own references to the function.
    queue.time = threading._time = time.monotonic


def _install_threads():
    threading.Thread.start = _start
    threading.Thread.join = _join
    threading.Thread.is_alive = _is_alive
    threading.Lock = threading._allocate_lock = make_lock
    threading.RLock = make_rlock
    threading.get_ident = get_ident
    threading.current_thread = current_thread
    threading.enumerate = enumerate_threads
    threading.active_count = lambda: len(enumerate_threads())
    queue.SimpleQueue = SimpleQueue
    uuid.uuid4 = _uuid4
    for name in ("choice", "randint", "random", "sample", "shuffle", "uniform"):
        setattr(random, name, _drawing(name))
