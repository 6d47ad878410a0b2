"""Defines the options for connecting to the cluster, named as in Kafka's own tools."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from click.core import ParameterSource

from safeconsumer._kafka.of_group import login
from safeconsumer.cli.errors import FIRST_TROUBLE, CommandError, status_of
from safeconsumer.cli.options import Command, options
from safeconsumer.group.properties import client_configs, read_properties
from safeconsumer.group.settings import PREFIX, Control
from safeconsumer.group.timed_call import TimedCall
from safeconsumer.group.troubles import cannot_log_in, error_text

_LOGIN_SECONDS = 2.0
_CLOSE_SECONDS = 5.0

# With unknown values for these settings, kafka-python would raise an AssertionError or
# a KeyError.
_KNOWN = {
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl_mechanism": (
        "AWS_MSK_IAM",
        "GSSAPI",
        "OAUTHBEARER",
        "PLAIN",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
    ),
}
_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")


@frozen
class Connect:
    """
    Provides the settings for connecting to the cluster and for group control.

    Attributes:
        base: returns kafka-python's configuration, after a trial login.
        control: returns the settings for group control.
        is_typed: whether the cluster's address was given on the command line.
    """

    base: Callable[[], dict[str, Any]]
    control: Callable[[], Control]
    is_typed: bool = False

    def __call__(self) -> tuple[dict[str, Any], Control]:
        """Return kafka-python's configuration and the settings for group control."""
        control = self.control()
        return self.base(), control


def _base_of(
    bootstrap: str | None, config_file: Path | None
) -> Callable[[], dict[str, Any]]:
    source = click.get_current_context().get_parameter_source
    is_typed = source("config_file") is ParameterSource.COMMANDLINE
    is_other = is_typed and source("bootstrap") is not ParameterSource.COMMANDLINE
    return lambda: _base(bootstrap, config_file, is_other=is_other)


def _connect(
    bootstrap: str | None, config_file: Path | None, topic_prefix: str
) -> Connect:
    source = click.get_current_context().get_parameter_source
    return Connect(
        base=_base_of(bootstrap, config_file),
        control=lambda: Control.prefixed(topic_prefix),
        is_typed=ParameterSource.COMMANDLINE
        in map(source, ("bootstrap", "config_file")),
    )


_CLUSTER = (
    click.option(
        "--bootstrap",
        metavar="HOST:PORT,...",
        envvar="SAFECONSUMER_BOOTSTRAP",
        help="The cluster's address.",
    ),
    click.option(
        "--config",
        "config_file",
        envvar="SAFECONSUMER_CONFIG",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Java-style client properties: bootstrap.servers, security.protocol, "
        "sasl.*, ssl.* (PEM).",
    ),
)
prefix_option: Callable[[Command], Command] = click.option(
    "--topic-prefix",
    metavar="TEXT",
    default=PREFIX,
    show_default=True,
    envvar="SAFECONSUMER_TOPIC_PREFIX",
    help="The prefix of the control topics' names; a team may have its own.",
)
cluster_options = options("base", _base_of, *_CLUSTER)
"""
Gives a command the options for the cluster; its argument ``base`` returns
kafka-python's configuration.
"""
connection_options = options("connect", _connect, *_CLUSTER, prefix_option)
"""
Gives a command the options for the cluster and the control topics; its argument
``connect`` returns kafka-python's configuration and the settings of group control.
"""


def _base(
    bootstrap: str | None, config_file: Path | None, *, is_other: bool
) -> dict[str, Any]:
    configs: dict[str, Any] = {}
    if config_file is not None:
        try:
            text = config_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"{config_file} cannot be read: {error}"
            raise CommandError(message) from error
        configs = client_configs(read_properties(text))
    # A --config on the command line overrides an address from the environment.
    if bootstrap is not None and not (is_other and configs.get("bootstrap_servers")):
        configs["bootstrap_servers"] = bootstrap
    servers = servers_of(str(configs.get("bootstrap_servers") or ""))
    if not servers:
        message = (
            "no cluster given: use --bootstrap HOST:PORT or --config FILE"
            if config_file is None
            else f"no cluster given: {config_file} has no bootstrap.servers; add it, "
            "or use --bootstrap HOST:PORT"
        )
        raise CommandError(message)
    configs["bootstrap_servers"] = servers
    _check_values(configs)
    _check_login(configs)
    return configs


def _check_values(configs: Mapping[str, Any]) -> None:
    for name, known in _KNOWN.items():
        value = configs.get(name)
        if value is not None and value not in known:
            shown = name.replace("_", ".")
            message = f"{shown}={value!s:.60} is not one of {', '.join(known)}"
            raise CommandError(message)
    for name in _FILES:
        path = configs.get(name)
        if path and not os.access(path, os.R_OK):
            message = f"{name}: the file {path} does not exist or cannot be read"
            raise CommandError(message)


def _check_login(configs: Mapping[str, Any]) -> None:
    # Log in on another thread, because kafka-python's loop swallows an interrupt
    # between two tasks.
    asking = TimedCall(lambda: login.trouble(configs, _LOGIN_SECONDS))
    try:
        first = asking.result(_LOGIN_SECONDS + _CLOSE_SECONDS)
    except TimeoutError as error:
        first = error
    if cannot_log_in(first) and first is not None:
        user = configs.get("sasl_plain_username")
        whose = f"; the user is {user}" if user else ""
        raise CommandError(error_text(first) + whose, status_of(first)) from first
    context = click.get_current_context(silent=True)
    if context is not None:  # one of kafka-python's retries may succeed
        context.meta[FIRST_TROUBLE] = first


def servers_of(text: str) -> list[str]:
    """
    Return the addresses in a comma-separated text.

    Raises:
        CommandError: an address is not HOST:PORT.
    """
    found = [one.strip() for one in text.split(",") if one.strip()]
    for one in found:
        host, _, port = one.rpartition(":")
        # An IPv6 address without brackets has no port.
        is_alone = not host or (":" in host and not host.endswith("]"))
        is_number = port.isascii() and port.isdigit() and len(port) < 6  # noqa: PLR2004 - 65535
        is_port = is_number and 0 < int(port) < 65536  # noqa: PLR2004 - TCP's
        # A common mistake is to give the address of a web page.
        if "/" in one or not (is_alone or is_port):
            message = f"{one[:100]!r} is not HOST:PORT"
            raise CommandError(message)
    return found
