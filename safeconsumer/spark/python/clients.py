"""Makes kafka-python's clients for control topics, from Java's properties."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from safeconsumer.errors.base import ClientPropertyError, SparkSettingError
from safeconsumer.group import clients, described_topics
from safeconsumer.group.control_clients import RecreatedTopic, StatusTopic
from safeconsumer.group.fold import RawRecord, raw_record
from safeconsumer.group.topic_reader import TopicReader
from safeconsumer.group.topics import Facts
from safeconsumer.spark.python import settings
from safeconsumer.spark.python.topics import Topics

# Milliseconds; a poll ends at the first record, so this only limits how late a read ends.
_POLL_MS = 20


class PythonClients:
    """
    A :class:`~safeconsumer.spark.clients.Clients` on kafka-python.

    Args:
        topics: the topics of the stream, as its planner sees them.
        properties: properties of Java's clients; those of reading are left out.

    Raises:
        ClientPropertyError: a property is refused, or cannot be translated.
    """

    errors = Topics.errors

    def __init__(self, topics: Topics, properties: Mapping[str, str]) -> None:
        self._topics = topics
        try:
            self._base = settings.connection(properties)
        except SparkSettingError as error:
            raise ClientPropertyError(*error.args) from error

    def holds_topic(self, name: str) -> "PythonHoldsTopic":
        """Return a reader of the holds topic; it connects to nothing yet."""
        return PythonHoldsTopic(self._base, name)

    def status_topic(self, name: str) -> StatusTopic:
        """Return a writer of the status topic; it connects to nothing yet."""
        return clients.status_topic(self._base, name)

    def cluster(self) -> Topics:
        """Return the topics; they answer with the results of the planner's queries."""
        return self._topics


class PythonHoldsTopic:
    """
    A :class:`~safeconsumer.spark.clients.HoldsTopic` on kafka-python.

    A separate connection queries the ends: an idle fetch keeps the other one busy.
    """

    def __init__(self, base: Mapping[str, Any], name: str) -> None:
        self._base, self._name = base, name
        self._reader = TopicReader(lambda: clients.reader(base))
        self._queries = clients.Queries(base)
        self._is_connected = False

    @property
    def position(self) -> int | None:
        """The offset below which everything was read; None: nothing yet."""
        return next(iter(self._reader.positions.values()), None)

    @property
    def is_complete(self) -> bool:
        """Whether it has read up to the topic's end at the last beginning."""
        return self._reader.is_complete

    def connect(self) -> bool:
        """Return whether the next requests make clients: there are none."""
        was_connected, self._is_connected = self._is_connected, True
        return not was_connected

    def facts(self, until: float) -> Facts:  # noqa: ARG002 - clients have timeouts of their own
        """Return the topic's facts; raise if it is missing or may not be read."""
        return described_topics.readable_facts(self._queries.admin, self._name)

    def begin(self, until: float) -> RecreatedTopic | None:  # noqa: ARG002 - as above
        """Ask for the topic's end; return the topic if it was recreated, or truncated."""
        consumer = self._queries.consumer
        found = self._reader.begin([self._name], query_consumer=consumer)
        return found[0] if found else None

    def read(self, until: float) -> Sequence[RawRecord]:
        """Return the next records, once they have come."""
        left_ms = 1000 * max(0.0, until - time.monotonic())
        polled = self._reader.turn(min(_POLL_MS, left_ms))
        return [raw_record(one) for records in polled.values() for one in records]

    def reason(self, error: BaseException) -> str:
        """Return why the topic could not be read; after a broker's refusal, with advice."""
        return str(error) or type(error).__name__

    def close(self) -> None:
        """Close the clients; the records that were read stay known."""
        self._is_connected = False
        self._reader.close()
        self._queries.close()
