"""Describes the clients of any library by which a member reads and writes control topics."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from safeconsumer.group.barrier import Offsets
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.topics import Facts

# Seconds in which a report is acknowledged, or has failed.
WRITE_SECONDS = 10


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


class ReportProducer(Protocol):
    """A library's producer for one status topic."""

    def write(self, key: bytes, value: bytes, at_ms: int) -> int:
        """Write a report, and wait; return the broker's time of the record."""

    def close(self) -> None:
        """Drop the producer, without a wait for its end."""


class StatusTopic:
    """
    Writes a member's reports, and waits for each.

    Thread rules: one thread; :meth:`close` on any.

    Args:
        connect: makes a producer; it raises if there is no such topic.
        is_missing: tells whether an error says that there is no such topic.
        is_refused: tells whether an error says that this client may not write it.
        is_lasting: whether the producer itself reports a topic that is deleted, so that it
            is kept after other errors; otherwise each error ends it.
    """

    def __init__(
        self,
        connect: Callable[[], ReportProducer],
        is_missing: Callable[[BaseException], bool] = lambda _: False,
        is_refused: Callable[[BaseException], bool] = lambda _: False,
        *,
        is_lasting: bool = False,
    ) -> None:
        self._connect, self._is_lasting = connect, is_lasting
        self.is_missing, self.is_refused = is_missing, is_refused
        self._producer: ReportProducer | None = None
        self._is_closed = False

    def send(self, key: bytes, value: bytes, at_ms: int) -> tuple[int, float]:
        """
        Send a report, and wait until it is acknowledged, refused or abandoned.

        Args:
            key: the record's key.
            value: its value.
            at_ms: its time in milliseconds since the epoch, which the broker replaces.

        Returns:
            The record's time as the broker has it, in milliseconds, and when the record
            was sent, in seconds on the monotonic clock.
        """
        if self._producer is None and not self._is_closed:
            self._producer = self._connect()
        if self._is_closed:  # a report that comes late must leave no client behind
            self.close()
        if (producer := self._producer) is None:
            message = "its client is closed"
            raise ValueError(message)
        sent = time.monotonic()
        try:
            return producer.write(key, value, at_ms), sent
        except BaseException as error:
            if not self._is_lasting or self.is_missing(error):
                self._drop()  # the topic may be deleted: the next report shows that
            raise

    def close(self) -> None:
        """Drop the producer: every report is answered, or late already."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


@frozen(kw_only=True)
class ControlClients:
    """
    Makes the clients for the control topics, with the settings of a member's own client.

    Attributes:
        group_id: the member's group; None if it has none.
        client_id: the member's name for people; empty if it has none.
        holds_topic: returns the reader of the holds topic; it connects when it begins.
        status_topic: returns the writer of the status topic; it connects at the first
            report.
    """

    group_id: str | None
    client_id: str
    holds_topic: Callable[[str], HoldsTopic]
    status_topic: Callable[[str], StatusTopic]
