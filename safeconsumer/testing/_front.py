"""
Runs the embedded broker's front, which reads every frame of its clients.

    client  <-->  Connection (this front)  <-->  librdkafka's mock broker

Group requests are answered here, by the kit's coordinator, and those about topics'
settings and ACLs; all others are passed on.
Each connection takes up one request at a time, as a real broker does: while an answer
is outstanding the next request waits. Everything runs in one asyncio thread.
"""

import asyncio
import time
from collections import deque

from safeconsumer.testing import _apis
from safeconsumer.testing._mock_side import MockSide
from safeconsumer.testing._old_coordinator import Coordinator, group_of, refusal
from safeconsumer.testing._old_faults import Faults
from safeconsumer.testing._requests import Request, coordinator_named, expects_answer
from safeconsumer.testing._topic_settings import TopicSettings
from safeconsumer.testing._wire import Frames, Header, Reader, Writer, framed

LOG_LENGTH = 100_000


class Shared:
    """The state that the brokers of one cluster share."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.coordinator = Coordinator(loop.call_later)
        self.coordinators: dict[str, int] = {}  # group -> broker, as clients know it
        self.faults = Faults()
        self.settings = TopicSettings()
        self.log: deque[Request] = deque(maxlen=LOG_LENGTH)


class Front:
    """One broker's address: it listens, accepts, and can be down, up or silent."""

    def __init__(
        self,
        shared: Shared,
        broker_id: int,
        address: tuple[str, int],
        mock: tuple[str, int],
    ) -> None:
        self.shared = shared
        self.broker_id = broker_id
        self.mock = mock
        self.is_silent = False
        self.connections: set[Connection] = set()
        self._address = address
        self._server: asyncio.Server | None = None

    @property
    def is_up(self) -> bool:
        """Whether it accepts connections."""
        return self._server is not None

    async def up(self) -> None:
        """Accept connections; nothing if it does already."""
        if self._server is None:
            host, port = self._address
            self._server = await self.shared.loop.create_server(
                lambda: Connection(self), host, port
            )

    async def down(self) -> None:
        """Refuse connections and cut those there are."""
        server, self._server = self._server, None
        if server is None:
            return
        await stop_listening(server)
        for connection in list(self.connections):
            connection.cut()
        # Last: from Python 3.12 on this waits until every connection is closed.
        await server.wait_closed()

    async def fall_silent(self) -> None:
        """Handle no requests and send nothing, until :meth:`speak`."""
        self.is_silent = True

    async def speak(self) -> None:
        """End a silence: handle what has come meanwhile."""
        self.is_silent = False
        for connection in list(self.connections):
            connection.go_on()


class Connection(asyncio.Protocol):
    """One client's connection to one broker."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._shared = front.shared
        self._frames = Frames()
        self._inbox: deque[bytes] = deque()
        self._unsent: list[bytes] = []
        self._pending: Header | None = None  # its answer is outstanding
        self._asked_group: str | None = None  # of a pending FindCoordinator
        self._transport: asyncio.Transport | None = None
        self._mock: MockSide | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  for the checker
        self._transport = transport
        if self._front.is_up:
            self._front.connections.add(self)
        else:
            transport.abort()  # accepted while the broker went down

    def data_received(self, data: bytes) -> None:
        self._inbox.extend(self._frames.feed(data))
        self.go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.cut()

    def cut(self) -> None:
        """Close both sides at once; a second call does nothing."""
        self._front.connections.discard(self)
        if self._transport is not None:
            self._transport.abort()
        if self._mock is not None:
            self._mock.cut()

    def go_on(self) -> None:
        """Send what a silence kept, then take up requests until one must be waited for."""
        if self._front.is_silent:
            return
        unsent, self._unsent = self._unsent, []
        for answer in unsent:
            self._write(answer)
        while self._inbox and self._pending is None and not self._front.is_silent:
            self._take_up(self._inbox.popleft())

    def _take_up(self, message: bytes) -> None:
        header = Header.read(message)
        shared, broker_id = self._shared, self._front.broker_id
        shared.log.append(
            Request.read(header, message, broker_id=broker_id, at=time.monotonic())
        )
        if shared.faults.take_cut(header.api_key):
            self.cut()
            return
        self._pending = header
        if self._answer_here(header, message):
            return
        if header.api_key == _apis.API_KEYS["FindCoordinator"]:
            self._asked_group = Reader(message, header.body_at).string()
        if not expects_answer(header, message):
            self._pending = None
        self._pass_on(self._shared.coordinator.spelled_out(header, message))

    def _answer_here(self, header: Header, message: bytes) -> bool:
        if _is_too_new_api_versions(header):
            self._answer(header, _old_api_versions_body())
            return True
        error = self._shared.faults.take_error(header.api_key)
        told = self._shared.settings.answer(header, message, error)
        if told is not None:
            self._answer(header, told)
            return True
        error = error or self._misdirected(header, message)
        if error:
            body = refusal(header, message, error)
            if body is not None:
                self._answer(header, body)
                return True
        if header.api_key == _apis.API_KEYS["ListGroups"]:
            listed = self._shared.coordinator.listed(header.version, self._is_here)
            self._answer(header, listed)
            return True
        return self._shared.coordinator.handle(
            header, message, lambda body: self._answer(header, body)
        )

    def _misdirected(self, header: Header, message: bytes) -> int:
        group = group_of(header, message)
        is_here = group is None or self._is_here(group)
        return _apis.NONE if is_here else _apis.NOT_COORDINATOR

    def _is_here(self, group: str) -> bool:
        here = self._front.broker_id
        return self._shared.coordinators.get(group, here) == here

    def _answer(self, header: Header, body: bytes) -> None:
        answer = Writer().int32(header.correlation_id).done() + body

        def send_later() -> None:  # called by whichever thread releases a hold
            self._shared.loop.call_soon_threadsafe(self._send, answer)

        if not any(h.keep(header, send_later) for h in self._shared.faults.holds):
            self._send(answer)

    def _send(self, answer: bytes) -> None:
        self._pending = None
        if self._front.is_silent:
            self._unsent.append(answer)
            return
        self._write(answer)
        # Not from within the request that was just answered: no recursion per request.
        self._shared.loop.call_soon(self.go_on)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed(answer))

    # Towards the mock

    def _pass_on(self, message: bytes) -> None:
        if self._mock is None:
            self._mock = MockSide(self._answered, self.cut)
            host, port = self._front.mock
            self._connecting = self._shared.loop.create_task(
                self._connect(self._mock, host, port)
            )
        self._mock.send(message)

    async def _connect(self, side: MockSide, host: str, port: int) -> None:
        try:
            await self._shared.loop.create_connection(lambda: side, host, port)
        except OSError:
            self.cut()

    def _answered(self, answer: bytes) -> None:
        header = self._pending
        if header is None:
            return
        body = answer[4:]
        if self._asked_group is not None:
            group, self._asked_group = self._asked_group, None
            named = coordinator_named(header, body)
            if named is not None:
                self._shared.coordinators[group] = named
        self._answer(header, body)


async def stop_listening(server: asyncio.Server) -> None:
    """
    Close a server's listening sockets; its connections stay as they are.

    asyncio never closes a socket that was accepted in the turn in which its server is
    closed. So the server first accepts no more, and three turns later each connection
    that it did accept has been given to its protocol.
    """
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(3):
        await asyncio.sleep(0)
    server.close()


def _is_too_new_api_versions(header: Header) -> bool:
    key = _apis.API_KEYS["ApiVersions"]
    return (
        header.api_key == key and header.version > _apis.NEWEST_VERSIONS["ApiVersions"]
    )


def _old_api_versions_body() -> bytes:
    """
    Write what brokers since 2.4 answer to a too new ApiVersions (KIP-511).

    In version 0's form: the mock's own answer is in no form and no client reads it.
    """
    key = _apis.API_KEYS["ApiVersions"]
    newest = _apis.NEWEST_VERSIONS["ApiVersions"]
    body = Writer().int16(_apis.UNSUPPORTED_VERSION).int32(1)
    return body.int16(key).int16(0).int16(newest).done()
