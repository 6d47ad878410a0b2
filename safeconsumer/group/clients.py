"""
The control clients of a member or a command: one reader, one producer, one admin.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.fixes.no_topics import NoTopicsClient
from safeconsumer._kafka.fixes.producers import UntracedProducer
from safeconsumer._kafka.fixes.secrets import hide_logins_of
from safeconsumer._kafka.fixes.unmade import made
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors import ControlSettingError

# What says where a cluster is and how to get in; everything else is not our business.
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

# Control clients are no members of a group, and read and write bytes.
_NOT_TO_CHOOSE = frozenset(
    {
        *("allow_auto_create_topics", "auto_offset_reset", "enable_auto_commit"),
        *("group_id", "group_instance_id", "kafka_client"),
        *("key_deserializer", "key_serializer"),
        *("value_deserializer", "value_serializer"),
    }
)

# A record that the client sends again by itself, because an answer was lost, undoes
# what others wrote to the same key meanwhile, and nobody is told. Idempotence would do,
# but wants a right of its own before Kafka 2.8.
_WRITING: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": False,
    "retries": 0,
    "transactional_id": None,
}

# Control records are small and must not wait for a dead broker for long.
_BOOTSTRAP_MS = 5_000
_RECONNECT_MAX_MS = 2_000


def connection(
    configs: Mapping[str, Any], more: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """
    Return what a control client needs of a consumer's configuration.

    Args:
        configs: the consumer's.
        more: what differs for control clients.
        name: what is added to the ``client_id``.

    Raises:
        ControlSettingError: ``more`` has a setting that no client knows, or that is
            not for a user to choose.
    """
    _check_names(more)
    hide_logins_of({**configs, **more})
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


def _check_names(more: Mapping[str, Any]) -> None:
    kinds = (KafkaConsumer, KafkaProducer, KafkaAdminClient)
    known = {key for kind in kinds for key in kind.DEFAULT_CONFIG}
    for key in more:
        if key in _NOT_TO_CHOOSE or key in _WRITING:
            message = f"client_configs: {key} is not to be chosen for control clients"
            raise ControlSettingError(message)
        if key not in known:
            near = get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            message = f"client_configs: kafka-python has no setting {key!r}{hint}"
            raise ControlSettingError(message)


def reader(base: Mapping[str, Any]) -> SafeConsumer:
    """
    Make a client that reads control topics.
    """
    return SafeConsumer(log=False, **_reading(base))


def asker(base: Mapping[str, Any]) -> KafkaConsumer:
    """
    Make a client that asks where topics begin and end, and reads nothing.
    """
    return made(KafkaConsumer, **_reading(base))


def _reading(base: Mapping[str, Any]) -> dict[str, Any]:
    defaults = {
        "kafka_client": NoTopicsClient,
        "auto_offset_reset": "none",
        "bootstrap_timeout_ms": _BOOTSTRAP_MS,
        "enable_auto_commit": False,
        "fetch_min_bytes": 1,
        "max_partition_fetch_bytes": 4 << 20,
        "max_poll_records": 10_000,
        "metadata_max_age_ms": 30_000,
        "group_id": None,
    }
    return {**defaults, **base}


def producer(base: Mapping[str, Any], timeout: float) -> KafkaProducer:
    """
    Make a client that writes control records, each acknowledged by all replicas.

    It sends each once: whether to try again is for whoever knows what it was.

    Args:
        base: the connection.
        timeout: seconds after which a write has failed.
    """
    timeout_ms = int(timeout * 1000)
    defaults = {
        "bootstrap_timeout_ms": _BOOTSTRAP_MS,
        "kafka_client": NoTopicsClient,
        "delivery_timeout_ms": timeout_ms,
        "linger_ms": 0,
        "max_block_ms": timeout_ms,
        "max_in_flight_requests_per_connection": 1,
        "request_timeout_ms": timeout_ms,
    }
    fitting = _fitting(KafkaProducer, base)
    return UntracedProducer(**{**defaults, **fitting, **_WRITING})


def admin(base: Mapping[str, Any]) -> KafkaAdminClient:
    """
    Make a client that asks for topics' settings.
    """
    fitting = _fitting(KafkaAdminClient, base)
    settings = {"bootstrap_timeout_ms": _BOOTSTRAP_MS, **fitting}
    return made(KafkaAdminClient, **settings)


def _fitting(kind: Any, configs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - kafka-python is untyped
    # A setting for reading, such as fetch_max_wait_ms, is none of a producer's.
    return {key: one for key, one in configs.items() if key in kind.DEFAULT_CONFIG}
