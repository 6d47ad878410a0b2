"""
A consumer's requests are counted, and its responses held back.

The order of events is a test's to decide: a response that is held back arrives
exactly when the test lets it.
"""

import threading
from typing import Any

from attrs import frozen
from kafka.future import Future

from tests.harness.waiting import wait_for


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
        self.sent: list[str] = []

    def _tapped(self, request: Any, *args: Any, **named: Any) -> Future:  # noqa: ANN401 - as send()
        name = type(request).__name__.removesuffix("Request")
        self.sent.append(name)
        answer = Future()
        future = self._send(request, *args, **named)
        future.add_callback(self._arrived, name, answer)
        future.add_errback(answer.failure)
        return answer

    def _arrived(self, name: str, answer: Future, response: Any) -> None:  # noqa: ANN401 - any response
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
        wait_for(lambda: self.held(name) >= count, f"{count} held answers to {name}")

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

    def count(self, name: str) -> int:
        """Count the requests of this kind that were sent."""
        return self.sent.count(name)
