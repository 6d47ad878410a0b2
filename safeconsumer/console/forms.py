"""Makes agreements for forms and calls: digests of what a preview shows."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from safeconsumer.group.preview import Consent, Preview
from safeconsumer.group.publisher import Acknowledged


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


def _digest(value: object) -> str:
    text = json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
