"""
Options that say where the cluster is: as Kafka's own tools have them.
"""

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from safeconsumer.cli.failing import CommandError
from safeconsumer.group.settings import (
    GROUP_TOPIC,
    OPERATOR_TOPIC,
    STATUS_TOPIC,
    Control,
)

# Java's names for what kafka-python calls otherwise.
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
_NUMBERS = {
    "connections.max.idle.ms": "connections_max_idle_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "retry.backoff.ms": "retry_backoff_ms",
}
_JAAS = re.compile(
    r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))"""
)
_NOT_PEM = (".jks", ".p12", ".pfx")


def read_properties(text: str) -> dict[str, str]:
    """
    Read Java properties.

    ``key=value`` or ``key: value``; comments begin with ``#`` or ``!``; a backslash at
    the end of a line continues it.
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
    Turn Java's properties into kafka-python's configuration.

    What says nothing about the connection is left out.

    Raises:
        CommandError: a property cannot be carried over; the line says what to do.
    """
    configs: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _TEXTS:
            configs[_TEXTS[name]] = value
        elif name in _NUMBERS:
            configs[_NUMBERS[name]] = _number(name, value)
        elif name in _FILES:
            configs.update(dict.fromkeys(_FILES[name], _pem(name, value)))
        elif name == "sasl.jaas.config":
            configs.update(_login(value))
        elif name == "ssl.endpoint.identification.algorithm":
            configs["ssl_check_hostname"] = bool(value)
    return configs


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit():
        message = f"{name} must be a number, not {value!r}"
        raise CommandError(message)
    return int(value)


def _pem(name: str, value: str) -> str:
    if value.lower().endswith(_NOT_PEM):
        message = (
            f"{name}={value} is a Java key store: convert it to PEM (keytool "
            "-importkeystore, openssl pkcs12) and name the PEM file"
        )
        raise CommandError(message)
    return value


def _login(value: str) -> dict[str, str]:
    found = {
        key: next((one for one in rest if one), "")
        for key, *rest in _JAAS.findall(value)
    }
    if "username" not in found or "password" not in found:
        message = "sasl.jaas.config has no username and password; others are not read"
        raise CommandError(message)
    return {
        "sasl_plain_username": re.sub(r"\\(.)", r"\1", found["username"]),
        "sasl_plain_password": re.sub(r"\\(.)", r"\1", found["password"]),
    }


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command the options for the cluster and the control topics.

    It is called with ``base`` (kafka-python's configuration) and ``settings``.
    """

    @click.option("--bootstrap", metavar="HOST:PORT,...", help="The cluster.")
    @click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Java-style client properties: bootstrap.servers, security.protocol, "
        "sasl.*, ssl.* (PEM).",
    )
    @click.option("--operator-topic", default=OPERATOR_TOPIC, show_default=True)
    @click.option("--group-topic", default=GROUP_TOPIC, show_default=True)
    @click.option("--status-topic", default=STATUS_TOPIC, show_default=True)
    @functools.wraps(command)
    def with_connection(
        *args: Any,  # noqa: ANN401 - the command's own
        bootstrap: str | None,
        config_file: Path | None,
        operator_topic: str,
        group_topic: str,
        status_topic: str,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        return command(
            *args,
            connect=lambda: (
                _base(bootstrap, config_file),
                Control(
                    operator_topic=operator_topic,
                    group_topic=group_topic,
                    status_topic=status_topic,
                ),
            ),
            **kwargs,
        )

    return with_connection


def _base(bootstrap: str | None, config_file: Path | None) -> dict[str, Any]:
    configs: dict[str, Any] = {}
    if config_file is not None:
        try:
            text = config_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"{config_file} cannot be read: {error}"
            raise CommandError(message) from error
        configs = client_configs(read_properties(text))
    if bootstrap is not None:
        configs["bootstrap_servers"] = bootstrap
    servers = _servers(str(configs.get("bootstrap_servers") or ""))
    if not servers:
        message = "say where the cluster is: --bootstrap HOST:PORT, or --config FILE"
        raise CommandError(message)
    return {**configs, "bootstrap_servers": servers}


def _servers(text: str) -> list[str]:
    found = [one.strip() for one in text.split(",") if one.strip()]
    for one in found:
        host, _, port = one.rpartition(":")
        is_alone = not host or (":" in host and not host.endswith("]"))  # a bare IPv6
        is_number = port.isascii() and port.isdigit() and len(port) < 6  # noqa: PLR2004 - 65535
        if not is_alone and not (is_number and 0 < int(port) < 65536):  # noqa: PLR2004 - TCP's
            message = f"{one[:100]!r} is not HOST:PORT"
            raise CommandError(message)
    return found
