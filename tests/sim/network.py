"""
Sockets and selectors of a world, where bytes arrive late, in order, or never.

kafka-python's own transports and event loop run on these sockets, unchanged. The module
uses two extension points of kafka-python: ``proxy_url`` chooses a class by its scheme,
here ``sim://`` (a class of sockets in kafka-python 3.0, of proxies in 3.1), and the event
loop uses ``selectors.DefaultSelector``, as asyncio's loop does.
"""

import errno
import selectors
import socket

from greenlet import GreenletExit

from tests.sim.world import World

PORT = 9092
_FASTEST, _SLOWEST = 0.0002, 0.002  # seconds until bytes arrive
# The first simulated socket's number; real sockets have smaller numbers.
_FIRST_NUMBER = 100_000
_real_selector = selectors.DefaultSelector
_real_pair = socket.socketpair


class Socket:
    """One end of a connection, or of the pair that wakes a loop."""

    def __init__(self, world):
        self.world = world
        self.process = world.process
        self.inbox = bytearray()
        self.state = "new"  # connecting, open, closed
        self.error = 0
        self.is_at_end = False
        self.watchers = []
        self.peer = None  # the pair's other end, or a Link
        self.number = _FIRST_NUMBER + next(world.serial)
        world.sockets[self.number] = self

    # Called by a program

    def fileno(self):
        """Return the socket's number; -1 once it is closed."""
        return -1 if self.state == "closed" else self.number

    def setblocking(self, *_):
        """Do nothing: the socket never blocks, and ``close`` follows each ``shutdown``."""

    setsockopt = shutdown = setblocking

    def getsockopt(self, *_):
        """Return the socket's error, the only option that clients read."""
        return self.error

    def getpeername(self):
        """Return a made-up address."""
        return ("sim", PORT)

    def getsockname(self):
        """Return an address whose port is the socket's number."""
        return ("sim", self.number)

    def connect_ex(self, address):
        """Connect; further calls return the state of the connection."""
        if self.state == "new":
            self.state = "connecting"
            self.world.network.dial(self, address[0])
        if self.error:
            return self.error
        return 0 if self.state == "open" else errno.EINPROGRESS

    def send(self, data):
        """Send all the data, because the bytes in flight have no limit."""
        if self.error or self.state != "open":
            raise OSError(self.error or errno.ENOTCONN, "the connection is gone")
        self.peer.take(bytes(data))
        return len(data)

    def recv(self, count, _=0):
        """Return the bytes that have arrived, or ``b""`` at the end of the connection."""
        if not self.inbox and self.error:
            raise OSError(self.error, "the connection was reset")
        if not self.inbox and not self.is_at_end:
            raise BlockingIOError(errno.EAGAIN, "nothing yet")
        data = bytes(self.inbox[:count])
        del self.inbox[:count]
        return data

    def recv_into(self, room, count=0, _=0):
        """Write the bytes that have arrived into a buffer."""
        data = self.recv(count or len(room))
        room[: len(data)] = data
        return len(data)

    def close(self):
        """Close the socket, and notify the other end."""
        if self.state != "closed":
            self.state = "closed"
            if self.peer is not None:
                self.peer.hang_up()

    # Called by the world

    def take(self, data):
        if self.state != "closed":
            self.inbox += data
            self._notify()

    def opened(self, peer):
        if self.state == "connecting":
            self.peer, self.state = peer, "open"
            self._notify()

    def failed(self, number):
        """Fail the connection with an error."""
        if self.state != "closed":
            self.error = number
            self._notify()

    def hang_up(self):
        """Mark the connection as closed by the other end."""
        self.is_at_end = True
        self._notify()

    def _notify(self):
        for one in self.watchers:
            one.notify()

    def events(self, wanted):
        found = 0
        if self.inbox or self.error or self.is_at_end:
            found |= selectors.EVENT_READ
        if self.state == "open" or self.error:
            found |= selectors.EVENT_WRITE
        return found & wanted


def pair(world):
    """Return two connected sockets, as ``socket.socketpair`` does, without latency."""
    one, other = Socket(world), Socket(world)
    one.peer, other.peer = other, one
    one.state = other.state = "open"
    return one, other


class Selector(selectors.BaseSelector):
    """
    Waits for the sockets of a world, in virtual time.

    kafka-python registers a socket again for each wait, which takes twice as long with
    Python's own base class of selectors.
    """

    def __init__(self, world):
        self._world = world
        self._task = None
        self._keys = {}  # by socket

    def register(self, fileobj, events, data=None):
        """Watch a socket."""
        one = self._socket(fileobj)
        if one.state == "closed":
            message = "Invalid file object: a closed socket"
            raise ValueError(message)
        if one in self._keys:
            message = f"{one!r} is already registered"
            raise KeyError(message)
        key = selectors.SelectorKey(one, one.number, events, data)
        self._keys[one] = key
        one.watchers.append(self)
        return key

    def unregister(self, fileobj):
        key = self.get_key(fileobj)
        del self._keys[key.fileobj]
        key.fileobj.watchers.remove(self)
        return key

    def modify(self, fileobj, events, data=None):
        """Watch a socket for other events; the socket moves to the end, as in Python."""
        if events != self.get_key(fileobj).events:
            self.unregister(fileobj)
            return self.register(fileobj, events, data)
        key = self.get_key(fileobj)._replace(data=data)
        self._keys[key.fileobj] = key
        return key

    def get_key(self, fileobj):
        if self._keys is None:
            message = "Selector is closed"
            raise RuntimeError(message)
        return self._keys[self._socket(fileobj)]

    def get_map(self):
        return self._keys

    def close(self):
        self._keys = None

    def _socket(self, fileobj):
        """Return the socket that is given as an object, or by its number, as asyncio does."""
        is_number = isinstance(fileobj, int)
        return self._world.sockets[fileobj] if is_number else fileobj

    def notify(self):
        """Wake ``select``, because the state of a socket has changed."""
        if self._task is not None:
            self._task.wake()

    def select(self, timeout=None):
        """Return the ready sockets; wait if no socket is ready."""
        if (timeout is not None and timeout <= 0) or self._ready():
            self._world.give_way()
            return self._ready()
        self._task = self._world.task
        try:
            self._world.park(timeout)
        finally:
            self._task = None
        return self._ready()

    def _ready(self):
        return [
            (key, events)
            for one, key in self._keys.items()
            if (events := one.events(key.events))
        ]


class Link:
    """
    The server's end of a connection, which delivers bytes in order in each direction.

    The accepting function sets ``on_data`` and ``on_end``.
    """

    def __init__(self, network, client, host):
        self.network = network
        self.client = client
        self.host = host
        self.process = client.process
        self.is_open = True
        self.on_data = lambda _: None
        self.on_end = lambda: None
        self._last = {"in": 0.0, "out": 0.0}  # when the last bytes arrive, by direction

    def take(self, data):
        self._later("in", lambda: self.on_data(data))

    def send(self, data):
        self._later("out", lambda: self.client.take(data))

    def hang_up(self):
        """Report that the client has closed its end."""
        self._later("in", self.close)

    def close(self):
        """Close the connection for both ends, without an error."""
        if self._end():
            self.client.hang_up()

    def reset(self):
        """End the connection for both ends, with an error for the client."""
        if self._end():
            self.client.failed(errno.ECONNRESET)

    def _end(self):
        was_open, self.is_open = self.is_open, False
        if was_open:
            self.network.links.remove(self)
            self.on_end()
        return was_open

    def _later(self, way, call):
        def arrive():
            if self.is_open:
                call()

        network, now = self.network, self.network.world.clock
        at = now + network.latency(self.process)
        self._last[way] = at = max(at, self._last[way] + 1e-9)
        network.carry(at - now, (self.process, self.host, way), arrive)


class Network:
    """Listening hosts, the connections to these hosts, and the faults of the connections."""

    def __init__(self, world):
        self.world = world
        self.hosts = {}
        self.links = []
        self._kept = {}
        self._slow = {}
        world.network = self

    def listen(self, host, accept):
        """
        Make a host accept connections.

        Args:
            host: its name.
            accept: a function that is called with each new connection, and may raise
                ConnectionRefusedError.
        """
        self.hosts[host] = accept

    def latency(self, process):
        """Draw the seconds until the next bytes of a process arrive."""
        least, spread = self._slow.get(process, (0.0, 0.0))
        return least + self.world.rng.uniform(_FASTEST, _SLOWEST + spread)

    def dial(self, client, host):
        def arrive():
            accept = self.hosts.get(host)
            if client.state == "closed":
                return
            if accept is None:
                client.failed(errno.ECONNREFUSED)
                return
            link = Link(self, client, host)
            try:
                accept(link)
            except ConnectionRefusedError:
                client.failed(errno.ECONNREFUSED)
                return
            self.links.append(link)
            client.opened(link)

        self.carry(self.latency(client.process), (client.process, host, "in"), arrive)

    def carry(self, delay, way, call):
        """Call a function when its bytes arrive, but not while that direction is isolated."""

        def arrive():
            kept = self._kept.get(way)
            if kept is None:
                call()
            else:
                kept.append(call)

        self.world.call_later(delay, arrive)

    # Faults

    def reset(self, process=None, host=None):
        """Reset the connections of a process, of a host, or between the two."""
        for one in list(self.links):
            if process in (None, one.process) and host in (None, one.host):
                one.reset()

    def isolate(self, process, *hosts, ways=("in", "out")):
        """
        Hold back all bytes between a process and hosts (all hosts if none is named).

        Neither end notices the outage, as if a cable had been pulled.

        Args:
            process: the process whose bytes are held back.
            hosts: the hosts at the other end.
            ways: ``in`` for bytes to the hosts, ``out`` for bytes from them, or both.
        """
        for key in self._ways(process, hosts, ways):
            self._kept.setdefault(key, [])

    def heal(self, process, *hosts, ways=("in", "out")):
        """Deliver the bytes that ``isolate`` held back, as TCP does after an outage."""
        for key in self._ways(process, hosts, ways):
            for call in self._kept.pop(key, []):
                call()

    def _ways(self, process, hosts, ways):
        named = hosts or tuple(self.hosts)
        return [(process, host, way) for host in named for way in ways]

    def slow(self, process, least, spread=0.0):
        """
        Delay all bytes of a process, in both directions.

        Args:
            process: the process whose bytes are delayed.
            least: additional seconds.
            spread: the maximum of further random seconds; the bytes of one connection may
                overtake those of another.
        """
        self._slow[process] = (least, spread)


def install(world):
    """Make event loops that are created in a world wait in virtual time."""

    def make_selector():
        one = world()
        return _real_selector() if one is None else Selector(one)

    def make_pair(*given, **more):
        one = world()
        return _real_pair(*given, **more) if one is None else pair(one)

    selectors.DefaultSelector = make_selector
    socket.socketpair = make_pair


def register():
    """Register the scheme ``sim://`` with kafka-python; ``install`` must run first."""
    from kafka.producer.producer_batch import ProducerBatch  # noqa: PLC0415 - after the patching

    from safeconsumer._kafka import network  # noqa: PLC0415 - as above

    _log_no_traces()
    # Sets and heaps would order these objects by their addresses, so they get numbers.
    task = network.Task
    task.__hash__ = ProducerBatch.__hash__ = _number_of
    task.__lt__ = lambda self, other: _number_of(self) < _number_of(other)
    _end_with_the_world(network.NetworkSelector)
    if network.HAS_BACKENDS:
        _register_proxy(network)
    else:
        _register_sockets(network)


def _log_no_traces():
    """Drop kafka-python's trace lines, seven per turn of a loop, which no test shows."""
    from kafka.net import selector  # noqa: PLC0415 - after the patching

    def log_trace(*_):
        pass

    selector.log_trace = log_trace


def _end_with_the_world(selector):
    """
    Mark as crashed each loop that ends with its world.

    The garbage collector may close a producer later. The producer then uses the loop, whose
    greenlet no longer exists.
    """
    from kafka.errors import KafkaConnectionError  # noqa: PLC0415 - after the patching

    run_forever = selector.run_forever

    def ended(self):
        try:
            run_forever(self)
        except GreenletExit:
            self._exception = KafkaConnectionError("the world is over")
            raise

    selector.run_forever = ended


def _register_sockets(network):
    """Register simulated sockets with kafka-python 3.0."""

    class SimNetSocket(network.KafkaNetSocket):
        SCHEMES = ("sim",)

        def dns_lookup(self, host, port, raise_error=False):  # noqa: ARG002
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port))]

        def socket(self, *_):
            return _new_socket()


def _register_proxy(network):
    """Register a simulated proxy, which opens the connections, with kafka-python 3.1."""
    from kafka.errors import KafkaConnectionError  # noqa: PLC0415 - after the patching

    class SimProxy(network.KafkaTCPProxy):
        SCHEMES = ("sim",)

        async def create_connection(
            self, protocol, host, port, *, timeout_at=None, **_
        ):
            one = _new_socket()
            try:
                await self._connect(one, (host, port), timeout_at)
                transport = network.KafkaTCPTransport(self._net, one, host=host)
                protocol.connection_made(transport)
            except BaseException:
                one.close()
                raise

        async def _connect(self, one, address, timeout_at):
            while code := one.connect_ex(address):
                if code != errno.EINPROGRESS:
                    raise KafkaConnectionError(errno.errorcode[code])
                await self._net.wait_write(one, timeout_at=timeout_at)


def _new_socket():
    assert World.current is not None, "sim:// is for worlds"
    return Socket(World.current)


def _number_of(one):
    try:
        return one._sim_number
    except AttributeError:
        world = World.current
        one._sim_number = id(one) if world is None else next(world.serial)
        return one._sim_number
