"""Converts Java's client properties to kafka-python's settings."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from safeconsumer.errors.base import ClientPropertyError

# Settings with a different name in Java and in kafka-python.
_TEXTS = {
    "bootstrap.servers": "bootstrap_servers",
    "client.id": "client_id",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.mechanism": "sasl_mechanism",
    "security.protocol": "security_protocol",
    "ssl.key.password": "ssl_password",
    "ssl.keystore.password": "ssl_password",
}
_FILES = {
    "ssl.keystore.location": ("ssl_certfile", "ssl_keyfile"),
    "ssl.truststore.location": ("ssl_cafile",),
}
# Properties whose value is a key or certificate; kafka-python reads these only from
# files.
_INLINE = (
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.truststore.certificates",
)
_NUMBERS = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}
_LOGIN = "sasl.jaas.config"
_HOSTNAME = "ssl.endpoint.identification.algorithm"
_CARRIED_OVER = (*_TEXTS, *_FILES, *_INLINE, *_NUMBERS, _LOGIN, _HOSTNAME)
# A mistyped name is at least this similar to a known name. Java's other property names
# are less similar to a known name, except those in _PASSED_OVER.
_ALIKE = 0.85
_PASSED_OVER = {"retry.backoff.max.ms"}
_JAAS = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))"""
)
# The number of digits in the largest Java long, Kafka's type for milliseconds.
_MAX_DIGITS = 19
_NOT_PEM = (".jks", ".p12", ".pfx")


def read_properties(text: str) -> dict[str, str]:
    """
    Read Java properties.

    A line is ``key=value`` or ``key: value``. Comments start with ``#`` or ``!``. A
    backslash at the end of a line joins the next line to it.
    """
    joined = re.sub(r"\\\r?\n[ \t]*", "", text)
    found = {}
    for raw in joined.splitlines():
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        key, _, value = re.sub(
            r"^((?:[^=:\s\\]|\\.)+)\s*[=:]?\s*", r"\1\0", line, count=1
        ).partition("\0")
        found[key.replace("\\", "")] = value
    return found


def client_configs(properties: Mapping[str, str]) -> dict[str, Any]:
    """
    Convert Java client properties to a kafka-python configuration.

    Properties that do not concern the connection are left out.

    Raises:
        ClientPropertyError: a property cannot be converted, or its name looks like a
            misspelling of a known name; the message gives advice.
    """
    configs: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _TEXTS:
            configs[_TEXTS[name]] = value
        elif name in _NUMBERS:
            configs[_NUMBERS[name]] = _number(name, value)
        elif name in _FILES:
            configs.update(dict.fromkeys(_FILES[name], _pem(name, value)))
        elif name in _INLINE:
            message = f"{name} cannot be converted: give the location of a PEM file"
            raise ClientPropertyError(message)
        elif name == _LOGIN:
            configs.update(_login(value))
        elif name == _HOSTNAME:
            configs["ssl_check_hostname"] = bool(value)
        elif name not in _PASSED_OVER:
            _refuse_misspelt(name)
    return configs


def _refuse_misspelt(name: str) -> None:
    near = get_close_matches(name, _CARRIED_OVER, n=1, cutoff=_ALIKE)
    if near:
        message = f"no client of Kafka has a property {name}; did you mean {near[0]}?"
        raise ClientPropertyError(message)


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > _MAX_DIGITS:
        message = f"{name} must be a number, not {value!r:.60}"
        raise ClientPropertyError(message)
    return int(value)


def _pem(name: str, value: str) -> str:
    if value.lower().endswith(_NOT_PEM):
        message = (
            f"{name}={value} is a Java key store: convert it to PEM (keytool "
            "-importkeystore, openssl pkcs12) and name the PEM file"
        )
        raise ClientPropertyError(message)
    return value


def _login(value: str) -> dict[str, str]:
    found = {
        key: next((one for one in rest if one), "")
        for key, *rest in _JAAS.findall(value)
    }
    if "username" not in found or "password" not in found:
        message = "sasl.jaas.config has no username and password; no other form is read"
        raise ClientPropertyError(message)
    return {
        "sasl_plain_username": re.sub(r"\\(.)", r"\1", found["username"]),
        "sasl_plain_password": re.sub(r"\\(.)", r"\1", found["password"]),
    }
