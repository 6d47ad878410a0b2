"""
Uses kafka-python's network in each of its versions: the one place that tells them apart.

kafka-python 3.1, its main branch in August 2026, has networks that can be exchanged
(``kafka.net.backend``), so that what was one class is elsewhere or gone. It is not
supported before it is released; the nightly run plays it.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from kafka.net.connection import KafkaConnection

HAS_BACKENDS = find_spec("kafka.net.backend") is not None

_WITHOUT_TLS = "kafka.net.backend.transport" if HAS_BACKENDS else "kafka.net.transport"
_WITH_TLS = "kafka.net.ssl" if HAS_BACKENDS else "kafka.net.transport"
_LOOP = "kafka.net.backend.selector" if HAS_BACKENDS else "kafka.net.selector"
NetworkSelector: Any = import_module(_LOOP).NetworkSelector
KafkaTCPTransport: Any = import_module(_WITHOUT_TLS).KafkaTCPTransport
KafkaSSLTransport: Any = import_module(_WITH_TLS).KafkaSSLTransport


def call_soon(net: Any, callback: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
    """
    Have the IO thread call something soon; any thread.

    Raises:
        RuntimeError, KafkaError: the network is closed.
    """
    if HAS_BACKENDS:
        net.call_soon(callback)
    else:
        net.call_soon_threadsafe(callback)


async def connect(manager: Any, broker: Any, until: float) -> KafkaConnection:  # noqa: ANN401 - as above
    """
    Connect to a broker, on the IO thread; nothing is sent yet.

    Raises:
        KafkaError, OSError: it cannot be reached.
    """
    connection = KafkaConnection(manager._net, node_id="login", **manager.config)
    if HAS_BACKENDS:
        config, way = manager.config, manager._net
        if config["proxy_url"]:
            proxies = import_module("kafka.net.proxy")
            way = proxies.KafkaTCPProxy(way, config["proxy_url"])
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
