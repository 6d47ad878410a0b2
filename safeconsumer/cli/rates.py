"""Reads rates as people write them: ``10/s``, ``300/m``."""

import re

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def rate_of(text: str) -> float:
    """
    Return a rate per second; a number without a unit is per second, too.

    Raises:
        ValueError: it is not a rate above 0; the message says how to write one.
    """
    match = _RATE.fullmatch(text)
    rate = float(match[1]) / _SECONDS[match[2] or "s"] if match else 0.0
    if not 0 < rate < float("inf"):
        message = f"{text[:30]!r} is not a rate: write 10/s, 300/m or 50/h"
        raise ValueError(message)
    return rate
