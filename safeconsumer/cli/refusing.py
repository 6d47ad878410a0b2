"""
What commands about groups refuse: groups that there are not, scopes of nothing.
"""

from collections.abc import Sequence

from safeconsumer.cli.errors import CommandError
from safeconsumer.group import scopes
from safeconsumer.group.operator import Operator
from safeconsumer.group.picture import Picture
from safeconsumer.holds.scope import Scope

FUTURE = "(what is for later needs --future)"


def refuse_nothing(
    operator: Operator,
    picture: Picture,
    found: Sequence[Scope],
    *,
    unless: str = FUTURE,
) -> None:
    """
    Return if each scope covers something that the group consumes.

    Args:
        operator: the connection.
        picture: of the group.
        found: the scopes.
        unless: what the command has for scopes that are meant so.

    Raises:
        CommandError: one covers nothing; names what was perhaps meant.
    """
    said = scopes.mistakes(picture, found, operator.topics)
    if said:
        message = f"{said} {unless}".rstrip()
        raise CommandError(message)


def refuse_unknown(picture: Picture) -> None:
    """
    Return if there is anything of the group.

    Raises:
        CommandError: there is no such group, and no hold for it.
    """
    if not picture.is_known:
        message = f"no group {picture.group!r} here, and no hold for it"
        raise CommandError(message)
