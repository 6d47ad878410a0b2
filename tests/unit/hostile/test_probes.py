"""Tests the HTTP port of ``safeconsumer run --probes`` with hostile requests."""

import socket
import threading
from contextlib import ExitStack

import pytest

from safeconsumer.cli import probes
from safeconsumer.metrics import prometheus
from safeconsumer.worker import Health
from tests.harness.listing import short
from tests.harness.waiting import end_of, wait_for


class Alive:
    def healthy(self):
        return Health(is_alive=True, reasons=())


@pytest.fixture
def patience():
    """Return the seconds that a client has for its request."""
    return 10_000.0


@pytest.fixture
def alive(monkeypatch, patience):
    monkeypatch.setattr(probes, "PATIENCE", patience)
    monkeypatch.setattr(prometheus, "Collector", lambda *_, **__: None)
    monkeypatch.setattr(
        prometheus, "answers_of", lambda _: lambda _: ("text/plain", b"")
    )
    return Alive()


@pytest.fixture
def port(alive):
    with probes.serving(("127.0.0.1", 0), alive) as opened:
        assert opened is not None
        yield opened


def ask(port, data, host="127.0.0.1"):
    with socket.create_connection((host, port)) as connection:
        connection.sendall(data)
        parts = iter(lambda: connection.recv(65536), b"")
        return b"".join(parts)


def status(answer):
    return int(answer.split(b" ")[1])


def is_answered(port):
    """Return whether a client gets status 200; a busy machine may exceed the time limit."""
    answer = ask(port, b"GET /live HTTP/1.0\r\n\r\n")
    return answer and status(answer) == 200


@pytest.mark.parametrize("patience", [3.0])
def test_clients_with_unfinished_requests_are_disconnected(port):
    """Fifty unfinished requests hold no threads or sockets, and other clients do not wait."""
    before = threading.active_count()
    with ExitStack() as stack:
        slow = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(50)
        ]
        for one in slow:
            one.sendall(b"GET /live HTTP/1.1\r\nX: ")
        wait_for(lambda: is_answered(port), "an answer")
        for one in slow:
            assert one.recv(1) == b""
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            end_of(thread)
    assert threading.active_count() <= before


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET /live HTTP/1.0\r\nContent-Length: 1073741824\r\n\r\n", 200),
        (
            (
                b"GET /live HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"
                b"Content-Length: 3\r\n\r\n0\r\n\r\nGET /nope HTTP/1.1\r\n\r\n"
            ),
            200,
        ),
        (b"GET /live HTTP/1.0\r\nHost: evil\r\nOrigin: http://evil\r\n\r\n", 200),
        (b"POST /live HTTP/1.0\r\n\r\n", 501),
        (b"GET /live HTTP/1.0\r\n" + b"A: b\r\n" * 200 + b"\r\n", 431),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.0\r\n\r\n", 414),
        (b"GET /%0d%0aX:1 HTTP/1.0\r\n\r\n", 404),
        (b"\x16\x03\x01\x02\x00\x01\x00 x\r\n\r\n", 400),
    ],
    ids=short,
)
def test_only_the_two_probes_are_answered(port, request_, expected):
    """The port does not read bodies, and does not answer a second request in a body."""
    answer = ask(port, request_)
    assert answer.count(b"Content-Length:") <= 1
    assert (b"HTTP/1.0 %d" % expected in answer) or expected == 400
    assert answer.count(b"HTTP/1.0") <= 1


def test_client_that_hangs_up_does_not_cause_a_traceback(port, capfd):
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", port))
        linger = b"\x01\0\0\0\0\0\0\0"  # reset on close
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        connection.sendall(b"GET /live HTTP/1.0\r\n\r\n")
        connection.close()
    assert status(ask(port, b"GET /healthy HTTP/1.0\r\n\r\n")) == 200
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("host", ["::1", "::"])
def test_port_on_an_ipv6_address_answers(alive, host):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("there is no IPv6")
    with probes.serving((host, 0), alive) as opened:
        assert opened is not None
        assert status(ask(opened, b"GET /live HTTP/1.0\r\n\r\n", "::1")) == 200
