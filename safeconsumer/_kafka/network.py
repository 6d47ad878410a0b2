"""
Hides differences between the network layers of kafka-python's versions.

kafka-python 3.1, the main branch in August 2026, has exchangeable network layers
(``kafka.net.backend``). Some classes were moved or removed. Coroutines wait with a
method of the network, no longer with a method of the connection manager. A plain
``Future`` cannot be awaited, and a call that waits for the network gives up some
seconds after its own timeout. ``tests/unit/contract/test_private_names.py`` looks for
``if HAS_BACKENDS`` and ``else``, and attributes each branch to the version in which the
branch runs.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from kafka.net.connection import KafkaConnection

HAS_BACKENDS = find_spec("kafka.net.backend") is not None

_WITHOUT_TLS = "kafka.net.backend.transport" if HAS_BACKENDS else "kafka.net.transport"
_WITH_TLS = "kafka.net.ssl" if HAS_BACKENDS else "kafka.net.transport"
_LOOP = import_module(
    "kafka.net.backend.selector" if HAS_BACKENDS else "kafka.net.selector"
)
NetworkSelector: Any = _LOOP.NetworkSelector
Task: Any = _LOOP.Task
KafkaTCPTransport: Any = import_module(_WITHOUT_TLS).KafkaTCPTransport
KafkaSSLTransport: Any = import_module(_WITH_TLS).KafkaSSLTransport
# Version 3.1 has no such class, because the network itself creates sockets.
KafkaNetSocket: Any = (
    None if HAS_BACKENDS else import_module("kafka.net.inet").KafkaNetSocket
)
# Version 3.0 has no such class; a subclass of KafkaNetSocket connects through a proxy.
KafkaTCPProxy: Any = (
    import_module("kafka.net.proxy").KafkaTCPProxy if HAS_BACKENDS else None
)
# The type of futures that the loop's coroutines can wait for.
LoopFuture: Any = _LOOP.SelectorFuture if HAS_BACKENDS else Future


def call_soon(net: Any, callback: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """
    Let the IO thread call a function soon; any thread may call this.

    Raises:
        RuntimeError, KafkaError: the network is closed.
    """
    if HAS_BACKENDS:
        net.call_soon(callback)
    else:
        net.call_soon_threadsafe(callback)


def new_future(net: Any) -> Any:  # noqa: ANN401 - as above
    """Return a new future that coroutines can wait for; any thread may call this."""
    return net.create_future() if HAS_BACKENDS else Future()


async def await_for(manager: Any, future: Any, timeout_ms: float | None) -> Any:  # noqa: ANN401 - as above
    """
    Wait in a coroutine for a future from any thread; return the future's value.

    Raises:
        KafkaTimeoutError: the timeout has passed; the future stays unchanged.
        Exception: the future has failed with this exception.
    """
    wait = manager._net.await_for if HAS_BACKENDS else manager.wait_for
    return await wait(future, timeout_ms)


def run(net: Any, call: Callable[..., Any], timeout_ms: float | None) -> Any:  # noqa: ANN401 - as above
    """
    Run a coroutine function that takes a timeout, and wait for its value.

    A timeout of None means ``default_api_timeout_ms``, if that setting exists.
    """
    limit = {}
    if HAS_BACKENDS:
        if timeout_ms is None:
            timeout_ms = net.config["default_api_timeout_ms"]
        limit = {"timeout_ms": timeout_ms}
    return net.run(call, timeout_ms, **limit)


def longest_wait(net: Any, timeout_ms: float | None = None) -> float | None:  # noqa: ANN401 - as above
    """Return the seconds after which :func:`run` gives up; None if it never does."""
    seconds: float | None
    seconds = net._bridge_deadline_secs(timeout_ms) if HAS_BACKENDS else None
    return seconds


def wait_timeout_error(
    net: Any,  # noqa: ANN401 - as above
    call: Any,  # noqa: ANN401 - as above
    timeout_ms: float | None = None,
) -> Exception:
    """Return, and log, the error for a wait that was longer than :func:`longest_wait`."""
    late = net._bridge_timeout if HAS_BACKENDS else KafkaTimeoutError
    error: Exception = late(call, timeout_ms)
    return error


def loop_error(net: Any) -> object:  # noqa: ANN401 - as above
    """Return the error that ended a loop, or None."""
    # The asyncio loop, which 3.1 also offers, never ends with an error.
    return getattr(net, "_exception", None)


def join_sender(producer: Any, seconds: float) -> None:  # noqa: ANN401 - as above
    """Wait up to ``seconds`` until the sender thread of a closing producer has ended."""
    if HAS_BACKENDS:
        ended = producer._sender._loop_future
        producer._net.wait_for(ended, seconds * 1000, raise_error=False)
    else:
        producer._sender.join(seconds)


class _WakingNet:
    """
    A network whose coroutines wait through a manager that can end a poll's waits.

    Args:
        net: upstream's network.
        manager: the manager whose ``wait_for`` replaces the network's ``await_for``.
    """

    def __init__(self, net: Any, manager: Any) -> None:  # noqa: ANN401 - as above
        self._net = net
        self._waking = manager

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - upstream's
        return getattr(self._net, name)

    async def await_for(
        self,
        future: Any,  # noqa: ANN401 - as above
        timeout_ms: float | None,
        raise_error: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> Any:  # noqa: ANN401 - the future's value
        """Wait in a coroutine, as upstream does."""
        try:
            return await self._waking.wait_for(future, timeout_ms)
        except Exception:
            if raise_error:
                raise

    def wait_for(
        self,
        future: Any,  # noqa: ANN401 - as above
        timeout_ms: float | None,
        raise_error: bool = True,  # noqa: FBT001, FBT002 - upstream's signature
    ) -> Any:  # noqa: ANN401 - the future's value
        """Wait on the calling thread, as upstream does."""
        wait = self._waking.wait_for  # read on the calling thread, which may be polling
        try:
            return self._net.run(wait, future, timeout_ms, timeout_ms=timeout_ms)
        except Exception:
            if raise_error:
                raise


def wakeable_net(net: Any, manager: Any) -> Any:  # noqa: ANN401 - as above
    """Make a network's coroutines wait with a manager's ``wait_for``, as in 3.0."""
    return _WakingNet(net, manager) if HAS_BACKENDS else net


async def connect(manager: Any, broker: Any, until: float) -> KafkaConnection:  # noqa: ANN401 - as above
    """
    Connect to a broker, on the IO thread, without sending a request.

    Raises:
        KafkaError, OSError: the broker cannot be reached.
    """
    connection = KafkaConnection(manager._net, node_id="login", **manager.config)
    if HAS_BACKENDS:
        config, way = manager.config, manager._net
        if config["proxy_url"]:
            way = KafkaTCPProxy(way, config["proxy_url"])
        await way.create_connection(
            connection,
            broker.host,
            broker.port,
            ssl=manager.ssl_context,
            socket_options=config["socket_options"],
            timeout_at=until,
        )
    else:
        connection.connection_made(await manager._build_transport(broker, until))
    return connection
