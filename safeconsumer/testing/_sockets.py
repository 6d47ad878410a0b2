"""Serves a cluster over sockets, on an asyncio loop in a separate thread."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from safeconsumer.testing._cluster import Cluster
from safeconsumer.testing._connections import Connection

_T = TypeVar("_T")
_HOST = "127.0.0.1"
_COMMAND_TIMEOUT = 10.0
_CLEAN_EVERY = 1.0  # seconds; Kafka's log.retention.check.interval.ms is 5 minutes


class Sockets:
    """
    A cluster whose brokers listen on local ports until :meth:`stop`.

    Any thread may call the methods; only the loop's thread accesses the cluster itself.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.addresses = [(_HOST, port) for port in ports]
        self._loop = asyncio.new_event_loop()
        self._servers: dict[int, asyncio.Server] = {}
        self._cluster = Cluster(
            self.addresses,
            call_later=self._loop.call_later,
            wall=time.time,
            clock=time.monotonic,
        )
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="embedded-kafka", daemon=True
        )
        self._thread.start()
        try:
            for node, _ in enumerate(ports, start=1):
                self._run(self._listen(node))
            self._loop.call_soon_threadsafe(self._clean)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close all connections and stop the thread."""
        for node in tuple(self._servers):
            self._run(self._stop_listening(node))
        self._run(_let_connections_close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_COMMAND_TIMEOUT)
        self._loop.close()

    def call(self, command: Callable[[Cluster], _T]) -> _T:
        """Call a function with the cluster on the cluster's thread, and return the result."""

        async def call() -> _T:
            return command(self._cluster)

        return self._run(call())

    def down(self, node: int) -> None:
        """Close a broker's connections and refuse new ones."""
        self._run(self._stop_listening(node))

    def up(self, node: int) -> None:
        """Let a broker accept connections."""
        self._run(self._listen(node))

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(_COMMAND_TIMEOUT)

    def _clean(self) -> None:
        self._cluster.clean()
        self._loop.call_later(_CLEAN_EVERY, self._clean)

    async def _listen(self, node: int) -> None:
        if node not in self._servers:
            self._cluster.up(node)
            host, port = self.addresses[node - 1]
            self._servers[node] = await self._loop.create_server(
                lambda: _Socket(self._cluster, node), host, port
            )

    async def _stop_listening(self, node: int) -> None:
        """Close a broker's listening sockets, and then its connections."""
        server = self._servers.pop(node, None)
        if server is None:
            return
        await stop_listening(server)
        self._cluster.down(node, failover=None)
        # Must come last, because since Python 3.12 it waits until every connection is
        # closed.
        await server.wait_closed()


class _Socket(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self._cluster = cluster
        self._node = node
        self._connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  for mypy
        try:
            self._connection = self._cluster.connect(
                self._node, transport.write, transport.abort
            )
        except ConnectionRefusedError:
            transport.abort()  # the connection was accepted while the broker went down

    def data_received(self, data: bytes) -> None:
        if self._connection is not None:
            self._connection.receive(data)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._connection is not None:
            self._connection.lost()


async def stop_listening(server: asyncio.Server) -> None:
    """
    Close a server's listening sockets, but not its connections.

    asyncio never closes a socket that it accepts in the loop cycle in which the server
    is closed. Therefore the server first stops accepting connections. Three loop cycles
    later, each accepted connection has its protocol object.
    """
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(3):
        await asyncio.sleep(0)
    server.close()


async def _let_connections_close() -> None:
    """Run the loop cycles that aborted transports need to close their sockets."""
    current = asyncio.current_task()
    tasks = [task for task in asyncio.all_tasks() if task is not current]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(3):
        await asyncio.sleep(0)
