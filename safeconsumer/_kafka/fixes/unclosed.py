"""
Closes sockets that kafka-python lets go of.

kafka-python 3.0.12 leaves three kinds of them open until the garbage collector comes,
which may be long after a client that tries again and again has used up what a process
may open: of a connection that failed (``create_connection`` and ``_build_transport``
close nothing, and the error's traceback keeps the socket), of one whose handshake is
under way when the client is closed, and of one that is closed with unsent bytes, as
its loop ends before these are sent.
"""

from typing import Any

from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager

from safeconsumer._kafka.network import KafkaSSLTransport, KafkaTCPTransport


class ClosingTransport(KafkaTCPTransport):
    """Closes its socket also if its loop ends before everything is sent."""

    async def _write_to_sock(self) -> None:
        try:
            await super()._write_to_sock()
        except GeneratorExit:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Close the socket and nothing else; doing it twice changes nothing more."""
        if self._sock is not None:
            self._sock.close()


class ClosingSSLTransport(ClosingTransport, KafkaSSLTransport):
    """Closes its socket also if its loop ends before everything is sent, over TLS."""


async def connected(
    net: Any,  # noqa: ANN401 - upstream's, as are the others
    node: Any,  # noqa: ANN401
    config: dict[str, Any],
    timeout_at: float | None,
) -> Any:  # noqa: ANN401
    """Return a connected socket, as ``create_connection`` does; close every other."""
    from kafka.net.inet import KafkaNetSocket  # noqa: PLC0415 - 3.1 has none, and does not come here

    factory = KafkaNetSocket(config["proxy_url"])
    unconnected = []
    make = factory.socket

    def noted(*kind: Any) -> Any:  # noqa: ANN401 - upstream's
        unconnected.append(make(*kind))
        return unconnected[-1]

    factory.socket = noted
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


class ClosingManager(KafkaConnectionManager):
    """
    Makes connections whose sockets are closed, whether they are made or not.

    Thread rules: on the IO thread.
    """

    transports: tuple[type[ClosingTransport], type[ClosingTransport]] = (
        ClosingTransport,
        ClosingSSLTransport,
    )

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:  # noqa: ANN401 - upstream's
        sock = await connected(self._net, node, self.config, timeout_at)
        transport = self._transport(sock, node.host)
        try:
            await transport.handshake()
        except BaseException as error:
            transport.let_go()
            if not isinstance(error, Exception):  # its loop has ended
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
    """A network client that leaves no socket open."""

    def __init__(self, **configs: object) -> None:
        super().__init__(**configs)
        self._manager.__class__ = ClosingManager
