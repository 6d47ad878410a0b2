"""Determines a hold's owner, and the host and user that are shown with it."""

import getpass
import socket
from collections.abc import Callable, Mapping
from typing import Any

import click

from safeconsumer.cli.errors import CommandError
from safeconsumer.group.wire import MAX_NAME_LENGTH
from safeconsumer.holds.hold import checked_owner, operator_name


def owner_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the option ``--owner`` to a command."""
    return click.option(
        "--owner",
        envvar="SAFECONSUMER_OWNER",
        metavar="NAME",
        help="The hold's owner; by default your login and host, such as alice@build7.",
    )(command)


def owner_of(given: str | None) -> str:
    """
    Return the given owner, without ``operator:``, or by default ``user@host``.

    Raises:
        CommandError: no owner was given, and the user's name is unknown.
        HoldSettingError: the name is invalid.
    """
    if given is not None:
        return operator_name(given)
    try:
        return checked_owner(f"{getpass.getuser()}@{socket.gethostname()}")
    except (KeyError, OSError) as error:  # in a container the user may not have a name
        message = "your login is unknown: give --owner NAME or SAFECONSUMER_OWNER"
        raise CommandError(message) from error


def host() -> str | None:
    """Return the name of this machine; None if it is not printable."""
    return _short(socket.gethostname())


def principal(base: Mapping[str, Any]) -> str | None:
    """Return the principal as the broker names it; None if only the broker knows it."""
    user = base.get("sasl_plain_username")
    return _short(f"User:{user}") if user else None


def _short(text: str) -> str | None:
    is_good = bool(text) and text.isprintable() and len(text) <= MAX_NAME_LENGTH
    return text if is_good else None
