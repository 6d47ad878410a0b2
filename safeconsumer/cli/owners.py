"""
Whose hold it is: the owner that somebody claims to be, and where and as whom they are.
"""

import getpass
import socket
from collections.abc import Callable, Mapping
from typing import Any

import click

from safeconsumer.cli import profiles
from safeconsumer.cli.errors import CommandError
from safeconsumer.group.wire import MAX_NAME_LENGTH
from safeconsumer.holds.hold import checked_owner


def owner_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command ``--owner``.
    """
    return click.option(
        "--owner",
        cls=profiles.Profiled,
        envvar="SAFECONSUMER_OWNER",
        metavar="NAME",
        help="Whose hold it is; your login and this host, alice@build7, by default.",
    )(command)


def owner_of(given: str | None) -> str:
    """
    Return the owner that was named, or who is logged in where.

    Raises:
        CommandError: none was named, and nobody knows who this is.
        HoldSettingError: the name is no good.
    """
    if given is not None:
        return checked_owner(given)
    try:
        return checked_owner(f"{getpass.getuser()}@{socket.gethostname()}")
    except (KeyError, OSError) as error:  # a container's user has no name
        message = (
            "nobody knows who you are here: say it with --owner NAME or "
            "SAFECONSUMER_OWNER"
        )
        raise CommandError(message) from error


def host() -> str | None:
    """
    Return what this machine calls itself; None if that is no text for people.
    """
    return _short(socket.gethostname())


def principal(base: Mapping[str, Any]) -> str | None:
    """
    Return how a connection logs in, as the broker names it; None if only that knows.
    """
    user = base.get("sasl_plain_username")
    return _short(f"User:{user}") if user else None


def _short(text: str) -> str | None:
    is_good = bool(text) and text.isprintable() and len(text) <= MAX_NAME_LENGTH
    return text if is_good else None
