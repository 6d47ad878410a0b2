"""Describes the Kafka clients that streams need, from Java's library or another."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import RecreatedTopic, StatusTopic
from safeconsumer.group.fold import RawRecord
from safeconsumer.group.topics import Facts
from safeconsumer.holds.scope import TopicPartition


class HoldsTopic(Protocol):
    """
    Reads the holds topic for plans, each time up to the topic's end at that time.

    The first request creates the clients. After an exception the caller closes the
    reader: the next request creates new clients, and the next :meth:`begin` continues
    at the reader's position.

    Thread rules: one thread at a time.
    """

    @property
    def positions(self) -> Offsets:
        """The offset below which everything has been read; empty before the first read."""

    @property
    def is_complete(self) -> bool:
        """Whether the topic is read up to its end at the last :meth:`begin`."""

    def facts(self, until: float) -> Facts:
        """
        Return the topic's settings.

        Args:
            until: the time limit on the monotonic clock, here and below.
        """

    def begin(self, until: float) -> tuple[RecreatedTopic, ...]:
        """
        Request the topic's present end, to read up to it.

        Returns:
            The topic, if it was recreated or truncated: it is read from its beginning.
        """

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records, waiting at most this many milliseconds."""

    def close(self) -> None:
        """Close the clients; records that were read stay known. A second call is allowed."""


class Cluster(Protocol):
    """
    Answers a stream's requests about its topics.

    The object connects at the first request; ``until`` is on the monotonic clock.

    Thread rules: any thread.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that a request may raise; others are defects."""

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
    Creates the clients of one cluster and login.

    Thread rules: any thread.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that its clients raise, with OSError; others are defects."""

    def holds_topic(self, name: str) -> HoldsTopic:
        """Return a reader of the holds topic, which connects later."""

    def reason(self, topic: str, error: BaseException) -> str:
        """Return, as text for people, why a holds topic could not be read."""

    def status_topic(self, name: str) -> StatusTopic:
        """Return a writer of the status topic, which connects later."""

    def cluster(self) -> Cluster:
        """Return the cluster of the topics, which connects later."""


MakesClients = Callable[[Mapping[str, str]], Clients]
"""
Creates the clients of a stream, with properties as Java's clients name them.
"""
