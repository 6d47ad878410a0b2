"""
What forms and calls carry beside what was typed: what was agreed to, and a key.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from safeconsumer.group.preview import Consent, Preview
from safeconsumer.group.publisher import Acknowledged

_REMEMBERED = 500


def agreement(typed: Mapping[str, str], seen: Preview) -> str | None:
    """
    Return the name of what somebody must agree to; None if that is nothing.

    It is another for another wish, and once other holds would be replaced.
    """
    if not seen.objections:
        return None
    kinds = [one.consent.value for one in seen.objections]
    missed = [one.what for one in seen.objections if one.consent is Consent.FUTURE]
    replaced = [
        (one.key.scope, one.hold.hold_id if one.hold else None, one.offset)
        for one in seen.placing.replaces
    ]
    # Of @all it is agreed to whatever partitions there are.
    return _digest([sorted(typed.items()), kinds, missed, replaced])


def new_key() -> str:
    """
    Return a key for one form: what is sent with it is done once.
    """
    return secrets.token_urlsafe(12)


@frozen(kw_only=True)
class Outcome:
    """
    What became of a form or a call.

    Attributes:
        done: what was written; nothing, if all of it stood already.
        told: what it was to do, as plain JSON values.
    """

    done: tuple[Acknowledged, ...]
    told: Mapping[str, Any]


class Once:
    """
    Remembers what was done for keys, of the last few hundred.

    Thread rules: none of its own; whoever shares one locks.
    """

    def __init__(self) -> None:
        self._known: dict[str, Outcome] = {}

    def outcome(self, given: Mapping[str, str]) -> Outcome | None:
        """
        Return what became of the same before; None if it is new, or has no key.
        """
        return self._known.get(_digest(sorted(given.items())))

    def remember(self, given: Mapping[str, str], outcome: Outcome) -> None:
        """
        Note what became of it.
        """
        if given.get("key"):
            self._known[_digest(sorted(given.items()))] = outcome
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]


def _digest(value: object) -> str:
    text = json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
