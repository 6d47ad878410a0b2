"""Lets existing holds last longer."""

from collections.abc import Iterable

from attrs import evolve

from safeconsumer.errors.base import HoldSettingError
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.preview import own_of
from safeconsumer.group.publisher import Change, changes, new_hold
from safeconsumer.group.view import View
from safeconsumer.group.wire import ControlHold
from safeconsumer.holds.explain import utc


def longer(
    view: View, owner: str, scopes: Iterable[str], seconds: float | None
) -> tuple[Change, ...]:
    """
    Return the changes that let an owner's holds of these scopes end later.

    The holds keep their id, their reason, and the time at which they were placed.

    Args:
        view: the group.
        owner: the owner of the holds.
        scopes: their scopes.
        seconds: for how long, from now. If no member reports the broker's time they may
            last longer, and never shorter than before.

    Raises:
        HoldSettingError: one does not exist, has ended or may have, has no end, or ends
            later than that.
    """
    asked = changes(view.group, owner, scopes, ControlHold())
    own = own_of(view, asked)
    return tuple(_longer(one, own.get(one), seconds, view) for one in asked)


def _longer(
    change: Change, own: HoldRecord | None, seconds: float | None, view: View
) -> Change:
    scope, times = change.key.scope, view.times
    if own is None or own.hold is None:
        message = (
            f"{scope} is not held by {change.key.owner}: place it, or name its owner. "
            "Nothing was changed"
        )
        raise HoldSettingError(message)
    if over := _over(own, view):
        message = f"{scope} {over}: pause places it again. Nothing was changed"
        raise HoldSettingError(message)
    if own.hold.ttl_ms is None:
        message = f"{scope} is held until it is resumed. Nothing was changed"
        raise HoldSettingError(message)
    end = own.expires_at
    if end is not None and seconds is not None and times.here + seconds < end:
        message = (
            f"{scope} is held until {utc(end)}, which is later. Nothing was changed: "
            "replace it to make it shorter"
        )
        raise HoldSettingError(message)
    if end is not None and seconds is not None:
        # The broker counts from its own time, which is no earlier than what is proven.
        seconds = max(seconds, end - times.proven)
    hold = evolve(own.hold, ttl_ms=new_hold(own.hold.reason, seconds).ttl_ms)
    return Change(change.key, hold).held_since(own.since)


def _over(own: HoldRecord, view: View) -> str:
    """Return that a hold has ended, or may have; empty if neither clock has it ended."""
    end, lifted = own.expires_at, view.lifted_by([own])
    if end is not None and lifted is not None:
        return f"ended at {utc(end)}, and members lift it until {utc(lifted)}"
    if end is not None and own.is_over(view.times.here):
        return f"may have ended at {utc(end)}"
    return ""
