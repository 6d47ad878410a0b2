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
    Reads the holds topic for plans, each time up to the topic's end at that moment.

    The first request makes its clients. After an exception its caller closes it: the
    next request makes others, and the next :meth:`begin` continues at its position.

    Thread rules: one thread at a time.
    """

    @property
    def positions(self) -> Offsets:
        """The offset below which everything was read; empty if nothing was read yet."""

    @property
    def is_complete(self) -> bool:
        """Whether it has read up to the topic's end at the last :meth:`begin`."""

    def facts(self, until: float) -> Facts:
        """
        Return the topic's settings.

        Args:
            until: the end of its patience on the monotonic clock, here and below.
        """

    def begin(self, until: float) -> tuple[RecreatedTopic, ...]:
        """
        Ask for the topic's present end, to read up to it.

        Returns:
            The topic, if it was recreated or cut: it is read from its beginning.
        """

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records, waiting at most this many milliseconds."""

    def close(self) -> None:
        """Close the clients; read records stay known. It may be called twice."""


class Cluster(Protocol):
    """
    Answers a stream's questions about its topics.

    The object connects at the first request; ``until`` is on the monotonic clock.

    Thread rules: any thread.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions with which it fails; others are defects."""

    def firsts(
        self, partitions: Collection[TopicPartition], until: float
    ) -> Mapping[TopicPartition, int]:
        """Return the first offsets of the partitions that exist and have a leader."""

    def topic_ids(self, names: Collection[str], until: float) -> Mapping[str, str]:
        """Return the ids of the topics that exist and have one."""

    def close(self) -> None:
        """Close the client; it may be called twice."""


class Clients(Protocol):
    """
    Makes the clients of one cluster and login.

    Thread rules: any thread.
    """

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions with which its clients fail, OSError too; others are defects."""

    def holds_topic(self, name: str) -> HoldsTopic:
        """Return a reader of the holds topic; it connects to nothing yet."""

    def reason(self, topic: str, error: BaseException) -> str:
        """Return, as text for people, why a holds topic could not be read."""

    def status_topic(self, name: str) -> StatusTopic:
        """Return a writer of the status topic; it connects to nothing yet."""

    def cluster(self) -> Cluster:
        """Return the cluster of the topics; it connects to nothing yet."""


MakesClients = Callable[[Mapping[str, str]], Clients]
"""
Makes the clients of a stream, with properties as Java's clients name them.
"""
