"""The servers that answer Prometheus and probes: who keeps them waiting, forks, IPv6."""

import os
import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import pytest

from safeconsumer import MetricsSourceError
from safeconsumer.metrics import answering, prometheus, serve
from tests.harness.holds.forking import is_true_in_child
from tests.harness.kafka.fixtures import Maker
from tests.harness.listing import each
from tests.harness.metrics.scraping import scrape
from tests.harness.waiting import wait_for


class Handler(BaseHTTPRequestHandler):
    """Answers nobody: what is tested comes before."""


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@contextmanager
def talking(port: int) -> Iterator[socket.socket]:
    """Connect, and say nothing."""
    with socket.create_connection(("127.0.0.1", port), 10) as one:
        yield one


def test_who_says_nothing_is_sent_away(
    safe: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread waits for nobody longer than probes do."""
    assert prometheus._Handler.timeout == answering.PATIENCE
    monkeypatch.setattr(prometheus._Handler, "timeout", 0.05)

    def is_nobody_waited_for() -> bool:
        names = [one.name for one in threading.enumerate()]
        return not any("process_request_thread" in name for name in names)

    with serve(0, safe()) as server, talking(server.port) as one:
        assert one.recv(1) == b""
        wait_for(is_nobody_waited_for, "its thread to end")
        monkeypatch.setattr(prometheus._Handler, "timeout", answering.PATIENCE)
        assert "safeconsumer_holds" in scrape(server.port)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_lets_go_of_the_port(safe: Maker) -> None:
    """To end the server waits for no thread there; the parent goes on to answer."""
    server = serve(0, safe())

    def is_let_go() -> bool:
        server.close()
        return server._server.socket.fileno() == -1

    assert is_true_in_child(is_let_go)
    assert "safeconsumer_holds" in scrape(server.port)
    consumer = safe()  # first: the port is free for a moment
    server.close()
    server.close()
    with serve(server.port, consumer) as again:
        assert again.port == server.port


@pytest.mark.skipif(not _has_ipv6(), reason="there is no IPv6")
@pytest.mark.parametrize("host", ["::1", "::"])
def test_addresses_of_ipv6(host: str) -> None:
    """As pods of an IPv6 cluster have them, for probes too."""
    server = answering.Answers(host, 0, Handler, "test")
    try:
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(f"http://[::1]:{server.server_port}/live")
    finally:
        server.end()


@each("port", ["9100", 99_999, -1, True, None])
def test_what_is_no_port_is_refused(port: int) -> None:
    """By a sentence, as where it was forgotten."""
    with pytest.raises(MetricsSourceError, match="takes a port from 0 to 65535, not"):
        serve(port)
