"""Computes when a hold ends: after a while, or at a time of day."""

import time
from datetime import MINYEAR, datetime, timedelta
from typing import Any

from attrs import frozen

from safeconsumer.errors import HoldSettingError
from safeconsumer.group.durations import LONGEST, seconds_of

_FAR = "until: that is a century away: leave it out for no end"


@frozen
class Ending:
    """
    When a hold shall end, as it was asked for.

    Attributes:
        seconds: this many seconds after it is placed, or None.
        until: at this moment, in seconds since the epoch, or None.
    """

    seconds: float | None = None
    until: float | None = None

    def seconds_from(self, now: float | None) -> float | None:
        """
        Return for how many seconds a hold lasts that is placed now; None for no end.

        Args:
            now: the broker's time; None if it is unknown, and this machine's is used.

        Raises:
            HoldSettingError: the moment has passed, or is over a century away.
        """
        if self.until is None:
            return self.seconds
        left = self.until - (time.time() if now is None else now)
        if left <= 0:
            whose = "this machine's" if now is None else "the broker's"
            message = f"until: that time has passed, by {whose} clock"
            raise HoldSettingError(message)
        if left > LONGEST:
            raise HoldSettingError(_FAR)
        return left


def ending_of(for_: str | None, until: str | None) -> Ending:
    """
    Read ``--for`` and ``--until`` as they were typed.

    Raises:
        HoldSettingError: a value cannot be read, or both are given.
    """
    if for_ is not None and until is not None:
        message = "for and until exclude each other: give one of them"
        raise HoldSettingError(message)
    try:
        seconds = None if for_ is None else seconds_of(for_)
    except ValueError as error:
        message = f"for: {error}"
        raise HoldSettingError(message) from error
    now = datetime.fromtimestamp(time.time())  # noqa: DTZ006 - the zone follows
    moment = None if until is None else _moment(until, now.astimezone())
    return Ending(seconds, moment)


def _moment(text: str, now: datetime) -> float:
    unread = f"until: {text[:40]!r} is not a time: write 18:30 or 2026-11-22T18:30"
    try:
        if len(text) <= len("18:30:00"):
            # Each day has its own UTC offset, as clocks may change in between.
            today, at = now.astimezone().date(), _time(text)
            found = datetime.combine(today, at).astimezone()
            if found <= now:
                found = datetime.combine(today + timedelta(days=1), at).astimezone()
        else:
            found = datetime.fromisoformat(text)
    except (OverflowError, ValueError) as error:
        raise HoldSettingError(unread) from error
    try:
        return found.astimezone().timestamp()
    except (OverflowError, ValueError) as error:  # no zone reaches so far
        message = unread if found.year == MINYEAR else _FAR
        raise HoldSettingError(message) from error


def _time(text: str) -> Any:  # noqa: ANN401 - a time of day
    return datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007 - the caller sets the zone
