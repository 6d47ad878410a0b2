"""Checks the kafka-python settings that are given for control clients alone."""

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from os import PathLike
from typing import Any

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.net.sasl import SASL_MECHANISMS

from safeconsumer.errors import ControlSettingError

# A record that the client sends again by itself, because an answer was lost, undoes
# what others wrote to the same key meanwhile, and nobody is told. Idempotence would do,
# but wants a right of its own before Kafka 2.8.
WRITING: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": False,
    "retries": 0,
    "transactional_id": None,
}

# Control clients are no members of a group, and read and write bytes.
_NOT_TO_CHOOSE = frozenset(
    {
        *("allow_auto_create_topics", "auto_offset_reset", "enable_auto_commit"),
        *("group_id", "group_instance_id", "kafka_client"),
        *("key_deserializer", "key_serializer"),
        *("value_deserializer", "value_serializer"),
        *WRITING,
    }
)
_OF_CLIENTS: tuple[Mapping[str, Any], ...] = (
    KafkaAdminClient.DEFAULT_CONFIG,
    KafkaProducer.DEFAULT_CONFIG,
    KafkaConsumer.DEFAULT_CONFIG,
)
_DEFAULTS: Mapping[str, Any] = {
    name: one for each in _OF_CLIENTS for name, one in each.items()
}
_OPTIONAL = frozenset(
    name for each in _OF_CLIENTS for name, one in each.items() if one is None
)
# What kafka-python asserts, or fails with a KeyError on a thread of its own.
_CHOICES: Mapping[str, Iterable[str]] = {
    "client_dns_lookup": (
        "use_all_dns_ips",
        "resolve_canonical_bootstrap_servers_only",
    ),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "sasl_mechanism": SASL_MECHANISMS,  # programs may register more
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
}
_TEXTS = frozenset(
    {
        *("client_id", "client_rack", "proxy_url", "socks5_proxy", "ssl_ciphers"),
        *("sasl_kerberos_domain_name", "sasl_kerberos_name"),
        *("sasl_kerberos_service_name", "sasl_plain_password", "sasl_plain_username"),
    }
)
_FILES = frozenset({"ssl_cafile", "ssl_certfile", "ssl_crlfile", "ssl_keyfile"})
_FLAGS = frozenset(name for name, one in _DEFAULTS.items() if isinstance(one, bool))
_AMOUNTS = frozenset(
    name
    for name, one in _DEFAULTS.items()
    if name.endswith("_bytes") or (isinstance(one, int | float) and name not in _FLAGS)
)
# Secrets, or URLs that may have one.
_HIDDEN = ("proxy_url", "sasl_", "socks5_proxy", "ssl_")


def check(given: Mapping[str, Any]) -> None:
    """
    Return if control clients can have these settings.

    Raises:
        ControlSettingError: they cannot: kafka-python does not know one, it is not for
            a user to choose, or its value is of no use. Secrets are not in the message.
    """
    for name, value in given.items():
        if name in _NOT_TO_CHOOSE:
            message = f"client_configs: {name} cannot be set for control clients"
            raise ControlSettingError(message)
        if name not in _DEFAULTS:
            near = get_close_matches(str(name), _DEFAULTS, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            message = f"client_configs: kafka-python has no setting {name!r}{hint}"
            raise ControlSettingError(message)
        wanted, is_fit = _wanted(name)
        if not is_fit(value) and not (value is None and name in _OPTIONAL):
            is_told = name in _CHOICES or not name.startswith(_HIDDEN)
            shown = f"{value!r:.100}" if is_told else f"a {type(value).__name__}"
            message = f"client_configs: {name} must be {wanted}, not {shown}"
            raise ControlSettingError(message)


def _wanted(name: str) -> tuple[str, Callable[[Any], bool]]:
    if name in _CHOICES:
        choices = tuple(_CHOICES[name])
        return f"one of {', '.join(choices)}", lambda one: one in choices
    for names, wanted, is_fit in _KINDS:
        if name in names:
            return wanted, is_fit
    return "what kafka-python takes", lambda _: True


def _is_servers(value: object) -> bool:
    if isinstance(value, str):
        return bool(value.strip())
    if not isinstance(value, Collection):
        return False
    return bool(value) and all(isinstance(one, str) and one.strip() for one in value)


def _is_version(value: object) -> bool:
    if not isinstance(value, tuple) or not value:
        return False
    return all(type(one) is int and one >= 0 for one in value)


def _is_amount(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and value >= 0  # type: ignore[operator]  # it is a number


_KINDS: tuple[tuple[frozenset[str], str, Callable[[Any], bool]], ...] = (
    (frozenset({"bootstrap_servers"}), "HOST:PORT, or a list of them", _is_servers),
    (frozenset({"api_version"}), "a tuple of numbers, such as (3, 9)", _is_version),
    (_TEXTS, "text", lambda one: isinstance(one, str)),
    (_FILES, "a path", lambda one: isinstance(one, str | PathLike)),
    (_FLAGS, "True or False", lambda one: isinstance(one, bool)),
    (_AMOUNTS, "a number, 0 or more", _is_amount),
)
