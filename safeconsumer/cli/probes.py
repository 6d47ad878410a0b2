"""Lets supervisors watch a worker process over HTTP."""

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from safeconsumer.worker import Worker

# Seconds for which a client may keep a thread busy.
PATIENCE = 5.0


@contextlib.contextmanager
def serving(address: tuple[str, int] | None, worker: Worker) -> Iterator[int | None]:
    """
    Answer ``/live`` (the loop runs) and ``/healthy`` (nothing is wrong) over HTTP.

    The status is 200 if the answer is yes and 503 if not; the body gives the reason.
    ``/metrics`` serves Prometheus. Port 0 selects a free port.

    Raises:
        MissingExtraError: prometheus-client is missing.
        OSError: the port is in use.
    """
    if address is None:
        yield None
        return
    from safeconsumer.metrics.prometheus import (  # noqa: PLC0415  an extra's
        Collector,
        answers_of,
    )

    server = _Server(*address, _handler(worker, answers_of(Collector(worker))))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Listens on IPv4 or IPv6 addresses, and ignores clients that hang up."""

    request_queue_size = 64  # the default of 5 could make a probe wait

    def __init__(self, host: str, port: int, handler: Any) -> None:  # noqa: ANN401 - a class
        (self.address_family, *_, address), *_ = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        super().__init__((str(address[0]), port), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's
        """Print an error that was not caused by a client."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _handler(
    worker: Worker, metrics: Callable[[str], tuple[str, bytes]]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            """Answer one request."""
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._answer(200, *metrics(self.headers.get("Accept", "")))
                return
            health = worker.healthy()
            answers = {"/live": health.is_alive, "/healthy": bool(health)}
            if path not in answers:
                self.send_error(404, "request /live, /healthy or /metrics")
                return
            body = {"alive": health.is_alive, "reasons": health.reasons}
            status = 200 if answers[path] else 503
            self._answer(status, "application/json", json.dumps(body).encode())

        def _answer(self, status: int, kind: str, text: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_args: object) -> None:
            """Write nothing, because probes arrive every few seconds."""

    return Handler
