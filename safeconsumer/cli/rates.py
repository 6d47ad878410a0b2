"""
Rates as people write them: ``10/s``, ``300/m``.
"""

import re

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def rate_of(text: str) -> float:
    """
    Return a rate per second; it is one without a unit, too.

    Raises:
        ValueError: it is none, or it is nothing; the message says how to write it.
    """
    match = _RATE.fullmatch(text)
    rate = float(match[1]) / _SECONDS[match[2] or "s"] if match else 0.0
    if not 0 < rate < float("inf"):
        message = f"{text[:30]!r} is no rate: write 10/s, 300/m or 50/h"
        raise ValueError(message)
    return rate
