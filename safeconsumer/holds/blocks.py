"""Names the owners of ``held`` blocks, and refuses a block that would not hold alone."""

import itertools
from collections.abc import Iterable

from safeconsumer.errors.base import HoldSettingError
from safeconsumer.holds.scope import Scope
from safeconsumer.holds.view import Holds

_numbers = itertools.count(1)


def next_owner() -> str:
    """Return the owner of a block that names none; each block in the process has its own."""
    return f"held-{next(_numbers)}"


def check_block(scopes: Iterable[Scope], owner: str, holds: Holds) -> None:
    """
    Refuse a block without targets, and one whose owner already holds a target.

    Raises:
        HoldSettingError: the block would run with nothing held, or its end would lift a
            hold that it did not place.
    """
    found = tuple(scopes)
    if not found:
        message = (
            "held() needs a target, or nothing would be held in its block; "
            "held(safeconsumer.ALL) holds everything"
        )
        raise HoldSettingError(message)
    for scope in found:
        if holds.get((scope, owner)) is not None:
            refuse_held(scope, owner)


def refuse_held(scope: Scope, owner: str) -> None:
    """
    Refuse a block whose owner already holds one of its targets.

    Raises:
        HoldSettingError: always.
    """
    message = (
        f"the owner {owner!r} of held() already holds {scope}, and the end of the block "
        "would lift that hold: a block needs an owner that holds nothing there yet, or "
        "leave out owner="
    )
    raise HoldSettingError(message)
