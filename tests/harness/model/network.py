"""
A client without sockets, threads or time: what can go on goes on at once.

It has what kafka-python's consumer, fetcher and coordinator ask of theirs. Coroutines
run in the call that starts them until they wait for an answer that the broker has not
given; waiting with a timeout gives up at once.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.structs import TopicPartition


class Peer(Protocol):
    """Whom the client talks to."""

    def partitions(self, topic: str) -> set[int]:
        """Return the partitions of a topic."""

    def receive(self, node: int, request: Any) -> Future:  # noqa: ANN401 - upstream's
        """Take a request; the future is for its answer."""

    def interrupt(self, point: str) -> None:
        """Do what happens elsewhere while the consumer is at this point."""


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


def finish(coroutine: Coroutine[Future, None, Any]) -> Any:  # noqa: ANN401 - any result
    """Run a coroutine that must not wait for anything, and return its result."""
    done = spawn(coroutine)
    assert done.is_done, "this would block for ever"
    if done.exception is not None:
        raise done.exception
    return done.value


class Cluster:
    """The metadata, always fresh."""

    unauthorized_topics = frozenset[str]()
    need_all_topic_metadata = False
    need_update = False

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def topics(self, *_: object) -> set[str]:
        return {name for name in "abc" if self._peer.partitions(name)}

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self._peer.partitions(topic) or None

    def leader_for_partition(self, tp: TopicPartition) -> int:
        return tp.partition % 2

    def broker_metadata(self, broker_id: int) -> tuple[int]:
        return (broker_id,)  # all are known

    def leader_epoch_for_partition(self, _: TopicPartition) -> None:
        return None  # nothing to validate

    def request_update(self) -> Future:
        return Future().success(self)

    def set_topics(self, _: object) -> Future:
        return Future().success(self)

    def add_listener(self, _: object) -> None: ...

    def remove_listener(self, _: object) -> None: ...


class Net:
    """The event loop."""

    _io_thread = None

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def start(self) -> None: ...

    def run(self, function: Callable[..., Any], *args: object) -> Any:  # noqa: ANN401
        return finish(function(*args))

    def call_soon_threadsafe(self, callback: Callable[[], object]) -> None:
        callback()

    async def sleep(self, _: float) -> None: ...

    async def wait_for(self, future: Future, _: float | None) -> Any:  # noqa: ANN401
        if not future.is_done:
            self._peer.interrupt("wait")
        if not future.is_done:
            raise KafkaTimeoutError
        return await future


class Manager:
    """The connections."""

    broker_version = (2, 3)
    broker_version_data = broker_version

    def __init__(self, peer: Peer) -> None:
        self.cluster = Cluster(peer)
        self._net = Net(peer)
        self.run = self._net.run
        self.wait_for = self._net.wait_for
        self._peer = peer

    def call_soon(self, function: Callable[..., Any], *args: object) -> Future:
        return spawn(function(*args))

    def send(self, request: object, node_id: int) -> Future:
        return self._peer.receive(node_id, request)

    def connection_delay(self, _: int) -> int:
        return 0


class Client:
    """What goes for upstream's ``kafka_client``."""

    def __init__(self, peer: Peer) -> None:
        self._manager = Manager(peer)

    def throttle_delay(self, _: int) -> int:
        return 0

    def close(self) -> None: ...
