"""Reads the address on which a command listens."""

import click

_HERE = "127.0.0.1"
_MOST = 65_535

METAVAR = "[HOST:]PORT"


def listening(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """
    Return host and port of an option; a port alone is for this machine only.

    Raises:
        click.BadParameter: it is neither a port nor an address with one.
    """
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdigit() and len(port) <= len(str(_MOST))
    if not is_number or int(port) > _MOST:
        message = f"{text!r} is not a port, or HOST:PORT"
        raise click.BadParameter(message, context, parameter)
    return host.removeprefix("[").removesuffix("]") or _HERE, int(port)
