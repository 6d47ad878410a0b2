"""
A client whose network is a person: requests wait in a list until they are answered.

Upstream's IO thread is played by whoever has work for it, one at a time: a lock stands
for the thread. So the steps of coroutines run on the thread that is explored, where
their lines are counted, and two threads never do the IO thread's work at once, as in
the real thing. Whoever waits for a future gives the IO thread up meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from attrs import define, field
from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.structs import TopicPartition

from tests.harness.explorer.engine import InfeasibleError


@define(eq=False)
class Request:
    api: str  # what is asked, `Fetch` for example
    body: Any  # upstream's request
    asked_at: int  # when, on the stage's count of steps
    future: Future = field(factory=Future)
    error: int = 0  # what a commit will be answered with


def spawn(coroutine: Coroutine[Future, None, Any]) -> Future:
    """Run a coroutine up to where it waits, and on from there when that is answered."""
    done = Future()

    def step(_: object = None) -> None:
        try:
            waits_for = coroutine.send(None)
        except StopIteration as end:
            done.success(end.value)
        except Exception as error:  # noqa: BLE001 - handed to whoever waits
            done.failure(error)
        else:
            waits_for.add_both(step)

    step()
    return done


class IoThread:
    """
    Stands for upstream's IO thread: who has it does its work.

    It can be taken again by the thread that has it, as a coroutine's step may start
    another; not by a signal handler in the middle of a step, because the real one would
    wait for a thread that goes on meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._soon: deque[Callable[[], object]] = deque()
        self.owner: int | None = None
        self._depth = 0
        self.in_handler = False

    @contextmanager
    def step(self) -> Iterator[None]:
        if self.owner == threading.get_ident():
            if self.in_handler:
                raise InfeasibleError
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
            return
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def idle(self) -> Iterator[None]:
        """Let others do its work meanwhile: a coroutine waits."""
        depth, self._depth = self._depth, 0
        self._give()
        try:
            yield
        finally:
            self._take()
            self._depth = depth

    def soon(self, callback: Callable[[], object]) -> None:
        """Have a callback called in a step of its own, soon; never wait."""
        self._soon.append(callback)
        if self.owner is None and self._lock.acquire(blocking=False):
            self.owner = threading.get_ident()
            self._give()

    def _take(self) -> None:
        self._lock.acquire()
        self.owner = threading.get_ident()

    def is_played_here(self) -> bool:
        """Tell whether this thread does its work, and no handler is in the way."""
        return self.owner == threading.get_ident() and not self.in_handler

    def work_off(self) -> None:
        """Do what was to be done soon; for whoever has it."""
        while self._soon:
            self._soon.popleft()()

    def _give(self) -> None:
        self.work_off()
        self.owner = None
        self._lock.release()


class Net:
    def __init__(self, io: IoThread, waiting: Callable[[Future], None]) -> None:
        self.io = io
        self._waiting = waiting
        self._closed = False

    @property
    def _io_thread(self) -> threading.Thread | None:
        return threading.current_thread() if self.io.is_played_here() else None

    def start(self) -> None: ...

    def run(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        """Run a coroutine to its end, and return its result."""
        with self.io.step():
            done = spawn(function(*args))
            while not done.is_done:
                self._wait(done)
        if done.exception is not None:
            raise done.exception
        return done.value

    def call_soon(self, function: Callable[..., Any], *args: object) -> Future:
        """Have a coroutine begun in a step of its own, soon."""
        task = Future()
        self.io.soon(lambda: spawn(function(*args)).chain(task))
        return task

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        """Have the callback called on the IO thread."""
        self.io.soon(callback)

    def call_later(self, _seconds: float, _callback: Callable[[], object]) -> None:
        """Promise a call that never comes: heartbeats are sent by hand."""

    def cancel(self, _: None) -> None: ...

    async def sleep(self, _: float) -> None: ...

    async def wait_for(self, future: Future, timeout_ms: float | None) -> Any:  # noqa: ANN401
        """Wait for an answer, which comes if it is waited for; not if nobody has time."""
        self.io.work_off()
        if not future.is_done and (timeout_ms is None or timeout_ms > 0):
            self._wait(future)
        if not future.is_done:
            raise KafkaTimeoutError
        return await future

    def _wait(self, future: Future) -> None:
        with self.io.idle():
            self._waiting(future)


class Cluster:
    """The metadata, always fresh."""

    unauthorized_topics = frozenset[str]()
    need_all_topic_metadata = False
    need_update = False
    metadata_refresh_in_progress = False

    def __init__(self, topics: dict[str, set[int]]) -> None:
        self.known = topics
        self._listeners: list[Any] = []

    def topics(self, *_: object) -> set[str]:
        return set(self.known)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.known.get(topic)

    def leader_for_partition(self, _: TopicPartition) -> int:
        return 0

    def leader_epoch_for_partition(self, _: TopicPartition) -> None:
        return None  # nothing to validate

    def request_update(self) -> Future:
        return Future().success(self)

    def set_topics(self, _: object) -> Future:
        return Future().success(self)

    def add_topic(self, _: object) -> Future:
        return Future().success(self)

    def add_listener(self, listener: object) -> None:
        self._listeners.append(listener)

    def remove_listener(self, _: object) -> None: ...

    def refreshed(self) -> None:
        """Tell whoever listens that the metadata is new."""
        for listener in self._listeners:
            listener(self)


class Manager:
    broker_version = (2, 3)
    broker_version_data = broker_version

    def __init__(
        self, net: Net, cluster: Cluster, send: Callable[[Any], Future]
    ) -> None:
        self.cluster = cluster
        self._net = net
        self._send = send
        self.run = net.run
        self.call_soon = net.call_soon
        self.wait_for = net.wait_for

    def send(self, request: object, node_id: int, **_: object) -> Future:  # noqa: ARG002
        return self._send(request)

    def connection_delay(self, _: int) -> int:
        return 0


class Client:
    """What goes for upstream's ``kafka_client``."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager

    def is_disconnected(self, _: int) -> bool:
        return False

    def least_loaded_node(self) -> int:
        return 0

    def throttle_delay(self, _: int) -> int:
        return 0

    def close(self) -> None:
        self._manager._net._closed = True
