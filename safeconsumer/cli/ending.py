"""
When a hold is to end: after a while, or at a time of day.
"""

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import click
from attrs import frozen

from safeconsumer.cli.errors import CommandError
from safeconsumer.group.durations import seconds_of


@frozen
class Ending:
    """
    What was said about the end.

    Attributes:
        seconds: so long after it is placed, or None.
        until: at this moment, seconds since the epoch, or None.
    """

    seconds: float | None = None
    until: float | None = None

    def seconds_from(self, now: float | None) -> float | None:
        """
        Return how long a hold lasts that is placed now; None for no end.

        Args:
            now: the broker's time; None where it is unknown, and ours is taken.

        Raises:
            CommandError: the moment is over.
        """
        if self.until is None:
            return self.seconds
        left = self.until - (time.time() if now is None else now)
        if left <= 0:
            message = "--until: that time is over, by the broker's clock"
            raise CommandError(message)
        return left


def ending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """
    Give a command ``--for`` and ``--until``.
    """
    command = click.option(
        "--until",
        metavar="TIME",
        help="It ends by itself then: 18:30, 2026-11-22T18:30, or with +01:00 or Z; "
        "this machine's time zone without.",
    )(command)
    return click.option(
        "--for",
        "for_",
        metavar="DURATION",
        help="It ends by itself after that: 90s, 30m, 2h, 1d, 1w.",
    )(command)


def ending_of(for_: str | None, until: str | None) -> Ending:
    """
    Read both options.

    Raises:
        CommandError: one is no good, or both are given.
    """
    if for_ is not None and until is not None:
        message = "--for and --until: say one of them"
        raise CommandError(message)
    try:
        seconds = None if for_ is None else seconds_of(for_)
    except ValueError as error:
        message = f"--for: {error}"
        raise CommandError(message) from error
    moment = None if until is None else _moment(until, datetime.now().astimezone())
    return Ending(seconds, moment)


def _moment(text: str, now: datetime) -> float:
    try:
        if len(text) <= len("18:30:00"):
            today = datetime.combine(now.date(), _time(text), now.tzinfo)
            found = today if today > now else today + timedelta(days=1)
        else:
            found = datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        message = f"--until: {text[:40]!r} is no time: 18:30 or 2026-11-22T18:30"
        raise CommandError(message) from error
    return found.timestamp()


def _time(text: str) -> Any:  # noqa: ANN401 - a time of day
    return datetime.strptime(text, "%H:%M").time()  # noqa: DTZ007 - its zone is the caller's
