"""
Options that say where the cluster is: as Kafka's own tools have them.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from safeconsumer.cli.errors import CommandError
from safeconsumer.group.properties import client_configs, read_properties
from safeconsumer.group.settings import (
    GROUP_TOPIC,
    OPERATOR_TOPIC,
    STATUS_TOPIC,
    Control,
)


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command the options for the cluster.

    It is called with ``base``, which returns kafka-python's configuration.
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
    @functools.wraps(command)
    def with_cluster(
        *args: Any,  # noqa: ANN401 - the command's own
        bootstrap: str | None,
        config_file: Path | None,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        return command(*args, base=lambda: _base(bootstrap, config_file), **kwargs)

    return with_cluster


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command the options for the cluster and the control topics.

    It is called with ``connect``, which returns kafka-python's configuration and the
    control's settings.
    """

    @cluster_options
    @click.option("--operator-topic", default=OPERATOR_TOPIC, show_default=True)
    @click.option("--group-topic", default=GROUP_TOPIC, show_default=True)
    @click.option("--status-topic", default=STATUS_TOPIC, show_default=True)
    @functools.wraps(command)
    def with_connection(
        *args: Any,  # noqa: ANN401 - the command's own
        base: Callable[[], dict[str, Any]],
        operator_topic: str,
        group_topic: str,
        status_topic: str,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        return command(
            *args,
            connect=lambda: (
                base(),
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
