"""Assembles responses from a socket's bytes; each response has its own memory."""

import logging
import struct

from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

log = logging.getLogger(KafkaProtocol.__module__)

_LENGTH = struct.Struct(">i")
# The size of a connection's buffer, in bytes. The buffer is for small responses, and
# for data around the boundary between two responses. The start of a large response is
# copied out of the buffer, so a larger buffer would not help.
_SCRATCH = 64 * 1024


class FrameParser(KafkaProtocol):
    """
    Upstream's parser, extended to provide the memory into which bytes are received.

    Differences from upstream 3.0.12: bytes that were received into :meth:`room` are not
    copied again, and a response is decoded in place. Between responses the parser keeps
    64 KiB of memory.

    To convert upstream's parser, set its ``__class__`` to this class before the first
    byte arrives, and then call :meth:`prepare`. Like upstream's parser, it accepts any
    number of bytes at any time.
    """

    def prepare(self) -> None:
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._length = b""  # the part of the length field that has arrived
        self._frame: Frame | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """
        Return the memory for the next bytes, with room for at least one byte.

        The view is valid until :meth:`receive_bytes` is called with the received part,
        which must start where the view starts.
        """
        if self._frame is None:
            return self._scratch
        return memoryview(self._frame)[self._filled :]

    def receive_bytes(self, data: bytes | memoryview) -> list[tuple[int, object]]:
        """Return the responses that these bytes complete, like upstream's method."""
        if data and log.isEnabledFor(logging.DEBUG):
            log.debug("%s Recv: %r", self._ident, bytes(data))
        view = memoryview(data)
        responses = []
        while view:
            if self._frame is None:
                view = self._begin(view)
            if self._frame is not None:
                view = self._fill(self._frame, view)
                if self._filled == len(self._frame):
                    frame, self._frame = self._frame, None
                    responses.append(self._process_response(frame))
        return responses

    def _begin(self, view: memoryview) -> memoryview:
        missing = _LENGTH.size - len(self._length)
        self._length += bytes(view[:missing])
        if len(self._length) == _LENGTH.size:
            (size,) = _LENGTH.unpack(self._length)
            self._length = b""
            self._validate_frame_size(size)
            self._frame, self._filled = Frame(size), 0
        return view[missing:]

    def _fill(self, frame: "Frame", view: memoryview) -> memoryview:
        start = self._filled
        self._filled = min(len(frame), start + len(view))
        count = self._filled - start
        if view.obj is not frame:  # else the bytes are in place already
            memoryview(frame)[start : self._filled] = view[:count]
        return view[count:]


class Frame(KafkaBytes):
    """One response; the part after its header is decoded in place."""

    def read(self, nbytes: int | None = None) -> bytes | memoryview:
        """
        Return the next bytes, or all remaining bytes.

        After the header was read, the results are views, not copies. A read of the
        whole response returns a copy, because the caller keeps it, as an authentication
        token or to log an undecodable response.
        """
        start = self.tell()
        if nbytes is None and start:
            self.seek(len(self))
            return memoryview(self)[start:]
        data: bytes = super().read(nbytes)
        return data
