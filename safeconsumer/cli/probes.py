"""
For whoever watches a worker process: a file that is touched, an HTTP port.
"""

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from safeconsumer.metrics import worker_metrics
from safeconsumer.worker import Worker

_EVERY = 1.0

# Seconds for which one who asks may keep us waiting.
PATIENCE = 5.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # five of somebody else's would make a probe wait

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's
        """
        Say nothing of one who hung up or asked too slowly.
        """
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def touching(path: Path | None, worker: Worker) -> Iterator[None]:
    """
    Touch a file every second while the worker's loop turns, and remove it at the end.

    Raises:
        OSError: the file cannot be made.
    """
    if path is None:
        yield
        return
    path.touch()
    over = threading.Event()

    def touch() -> None:
        while not over.wait(_EVERY):
            if worker.healthy().is_alive:
                with contextlib.suppress(OSError):  # a full disk ends no worker
                    path.touch()

    thread = threading.Thread(target=touch, name="safeconsumer-probe", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def serving(host: str, port: int | None, worker: Worker) -> Iterator[int | None]:
    """
    Answer ``/live`` (the loop turns) and ``/healthy`` (nothing is wrong) by HTTP.

    200 if so, 503 if not; the body says why. ``/metrics`` is for Prometheus. Port 0
    takes a free one.

    Raises:
        OSError: the port is taken.
    """
    if port is None:
        yield None
        return
    server = _Server((host, port), _handler(worker))
    thread = threading.Thread(
        target=server.serve_forever, name="safeconsumer-probe-http", daemon=True
    )
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(worker: Worker) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE

        def do_GET(self) -> None:
            """
            Answer one request.
            """
            path = self.path.partition("?")[0]
            if path == "/metrics":
                text = worker_metrics.as_text(worker.stats())
                self._answer(200, worker_metrics.CONTENT_TYPE, text)
                return
            health = worker.healthy()
            answers = {"/live": health.is_alive, "/healthy": bool(health)}
            if path not in answers:
                self.send_error(404, "ask /live, /healthy or /metrics")
                return
            body = {"alive": health.is_alive, "reasons": health.reasons}
            status = 200 if answers[path] else 503
            self._answer(status, "application/json", json.dumps(body))

        def _answer(self, status: int, kind: str, body: str) -> None:
            text = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_args: object) -> None:
            """
            Write nothing: a probe asks every few seconds.
            """

    return Handler
