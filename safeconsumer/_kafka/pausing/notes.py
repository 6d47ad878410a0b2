"""Sends commits with the journal's note, or without it if a broker refuses the note."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from kafka.errors import InvalidCommitOffsetSizeError, OffsetMetadataTooLargeError

from safeconsumer._kafka.network import new_future
from safeconsumer._kafka.pausing.commits import OwnedOffsets

log = logging.getLogger("safeconsumer.journal")

_REFUSED = OffsetMetadataTooLargeError, InvalidCommitOffsetSizeError


class Notes:
    """
    Sends the commits of a consumer that keeps a journal.

    A broker refuses metadata that is longer than its ``offset.metadata.max.bytes``. It
    also refuses a commit that is larger than a record of ``__consumer_offsets`` may be.
    In both cases the commit is sent again without the note. If a later commit had been
    sent by then, the group's offset would go back. Therefore, if a commit's note or
    metadata is longer than any that the broker has accepted so far, the next commit
    waits for the response. This happens for the first commit, but rarely later, because
    a note becomes one digit longer only when the journal has ten times as many entries.

    Thread rules: only the IO thread uses this object.
    """

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - kafka-python is untyped
        self._net = net
        # A future that is done as soon as the next commit may be sent.
        self._last: Any = new_future(net).success(None)
        # The sizes, in bytes, of the longest accepted note and of the longest accepted
        # metadata of a commit.
        self._accepted = 0, 0
        self._is_refused = False

    @property
    def last(self) -> Any:  # noqa: ANN401 - as above
        """A future that is done as soon as all commits so far have been sent."""
        return self._last

    def forget(self) -> None:
        """Forget the accepted sizes, because a different broker receives later commits."""
        self._accepted = 0, 0

    async def send(
        self, commit: OwnedOffsets, send: Callable[[], Awaitable[Any]]
    ) -> Any:  # noqa: ANN401 - upstream's
        """
        Send a commit in its turn, with its note if the broker accepts the note.

        Args:
            commit: the commit; its content may change until it is sent.
            send: a function that sends the commit, or raises if that is no longer
                allowed.
        """
        before, self._last = self._last, new_future(self._net)
        mine = self._last
        try:
            if not before.is_done:
                await before
            if self._is_refused or not commit.without_metadata():
                mine.success(None)
                return await send()
            size = commit.metadata_sizes()
            if all(one <= most for one, most in zip(size, self._accepted, strict=True)):
                mine.success(None)
            return await self._try(commit, send)
        finally:
            if not mine.is_done:
                mine.success(None)

    async def _try(
        self, commit: OwnedOffsets, send: Callable[[], Awaitable[Any]]
    ) -> Any:  # noqa: ANN401 - upstream's
        try:
            with commit.with_note():
                sent = await send()
        except _REFUSED as error:
            sent = await send()
            self._is_refused = True
            log.warning(
                "the broker refuses the note of %d bytes with which commits name the "
                "journal, because of offset.metadata.max.bytes or the size of a "
                "commit; later commits have no note, and audit cannot judge where the "
                "next owner starts: %s",
                len(commit.note.encode()),
                error,
            )
        else:
            size = zip(self._accepted, commit.metadata_sizes(), strict=True)
            longest, whole = map(max, size)
            self._accepted = longest, whole
        return sent
