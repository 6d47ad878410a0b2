"""The proxy between clients and brokers."""

import queue
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from safeconsumer.testing._ports import free_port
from safeconsumer.testing._protocol import API_KEYS
from tests.system.soak.proxy import Proxy, Rule

LIMIT = 10.0


class Broker(socketserver.ThreadingTCPServer):
    """Answers every request with its number, and tells the order in which they came."""

    daemon_threads = True

    def __init__(self) -> None:
        self.seen: queue.Queue[int] = queue.Queue()
        super().__init__(("127.0.0.1", 0), _Answering)


class _Answering(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with self.request.makefile("rb") as stream:
            while head := stream.read(4):
                frame = stream.read(*struct.unpack(">i", head))
                number = struct.unpack_from(">i", frame, 4)[0]
                self.server.seen.put(number)  # type: ignore[attr-defined]  # Broker's
                self.request.sendall(struct.pack(">ii", 4, number))


class Client:
    """A connection through the proxy."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self.socket = socket.create_connection(address, LIMIT)
        self._name = name

    def ask(self, number: int, api: str = "Fetch") -> None:
        name = self._name.encode()
        head = struct.pack(">hhih", API_KEYS[api], 1, number, len(name))
        self.socket.sendall(struct.pack(">i", len(head + name)) + head + name)

    def answers(self, count: int = 1) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            data = self.socket.recv(8, socket.MSG_WAITALL)
            assert data, "the connection was closed"
            found.append(struct.unpack(">ii", data)[1])
        return found

    def is_silent(self) -> bool:
        """Tell whether nothing came, though another client was answered meanwhile."""
        self.socket.settimeout(0.0)
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        finally:
            self.socket.settimeout(LIMIT)


class ProxyLab:
    """A broker behind a proxy, and clients that are closed at the end."""

    def __init__(self, seen: "queue.Queue[int]", door: tuple[str, int]) -> None:
        self.seen = seen
        self._door = door
        self.clients: list[Client] = []

    def client(self, name: str) -> Client:
        self.clients.append(Client(self._door, name))
        return self.clients[-1]


@pytest.fixture
def door() -> tuple[str, int]:
    return "127.0.0.1", free_port()


@pytest.fixture
def lab(door: tuple[str, int], proxy: Proxy, broker: Broker) -> Iterator[ProxyLab]:
    del proxy  # it stands between
    made = ProxyLab(broker.seen, door)
    yield made
    for one in made.clients:
        one.socket.close()


@pytest.fixture
def proxy(door: tuple[str, int], broker: Broker) -> Iterator[Proxy]:
    port = broker.server_address[1]
    with Proxy({1: (("127.0.0.1", port), door)}, seed=1) as made:
        yield made


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join(LIMIT)


def test_a_cut_ends_the_connections_of_its_client_only(
    lab: ProxyLab, proxy: Proxy
) -> None:
    """Clients are known by their names."""
    one, other = lab.client("m1"), lab.client("m2")
    for client in (one, other):
        client.ask(1)
        client.answers()
    assert proxy.cut(["m1"]) == 1
    with pytest.raises((AssertionError, ConnectionResetError)):
        one.answers()
    other.ask(2)
    assert other.answers() == [2]


def test_nothing_leaves_a_blackhole_until_it_ends(lab: ProxyLab, proxy: Proxy) -> None:
    """What went in then arrives."""
    one, other = lab.client("m1"), lab.client("m2")
    rule = Rule(kind="blackhole", clients=("m1",))
    proxy.begin(rule)
    one.ask(1)
    other.ask(2)
    assert other.answers() == [2]
    assert lab.seen.get(timeout=LIMIT) == 2
    assert one.is_silent()
    proxy.end(rule)
    assert one.answers() == [1]


def test_a_delay_holds_up_one_api(lab: ProxyLab, proxy: Proxy) -> None:
    """Its answers, not its requests, and not those of another one."""
    one, other = lab.client("m1"), lab.client("m1")
    rule = Rule(kind="delay", api="JoinGroup", seconds=3600)
    proxy.begin(rule)
    one.ask(1, "JoinGroup")
    assert lab.seen.get(timeout=LIMIT) == 1
    other.ask(2, "Heartbeat")
    assert other.answers() == [2]
    assert one.is_silent()
    proxy.end(rule)
    assert one.answers() == [1]


def test_requests_of_an_api_are_put_out_of_order(lab: ProxyLab, proxy: Proxy) -> None:
    """Each connection keeps its own order; all of them are answered."""
    rule = Rule(kind="reorder", api="JoinGroup")
    proxy.begin(rule)
    clients = [lab.client(f"m{number}") for number in range(12)]
    for number, client in enumerate(clients):
        client.ask(number, "JoinGroup")
    assert [client.answers()[0] for client in clients] == list(range(12))
    seen = [lab.seen.get(timeout=LIMIT) for _ in clients]
    assert sorted(seen) == list(range(12))
    assert seen != sorted(seen)
