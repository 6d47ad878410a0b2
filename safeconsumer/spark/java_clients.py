"""
Creates Kafka clients in the driver's JVM, from the connector's classes.

These clients log in as the stream itself does, with the same ``kafka.*`` properties, so
they support key stores, Kerberos, IAM, and any other login module or security engine of
Java.
"""

import importlib
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl
from uuid import uuid4

from safeconsumer.errors.base import ClientPropertyError
from safeconsumer.group import topics as topic_facts
from safeconsumer.group.control_clients import RecreatedTopic, StatusTopic
from safeconsumer.group.fold import RawRecord
from safeconsumer.holds.scope import TopicPartition
from safeconsumer.spark import platforms
from safeconsumer.spark.offsets import Offsets

_SHIM = "safeconsumer.spark.SafeKafkaProvider"
_KAFKA = "org.apache.kafka"
# Properties for the stream's own consumer, which the other clients would not know, or
# would understand differently.
_NOT_OURS = (
    *(
        "auto.",
        "client.id",
        "enable.",
        "fetch.",
        "group.",
        "heartbeat.",
        "interceptor.",
    ),
    *("isolation.", "key.", "max.", "min.", "partition.", "session.", "value."),
)
_CLOSE_MS = 500
_LEAST_MS = 1
_WRITE_TIMEOUT = 5.0
# The topic settings that are checked. Each setting costs a call into the JVM.
_SETTINGS = (
    "cleanup.policy",
    "message.timestamp.type",
    "unclean.leader.election.enable",
)
_NO_GROUP = "GroupIdNotFoundException"  # raised since Kafka 4
_MISSING = "UnknownTopicOrPartitionException"
_REFUSED = "AuthorizationException"
_SILENT = (
    "no broker answered in time; does the topic exist (safeconsumer control init), and "
    "is holds.control.kafka.* right?"
)


def errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """
    Return ``more`` and the errors that calls into the JVM raise, even after its exit.

    PySpark turns some of Java's errors into its own errors.
    """
    py4j = importlib.import_module("py4j.protocol")
    pyspark = importlib.import_module("pyspark.errors")
    return (*more, OSError, py4j.Py4JError, pyspark.PySparkException)


def java_class(jvm: Any, name: str) -> Any:  # noqa: ANN401 - py4j is untyped
    """Return a Java class by its full name, for calls of its static methods."""
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def root_cause(error: BaseException) -> tuple[str, str]:
    """Return the class and the message of a Java error's root cause."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return type(error).__name__, platforms.reason(error)
    while (cause := java.getCause()) is not None:
        java = cause
    name = str(java.getClass().getSimpleName())
    return name, f"{name}: {java.getMessage()}" if java.getMessage() else name


class JavaClients:
    """
    Creates the clients for one cluster, with one set of credentials.

    Thread rules: any thread may use this. Several threads at a time may use the same
    admin client or producer, but only one thread a consumer.

    Args:
        jvm: the driver's JVM, through py4j.
        properties: properties of Java's clients.

    Attributes:
        jvm: see the argument of the same name.
    """

    def __init__(self, jvm: Any, properties: Mapping[str, str]) -> None:  # noqa: ANN401 - py4j is untyped
        self.jvm = jvm
        self._properties = {
            name: value
            for name, value in properties.items()
            if not name.startswith(_NOT_OURS)
        }

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that a call into the JVM raises."""
        return errors()

    def holds_topic(self, name: str) -> "JavaHoldsTopic":
        """Return a reader of the holds topic, which connects later."""
        return JavaHoldsTopic(self, name)

    def reason(self, topic: str, error: BaseException) -> str:
        """Return why a holds topic could not be read."""
        name, text = root_cause(error)
        if name == _MISSING:
            return topic_facts.absent(topic)
        if name.endswith(_REFUSED):
            return f"no right to read {topic}: {topic_facts.ACLS} ({text})"
        return _SILENT if name.startswith("Timeout") else text

    def status_topic(self, name: str) -> StatusTopic:
        """Return a writer of the status topic, which connects later."""
        return StatusTopic(lambda: _ReportProducer(self, name))

    def cluster(self) -> "JavaCluster":
        """Return a client for queries about topics, which connects later."""
        return JavaCluster(self)

    def consumer(self) -> Any:  # noqa: ANN401 - Java's
        """
        Return a consumer without a group, which decodes bytes as ISO-8859-1.

        Raises:
            ClientPropertyError: a property is not acceptable.
        """
        reads = f"{_KAFKA}.common.serialization.StringDeserializer"
        return self._made(
            f"{_KAFKA}.clients.consumer.KafkaConsumer",
            {
                "auto.offset.reset": "earliest",
                "deserializer.encoding": "ISO-8859-1",
                "enable.auto.commit": "false",
                "key.deserializer": reads,
                "max.poll.records": "10000",
                "value.deserializer": reads,
            },
        )

    def producer(self, timeout: float) -> Any:  # noqa: ANN401 - Java's
        """
        Return a producer of bytes.

        Args:
            timeout: the number of seconds after which a write fails.
        """
        writes = f"{_KAFKA}.common.serialization.ByteArraySerializer"
        milliseconds = str(int(timeout * 1000))
        return self._made(
            f"{_KAFKA}.clients.producer.KafkaProducer",
            {
                "compression.type": "gzip",
                "delivery.timeout.ms": milliseconds,
                "enable.idempotence": "false",
                "key.serializer": writes,
                "linger.ms": "0",
                "max.block.ms": milliseconds,
                "request.timeout.ms": milliseconds,
                # the producer should rarely request metadata of a missing topic
                "retry.backoff.ms": "1000",
                "value.serializer": writes,
            },
        )

    def admin(self) -> Any:  # noqa: ANN401 - Java's
        """Return an admin client, which describes topics and queries their end offsets."""
        return self._made(f"{_KAFKA}.clients.admin.AdminClient", {}, "create")

    def duration(self, seconds: float) -> Any:  # noqa: ANN401 - Java's
        """Return a Java duration."""
        return self.jvm.java.time.Duration.ofMillis(int(seconds * 1000))

    def result(self, future: Any, until: float) -> Any:  # noqa: ANN401 - Java's
        """Return a Java future's result; wait for it until a monotonic time."""
        left = max(_LEAST_MS, int((until - time.monotonic()) * 1000))
        return future.get(left, self._milliseconds)

    @cached_property
    def _milliseconds(self) -> Any:  # noqa: ANN401 - Java's
        return self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS

    def close(self, client: Any) -> None:  # noqa: ANN401 - Java's
        """Close a client, within half a second."""
        client.close(self.duration(_CLOSE_MS / 1000))

    def record(self, topic: str, at_ms: int, key: bytes, value: bytes) -> Any:  # noqa: ANN401 - Java's
        """Return a record for the first partition of a topic."""
        kind = java_class(self.jvm, f"{_KAFKA}.clients.producer.ProducerRecord")
        return kind(topic, 0, at_ms, key, value)

    def offsets_of(self, partitions: Iterable[Any], where: str = "latest") -> Any:  # noqa: ANN401 - Java's
        """Return the argument of an admin query for partitions' end or start offsets."""
        spec = java_class(self.jvm, f"{_KAFKA}.clients.admin.OffsetSpec")
        wanted = self.jvm.java.util.HashMap()
        for one in partitions:
            wanted.put(one, getattr(spec, where)())
        return wanted

    def partition(self, topic: str, number: int = 0) -> Any:  # noqa: ANN401 - Java's
        """Return a partition of a topic."""
        return java_class(self.jvm, f"{_KAFKA}.common.TopicPartition")(topic, number)

    def _made(self, name: str, more: Mapping[str, str], make: str = "") -> Any:  # noqa: ANN401 - Java's
        wanted = self.jvm.java.util.HashMap()
        unique = {"client.id": f"safeconsumer-spark-{uuid4().hex[:8]}"}
        for key, value in {**self._properties, **unique, **more}.items():
            wanted.put(key, value)
        kind = java_class(self.jvm, name)
        try:
            return getattr(kind, make)(wanted) if make else kind(wanted)
        except errors() as error:
            name, text = root_cause(error)
            if name == "ConfigException":
                message = f"kafka.* or holds.control.kafka.*: {text}"
                raise ClientPropertyError(message) from None
            raise


class JavaHoldsTopic:
    """A :class:`~safeconsumer.spark.clients.HoldsTopic` with Java's consumer and admin."""

    def __init__(self, clients: JavaClients, name: str) -> None:
        self._clients = clients
        self._name = name
        self._consumer: Any = None
        self._admin: Any = None
        self._partition: Any = None
        # the request for the topic's end, created only once because calls into the JVM
        # are slow
        self._to_end: Any = None
        self._is_placed = False
        self._id = ""
        self._end, self._until = 0, 0.0
        self._position: int | None = None

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The offset up to which each partition was read; empty before the first read."""
        at = self._position
        return {} if at is None else {(self._name, 0): at}

    @property
    def is_complete(self) -> bool:
        """Whether the topic was read up to the end that :meth:`begin` last requested."""
        return (self._position or 0) >= self._end

    def _connect(self) -> None:
        if self._consumer is not None:
            return
        self._admin = self._admin or self._clients.admin()
        self._consumer = self._clients.consumer()
        self._partition = self._clients.partition(self._name)
        self._to_end = self._clients.offsets_of([self._partition])
        self._consumer.assign([self._partition])
        self._is_placed = False

    def facts(self, until: float) -> topic_facts.Facts:
        """Return the topic's number of partitions and its settings."""
        self._connect()
        partitions = self._described(until).partitions().size()
        return topic_facts.Facts(self._name, partitions, self._settings(until))

    def begin(self, until: float) -> tuple[RecreatedTopic, ...]:
        """Query the topic's end offset; return the topic if it was recreated or truncated."""
        self._connect()
        self._until = until
        asked = self._admin.listOffsets(self._to_end).partitionResult(self._partition)
        self._end = int(self._clients.result(asked, until).offset())
        remade = self._remade(until)
        if remade:
            self.close()  # the consumer still knows the old topic
            self._connect()
            self._position = None
        if not self._is_placed:
            if self._position is None:
                self._consumer.seekToBeginning([self._partition])
            else:
                self._consumer.seek(self._partition, self._position)
            self._note_position()
            self._is_placed = True
        return remade

    def _remade(self, until: float) -> tuple[RecreatedTopic, ...]:
        id_ = str(self._described(until).topicId())
        known, self._id = self._id or id_, id_
        at = self._position or 0
        if known == id_ and self._end >= at:
            return ()
        return (RecreatedTopic(self._name, at, self._end),)

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records; wait for them for at most ``wait_ms`` milliseconds."""
        polled = self._consumer.poll(self._clients.duration(wait_ms / 1000))
        text = ""
        if not polled.isEmpty():
            text = java_class(self._clients.jvm, _SHIM).asText(polled)
        self._note_position()
        return [_record(line) for line in text.split("\n") if line]

    def close(self) -> None:
        """Close the clients, but keep the records that were read."""
        clients = [one for one in (self._consumer, self._admin) if one is not None]
        self._consumer = self._admin = None
        for one in clients:
            # The JVM may have exited, or the broker may not answer.
            with suppress(*errors()):
                self._clients.close(one)

    def _note_position(self) -> None:
        left = self._clients.duration(max(0.001, self._until - time.monotonic()))
        self._position = int(self._consumer.position(self._partition, left))

    def _described(self, until: float) -> Any:  # noqa: ANN401 - Java's
        asked = self._admin.describeTopics([self._name]).allTopicNames()
        return self._clients.result(asked, until)[self._name]

    def _settings(self, until: float) -> dict[str, str] | None:
        kind = java_class(self._clients.jvm, f"{_KAFKA}.common.config.ConfigResource")
        wanted = kind(kind.Type.TOPIC, self._name)
        try:
            asked = self._admin.describeConfigs([wanted]).all()
            config = self._clients.result(asked, until)[wanted]
        except errors() as error:
            if root_cause(error)[0].endswith(_REFUSED):
                return None  # the permission to describe the settings is missing
            raise
        return {
            name: str(one.value())
            for name in _SETTINGS
            if (one := config.get(name)) is not None
        }


class _ReportProducer:
    # Writes reports with Java's producer.

    def __init__(self, clients: JavaClients, name: str) -> None:
        self._clients, self._name = clients, name
        self._producer = clients.producer(_WRITE_TIMEOUT)

    def write(self, key: bytes, value: bytes, at_ms: int) -> int:
        record = self._clients.record(self._name, at_ms, key, value)
        sent = self._producer.send(record)
        until = time.monotonic() + _WRITE_TIMEOUT
        return int(self._clients.result(sent, until).timestamp())

    def close(self) -> None:
        with suppress(*errors()):
            self._clients.close(self._producer)


class _Admin:
    # Java's admin client, which connects at the first request.

    def __init__(self, clients: JavaClients) -> None:
        self._clients = clients
        self._lock = threading.Lock()
        self._made: Any = None

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The exceptions that a call to the admin client raises."""
        return errors(ClientPropertyError)

    def close(self) -> None:
        """Close the client, if it was created."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            with suppress(*errors()):
                self._clients.close(made)

    def _admin(self) -> Any:  # noqa: ANN401 - Java's
        with self._lock:
            if self._made is None:
                self._made = self._clients.admin()
            return self._made


class JavaCluster(_Admin):
    """A :class:`~safeconsumer.spark.clients.Cluster` with Java's admin client."""

    def firsts(
        self, partitions: Collection[TopicPartition], until: float
    ) -> dict[TopicPartition, int]:
        """Return the first offsets of the partitions that exist and have a leader."""
        described = self._described({topic for topic, _ in partitions}, until)
        there = {
            (name, int(one.partition()))
            for name, topic in described.items()
            for one in topic.partitions()
            if one.leader() is not None
        }
        java = {
            tp: self._clients.partition(*tp) for tp in there.intersection(partitions)
        }
        wanted = self._clients.offsets_of(java.values(), "earliest")
        asked = self._admin().listOffsets(wanted)
        return {
            tp: int(self._clients.result(asked.partitionResult(one), until).offset())
            for tp, one in java.items()
        }

    def topic_ids(self, names: Collection[str], until: float) -> dict[str, str]:
        """Return the ids of the topics that exist."""
        described = self._described(names, until)
        return {name: str(topic.topicId()) for name, topic in described.items()}

    def _described(self, names: Collection[str], until: float) -> dict[str, Any]:
        # A missing topic must not prevent answers about other topics.
        asked = self._admin().describeTopics([*names]).topicNameValues()
        found: dict[str, Any] = {}
        for name in names:
            try:
                found[name] = self._clients.result(asked[name], until)
            except errors() as error:
                if root_cause(error)[0] != _MISSING:
                    raise
        return found


class JavaGroup(_Admin):
    """
    Commits a stream's progress to a consumer group without members.

    The object connects at the first call. The argument ``until`` is a time limit on the
    monotonic clock.

    Thread rules: any thread may use this.

    Args:
        jvm: the driver's JVM, through py4j.
        properties: properties of Java's clients.
        name: the group's name.

    Attributes:
        name: see the argument of the same name.
    """

    def __init__(self, jvm: Any, properties: Mapping[str, str], name: str) -> None:  # noqa: ANN401 - py4j is untyped
        super().__init__(JavaClients(jvm, properties))
        self.name = name

    def state(self, until: float) -> tuple[int, dict[TopicPartition, str]]:
        """Return the number of members, and the metadata of the committed offsets."""
        name = self.name
        asked = self._admin().describeConsumerGroups([name]).describedGroups()[name]
        try:
            members = int(self._clients.result(asked, until).members().size())
        except errors() as error:
            if root_cause(error)[0] != _NO_GROUP:
                raise
            return 0, {}
        offsets = self._admin().listConsumerGroupOffsets(name)
        found = self._clients.result(offsets.partitionsToOffsetAndMetadata(), until)
        return members, {
            _partition(str(tp)): str(one.metadata())
            for tp, one in found.items()
            if one is not None
        }

    def commit(self, ends: Offsets, note: str, until: float) -> None:
        """Commit offsets with this metadata."""
        kind = java_class(
            self._clients.jvm, f"{_KAFKA}.clients.consumer.OffsetAndMetadata"
        )
        wanted = self._clients.jvm.java.util.HashMap()
        for tp, end in ends.items():
            wanted.put(self._clients.partition(*tp), kind(end, note))
        asked = self._admin().alterConsumerGroupOffsets(self.name, wanted)
        self._clients.result(asked.all(), until)

    def reason(self, error: BaseException) -> str:
        """Return a human-readable reason why a method failed."""
        return root_cause(error)[1]


def _partition(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")  # as Java's TopicPartition formats it
    return topic, int(number)


def _record(line: str) -> RawRecord:
    facts = dict(parse_qsl(line, keep_blank_values=True))
    key, value = (
        facts[name].encode("latin-1") if name in facts else None
        for name in ("key", "value")
    )
    at_ms = int(facts["timestamp"])
    return RawRecord(key, value, int(facts["offset"]), at_ms)
