"""Names the owners of ``held`` blocks, and refuses blocks that would place no new holds."""

import itertools
from collections.abc import Iterable

from safeconsumer.errors.base import HoldSettingError
from safeconsumer.holds.scope import Scope
from safeconsumer.holds.view import Holds

_numbers = itertools.count(1)


def next_owner() -> str:
    """Return a new owner name, unique in this process, for a block that specifies none."""
    return f"held-{next(_numbers)}"


def check_block(scopes: Iterable[Scope], owner: str, holds: Holds) -> None:
    """
    Refuse a block that has no targets, or whose owner already holds one of them.

    Raises:
        HoldSettingError: the block would run although nothing is held, or would lift,
            at its end, a hold that it did not place.
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
        "would lift that hold: name an owner that does not hold this target yet, or "
        "leave out owner="
    )
    raise HoldSettingError(message)
