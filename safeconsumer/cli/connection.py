"""Defines the options that say where the cluster is, with the names of Kafka's tools."""

import functools
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from attrs import frozen
from click.core import ParameterSource

from safeconsumer._kafka import login
from safeconsumer.cli import profiles
from safeconsumer.cli.errors import FIRST_TROUBLE, CommandError, status_of
from safeconsumer.group.durations import seconds_of
from safeconsumer.group.errand import Errand
from safeconsumer.group.properties import client_configs, read_properties
from safeconsumer.group.settings import PREFIX, Control, names
from safeconsumer.group.troubles import cannot_log_in, said

_LOGIN_SECONDS = 2.0
_CLOSE_SECONDS = 5.0

# Settings for which kafka-python has an assert, or raises a KeyError.
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
    Gives the connection to the cluster, and the settings of group control.

    Attributes:
        base: returns kafka-python's configuration, after a login was tried.
        control: returns the settings of group control.
    """

    base: Callable[[], dict[str, Any]]
    control: Callable[[], Control]

    def __call__(self) -> tuple[dict[str, Any], Control]:
        """Return both."""
        control = self.control()
        return self.base(), control


def cluster_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command the options for the cluster.

    The command gets ``base``, which returns kafka-python's configuration.
    """

    @click.option(
        "--profile",
        metavar="NAME",
        envvar="SAFECONSUMER_PROFILE",
        is_eager=True,
        expose_value=False,
        callback=profiles.use,
        help="Defaults for these options, from profiles.toml; if it is given here, "
        "the profile's values come before the environment.",
    )
    @click.option(
        "--bootstrap",
        cls=profiles.Profiled,
        metavar="HOST:PORT,...",
        envvar="SAFECONSUMER_BOOTSTRAP",
        help="The cluster.",
    )
    @click.option(
        "--config",
        "config_file",
        cls=profiles.Profiled,
        envvar="SAFECONSUMER_CONFIG",
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
        is_nearer = _is_nearer("config_file", "bootstrap")
        return command(
            *args,
            base=lambda: _base(bootstrap, config_file, is_nearer=is_nearer),
            **kwargs,
        )

    return with_cluster


def _is_nearer(name: str, other: str) -> bool:
    # It is on the command line, and the other is in the environment or in a profile.
    context = click.get_current_context()
    nearest = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
    for source in nearest:
        if context.get_parameter_source(other) is source:
            return False
        if context.get_parameter_source(name) is source:
            return True
    return False


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command the options for the cluster and the control topics.

    The command gets ``connect``, which returns kafka-python's configuration and the
    settings of group control.
    """

    @cluster_options
    @click.option(
        "--topic-prefix",
        cls=profiles.Profiled,
        metavar="TEXT",
        default=PREFIX,
        show_default=True,
        envvar="SAFECONSUMER_TOPIC_PREFIX",
        help="The prefix of the control topics' names; a team may have its own.",
    )
    @click.option("--operator-topic", help="Another name for the operators' topic.")
    @click.option("--group-topic", help="Another name for the members' own topic.")
    @click.option("--status-topic", help="Another name for the topic of reports.")
    @click.option(
        "--clock-skew",
        metavar="DURATION",
        default="30s",
        show_default=True,
        envvar="SAFECONSUMER_CLOCK_SKEW",
        help="How much later members lift expired holds: clock_skew of their Control.",
    )
    @functools.wraps(command)
    def with_connection(  # noqa: PLR0913 - one parameter per option
        *args: Any,  # noqa: ANN401 - the command's own
        base: Callable[[], dict[str, Any]],
        topic_prefix: str,
        operator_topic: str | None,
        group_topic: str | None,
        status_topic: str | None,
        clock_skew: str,
        **kwargs: Any,  # noqa: ANN401 - the command's own
    ) -> Any:  # noqa: ANN401 - the command's own
        def control() -> Control:
            given = (operator_topic, group_topic, status_topic)
            first, second, third = (
                one or name
                for one, name in zip(given, names(topic_prefix), strict=True)
            )
            return Control(
                operator_topic=first,
                group_topic=second,
                status_topic=third,
                clock_skew=_skew(clock_skew),
            )

        return command(
            *args,
            connect=Connect(base, control),
            **kwargs,
        )

    return with_connection


def _skew(text: str) -> float:
    try:
        return 0.0 if text == "0s" else seconds_of(text)
    except ValueError as error:
        message = f"--clock-skew: {error}"
        raise CommandError(message) from error


def _base(
    bootstrap: str | None, config_file: Path | None, *, is_nearer: bool
) -> dict[str, Any]:
    configs: dict[str, Any] = {}
    if config_file is not None:
        try:
            text = config_file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            message = f"{config_file} cannot be read: {error}"
            raise CommandError(message) from error
        configs = client_configs(read_properties(text))
    if bootstrap is not None and not (is_nearer and configs.get("bootstrap_servers")):
        configs["bootstrap_servers"] = bootstrap
    servers = _servers(str(configs.get("bootstrap_servers") or ""))
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
    # On another thread: kafka-python's loop swallows an interrupt between two tasks.
    asking = Errand(lambda: login.trouble(configs, _LOGIN_SECONDS))
    try:
        first = asking.result(_LOGIN_SECONDS + _CLOSE_SECONDS)
    except TimeoutError as error:
        first = error
    if cannot_log_in(first) and first is not None:
        user = configs.get("sasl_plain_username")
        whose = f"; the user is {user}" if user else ""
        raise CommandError(said(first) + whose, status_of(first)) from first
    context = click.get_current_context(silent=True)
    if context is not None:  # the broker may answer later, as kafka-python tries again
        context.meta[FIRST_TROUBLE] = first


def _servers(text: str) -> list[str]:
    found = [one.strip() for one in text.split(",") if one.strip()]
    for one in found:
        host, _, port = one.rpartition(":")
        is_alone = not host or (":" in host and not host.endswith("]"))  # a bare IPv6
        is_number = port.isascii() and port.isdigit() and len(port) < 6  # noqa: PLR2004 - 65535
        is_port = is_number and 0 < int(port) < 65536  # noqa: PLR2004 - TCP's
        if "/" in one or not (is_alone or is_port):  # it may be a page's address
            message = f"{one[:100]!r} is not HOST:PORT"
            raise CommandError(message)
    return found
