"""Describes the clients that a member needs for the control topics, of any library."""

from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from safeconsumer.group.barrier import Offsets
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.topics import Facts


@frozen
class RecreatedTopic:
    """
    A topic that was recreated, or lost records.

    Attributes:
        topic: its name.
        applied: the offset below which the old one was read.
        end: its end offset now.
    """

    topic: str
    applied: int
    end: int


class HoldsTopic(Protocol):
    """
    Reads the holds topic, and asks the cluster about it.

    After an exception its caller closes it; the next :meth:`begin` connects again, and
    continues at the same offset.

    Thread rules: one thread; :meth:`facts`, :meth:`ask_end` and :meth:`wake` on any.
    """

    @property
    def positions(self) -> Offsets:
        """The offset below which everything was returned, past compacted records too."""

    @property
    def is_complete(self) -> bool:
        """Whether it has read up to the end that the topic had at its beginning."""

    def facts(self) -> Facts:
        """Return the topic's settings; raise if it is missing or may not be read."""

    def begin(self) -> tuple[RecreatedTopic, ...]:
        """Connect; return the topic if it was recreated, to be read from its start."""

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """
        Return the next records, waiting at most this many milliseconds.

        The call raises if the topic was recreated, or is silent for five seconds.
        """

    def ask_end(self, answer: Callable[[Offsets | None], object]) -> object:
        """
        Ask for the topic's present end, without blocking; ``answer`` is called later.

        ``answer`` gets None if the broker did not answer, or if the topic was
        recreated, with offsets that start over.
        """

    def wake(self) -> None:
        """End the wait of a turn under way, or let it end soon."""

    def close(self) -> None:
        """Close the clients; it may be called twice."""


class StatusTopic(Protocol):
    """Writes a member's reports. Thread rules: one thread; :meth:`close` on any."""

    def send(
        self,
        key: bytes,
        value: bytes,
        at_ms: int,
        acknowledged: Callable[[int, float], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        """
        Send a report; raise, or call one of the functions on any thread.

        Args:
            key: the record's key.
            value: its value.
            at_ms: its time in milliseconds since the epoch, which the broker replaces.
            acknowledged: called with the record's time as the broker has it, in
                milliseconds, and when it was sent, in seconds on the monotonic clock.
            failed: called with the error.
        """

    def is_missing(self, error: BaseException) -> bool:
        """Return whether an error means that the topic does not exist."""

    def is_refused(self, error: BaseException) -> bool:
        """Return whether an error means that this client may not write the topic."""

    def drop(self) -> None:
        """Abandon the client, if there is one; the next report makes another."""

    def close(self, until: float) -> None:
        """Close the client, and wait until a time on the monotonic clock at most."""


class ControlClients(Protocol):
    """
    Makes the clients for the control topics, with the settings of a member's own client.

    Attributes:
        group_id: the member's group; None if it has none.
        client_id: the member's name for people; empty if it has none.
    """

    group_id: str | None
    client_id: str

    def holds_topic(self, name: str) -> HoldsTopic:
        """Return the reader of the holds topic; it connects when it begins."""

    def status_topic(self, name: str) -> StatusTopic:
        """Return the writer of the status topic; it connects at the first report."""
