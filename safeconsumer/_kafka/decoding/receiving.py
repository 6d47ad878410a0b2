"""Receives data directly into the parser's memory, with few system calls and copies."""

import logging
import ssl
import time

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager

from safeconsumer._kafka.decoding.frames import FrameParser
from safeconsumer._kafka.fixes.unclosed import (
    ClosingManager,
    ClosingSSLTransport,
    ClosingTransport,
)
from safeconsumer._kafka.network import KafkaTCPTransport

log = logging.getLogger(KafkaTCPTransport.__module__)


class ReceivingTransport(ClosingTransport):
    """
    Receives data directly into its parser's memory; upstream receives 4 KiB at a time.

    Difference from upstream 3.0.12: if data and the end of a connection arrive
    together, the parser still gets the data before the connection is closed; upstream
    loses the data.
    """

    _later: tuple[type[OSError], ...] = (BlockingIOError, InterruptedError)

    async def _read_from_sock(self) -> None:
        parser = self._protocol.parser
        parser.__class__ = FrameParser
        parser.prepare()
        while self._read and not self._closed:
            if not self._has_more():
                await self._net.wait_read(self._sock)
            self._receive(parser)

    def _receive(self, parser: FrameParser) -> None:
        # This is a separate function, because a waiting coroutine would keep views in
        # its local variables alive.
        room = parser.room()
        count, error = self._receive_into(room)
        if count:
            self._hand_on(room[:count])
        if error is not None:
            self.abort(error=error)

    def _has_more(self) -> bool:
        # Returns whether data was received that no selector knows about.
        return False

    def _receive_into(self, room: memoryview) -> tuple[int, Exception | None]:
        count = 0
        try:
            while count < len(room):
                received = self._sock.recv_into(room[count:])
                if not received:
                    log.error("%s: socket disconnected", self)
                    return count, kafka_errors.KafkaConnectionError(
                        "socket disconnected"
                    )
                count += received
        except self._later:
            pass
        except Exception as error:
            log.exception("%s: Error receiving network data, closing socket", self)
            return count, kafka_errors.KafkaConnectionError(error)
        return count, None

    def _hand_on(self, data: memoryview) -> None:
        log.debug("%s: received %d bytes", self, len(data))
        self.last_read = time.monotonic()
        if self._protocol._sensors:
            self._protocol._sensors.bytes_received.record(len(data))
        try:
            self._protocol.data_received(data)
        except kafka_errors.KafkaProtocolError as error:
            self.abort(error=error)


class ReceivingSSLTransport(ReceivingTransport, ClosingSSLTransport):
    """Receives TLS data directly into its parser's memory."""

    _later = (
        *ReceivingTransport._later,
        ssl.SSLWantReadError,
        ssl.SSLWantWriteError,
    )

    def _has_more(self) -> bool:
        # If the memory was full inside a TLS record, the rest of the record is already
        # decrypted, and the socket may have no more data to report.
        return bool(self._sock.pending())


class ReceivingManager(ClosingManager):
    """
    Gives a client's connections transports that receive into their parser's memory.

    Existing connections keep their transports. kafka-python 3.1 creates its transports
    elsewhere; this class does not replace those.
    """

    transports = (ReceivingTransport, ReceivingSSLTransport)


def adopt_manager(manager: KafkaConnectionManager) -> None:
    """
    Make later connections of a client use the transports of this module.

    A user's own client keeps its class.
    """
    if type(manager) in {KafkaConnectionManager, ClosingManager}:
        manager.__class__ = ReceivingManager
