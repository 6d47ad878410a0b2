"""
A consumer's requests seen, its responses counted, held back or changed.

The order of events is a test's to decide: a response that is held back arrives
exactly when the test lets it.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from attrs import frozen
from kafka.future import Future
from kafka.structs import TopicPartition

from tests.harness.regression.support import wait_until


@frozen
class Sent:
    """One request as it left, and when, on the monotonic clock."""

    name: str
    request: Any
    at: float


@frozen
class _Waiting:
    name: str
    answer: Future
    response: Any


class Wire:
    """
    Stands between a consumer and its connections, from construction on.

    Args:
        consumer: of either client; its connection manager's ``send`` is wrapped.
    """

    def __init__(self, consumer: Any) -> None:  # noqa: ANN401 - either client
        self._manager = consumer._client._manager
        self._send = self._manager.send
        self._manager.send = self._tapped
        self._lock = threading.Lock()
        self._held: set[str] = set()
        self._waiting: list[_Waiting] = []
        self.sent: list[Sent] = []
        self.answered: list[tuple[str, Any]] = []
        self.change: Callable[[str, Any], None] = lambda _name, _response: None

    def _tapped(self, request: Any, *args: Any, **named: Any) -> Future:  # noqa: ANN401 - as send()
        name = type(request).__name__.removesuffix("Request")
        self.sent.append(Sent(name, request, time.monotonic()))
        answer = Future()
        future = self._send(request, *args, **named)
        future.add_callback(self._arrived, name, answer)
        future.add_errback(answer.failure)
        return answer

    def _arrived(self, name: str, answer: Future, response: Any) -> None:  # noqa: ANN401 - any response
        self.answered.append((name, response))
        self.change(name, response)
        with self._lock:
            if name in self._held:
                self._waiting.append(_Waiting(name, answer, response))
                return
        answer.success(response)

    # ------------------------------------------------------------ holding back

    def hold(self, name: str) -> None:
        """Keep responses of this kind ("Fetch", "JoinGroup") until released."""
        with self._lock:
            self._held.add(name)

    def held(self, name: str) -> int:
        """Count the responses of this kind that have come and wait."""
        with self._lock:
            return sum(one.name == name for one in self._waiting)

    def wait_held(self, name: str, count: int = 1) -> None:
        """Wait until so many responses of this kind are here."""
        wait_until(lambda: self.held(name) >= count)

    def wait_answered(self, name: str) -> None:
        """Wait until every request of this kind has its response here."""
        wait_until(
            lambda: (
                sum(one == name for one, _ in list(self.answered)) == self.count(name)
            )
        )

    def release(self, name: str) -> None:
        """
        Deliver what waits, and keep nothing of this kind any more.

        When this returns, the client has handled it.
        """
        with self._lock:
            self._held.discard(name)
            ready = [one for one in self._waiting if one.name == name]
            self._waiting = [one for one in self._waiting if one.name != name]

        async def deliver() -> None:
            for one in ready:
                one.answer.success(one.response)

        self._manager.run(deliver)

    # ------------------------------------------------------------ counting

    def count(self, name: str, since: float = 0.0) -> int:
        """Count the requests of this kind that were sent."""
        return sum(one.name == name and one.at >= since for one in list(self.sent))

    def fetched(self, since: float = 0.0) -> set[TopicPartition]:
        """
        Return the partitions that Fetch requests asked for.

        Complete only without incremental fetch sessions.
        """
        return {
            TopicPartition(topic.topic, partition.partition)
            for one in list(self.sent)
            if one.name == "Fetch" and one.at >= since
            for topic in one.request.topics
            for partition in topic.partitions
        }

    def bytes_fetched(self) -> int:
        """Return how many bytes of records came in Fetch responses."""
        return sum(
            len(partition.records or b"")
            for name, response in list(self.answered)
            if name == "Fetch"
            for topic in response.responses
            for partition in topic.partitions
        )
