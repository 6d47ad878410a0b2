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

_Entry = tuple[str, Change, Mapping[str, object]]


class Journal(Protocol):
    """The journal to which entries are written; its calls may raise a JournalError."""

    def write(
        self,
        entries: Sequence[tuple[str, Mapping[str, object]]],
        cluster: str | None,
    ) -> None:
        """Append entries about a cluster: what happened, each with its fields."""

    def check(self, cluster: str | None = None) -> None:
        """Check that entries about a cluster could be appended now."""


class Noting:
    """
    Writes changes that are made together to a journal.

    Args:
        journal: the journal.
        source: operators' holds, or the group's own.
        cluster: the id of the cluster; None if it has none.
    """

    def __init__(self, journal: Journal, source: str, cluster: str | None) -> None:
        self._journal = journal
        self._cluster = cluster
        self._source = source
        self._id = uuid.uuid4().hex[:12]

    def asked(self, changes: Sequence[Change]) -> None:
        """
        Write down what is about to be changed.

        Raises:
            JournalError: the journal cannot be written; so the changes should not be
                made.
        """
        try:
            self._write(
                ("group-lift" if one.hold is None else "group-asked", one, _limit(one))
                for one in changes
            )
        except JournalError as error:
            message = (
                f"nothing was changed, because it could not be journaled: {error}. "
                "Without a journal it can be done, but no audit can judge it"
            )
            raise JournalError(message) from error

    def answered(self, done: Sequence[Acknowledged], refused: Sequence[Change]) -> str:
        """
        Write down what was acknowledged, and what certainly was not written.

        Returns:
            Why the journal lacks it; "" if it does not.
        """
        entries: list[_Entry] = [
            (
                "group-lifted" if one.change.hold is None else "group-hold",
                one.change,
                _times(one),
            )
            for one in done
        ]
        entries += (("group-refused", one, {}) for one in refused)
        try:
            self._write(entries)
        except JournalError as error:
            return str(error)
        return ""

    def _write(self, entries: Iterable[_Entry]) -> None:
        lines = [
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
            for event, one, more in entries
        ]
        if lines:
            self._journal.write(lines, self._cluster)


def _limit(change: Change) -> Mapping[str, object]:
    # Counted from its record, which comes a little later, if it comes.
    hold = change.hold
    if hold is None or hold.ttl_ms is None:
        return {}
    return {"until": round(time.time() + hold.ttl_ms / 1000, 3)}


def _times(one: Acknowledged) -> Mapping[str, object]:
    # How long a hold lasts counts from the time of its record, and the broker says
    # whose time that is: its own shows whether this host's clock can be trusted.
    fields: dict[str, object] = {"offset": one.offset}
    if one.at is not None:
        fields["written"] = one.at if one.is_dated else None
    hold = one.change.hold
    if hold is not None and hold.ttl_ms is not None:
        begins = time.time() if one.at is None else one.at
        fields["until"] = round(begins + hold.ttl_ms / 1000, 3)
    return fields
