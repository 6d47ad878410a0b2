"""Serves connections; like a broker, processes one request per connection at a time."""

import struct
from collections import deque
from collections.abc import Callable
from typing import Protocol

from attrs import frozen

from safeconsumer.testing import _protocol
from safeconsumer.testing._faults import Faults
from safeconsumer.testing._members import Schedule
from safeconsumer.testing._protocol import Exchange, Fields, Message

_LENGTH = struct.Struct(">i")
_LONGEST = 100 * 2**20  # Kafka's default for socket.request.max.bytes


@frozen(kw_only=True)
class Request:
    """
    A request that a broker has started to process.

    ``at`` is ``time.monotonic()`` in seconds. ``partitions`` are the partitions of a
    Fetch request, as ``(topic, partition)``, including those in its fetch session; for
    other requests it is empty. ``origin`` is the connection's ``origin``.
    """

    at: float
    api: str
    version: int
    broker_id: int
    client_id: str | None
    partitions: tuple[tuple[str, int], ...] = ()
    origin: object = None


class Server(Protocol):
    """The parts of a cluster that connections use."""

    call_later: Schedule
    faults: Faults

    def serve(self, connection: "Connection", exchange: Exchange) -> None:
        """Process a request, and send the answer now or later."""

    def forget(self, connection: "Connection") -> None:
        """Forget a closed connection."""


class Connection:
    """A client's connection to a broker."""

    def __init__(
        self,
        cluster: Server,
        node: int,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        origin: object,
    ) -> None:
        self.node = node
        self.origin = origin
        self.is_open = True
        self.is_frozen = False
        self._cluster = cluster
        self._send = send
        self._close = close
        self._buffer = bytearray()
        self._inbox: deque[bytes] = deque()
        self._unsent: list[bytes] = []
        self._is_busy = False  # whether a request is still unanswered
        self._is_looping = False

    def receive(self, data: bytes) -> None:
        """Process the next bytes from the client."""
        if self.is_open:
            self._buffer += data
            if self._cut_messages():
                self._go_on()
            else:
                self.cut()

    def lost(self) -> None:
        """Clean up after the client has closed the connection."""
        if self.is_open:
            self.is_open = False
            self._cluster.forget(self)

    def cut(self) -> None:
        """Close the connection from the broker's side; a second call has no effect."""
        if self.is_open:
            self.lost()
            self._close()

    def freeze(self) -> None:
        """Stop processing requests and sending answers until :meth:`thaw`."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Send the answers that were held back, and process the waiting requests."""
        self.is_frozen = False
        unsent, self._unsent = self._unsent, []
        for answer in unsent:
            self._write(answer)
        self._go_on()

    def _cut_messages(self) -> bool:
        """Move complete messages to the inbox; return False for an invalid length."""
        buffer, at = self._buffer, 0
        while len(buffer) - at >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, at)
            if not 0 <= size <= _LONGEST:
                return False
            end = at + _LENGTH.size + size
            if len(buffer) < end:
                break
            self._inbox.append(bytes(buffer[at + _LENGTH.size : end]))
            at = end
        del buffer[:at]
        return True

    def _go_on(self) -> None:
        if self._is_looping:
            return
        self._is_looping = True
        while self._inbox and self.is_open and not (self._is_busy or self.is_frozen):
            self._take_up(self._inbox.popleft())
        self._is_looping = False

    def _take_up(self, data: bytes) -> None:
        try:
            message = Message.read(data)
        except _protocol.UnreadableError:
            self.cut()
            return
        self._is_busy = True
        exchange = Exchange(
            message=message,
            node=self.node,
            origin=self.origin,
            send=lambda fields: self._answered(message, fields),
        )
        self._cluster.serve(self, exchange)

    def _answered(self, message: Message, fields: Fields) -> None:
        if self.is_open:
            data = message.answer(fields) if message.wants_answer else None
            self._cluster.faults.send(self, message, lambda: self._sent(data))

    def _sent(self, data: bytes | None) -> None:
        self._is_busy = False
        if data is not None:
            self._write(data)
        if self._inbox and not self._is_looping:
            # Process the next request later, because the caller may be a group that is
            # changing its state.
            self._cluster.call_later(0.0, self._go_on)

    def _write(self, data: bytes) -> None:
        if not self.is_open:
            return
        if self.is_frozen:
            self._unsent.append(data)
        else:
            self._send(data)
