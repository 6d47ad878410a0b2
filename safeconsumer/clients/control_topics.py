"""Tracks how far a client of any library has read the holds topic."""

import time

from attrs import frozen

from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import RecreatedTopic

# Seconds without reaching a known end after which the topic counts as unreachable;
# seconds between two requests for its end; and seconds between two checks whether it
# was recreated.
SILENCE = 5.0
ASK_EVERY = 1.0
COMPARE_EVERY = 30.0


class TopicLostError(Exception):
    """The holds topic cannot be read any further, so the reader has to start again."""


@frozen
class Beginning:
    """
    Where to start reading the holds topic.

    Attributes:
        at: the first offset to read.
        end: the topic's end.
        remade: the topic, if it was recreated.
    """

    at: int
    end: int
    remade: tuple[RecreatedTopic, ...] = ()


class Progress:
    """
    Tracks how far the holds topic was read, and whether it is still the same topic.

    A reader calls :meth:`begin` and :meth:`note_read` as its last step, so that after
    an error it restarts at the first record that it has not returned.

    Thread rules: any thread may call :meth:`beginning`, :meth:`note_end` and
    :meth:`lose`; only the reader's thread may call the rest.

    Args:
        name: the topic.

    Attributes:
        at: the offset below which all records were returned.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.at = self._end = 0
        self._waited = self._asked_at = self._compared_at = 0.0
        self._lost: TopicLostError | None = None

    @property
    def offsets(self) -> Offsets:
        """The offset below which all records were returned, by partition."""
        return {(self._name, 0): self.at}

    @property
    def is_complete(self) -> bool:
        """Whether the reader has reached the end that the topic had at :meth:`begin`."""
        return self.at >= self._end

    @property
    def is_lost(self) -> bool:
        """Whether the topic was recreated, or has lost unread records."""
        return self._lost is not None

    def beginning(self, first: int, end: int, *, is_other: bool) -> Beginning:
        """
        Return where to start: at the last position or at the first record.

        Args:
            first: the topic's first offset.
            end: the topic's end.
            is_other: whether the topic is known to be a different one than before.
        """
        if is_other or end < self.at:
            return Beginning(first, end, (RecreatedTopic(self._name, self.at, end),))
        return Beginning(max(self.at, first), end)

    def begin(self, beginning: Beginning) -> tuple[RecreatedTopic, ...]:
        """Start to read at the given offset; return the topic if it was recreated."""
        self.at, self._end = beginning.at, beginning.end
        self._waited, self._lost = 0.0, None
        self._asked_at = self._compared_at = time.monotonic()
        return beginning.remade

    def note_read(self, began: float, most: float, at: int) -> None:
        """
        Record the end of a read whose records are about to be returned.

        Args:
            began: when the read started.
            most: the maximum seconds for which the read waited.
            at: the offset after the records that are about to be returned.

        Raises:
            TopicLostError: the topic was recreated, or brokers have not answered for
                too long. The records of this read must not be returned; the reader
                reads them again after its restart.
        """
        # Time in which the caller was busy or this process did not run does not count.
        self._waited += min(time.monotonic() - began, most)
        if self._lost is not None:
            raise self._lost
        if self._waited > SILENCE:
            message = f"no answer about {self._name} for {SILENCE:.0f} s"
            raise TopicLostError(message)
        self.at = at

    def is_time_to_ask(self) -> bool:
        """Return whether to request the topic's end now; True at most once a second."""
        if (now := time.monotonic()) - self._asked_at < ASK_EVERY:
            return False
        self._asked_at = now
        return True

    def is_time_to_compare(self) -> bool:
        """Return whether it is time to check for a recreated topic; True every 30 s."""
        if (now := time.monotonic()) - self._compared_at < COMPARE_EVERY:
            return False
        self._compared_at = now
        return True

    def note_end(self, asked_at: int, end: int) -> None:
        """Handle the topic's end, given the offset reached when it was requested."""
        if end < asked_at:
            self.lose("lost its end, or was recreated")
        elif self.at >= end:
            # All records that existed when the request was sent have been read.
            self._waited = 0.0

    def lose(self, why: str) -> None:
        """Record that the topic was lost; the next :meth:`note_read` raises an error."""
        self._lost = TopicLostError(f"{self._name} {why}")
