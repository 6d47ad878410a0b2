"""
What a journal is told of holds that are placed and lifted, before and after each.

A process may be killed in between, and an answer may be lost. So what is about to be
asked for is written first, and then what came of it: where that is missing, nobody
knows whether it was done.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from safeconsumer.errors import JournalError
from safeconsumer.group.publisher import Acknowledged, Change

_SAID_BEFORE = {True: "group-asked", False: "group-lift"}
_SAID_AFTER = {True: "group-hold", False: "group-lifted"}
_REFUSED = "group-refused"

_Said = tuple[str, Change, Mapping[str, object]]


class Journal(Protocol):
    """
    Where it is written.
    """

    def write(self, entries: Sequence[tuple[str, Mapping[str, object]]]) -> None:
        """
        Append entries: what happened, and its fields.

        Raises:
            JournalError: they could not be written.
        """


class Noting:
    """
    Tells a journal of changes that are written together.

    Args:
        journal: where it is written.
        source: operators' holds, or the group's own.

    Attributes:
        trouble: why the journal lacks what came of some; "" if it does not.
    """

    def __init__(self, journal: Journal, source: str) -> None:
        self._journal = journal
        self._source = source
        self._id = uuid.uuid4().hex[:12]
        self.trouble = ""

    def asked(self, changes: Sequence[Change]) -> None:
        """
        Say what is about to be written.

        Raises:
            JournalError: the journal cannot be written; so nothing else should be.
        """
        try:
            self._write(
                (_SAID_BEFORE[one.hold is not None], one, {}) for one in changes
            )
        except JournalError as error:
            message = (
                f"nothing was changed, for it could not be journaled: {error}. Without "
                "a journal it can be done, and no audit can judge it"
            )
            raise JournalError(message) from error

    def answered(self, done: Sequence[Acknowledged], refused: Sequence[Change]) -> None:
        """
        Say what is acknowledged, and what surely was not written.
        """
        said: list[_Said] = [
            (_SAID_AFTER[one.change.hold is not None], one.change, _times(one))
            for one in done
        ]
        said += ((_REFUSED, one, {}) for one in refused)
        try:
            self._write(said)
        except JournalError as error:
            self.trouble = str(error)

    def _write(self, said: Iterable[_Said]) -> None:
        entries = [
            (
                event,
                {
                    "id": self._id,
                    "scope": one.key.scope,
                    "owner": one.key.owner,
                    "group": one.key.group,
                    "source": self._source,
                    **more,
                },
            )
            for event, one, more in said
        ]
        if entries:
            self._journal.write(entries)


def _times(one: Acknowledged) -> Mapping[str, object]:
    # How long a hold lasts counts from the broker's time of its record.
    hold = one.change.hold
    is_told = one.at_ms is not None and one.at_ms >= 0
    written = (one.at_ms or 0) / 1000
    said: dict[str, object] = {"written": written} if is_told else {}
    if hold is not None and hold.ttl_ms is not None:
        since = written if is_told else time.time()
        said["until"] = round(since + hold.ttl_ms / 1000, 3)
    return said
