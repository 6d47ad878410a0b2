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

from kafka.errors import KafkaConnectionError
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
        from kafka.net.inet import create_connection  # noqa: PLC0415 - 3.1 has none, and does not come here

        try:
            sock = await create_connection(
                self._net,
                node.host,
                node.port,
                self.config["socket_options"],
                proxy_url=self.config["proxy_url"],
                timeout_at=timeout_at,
            )
        except KafkaConnectionError as error:
            # The frames in which it came about hold the socket.
            error.__context__ = None
            raise error.with_traceback(None)  # noqa: B904 - without what it came from
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
