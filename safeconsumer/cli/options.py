"""Combines several options into one value for a command, and parses option values."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import click

from safeconsumer.group.durations import parse_moment

ADDRESS = "[HOST:]PORT"
"""The metavar of an option that :func:`listening` parses."""

_LOOPBACK = "127.0.0.1"
_MAX_PORT = 65_535

Command = Callable[..., Any]
"""The function of a command."""


def options(
    name: str, make: Callable[..., object], *several: Callable[[Command], Command]
) -> Callable[[Command], Command]:
    """
    Return a decorator that adds options to a command and passes them as one value.

    Args:
        name: the command's parameter that receives the value.
        make: creates the value; its parameters are named like the options.
        several: the options, in the order in which the help lists them.
    """
    names = inspect.signature(make).parameters

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def called(*args: object, **given: object) -> object:
            made = make(**{one: given.pop(one) for one in names})
            return command(*args, **{name: made}, **given)

        found: Command = called
        for option in reversed(several):
            found = option(found)
        return found

    return decorate


def listening(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """
    Return an option's host and port; a port alone means to listen on loopback only.

    Raises:
        click.BadParameter: the text is neither a port nor an address with a port.
    """
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_MAX_PORT))
    if not is_number or int(port) > _MAX_PORT:
        message = f"{text!r} is not a port, or HOST:PORT"
        raise click.BadParameter(message, context, parameter)
    return host.removeprefix("[").removesuffix("]") or _LOOPBACK, int(port)


def since_of(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    """Return an option's time in seconds since the epoch; None if it was not given."""
    try:
        return None if text is None else parse_moment(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
