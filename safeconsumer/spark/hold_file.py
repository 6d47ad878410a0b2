"""
Reads holds from a file, for tests and for places without control topics.

``{"version": 1, "holds": [{"scope": "orders", "owner": "alice", "reason": "...",
"placed_at": 1700000000.0, "expires_at": null}]}``; only ``scope`` is needed.
Replace the file as a whole (write beside it, then rename): while it cannot be read,
everything is held.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from attrs import frozen

from safeconsumer.errors import HoldsUnreadableError, SafeConsumerError
from safeconsumer.holds import scope as scopes
from safeconsumer.holds.hold import Hold, checked_owner, checked_reason
from safeconsumer.holds.view import Holds

VERSION = 1
_OWNER = "file"
_NAMES = ("scope", "owner", "reason", "placed_at", "expires_at")
# How alike a name must be to be taken for a misspelt one: expires, expiresAt.
_ALIKE = 0.75

# Exceptions that an entry of the wrong shape raises while it is read.
_UNREADABLE = (
    *(ArithmeticError, AttributeError, KeyError, TypeError, ValueError),
    SafeConsumerError,
)


@frozen
class _Read:
    stamp: tuple[int, ...]
    holds: tuple[Hold, ...]


class HoldFile:
    """
    Reads the file again whenever it has changed.

    Thread rules: any thread; two calls at once may read it twice.

    Args:
        path: the path of the file.
        wall: returns seconds since the epoch.
    """

    def __init__(self, path: str, wall: Callable[[], float] = time.time) -> None:
        self._path = Path(path)
        self._wall = wall
        self._read: _Read | None = None

    def fresh(self) -> Holds:
        """Return the same as :meth:`state`: the holds are in the file only."""
        return self.state()

    def close(self) -> None:
        """Do nothing; no file is kept open."""

    def state(self) -> Holds:
        """
        Return the holds that are in force now.

        Raises:
            HoldsUnreadableError: there is no such file, or its content is invalid.
        """
        try:
            found = self._path.stat()
            times = found.st_mtime_ns, found.st_ctime_ns  # the second cannot be set
            stamp = *times, found.st_size, found.st_ino
            read = self._read
            if read is None or read.stamp != stamp:
                read = _Read(stamp, parse(self._path.read_text("utf-8")))
            self._read = read
        except (OSError, UnicodeDecodeError, ValueError) as error:
            self._read = None
            message = (
                f"holds.file {self._path}: {error}; until it can be read everything "
                'is held (no holds are {"version": 1, "holds": []})'
            )
            raise HoldsUnreadableError(message) from error
        return self._living(read)

    def known(self) -> Holds:
        """Return what was read last, without holds that have expired; it reads nothing."""
        return self._living(self._read)

    def _living(self, read: _Read | None) -> Holds:
        now = self._wall()
        living = (
            hold
            for hold in (() if read is None else read.holds)
            if hold.expires_at is None or hold.expires_at > now
        )
        return Holds(living)


def parse(text: str) -> tuple[Hold, ...]:
    """
    Read the holds of a file's text.

    Raises:
        ValueError: it is not such a file; the message says where.
    """
    try:
        document: Any = json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        message = "it is nested too deeply"
        raise ValueError(message) from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        message = f'it must begin with {{"version": {VERSION}'
        raise ValueError(message)
    if near := [one for one in document if one.startswith("hold") and one != "holds"]:
        message = f'the list must have the name "holds", not {near[0]!r:.60}'
        raise ValueError(message)
    entries = document.get("holds")
    if not isinstance(entries, list):
        message = '"holds" must be a list'
        raise ValueError(message)  # noqa: TRY004 - one kind of error for one caller
    return tuple(_hold(number, entry) for number, entry in enumerate(entries))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON would keep only the last one, and the holds of the first would be lost.
    found = dict(pairs)
    if len(found) < len(pairs):
        message = f"a name occurs twice in one object: {', '.join(dict(pairs))}"
        raise ValueError(message)
    return found


def _hold(number: int, entry: Any) -> Hold:  # noqa: ANN401 - it comes from a file
    try:
        _check(entry)
        return Hold(
            scope=scopes.parse(entry["scope"]),
            owner=checked_owner(entry.get("owner", _OWNER)),
            reason=checked_reason(entry.get("reason")),
            placed_at=_moment(entry.get("placed_at", 0.0)) or 0.0,
            expires_at=_moment(entry.get("expires_at")),
        )
    except _UNREADABLE as bad:
        message = f"hold number {number + 1}: {bad or type(bad).__name__}"
        raise ValueError(message) from bad


def _check(entry: Any) -> None:  # noqa: ANN401 - it comes from a file
    if not isinstance(entry, Mapping):
        message = f'it must be like {{"scope": "orders:3"}}, not {entry!r:.60}'
        raise ValueError(message)  # noqa: TRY004 - one kind of error for one caller
    for name in entry:
        near = get_close_matches(name, _NAMES, n=1, cutoff=_ALIKE)
        if near and name not in _NAMES and near[0] not in entry:
            # It would be passed over, and the hold would never end, for example.
            message = f"{name!r:.60} must be {near[0]!r}"
            raise ValueError(message)
    if "scope" not in entry:
        message = "it has no scope"
        raise ValueError(message)
    if not isinstance(entry["scope"], str):
        message = f"scope must be text, not {entry['scope']!r:.60}"
        raise ValueError(message)  # noqa: TRY004


def _moment(value: Any) -> float | None:  # noqa: ANN401 - it comes from a file
    if value is None:
        return None
    is_number = isinstance(value, int | float | str)
    moment = float(value) if is_number else math.nan
    if not math.isfinite(moment):
        # A hold that expires at an invalid number would not hold.
        message = f"a moment must be a finite number of seconds, not {value!r}"
        raise ValueError(message)
    return moment
