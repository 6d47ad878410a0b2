"""Answers the HTTP requests of Prometheus and of probes about a process."""

import socket
import sys
import threading
import weakref
from http.server import HTTPServer
from socketserver import ThreadingMixIn
from typing import Any

from safeconsumer._kafka.fork import run_in_child

# Seconds for which a client may keep a thread waiting; a handler's ``timeout``.
PATIENCE = 5.0

_alive: "weakref.WeakSet[Answers]" = weakref.WeakSet()


class Answers(ThreadingMixIn, HTTPServer):
    """
    An HTTP server on its own threads, running from its construction until :meth:`end`.

    A forked child closes its copy of the port, and answers nobody.

    Args:
        host: the address to listen on, IPv4 or IPv6, or a name.
        port: the port to listen on; 0 for any free one.
        handler: the class that answers a request.
        name: the thread's name.

    Raises:
        OSError: the port is taken, or there is no such address.
    """

    daemon_threads = True
    request_queue_size = 64  # with the default of 5 a probe might have to wait

    def __init__(self, host: str, port: int, handler: Any, name: str) -> None:  # noqa: ANN401 - a class
        asked = host or None, port
        family, *_, (address, *_) = socket.getaddrinfo(
            *asked, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self.address_family = family
        super().__init__((str(address), port), handler)
        self._thread: threading.Thread | None = threading.Thread(
            target=self.serve_forever, name=name, daemon=True
        )
        self._thread.start()
        _alive.add(self)

    def end(self) -> None:
        """Stop answering and close the port; a second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self.shutdown()
            self.server_close()
            thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's
        """Ignore clients that hung up or sent too slowly."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _close_ports() -> None:
    # The thread is the parent's; waiting for it would never end.
    for one in tuple(_alive):
        one._thread = None  # noqa: SLF001 - ours
        one.socket.close()


run_in_child(_close_ports)
