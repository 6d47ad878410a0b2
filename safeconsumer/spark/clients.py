"""Describes the Kafka clients that streams need, whichever library provides them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import RecreatedTopic, StatusTopic
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.topics import Facts
from safeconsumer.holds.scope import TopicPartition


class HoldsTopic(Protocol):
    """
    Reads the holds topic for each plan, up to the end that the topic has at that time.

    The first request creates the clients. After an exception the caller must close the
    reader. The next request then creates new clients, and the next :meth:`begin`
    continues at the reader's position.

    Thread rules: only one thread at a time may use this.
    """

    @property
    def positions(self) -> Offsets:
        """The offset up to which each partition was read; empty before the first read."""

    @property
    def is_complete(self) -> bool:
        """Whether the topic was read up to the end that :meth:`begin` last requested."""

    def facts(self, until: float) -> Facts:
        """
        Return the topic's settings.

        Args:
            until: the time limit on the monotonic clock, as in :meth:`begin`.
        """

    def begin(self, until: float) -> tuple[RecreatedTopic, ...]:
        """
        Request the topic's current end, up to which :meth:`turn` then reads.

        Returns:
            The topic, if it was recreated or truncated and is therefore read from the
            beginning.
        """

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records; wait for them for at most ``wait_ms`` milliseconds."""

    def close(self) -> None:
        """Close the clients; :attr:`positions` stay as they are. A second call is allowed."""


class Cluster(Protocol):
    """
    Answers a stream's requests about its topics.

    The object connects at the first request. The argument ``until`` is a time limit on
    the monotonic clock.

    Thread rules: any thread may use this.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that a request may raise; any other exception is a defect."""

    def firsts(
        self, partitions: Collection[TopicPartition], until: float
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets of the partitions that exist and have a leader."""

    def topic_ids(self, names: Collection[str], until: float) -> Mapping[str, str]:
        """Return the ids of the topics that exist and have an id."""

    def close(self) -> None:
        """Close the client; a second call is allowed."""


class Clients(Protocol):
    """
    Creates the clients for one cluster, with one set of credentials.

    Thread rules: any thread may use this.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that its clients raise, with OSError; any other is a defect."""

    def holds_topic(self, name: str) -> HoldsTopic:
        """Return a reader of the holds topic, which connects later."""

    def reason(self, topic: str, error: BaseException) -> str:
        """Return a human-readable reason why a holds topic could not be read."""

    def status_topic(self, name: str) -> StatusTopic:
        """Return a writer of the status topic, which connects later."""

    def cluster(self) -> Cluster:
        """Return a client for queries about topics, which connects later."""


MakesClients = Callable[[Mapping[str, str]], Clients]
"""
Creates the clients of a stream, with properties as Java's clients name them.
"""
