"""Makes kafka-python's clients for control topics, from Java's properties."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.admin import KafkaAdminClient

from safeconsumer.consumer import SafeConsumer
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
_CLOSE_MS = 200


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
        self._query_consumer: SafeConsumer | None = None
        self._admin: KafkaAdminClient | None = None

    @property
    def position(self) -> int | None:
        """The offset below which everything was read; None: nothing yet."""
        return next(iter(self._reader.positions.values()), None)

    @property
    def is_complete(self) -> bool:
        """Whether it has read up to the topic's end at the last beginning."""
        return self._reader.is_complete

    def connect(self) -> bool:
        """Make the clients, if there are none; return whether they were made."""
        if self._query_consumer is not None:
            return False
        self._admin = self._admin or clients.admin(self._base)
        self._query_consumer = clients.reader(self._base)
        return True

    def facts(self, until: float) -> Facts:  # noqa: ARG002 - clients have timeouts of their own
        """Return the topic's facts; raise if it is missing or may not be read."""
        described_topics.require_readable(self._admin, self._name)
        (found,) = described_topics.describe(self._admin, [self._name])
        return found

    def begin(self, until: float) -> RecreatedTopic | None:  # noqa: ARG002 - as above
        """Ask for the topic's end; return the topic if it was recreated, or truncated."""
        found = self._reader.begin([self._name], query_consumer=self._query_consumer)
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
        query_consumer, self._query_consumer = self._query_consumer, None
        admin, self._admin = self._admin, None
        self._reader.close()
        if query_consumer is not None:
            query_consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)
        if admin is not None:
            admin.close()
