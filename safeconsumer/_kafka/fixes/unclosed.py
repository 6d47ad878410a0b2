"""
Closes sockets that kafka-python leaves open.

kafka-python 3.0.12 leaves three kinds of sockets open until the garbage collector runs.
By then a client that retries may have used up all sockets that a process may open. A
socket stays open in these cases: a connection fails (``create_connection`` and
``_build_transport`` do not close the socket, and the error's traceback keeps it alive);
the client is closed during a connection's handshake; or a connection is closed with
unsent bytes, and its loop ends before they are sent.
"""

import math
from typing import Any

from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager

from safeconsumer._kafka.fixes.waits import adopt_network
from safeconsumer._kafka.network import (
    KafkaNetSocket,
    KafkaSSLTransport,
    KafkaTCPTransport,
)


class ClosingTransport(KafkaTCPTransport):
    """Closes its socket even if its loop ends before everything is sent."""

    async def _write_to_sock(self) -> None:
        try:
            await super()._write_to_sock()
        except GeneratorExit:
            self.close_socket()
            raise

    def close_socket(self) -> None:
        """Close only the socket; a second call has no effect."""
        if self._sock is not None:
            self._sock.close()


class ClosingSSLTransport(ClosingTransport, KafkaSSLTransport):
    """The same for TLS: closes its socket even if its loop ends before everything is sent."""


async def connect_socket(
    net: Any,  # noqa: ANN401 - upstream's, as are the others
    node: Any,  # noqa: ANN401
    config: dict[str, Any],
    timeout_at: float | None,
) -> Any:  # noqa: ANN401
    """Return a connected socket, as ``create_connection`` does; close all others."""
    factory = KafkaNetSocket(config["proxy_url"])
    unconnected = []
    make = factory.socket

    def collecting(*kind: Any) -> Any:  # noqa: ANN401 - upstream's
        unconnected.append(make(*kind))
        return unconnected[-1]

    factory.socket = collecting
    failure = KafkaConnectionError("DNS Resolution failure")  # upstream's words
    options = config["socket_options"]
    try:
        for address in factory.dns_lookup(node.host, node.port):
            try:
                sock = await factory.connect(
                    net, address, options, timeout_at=timeout_at
                )
            except KafkaTimeoutError:
                message = "Connection timed out"
                raise KafkaConnectionError(message) from None
            except OSError as error:
                failure = KafkaConnectionError(f"unable to connect: {error}")
            except KafkaConnectionError as error:
                failure = error
            else:
                unconnected.remove(sock)
                return sock
        raise failure
    finally:
        for sock in unconnected:
            sock.close()


_UNREACHABLE = (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError)


class ClosingManager(KafkaConnectionManager):
    """
    Creates connections whose sockets are closed even if connecting fails.

    If a broker is unreachable, a request that any broker can answer is sent to a second
    broker. During bootstrapping no single address uses up all the time. kafka-python
    3.0.12 chooses a dead broker as often as any other until the cluster has fenced it,
    and each request to the dead broker fails.

    Thread rules: only the IO thread calls the methods.
    """

    transports: tuple[type[ClosingTransport], type[ClosingTransport]] = (
        ClosingTransport,
        ClosingSSLTransport,
    )
    # The time limit of the first attempt; each failure doubles it, up to the limit in
    # the settings.
    connect_ms = math.inf

    def get_connection(
        self,
        node_id: Any,  # noqa: ANN401 - upstream's
        timeout_ms: float | None = None,
        pop_on_close: bool = True,  # noqa: FBT001, FBT002 - upstream's, and these
        refresh_metadata_on_err: bool = True,  # noqa: FBT001, FBT002
        reset_backoff_on_connect: bool = True,  # noqa: FBT001, FBT002
    ) -> Any:  # noqa: ANN401 - upstream's
        """Return a connection to a node; the connection may not be established yet."""
        if timeout_ms is not None and self.cluster.is_bootstrap(node_id):
            timeout_ms /= len(self.cluster.bootstrap_brokers())
        known = self._conns.get(node_id)
        found = super().get_connection(
            node_id,
            timeout_ms,
            pop_on_close,
            refresh_metadata_on_err,
            reset_backoff_on_connect,
        )
        if found is not known:
            found.init_future.add_callback(lambda _: self._unreachable.discard(node_id))
            found.init_future.add_errback(lambda _: self._unreachable.add(node_id))
        return found

    @property
    def _unreachable(self) -> set[Any]:
        """The nodes to which the last connection failed; upstream forgets some of them."""
        found: set[Any] = self.__dict__.setdefault("_found_unreached", set())
        return found

    def socket_connection_setup_timeout_ms(self, node_id: Any) -> float:  # noqa: ANN401 - upstream's
        """Return a connection's time limit, at most the time that a response may take."""
        usual: float = super().socket_connection_setup_timeout_ms(node_id)
        failures = self._backoff[node_id][0] if node_id in self._backoff else 0
        first = self.connect_ms * 2.0**failures
        answer: float = self.config["request_timeout_ms"]
        return min(usual, answer, first)

    def send(
        self,
        request: Any,  # noqa: ANN401 - upstream's
        node_id: Any = None,  # noqa: ANN401 - upstream's
        request_timeout_ms: float | None = None,
    ) -> Any:  # noqa: ANN401 - upstream's
        """Send a request; return a future for the response."""
        if node_id is not None:
            return super().send(request, node_id, request_timeout_ms)
        return self.call_soon(self._send_to_any, request, request_timeout_ms)

    async def _send_to_any(self, request: Any, timeout_ms: float | None) -> Any:  # noqa: ANN401 - upstream's
        first = self.least_loaded_node()
        try:
            return await super().send(request, first, timeout_ms)
        except _UNREACHABLE:
            second = self._another_node(first)
            if second is None:
                raise
            return await super().send(request, second, timeout_ms)

    def least_loaded_node(self) -> Any:  # noqa: ANN401 - a node's id, or None
        """Choose a node; prefer a node to which the last connection did not fail."""
        node = super().least_loaded_node()
        other = self._another_node(node) if node in self._unreachable else None
        return node if other is None else other

    def _another_node(self, node: Any) -> Any:  # noqa: ANN401 - a node's id, or None
        found = [
            broker.node_id
            for broker in self.cluster.brokers()
            if broker.node_id != node and broker.node_id not in self._unreachable
        ]
        # A connected broker is more likely to respond.
        found.sort(key=lambda one: one not in self._conns)
        return found[0] if found else None

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:  # noqa: ANN401 - upstream's
        sock = await connect_socket(self._net, node, self.config, timeout_at)
        transport = self._transport(sock, node.host)
        try:
            await transport.handshake()
        except BaseException as error:
            transport.close_socket()
            if not isinstance(error, Exception):  # the loop has ended
                raise
            message = f"Handshake failed: {error}"  # upstream's words
            raise KafkaConnectionError(message) from error
        return transport

    def _transport(self, sock: Any, host: str) -> ClosingTransport:  # noqa: ANN401 - or a socket's likeness
        plain, encrypted = self.transports
        if not self.ssl_enabled:
            return plain(self._net, sock, host=host)
        settings = {
            name: value
            for name, value in self.config.items()
            if name.startswith("ssl_")
        }
        return encrypted(self._net, sock, host=host, **settings)


class ClosingClient(KafkaNetClient):
    """A network client that closes all sockets; signals may interrupt its waits."""

    def __init__(self, **configs: object) -> None:
        super().__init__(**configs)
        self._manager.__class__ = ClosingManager
        adopt_network(self._net)
