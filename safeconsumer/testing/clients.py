"""Makes consumers and producers that are closed when the test is over."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol
from uuid import uuid4

# kafka-python's own consumer can miss the metadata of a new subscription while an
# answer is on its way, and asks again when that is too old: by default in 5 minutes.
_METADATA_MAX_AGE_MS = 2000

# A test that stopped its broker must not wait for request_timeout_ms to leave its group.
_CLOSE_MS = 2000


class Broker(Protocol):
    """The attributes and methods that the kit needs of any broker."""

    @property
    def client_config(self) -> Mapping[str, Any]:
        """The settings by which any kafka-python client reaches it."""

    @property
    def group_config(self) -> Mapping[str, Any]:
        """Short group timeouts that it accepts."""

    def create_topic(self, name: str, partitions: int = ...) -> None:
        """Create a topic that does not exist."""


class Clients:
    """Make clients of one broker, and close them all by :meth:`close`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._closers: list[Callable[[], object]] = []

    def topic(self, partitions: int = 4, prefix: str = "topic") -> str:
        """Create a topic whose name no other test has, and return the name."""
        name = f"{prefix}-{uuid4().hex[:12]}"
        self._broker.create_topic(name, partitions)
        return name

    def consumer(
        self,
        cls: Callable[..., Any],
        *topics: str,
        group: str | None = None,
        **config: Any,  # noqa: ANN401  kafka-python's own keys, passed on
    ) -> Any:  # noqa: ANN401  an object of the class that was given
        """
        Make a consumer that reads from the earliest record and does not auto-commit.

        Its requests for metadata create no topics: one that is answered after its topic
        was deleted would bring the topic back.

        Args:
            cls: ``KafkaConsumer``, ``SafeConsumer`` or anything that takes their keys.
            topics: the topics to subscribe to; without any the test subscribes.
            group: the group's id; None means no group.
            config: wins over every default made here.
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
        Make a producer that creates no topics; ``config`` wins over the defaults here.

        Records without an answer 2 s after the test are dropped.
        """
        from kafka import KafkaProducer  # noqa: PLC0415  0.2 s, when needed

        from safeconsumer._kafka.of_group import producers  # noqa: PLC0415  0.2 s

        client = producers.PatientClient
        defaults = {**self._broker.client_config, "kafka_client": client}
        producer = KafkaProducer(**{**defaults, **config})
        self._closers.append(lambda: producers.end(producer, _CLOSE_MS / 1000))
        return producer

    def close(self) -> None:
        """Close every client made here, the newest first, even if one of them fails."""
        errors: list[Exception] = []
        while self._closers:
            try:
                self._closers.pop()()
            except Exception as error:  # noqa: BLE001  the others must be closed too
                errors.append(error)
        if errors:
            msg = "closing the test's clients"
            raise ExceptionGroup(msg, errors)
