"""Makes keys and agreements for forms and calls, and remembers their outcomes."""

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from safeconsumer.group.preview import Consent, Preview
from safeconsumer.group.publisher import Acknowledged

_REMEMBERED = 500


def agreement(typed: Mapping[str, str], seen: Preview) -> str:
    """
    Return a digest of what a preview shows.

    It changes with the input, and if other holds would be replaced.
    """
    kinds = [one.consent.value for one in seen.objections]
    missed = [one.what for one in seen.objections if one.consent is Consent.FUTURE]
    replaced = [
        (one.key.scope, one.hold.hold_id if one.hold else None, one.offset)
        for one in seen.placing.replaces
    ]
    # An agreement to @all is valid for all partitions, whichever exist.
    return _digest([sorted(typed.items()), kinds, missed, replaced])


def new_key() -> str:
    """Return a key for one form: a request with it is carried out only once."""
    return secrets.token_urlsafe(12)


@frozen(kw_only=True)
class Outcome:
    """
    The result of a form or a call.

    Attributes:
        done: the changes that were written; empty if all holds existed already.
        plan: the preview, as plain JSON values.
    """

    done: tuple[Acknowledged, ...]
    plan: Mapping[str, Any]


class Once:
    """
    Remembers the results for the last few hundred keys.

    Thread rules: it is not thread-safe; a caller that shares it must lock.
    """

    def __init__(self) -> None:
        self._known: dict[str, Outcome] = {}

    def outcome(self, owner: str, given: Mapping[str, str]) -> Outcome | None:
        """Return the earlier result of the same request; None if it is new, or has no key."""
        return self._known.get(_digest([owner, sorted(given.items())]))

    def remember(self, owner: str, given: Mapping[str, str], outcome: Outcome) -> None:
        """Remember the result of a request."""
        if given.get("key"):
            self._known[_digest([owner, sorted(given.items())])] = outcome
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]


def _digest(value: object) -> str:
    text = json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
