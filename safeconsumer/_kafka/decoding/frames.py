"""
Answers put together from what a socket gives, each in memory of its own.
"""

import logging
import struct

from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

log = logging.getLogger(KafkaProtocol.__module__)

_LENGTH = struct.Struct(">i")
# What comes between answers, and small answers whole; one per connection. The beginning
# of a large answer is copied out of it, so that more would not be better.
_SCRATCH = 64 * 1024


class FrameParser(KafkaProtocol):
    """
    Upstream's parser, which tells where bytes belong before they are received.

    Differences from upstream 3.0.12: bytes that stand where :meth:`room` said are not
    copied again, and an answer is decoded where it stands. Between answers nothing is
    kept but 64 KiB.

    Works adopted by ``__class__``, before anything was received (then call
    :meth:`prepare`). Takes any bytes at any time, as upstream's does.
    """

    def prepare(self) -> None:
        """
        Make what this class needs beyond upstream's attributes.
        """
        self._scratch = memoryview(bytearray(_SCRATCH))
        self._length = b""  # as far as it has come
        self._frame: Frame | None = None
        self._filled = 0

    def room(self) -> memoryview:
        """
        Return where the next bytes belong; at least one fits.

        It is valid until :meth:`receive_bytes` is called, with a part of it from its
        start.
        """
        if self._frame is None:
            return self._scratch
        return memoryview(self._frame)[self._filled :]

    def receive_bytes(self, data: bytes | memoryview) -> list[tuple[int, object]]:
        """
        Return the answers that are complete with these bytes; as upstream's otherwise.
        """
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
        if view.obj is not frame:  # else it stands there
            memoryview(frame)[start : self._filled] = view[:count]
        return view[count:]


class Frame(KafkaBytes):
    """
    One answer. What follows its header is decoded where it stands, at once.
    """

    def read(self, nbytes: int | None = None) -> bytes | memoryview:
        """
        Return the next bytes, or all that are left.

        These are no copy behind a header. Who reads the whole keeps it, and gets one:
        an authentication's token, and the log of an answer that cannot be decoded.
        """
        start = self.tell()
        if nbytes is None and start:
            self.seek(len(self))
            return memoryview(self)[start:]
        data: bytes = super().read(nbytes)
        return data
