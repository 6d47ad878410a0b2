"""Creates consumers and producers that are closed at the end of the test."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import uuid4

# kafka-python's own consumer can miss the metadata for a new subscription while an
# older answer is in flight. It then requests metadata again only when the last answer
# is too old, by default after 5 minutes.
_METADATA_MAX_AGE_MS = 2000

# If a test has stopped its broker, closing a consumer must not wait for
# request_timeout_ms to leave the group.
_CLOSE_MS = 2000


class Broker(Protocol):
    """The attributes and methods of a broker that the test kit needs."""

    @property
    def client_config(self) -> Mapping[str, Any]:
        """The settings with which any kafka-python client can connect to the broker."""

    @property
    def group_config(self) -> Mapping[str, Any]:
        """Short group timeouts that the broker accepts."""

    def create_topic(self, name: str, partitions: int = ...) -> None:
        """Create a topic that does not exist yet."""


class Clients:
    """Creates clients for a broker, and closes them all in :meth:`close`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._closers: list[Callable[[], object]] = []

    def topic(self, partitions: int = 4, prefix: str = "topic") -> str:
        """Create a topic with a unique name, and return the name."""
        name = f"{prefix}-{uuid4().hex[:12]}"
        self._broker.create_topic(name, partitions)
        return name

    def consumer(
        self,
        cls: Callable[..., Any],
        *topics: str,
        group: str | None = None,
        **config: Any,  # noqa: ANN401  kafka-python's own keys, passed on
    ) -> Any:  # noqa: ANN401  an object of the given class
        """
        Create a consumer that reads from the earliest record and does not auto-commit.

        The consumer's metadata requests do not create topics. Otherwise, a request that
        is answered after its topic was deleted would create the topic again.

        Args:
            cls: ``KafkaConsumer``, ``SafeConsumer`` or any callable that accepts their
                keys.
            topics: the topics to subscribe to; leave them out if the test itself
                subscribes.
            group: the id of the group; None for no group.
            config: settings that override the defaults of this method.
        """
        from safeconsumer._kafka.fixes.construction import constructed  # noqa: PLC0415  0.2 s
        from safeconsumer._kafka.of_group.no_topics import NoTopicsClient  # noqa: PLC0415  0.2 s

        timeouts = {} if group is None else self._broker.group_config
        defaults = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "kafka_client": NoTopicsClient,
            "metadata_max_age_ms": _METADATA_MAX_AGE_MS,
        }
        consumer = constructed(
            cls,
            *topics,
            **{
                **self._broker.client_config,
                **defaults,
                **timeouts,
                "group_id": group,
                **config,
            },
        )
        self._closers.append(
            lambda: consumer.close(autocommit=False, timeout_ms=_CLOSE_MS)
        )
        return consumer

    def producer(self, **config: Any) -> Any:  # noqa: ANN401  kafka-python is untyped
        """
        Create a producer that never creates topics; ``config`` overrides the defaults.

        Records that are not acknowledged within 2 s of the end of the test are dropped.
        """
        from kafka import KafkaProducer  # noqa: PLC0415  0.2 s, when needed

        from safeconsumer._kafka.of_group import producers  # noqa: PLC0415  0.2 s

        client = producers.PatientClient
        defaults = {**self._broker.client_config, "kafka_client": client}
        producer = KafkaProducer(**{**defaults, **config})
        self._closers.append(lambda: producers.end(producer, _CLOSE_MS / 1000))
        return producer

    def close(self) -> None:
        """Close all clients, the newest first, even if closing one of them fails."""
        errors: list[Exception] = []
        while self._closers:
            try:
                self._closers.pop()()
            except Exception as error:  # noqa: BLE001  the other clients must be closed too
                errors.append(error)
        if errors:
            msg = "closing the test's clients"
            raise ExceptionGroup(msg, errors)
