"""Defines library-independent interfaces for reading and writing control topics."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from attrs import frozen

from safeconsumer.group.barrier import Offsets
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.topics import Facts

# Seconds within which a report must be acknowledged; after that, it counts as failed.
WRITE_SECONDS = 10


@frozen
class RecreatedTopic:
    """
    A topic that was recreated or has lost records.

    Attributes:
        topic: its name.
        applied: the offset up to which the old topic was read.
        end: its current end offset.
    """

    topic: str
    applied: int
    end: int


class HoldsTopic(Protocol):
    """
    Reads the holds topic, and queries the cluster about it.

    After an exception, the caller closes the object; the next :meth:`begin` connects
    again and resumes at the same offset.

    Thread rules: only one thread may use this; any thread may call :meth:`facts`,
    :meth:`ask_end` and :meth:`wake`.
    """

    @property
    def positions(self) -> Offsets:
        """The offset below which all existing records were returned."""

    @property
    def is_complete(self) -> bool:
        """Whether the reader has reached the end that the topic had at :meth:`begin`."""

    def facts(self) -> Facts:
        """Return the topic's settings; raise if the topic is missing or may not be read."""

    def begin(self) -> tuple[RecreatedTopic, ...]:
        """Connect; return the topic if it was recreated and is now read from its start."""

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """
        Return the next records, waiting for at most ``wait_ms`` milliseconds.

        The call raises if the topic was recreated, or if the broker has not answered for
        five seconds.
        """

    def ask_end(self, answer: Callable[[Offsets | None], object]) -> object:
        """
        Request the topic's current end offset; ``answer`` is called with it later.

        The call does not block. ``answer`` gets None if the broker did not answer, or
        if the topic was recreated and its offsets started over.
        """

    def wake(self) -> None:
        """Make a running :meth:`turn` stop waiting, immediately or soon."""

    def close(self) -> None:
        """Close the clients; a second call is allowed."""


class ReportProducer(Protocol):
    """A library's producer for one status topic."""

    def write(self, key: bytes, value: bytes, at_ms: int) -> int:
        """Write a report, wait for its acknowledgement, and return the broker's timestamp."""

    def close(self) -> None:
        """Drop the producer without waiting until it has stopped."""


class StatusTopic:
    """
    Writes a member's reports, and waits for each acknowledgement.

    Thread rules: only one thread may use this; any thread may call :meth:`close`.

    Args:
        connect: creates a producer; raises if the topic does not exist.
        is_missing: returns whether an error means that the topic does not exist.
        is_refused: returns whether an error means that this client may not write to the
            topic.
        is_lasting: whether the producer itself notices a deleted topic. Such a producer
            is kept after other errors; any other producer is dropped after every error.
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
            at_ms: its timestamp in milliseconds since the epoch, which the broker
                replaces.

        Returns:
            The timestamp that the broker gave the record, in milliseconds, and the time
            when the record was sent, in seconds on the monotonic clock.
        """
        if self._producer is None and not self._is_closed:
            self._producer = self._connect()
        if self._is_closed:  # a late report must not leave a client open
            self.close()
        if (producer := self._producer) is None:
            message = "its client is closed"
            raise ValueError(message)
        sent = time.monotonic()
        try:
            return producer.write(key, value, at_ms), sent
        except BaseException as error:
            if not self._is_lasting or self.is_missing(error):
                self._drop()  # the next report shows whether the topic was deleted
            raise

    def close(self) -> None:
        """Drop the producer; a report that is not acknowledged by now is abandoned."""
        self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


@frozen(kw_only=True)
class ControlClients:
    """
    Creates the clients for the control topics from the settings of a member's client.

    Attributes:
        group_id: the member's group; None if it has none.
        client_id: the member's client id, for people; empty if it has none.
        holds_topic: returns a reader for the holds topic, which connects in
            ``begin()``.
        status_topic: returns a writer for the status topic, which connects at the first
            report.
    """

    group_id: str | None
    client_id: str
    holds_topic: Callable[[str], HoldsTopic]
    status_topic: Callable[[str], StatusTopic]
