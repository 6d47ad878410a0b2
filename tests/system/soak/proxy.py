"""
What stands between clients and brokers: reads every frame, and does harm when told to.

    client  <-->  Link  <-->  broker

Brokers announce the addresses of their doors, so nothing is rewritten. A link knows its
client by the name in its requests; rules apply to the links of some clients, or of one
broker, or to all. Everything runs in one asyncio thread.
"""

import asyncio
import contextlib
import io
import random
import struct
import threading
from collections.abc import Callable, Iterable
from typing import Self

from attrs import field, frozen
from kafka.protocol.api_header import RequestHeader

from safeconsumer.testing._protocol import API_KEYS
from safeconsumer.testing._sockets import stop_listening

_LENGTH = struct.Struct(">i")
_CORRELATION = struct.Struct(">i")
# Requests put out of order wait for each other that long.
_SHUFFLE = 0.4
_LIMIT = 60.0


@frozen(kw_only=True, eq=False)
class Rule:
    kind: str  # `blackhole`, `delay` or `reorder`
    clients: tuple[str, ...] = ()  # whose names begin so; empty: all
    broker: int | None = None  # of which broker; None: all
    api: str = ""  # which requests; "" for all
    seconds: float = 0.0  # how long each answer is held up
    over: asyncio.Event = field(factory=asyncio.Event, repr=False)

    def covers(self, link: "Link", api_key: int | None = None) -> bool:
        if self.broker not in {None, link.broker}:
            return False
        if self.clients and not link.client.startswith(self.clients):
            return False
        return not self.api or api_key == API_KEYS[self.api]


class Link:
    """One connection of a client to a broker."""

    def __init__(
        self,
        proxy: "Proxy",
        broker: int,
        address: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.broker = broker
        self.client = ""
        self._proxy = proxy
        self._address = address
        self._asked: dict[int, int] = {}
        self._writers = [writer]
        self._running = asyncio.create_task(self._run(reader, writer))

    async def _run(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # Passes frames on both ways until either side ends.
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._address)
            self._writers.append(far_writer)
            ways = [
                asyncio.create_task(self._to_broker(reader, far_writer)),
                asyncio.create_task(self._to_client(far_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass
        finally:
            self._proxy.links.discard(self)
            self.cut()

    def cut(self) -> None:
        """Close both sides at once."""
        for writer in self._writers:
            writer.transport.abort()

    async def _to_broker(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await _frame(reader)
            header = RequestHeader.decode(io.BytesIO(frame))
            self.client = header.client_id or self.client
            self._asked[header.correlation_id] = header.request_api_key
            await self._proxy.before_request(self, header.request_api_key)
            writer.write(_LENGTH.pack(len(frame)) + frame)
            await writer.drain()

    async def _to_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            frame = await _frame(reader)
            api_key = self._asked.pop(_CORRELATION.unpack_from(frame)[0], None)
            await self._proxy.before_answer(self, api_key)
            writer.write(_LENGTH.pack(len(frame)) + frame)
            await writer.drain()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
    return await reader.readexactly(size)


class Proxy:
    """
    The doors of all brokers. A context manager: it closes them.

    Thread rules: any thread.
    """

    def __init__(
        self, doors: dict[int, tuple[tuple[str, int], tuple[str, int]]], seed: int
    ) -> None:
        self.links: set[Link] = set()
        self._rules: list[Rule] = []
        self._waiting: list[asyncio.Event] = []
        self._chance = random.Random(f"proxy {seed}")  # noqa: S311 - no secret
        self._doors = doors
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="proxy", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(_LIMIT)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_LIMIT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_LIMIT)
        self._loop.close()

    async def _open(self) -> None:
        for broker, (inside, outside) in self._doors.items():
            self._servers.append(
                await asyncio.start_server(self._accept(broker, inside), *outside)
            )

    async def _close(self) -> None:
        for server in self._servers:
            await stop_listening(server)
        for link in list(self.links):
            link.cut()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        for _ in range(3):  # the turns in which what was cut closes its sockets
            await asyncio.sleep(0)

    def _accept(self, broker: int, inside: tuple[str, int]) -> "Callable[..., None]":
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.links.add(Link(self, broker, inside, reader, writer))

        return accept

    # ------------------------------------------------------------ harm

    def cut(self, clients: Iterable[str] = (), broker: int | None = None) -> int:
        """Close connections; return how many there were."""
        rule = Rule(kind="cut", clients=tuple(clients), broker=broker)

        async def cut() -> int:
            hit = [link for link in self.links if rule.covers(link)]
            for link in hit:
                link.cut()
            return len(hit)

        return asyncio.run_coroutine_threadsafe(cut(), self._loop).result(_LIMIT)

    def begin(self, rule: Rule) -> None:
        self._loop.call_soon_threadsafe(self._rules.append, rule)

    def end(self, rule: Rule) -> None:
        """Obey it no longer; what it held goes on."""

        def end() -> None:
            self._rules.remove(rule)
            rule.over.set()

        self._loop.call_soon_threadsafe(end)

    # ------------------------------------------------------------ as links ask

    def _covering(self, link: Link, kind: str, api_key: int | None) -> list[Rule]:
        return [
            rule
            for rule in self._rules
            if rule.kind == kind and rule.covers(link, api_key)
        ]

    async def before_request(self, link: Link, api_key: int) -> None:
        """Return when a request may go on to the broker."""
        for rule in self._covering(link, "blackhole", None):
            await rule.over.wait()
        if self._covering(link, "reorder", api_key):
            await self._shuffled()

    async def before_answer(self, link: Link, api_key: int | None) -> None:
        """Return when an answer may go on to the client."""
        for rule in self._covering(link, "delay", api_key):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rule.over.wait(), rule.seconds)
        for rule in self._covering(link, "blackhole", None):
            await rule.over.wait()

    async def _shuffled(self) -> None:
        turn = asyncio.Event()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._loop.call_later(_SHUFFLE, self._let_go)
        await turn.wait()

    def _let_go(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._chance.shuffle(waiting)
        for number, turn in enumerate(waiting):
            # One after the other, so that the brokers see them in this order.
            self._loop.call_later(0.02 * number, turn.set)
