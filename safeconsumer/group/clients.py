"""Makes the control clients of a member or a command: a reader, a producer, an admin."""

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from safeconsumer._kafka.fixes.unclosed import ClosingClient
from safeconsumer._kafka.fixes.unmade import made
from safeconsumer._kafka.of_group import producers
from safeconsumer._kafka.of_group.no_topics import NoTopicsClient
from safeconsumer._kafka.of_group.producers import PatientClient, UntracedProducer
from safeconsumer.consumer import SafeConsumer
from safeconsumer.group.client_settings import WRITING

# The settings that say where a cluster is and how to log in; others are not copied.
_CONNECTION = (
    "api_version",
    "bootstrap_servers",
    "connections_max_idle_ms",
    "proxy_url",
    "receive_buffer_bytes",
    "reconnect_backoff_max_ms",
    "reconnect_backoff_ms",
    "retry_backoff_ms",
    "send_buffer_bytes",
    "socket_options",
    "socks5_proxy",
)
_PREFIXES = ("sasl_", "security_", "ssl_")

# Milliseconds; what a person or a member asks must not wait long for a dead broker.
BOOTSTRAP_MS = 5_000
_RECONNECT_MAX_MS = 2_000
# Seconds for the last report to be sent.
_GOODBYE = 0.5

# Milliseconds; for an admin client that asks every broker, one after the other: one
# that does not answer must not make what the others say too old.
HASTY: Mapping[str, Any] = {
    "reconnect_backoff_max_ms": _RECONNECT_MAX_MS,
    "request_timeout_ms": 3_000,
}


def connection(
    configs: Mapping[str, Any], more: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """
    Return a control client's settings, taken from a consumer's configuration.

    Args:
        configs: the consumer's configuration.
        more: settings that differ for control clients, as ``Control`` has checked them.
        name: the suffix of the ``client_id``.
    """
    known = KafkaConsumer.DEFAULT_CONFIG
    kept = {
        key: value
        for key, value in configs.items()
        if (key in _CONNECTION or key.startswith(_PREFIXES))
        and not (key in known and value == known[key])
    }
    client_id = configs.get("client_id") or "safeconsumer"
    return {
        "reconnect_backoff_max_ms": _RECONNECT_MAX_MS,
        **kept,
        "client_id": f"{client_id}-{name}",
        **more,
    }


def reader(base: Mapping[str, Any]) -> SafeConsumer:
    """Make a client that reads control topics, or asks where topics begin and end."""
    defaults = {
        "kafka_client": NoTopicsClient,
        "auto_offset_reset": "none",
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
        "enable_auto_commit": False,
        "fetch_min_bytes": 1,
        "max_partition_fetch_bytes": 4 << 20,
        "max_poll_records": 10_000,
        "metadata_max_age_ms": 30_000,
        "group_id": None,
    }
    return SafeConsumer(log=False, **{**defaults, **base})


def producer(
    base: Mapping[str, Any],
    timeout: float,
    kind: type[KafkaProducer] = UntracedProducer,
) -> KafkaProducer:
    """
    Make a client that writes control records, each acknowledged by all replicas.

    It sends each record once: only the caller knows whether it may be sent again. What
    it sends is compressed, since a report may name thousands of partitions.

    Args:
        base: the connection.
        timeout: seconds after which a write has failed.
        kind: its class.
    """
    timeout_ms = int(timeout * 1000)
    defaults = {
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
        "compression_type": "gzip",
        "kafka_client": PatientClient,
        "delivery_timeout_ms": timeout_ms,
        "linger_ms": 0,
        "max_block_ms": timeout_ms,
        "max_in_flight_requests_per_connection": 1,
        "request_timeout_ms": timeout_ms,
    }
    fitting = _fitting(KafkaProducer, base)
    # kafka-python 3.1 starts a thread before it asks a broker, as its consumer does.
    return made(kind, **{**defaults, **fitting, **WRITING})


def admin(base: Mapping[str, Any]) -> KafkaAdminClient:
    """Make a client that asks for topics' settings and for groups."""
    fitting = _fitting(KafkaAdminClient, base)
    defaults = {"bootstrap_timeout_ms": BOOTSTRAP_MS, "kafka_client": ClosingClient}
    settings = {**defaults, **fitting}
    return made(KafkaAdminClient, **settings)


def _fitting(kind: Any, configs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - kafka-python is untyped
    # A consumer's setting, such as fetch_max_wait_ms, is not one of a producer.
    return {key: one for key, one in configs.items() if key in kind.DEFAULT_CONFIG}


class LazyProducer:
    """
    A producer that is made when it is first needed; once closed it stays closed.

    Thread rules: any thread.
    """

    def __init__(self, make: Callable[[], KafkaProducer]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: Any = None
        self._is_closed = False

    def __call__(self) -> KafkaProducer:
        """
        Return the producer.

        Raises:
            KafkaError: the cluster cannot be reached, or this is closed: a thread that
                comes late must leave no client behind.
        """
        with self._lock:
            if self._made is None and not self._is_closed:
                self._made = self._make()
            if not self._is_closed:
                return self._made
            made, self._made = self._made, None
        if made is not None:  # it was closed while this one was made
            producers.end(made, 0.0)
        message = "this consumer's control clients are closed"
        raise KafkaError(message)

    def drop(self) -> None:
        """Give up the producer, if there is one; the next call makes another."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            producers.end(made, 0.0)

    def close(self, until: float = math.inf) -> None:
        """
        Close the producer, if there is one, until then at most, on the monotonic clock.

        Records on their way are waited for half a second; giving them up may take half
        a second more. A producer that is being made then is closed by the thread that
        makes it.
        """
        self._is_closed = True  # a thread that makes one now closes it
        if not self._lock.acquire(timeout=_left(until)):
            return
        try:
            made, self._made = self._made, None
        finally:
            self._lock.release()
        if made is not None:
            producers.end(made, min(_GOODBYE, _left(until)))


def _left(until: float) -> float:
    return min(threading.TIMEOUT_MAX, max(0.0, until - time.monotonic()))
