"""
Writes to a journal which holds are about to be placed and lifted, and the result.

A process may be killed in between, and an answer may be lost. So the request is written
first, and then its result: if the result is missing, it is unknown whether the change
was made.
"""

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from safeconsumer.errors import JournalError
from safeconsumer.group.publisher import Acknowledged, Change

_SAID_BEFORE = {True: "group-asked", False: "group-lift"}
_SAID_AFTER = {True: "group-hold", False: "group-lifted"}
_ASKED = frozenset(_SAID_BEFORE.values())
_REFUSED = "group-refused"

_Said = tuple[str, Change, Mapping[str, object]]


class Journal(Protocol):
    """The journal to which entries are written."""

    def write(
        self,
        entries: Sequence[tuple[str, Mapping[str, object]]],
        cluster: str | None,
    ) -> None:
        """
        Append entries.

        Args:
            entries: pairs of what happened, and its fields.
            cluster: the id of the cluster in which it happened; None if it has none.

        Raises:
            JournalError: they could not be written, or the journal is another
                cluster's.
        """

    def check(self, cluster: str | None = None) -> None:
        """
        Check that entries could be appended now.

        Args:
            cluster: the id of the cluster of these entries; None for any.

        Raises:
            JournalError: as :meth:`write`.
        """


class Noting:
    """
    Writes changes that are made together to a journal.

    Args:
        journal: the journal.
        source: operators' holds, or the group's own.
        cluster: the id of the cluster; None if it has none.

    Attributes:
        trouble: why the journal lacks some results; "" if it lacks none.
    """

    def __init__(self, journal: Journal, source: str, cluster: str | None) -> None:
        self._journal = journal
        self._cluster = cluster
        self._source = source
        self._id = uuid.uuid4().hex[:12]
        self.trouble = ""

    def asked(self, changes: Sequence[Change]) -> None:
        """
        Write down what is about to be changed.

        Raises:
            JournalError: the journal cannot be written; so the changes should not be
                made.
        """
        try:
            self._write(
                (_SAID_BEFORE[one.hold is not None], one, {}) for one in changes
            )
        except JournalError as error:
            message = (
                f"nothing was changed, because it could not be journaled: {error}. "
                "Without a journal it can be done, but no audit can judge it"
            )
            raise JournalError(message) from error

    def answered(self, done: Sequence[Acknowledged], refused: Sequence[Change]) -> None:
        """
        Write down what was acknowledged, and what certainly was not written.

        Raises:
            KeyboardInterrupt: it was interrupted while it waited.
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
        except BaseException as error:
            self.trouble = str(error) or "interrupted"
            raise

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
                    **(_limit(one) if event in _ASKED else {}),
                    **more,
                },
            )
            for event, one, more in said
        ]
        if entries:
            self._journal.write(entries, self._cluster)


def _limit(change: Change) -> Mapping[str, object]:
    # Counted from its record, which comes a little later, if it comes.
    hold = change.hold
    if hold is None or hold.ttl_ms is None:
        return {}
    return {"until": round(time.time() + hold.ttl_ms / 1000, 3)}


def _times(one: Acknowledged) -> Mapping[str, object]:
    # How long a hold lasts counts from the time of its record, and the broker says
    # whose time that is: its own shows whether this host's clock can be trusted.
    hold = one.change.hold
    is_told = one.at_ms is not None and one.at_ms >= 0
    at = (one.at_ms or 0) / 1000
    said: dict[str, object] = {"offset": one.offset}
    if is_told:
        said["written"] = at if one.is_dated else None
    if hold is not None and hold.ttl_ms is not None:
        said["until"] = round((at if is_told else time.time()) + hold.ttl_ms / 1000, 3)
    return said
