"""Connects one client's connection to librdkafka's mock."""

import asyncio
from collections.abc import Callable

from safeconsumer.testing._wire import Frames, framed


class MockSide(asyncio.Protocol):
    """A connection to the mock, for one client's connection; opened by its first request."""

    def __init__(
        self, on_answer: Callable[[bytes], None], on_close: Callable[[], None]
    ) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_cut = False
        self._on_answer = on_answer
        self._on_close = on_close
        self._frames = Frames()
        self._waiting: list[bytes] = []

    def cut(self) -> None:
        """Close it at once, or as soon as it is open."""
        self.is_cut = True
        if self.transport is not None:
            self.transport.abort()

    def send(self, message: bytes) -> None:
        """Send a message, as soon as the connection is open."""
        if self.transport is None:
            self._waiting.append(message)
        else:
            self.transport.write(framed(message))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  for the checker
        self.transport = transport
        if self.is_cut:
            transport.abort()
            return
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self.send(message)

    def data_received(self, data: bytes) -> None:
        for answer in self._frames.feed(data):
            self._on_answer(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._on_close()
