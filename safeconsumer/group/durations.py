"""Parses and formats durations and times in human-readable form: ``90s``, ``1d12h``."""

import re
import time
from datetime import UTC, datetime

_UNITS = {"w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
LONGEST = 100 * 366 * 86400.0  # a century, which clocks and dates can still represent
_SHORTEST = 0.001  # Kafka counts time in milliseconds
_WHOLE = re.compile(r"([0-9]+(?:\.[0-9]+)?[wdhms])+")
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([wdhms])")
_HOW = "write 90s, 30m, 2h, 1d, 1w or 1h30m"


def parse_duration(text: str) -> float:
    """
    Return a duration in seconds.

    Raises:
        ValueError: the text is not a positive duration; the message shows valid forms.
    """
    if not _WHOLE.fullmatch(text):
        message = f"{text[:30]!r} is not a duration: {_HOW}"
        raise ValueError(message)
    seconds = sum(float(n) * _UNITS[unit] for n, unit in _PART.findall(text))
    if seconds > LONGEST:
        message = f"{text[:30]!r} is too long: {_HOW}, a century at most"
        raise ValueError(message)
    if seconds < _SHORTEST:
        message = f"{text[:30]!r} is not longer than 0: {_HOW}"
        raise ValueError(message)
    return seconds


def duration_text(seconds: float) -> str:
    """Return a duration as text, in its two largest units: ``2h``, ``1m30s``."""
    left = max(0, round(seconds))
    parts = []
    for unit, size in _UNITS.items():
        count, left = divmod(left, int(size))
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2]) or "0s"


def parse_moment(text: str) -> float:
    """
    Return epoch seconds for ``2h``, which means two hours ago, or for a date and time.

    A date without a time zone is in UTC.

    Raises:
        ValueError: the text has none of these forms; the message shows valid ones.
    """
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"{text[:30]!r} is not a time: write 2026-11-22T07:30 (UTC), or 90m for 90 "
            "minutes ago"
        )
        raise ValueError(message) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
