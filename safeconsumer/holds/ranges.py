"""Expands ranges of partitions; ``orders:0-2,5`` stands for four scopes."""

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

from safeconsumer.errors.base import ScopeSyntaxError

MOST = 1000
"""
The maximum number of partitions in a range, and of holds in a command.
"""
_NUMBERS = r"[0-9]{1,10}(?:-[0-9]{1,10})?"
NUMBERS = re.compile(rf"{_NUMBERS}(?:,{_NUMBERS})*")
"""
The part of a scope after the colon, which has numbers and ranges.
"""
# Text that begins with "re:" is a pattern, unless it names partitions of the topic
# "re".
_RANGES = re.compile(rf"(re:re|(?!re:)[^:]+):({NUMBERS.pattern})")


T = TypeVar("T")


def spread_targets(targets: Iterable[T]) -> Iterator[T | str]:
    """
    Yield the targets; expand each text to the texts of the scopes that it stands for.

    Raises:
        ScopeSyntaxError: a range is not ascending, or is too long.
    """
    for target in targets:
        if isinstance(target, str):
            yield from spread(target)
        else:
            yield target


def spread(text: str) -> Iterator[str]:
    """
    Yield the scopes that a text stands for, one for each partition of a range.

    Raises:
        ScopeSyntaxError: a range is not ascending, or is too long.
    """
    found = _RANGES.fullmatch(text)
    if found is None or text.rpartition(":")[2].isdigit():
        yield text
        return
    topic, several = found.groups()
    for part in several.split(","):
        first, dash, last = part.partition("-")
        end = int(last) if dash else int(first)
        if not int(first) <= end < int(first) + MOST:
            message = (
                f"{text[:60]!r}: a range must be ascending, with at most {MOST} "
                "partitions; name the topic to cover all of it"
            )
            raise ScopeSyntaxError(message)
        yield from (f"{topic}:{number}" for number in range(int(first), end + 1))
