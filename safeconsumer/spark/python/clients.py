"""Creates kafka-python's clients for control topics, from Java's properties."""

from collections.abc import Mapping

from safeconsumer.errors.base import ClientPropertyError, SparkSettingError
from safeconsumer.group import clients
from safeconsumer.group.control_clients import StatusTopic
from safeconsumer.spark.python import settings
from safeconsumer.spark.python.topics import Topics


class PythonClients:
    """
    A :class:`~safeconsumer.spark.clients.Clients` on kafka-python.

    Args:
        topics: the object with which the planner queries the stream's topics.
        properties: properties of Java's clients; those for fetching are left out.

    Raises:
        ClientPropertyError: a property is refused, or has no equivalent in
            kafka-python.
    """

    errors = Topics.errors

    def __init__(self, topics: Topics, properties: Mapping[str, str]) -> None:
        self._topics = topics
        try:
            self._base = settings.connection(properties)
        except SparkSettingError as error:
            raise ClientPropertyError(*error.args) from error

    def holds_topic(self, name: str) -> clients.StockHoldsTopic:
        """Return a reader of the holds topic, which connects later."""
        return clients.StockHoldsTopic(self._base, name)

    def reason(self, topic: str, error: BaseException) -> str:  # noqa: ARG002 - one shape
        """Return why a holds topic could not be read, with advice if access was refused."""
        return str(error) or type(error).__name__

    def status_topic(self, name: str) -> StatusTopic:
        """Return a writer of the status topic, which connects later."""
        return clients.status_topic(self._base, name)

    def cluster(self) -> Topics:
        """Return ``topics``, which answers from the results of the planner's queries."""
        return self._topics
