"""Creates the kafka-python clients that members and commands use for the control topics."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, Self

import kafka.errors as kafka_errors
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer._kafka.fixes.construction import constructed
from safeconsumer._kafka.fixes.unclosed import ClosingClient
from safeconsumer._kafka.of_group import producers
from safeconsumer._kafka.of_group.control_reader import EndOffsets
from safeconsumer._kafka.of_group.no_topics import NoTopicsClient
from safeconsumer._kafka.of_group.producers import (
    AskingOnceProducer,
    PatientClient,
    UntracedProducer,
)
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors.base import ControlSettingError
from safeconsumer.group import described_topics
from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import (
    WRITE_SECONDS,
    ControlClients,
    RecreatedTopic,
    StatusTopic,
)
from safeconsumer.group.fold import RawRecord, raw_record
from safeconsumer.group.topic_reader import TopicReader
from safeconsumer.group.topics import Facts

# The settings for connection and authentication; others are not copied.
_CONNECTION = (
    "api_version",
    "bootstrap_servers",
    "connections_max_idle_ms",
    "proxy_url",
    "receive_buffer_bytes",
    "reconnect_backoff_max_ms",
    "reconnect_backoff_ms",
    "retry_backoff_ms",
    "send_buffer_bytes",
    "socket_options",
    "socks5_proxy",
)
_PREFIXES = ("sasl_", "security_", "ssl_")

# If an acknowledgement is lost and the client retries the record, the retry silently
# undoes any later write of another client to the same key. Idempotence would prevent
# that, but brokers before Kafka 2.8 require a separate permission for it.
WRITING: Mapping[str, Any] = {
    "acks": "all",
    "enable_idempotence": False,
    "retries": 0,
    "transactional_id": None,
}

# Users must not set these, because control clients do not join a group, and read and
# write plain bytes.
_NOT_TO_CHOOSE = frozenset(
    {
        *("allow_auto_create_topics", "auto_offset_reset", "enable_auto_commit"),
        *("group_id", "group_instance_id", "kafka_client"),
        *("key_deserializer", "key_serializer"),
        *("value_deserializer", "value_serializer"),
        *WRITING,
    }
)
_KNOWN = frozenset(
    name
    for one in (KafkaAdminClient, KafkaProducer, KafkaConsumer)
    for name in one.DEFAULT_CONFIG
)

# Milliseconds: neither a person nor a member should wait long for a dead broker.
BOOTSTRAP_MS = 5_000
_RECONNECT_MAX_MS = 2_000
_ASK_TIMEOUT_MS = 5_000
_CLOSE_MS = 500
# Errors after which the next report is not expected to succeed.
_REFUSED = (
    kafka_errors.ClusterAuthorizationFailedError,
    kafka_errors.TopicAuthorizationFailedError,
)

# Milliseconds, for an admin client that queries one broker after another. The other
# brokers' answers must not become too old while it waits for a silent broker.
HASTY: Mapping[str, Any] = {
    "reconnect_backoff_max_ms": _RECONNECT_MAX_MS,
    "request_timeout_ms": 3_000,
}


def check(names: Iterable[str]) -> None:
    """
    Check that users may set all settings with these names for control clients.

    kafka-python checks the values only when a client is created. If it rejects a value,
    the control topics count as unavailable.

    Raises:
        ControlSettingError: kafka-python does not know a name, or a user must not set it.
    """
    for name in names:
        if name in _NOT_TO_CHOOSE:
            message = f"client_configs: {name} cannot be set for control clients"
            raise ControlSettingError(message)
        if name not in _KNOWN:
            near = get_close_matches(str(name), _KNOWN, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            message = f"client_configs: kafka-python has no setting {name!r}{hint}"
            raise ControlSettingError(message)


def connection(
    configs: Mapping[str, Any], more: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """
    Return a control client's settings, taken from a consumer's configuration.

    Args:
        configs: the consumer's configuration.
        more: settings that differ for control clients, already checked by ``Control``.
        name: the suffix of the ``client_id``.
    """
    known = KafkaConsumer.DEFAULT_CONFIG
    kept = {
        key: value
        for key, value in configs.items()
        if (key in _CONNECTION or key.startswith(_PREFIXES))
        and not (key in known and value == known[key])
    }
    client_id = configs.get("client_id") or "safeconsumer"
    return {
        "reconnect_backoff_max_ms": _RECONNECT_MAX_MS,
        **kept,
        "client_id": f"{client_id}-{name}",
        **more,
    }


def reader(base: Mapping[str, Any]) -> SafeConsumer:
    """Create a client that reads control topics, or requests first and end offsets."""
    defaults = {
        "kafka_client": NoTopicsClient,
        "auto_offset_reset": "none",
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
        "enable_auto_commit": False,
        "fetch_min_bytes": 1,
        "max_partition_fetch_bytes": 4 << 20,
        "max_poll_records": 10_000,
        "metadata_max_age_ms": 30_000,
        "metrics_enabled": False,  # nobody can read this client's metrics
        "group_id": None,
    }
    return SafeConsumer(log=False, **{**defaults, **base})


def producer(
    base: Mapping[str, Any],
    timeout: float,
    kind: type[KafkaProducer] = UntracedProducer,
) -> KafkaProducer:
    """
    Create a client that writes control records, each acknowledged by all replicas.

    The client sends each record once, because only the caller knows whether a record
    may be sent again. Records are compressed, because a report may name thousands of
    partitions.

    Args:
        base: the settings for the connection.
        timeout: seconds after which a write has failed.
        kind: the class of the client.
    """
    timeout_ms = int(timeout * 1000)
    defaults = {
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
        "compression_type": "gzip",
        "kafka_client": PatientClient,
        "delivery_timeout_ms": timeout_ms,
        "linger_ms": 0,
        "max_block_ms": timeout_ms,
        "max_in_flight_requests_per_connection": 1,
        "metrics_enabled": False,  # as in reader()
        "request_timeout_ms": timeout_ms,
    }
    fitting = _fitting(KafkaProducer, base)
    # kafka-python 3.1's producer starts a thread before it contacts a broker, as its
    # consumer does.
    return constructed(kind, **{**defaults, **fitting, **WRITING})


def admin(base: Mapping[str, Any]) -> KafkaAdminClient:
    """Create a client that queries groups, topics and topic settings."""
    fitting = _fitting(KafkaAdminClient, base)
    defaults = {"bootstrap_timeout_ms": BOOTSTRAP_MS, "kafka_client": ClosingClient}
    settings = {**defaults, **fitting}
    return constructed(KafkaAdminClient, **settings)


def _fitting(kind: Any, configs: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ANN401 - kafka-python is untyped
    # A producer does not know all settings of a consumer, such as fetch_max_wait_ms.
    return {key: one for key, one in configs.items() if key in kind.DEFAULT_CONFIG}


class Queries:
    """
    Clients that query brokers, each created when it is first needed.

    Offsets are requested by a separate consumer, because a pending fetch keeps the
    reading consumer's connection busy. A ``Queries`` object is a context manager that
    closes both clients.

    Thread rules: only one thread at a time may use this.

    Args:
        base: the settings of the connection.
    """

    def __init__(self, base: Mapping[str, Any]) -> None:
        self._base = base
        self._admin: KafkaAdminClient | None = None
        self._consumer: SafeConsumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def admin(self) -> KafkaAdminClient:
        """The client for all requests except those for offsets."""
        if self._admin is None:
            self._admin = admin(self._base)
        return self._admin

    @property
    def consumer(self) -> SafeConsumer:
        """The client that requests offsets."""
        if self._consumer is None:
            self._consumer = reader(self._base)
        return self._consumer

    @contextmanager
    def renewed(self) -> Iterator[SafeConsumer]:
        """
        Yield the consumer, and close it if the ``with`` block raises.

        After a failure the consumer may have read only part of an answer, so the next
        request creates a new consumer.
        """
        try:
            yield self.consumer
        except BaseException:
            self._close_consumer()
            raise

    def close(self) -> None:
        """Close the clients; the next request creates new ones."""
        self._close_consumer()
        made, self._admin = self._admin, None
        if made is not None:
            made.close()

    def _close_consumer(self) -> None:
        made, self._consumer = self._consumer, None
        if made is not None:
            made.close(autocommit=False, timeout_ms=_CLOSE_MS)


class StockHoldsTopic:
    """
    Reads a holds topic with kafka-python, for a member or for a Spark stream.

    The class implements :class:`~safeconsumer.group.control_clients.HoldsTopic` and
    :class:`~safeconsumer.spark.clients.HoldsTopic`.
    """

    def __init__(self, base: Mapping[str, Any], name: str) -> None:
        self._base, self._name = base, name
        self._partition = TopicPartition(name, 0)
        self._reader = TopicReader(lambda: reader(base))
        self._query_consumer: SafeConsumer | None = None

    @property
    def positions(self) -> Offsets:
        """The offset below which all records were returned."""
        return self._reader.positions

    @property
    def is_complete(self) -> bool:
        """Whether the reader has reached the end that the topic had at :meth:`begin`."""
        return self._reader.is_complete

    def facts(self, until: float = math.inf) -> Facts:  # noqa: ARG002 - its client has a timeout
        """Return the topic's settings; raise if the topic is missing or may not be read."""
        with admin(self._base) as asked:
            described_topics.require_readable(asked, self._name)
            (found,) = described_topics.describe(asked, [self._name])
        return found

    def begin(self, until: float = math.inf) -> tuple[RecreatedTopic, ...]:  # noqa: ARG002 - as above
        """Connect if there is no connection yet; return the topic if it was recreated."""
        if self._query_consumer is None:
            self._query_consumer = reader(self._base)
            self._query_consumer.assign([self._partition])
        return self._reader.begin([self._name], query_consumer=self._query_consumer)

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records."""
        polled = self._reader.turn(wait_ms)
        return [raw_record(one) for records in polled.values() for one in records]

    def ask_end(self, answer: Callable[[Offsets | None], object]) -> None:
        """Request the topic's current end offset."""

        def take(ends: Offsets | None, ids: Mapping[str, object | None]) -> None:
            answer(None if self._reader.replaced(ids) else ends)

        EndOffsets(self._query_consumer).ask([self._partition], _ASK_TIMEOUT_MS, take)

    def wake(self) -> None:
        """Make a running :meth:`turn` stop waiting."""
        self._reader.wake()

    def close(self) -> None:
        """Close the clients."""
        asked, self._query_consumer = self._query_consumer, None
        with ExitStack() as closing:
            if asked is not None:
                closing.callback(asked.close, autocommit=False, timeout_ms=_CLOSE_MS)
            closing.callback(self._reader.close)


class _NoStatusTopicError(kafka_errors.UnknownTopicOrPartitionError):  # type: ignore[misc]  # kafka-python is untyped
    """The status topic does not exist, or a broker temporarily reports it as missing."""


class StockReports:
    """A :class:`~safeconsumer.group.control_clients.ReportProducer` on kafka-python."""

    def __init__(self, base: Mapping[str, Any], name: str) -> None:
        self._name = name
        self._producer = producer(base, WRITE_SECONDS, AskingOnceProducer)

    def write(self, key: bytes, value: bytes, at_ms: int) -> int:
        """Write a report, and wait for its acknowledgement."""
        try:
            future = self._producer.send(
                self._name, key=key, value=value, partition=0, timestamp_ms=at_ms
            )
        except kafka_errors.KafkaTimeoutError as error:
            raise _NoStatusTopicError(*error.args) from error
        return int(future.get(WRITE_SECONDS).timestamp)

    def close(self) -> None:
        """Drop the producer without waiting until it has stopped."""
        producers.end(self._producer, 0.0)


def status_topic(base: Mapping[str, Any], name: str) -> StatusTopic:
    """Return an object that writes to a status topic; it connects at the first report."""
    return StatusTopic(
        partial(StockReports, base, name),
        is_missing=lambda one: isinstance(one, _NoStatusTopicError),
        is_refused=lambda one: isinstance(one, _REFUSED),
        is_lasting=True,
    )


def control_clients(
    configs: Mapping[str, Any], more: Mapping[str, Any]
) -> ControlClients:
    """
    Return the control clients for a consumer with this kafka-python configuration.

    Args:
        configs: the consumer's configuration.
        more: settings that differ for control clients, already checked by ``Control``.
    """
    base = connection(configs, more, "control")
    return ControlClients(
        group_id=configs.get("group_id"),
        client_id=str(configs.get("client_id") or ""),
        holds_topic=partial(StockHoldsTopic, base),
        status_topic=partial(status_topic, base),
    )
