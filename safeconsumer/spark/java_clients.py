"""
Makes Kafka clients in the driver's JVM, of the classes that the connector brings.

They log in as the stream itself does, with the very same ``kafka.*`` properties: key
stores, Kerberos, IAM, and whatever else a login module or an engine of Java brings.
"""

import importlib
import time
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any
from uuid import uuid4

from safeconsumer.errors.base import ClientPropertyError
from safeconsumer.spark import platforms

_KAFKA = "org.apache.kafka"
# Properties of the stream's own reading, which would be unknown to the other clients,
# or mean something else to them.
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


def errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """
    Return what a call into the JVM raises, also if the JVM has ended, and more.

    PySpark makes errors of its own of some of Java's, wherever they come from.
    """
    py4j = importlib.import_module("py4j.protocol")
    pyspark = importlib.import_module("pyspark.errors")
    return (*more, OSError, py4j.Py4JError, pyspark.PySparkException)


def java_class(jvm: Any, name: str) -> Any:  # noqa: ANN401 - py4j is untyped
    """Return a class of Java by its full name, to be called for its static methods."""
    found = jvm
    for part in name.split("."):
        found = getattr(found, part)
    return found


def root_cause(error: BaseException) -> tuple[str, str]:
    """Return the class of the first cause of an error of Java's, and what it says."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return type(error).__name__, platforms.reason(error)
    while (cause := java.getCause()) is not None:
        java = cause
    name = str(java.getClass().getSimpleName())
    return name, f"{name}: {java.getMessage()}" if java.getMessage() else name


class JavaClients:
    """
    Makes the clients of one cluster and login.

    Thread rules: any thread. An admin and a producer may be used by several at a time,
    a consumer by one.

    Args:
        jvm: the driver's JVM, by py4j.
        properties: properties of Java's clients.

    Attributes:
        jvm: the same.
    """

    def __init__(self, jvm: Any, properties: Mapping[str, str]) -> None:  # noqa: ANN401 - py4j is untyped
        self.jvm = jvm
        self._properties = {
            name: value
            for name, value in properties.items()
            if not name.startswith(_NOT_OURS)
        }

    def consumer(self) -> Any:  # noqa: ANN401 - Java's
        """
        Return a consumer without a group; its records' bytes are read as ISO-8859-1.

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
            timeout: seconds after which a write has failed.
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
                "retry.backoff.ms": "1000",  # a missing topic is asked for seldom
                "value.serializer": writes,
            },
        )

    def admin(self) -> Any:  # noqa: ANN401 - Java's
        """Return a client that describes topics and asks where they end."""
        return self._made(f"{_KAFKA}.clients.admin.AdminClient", {}, "create")

    def duration(self, seconds: float) -> Any:  # noqa: ANN401 - Java's
        """Return a duration of Java's."""
        return self.jvm.java.time.Duration.ofMillis(int(seconds * 1000))

    def result(self, future: Any, until: float) -> Any:  # noqa: ANN401 - Java's
        """Return what a future of Java's has by then, on the monotonic clock."""
        left = max(_LEAST_MS, int((until - time.monotonic()) * 1000))
        return future.get(left, self._milliseconds)

    @cached_property
    def _milliseconds(self) -> Any:  # noqa: ANN401 - Java's
        return self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS

    def close(self, client: Any) -> None:  # noqa: ANN401 - Java's
        """Close one of them, within half a second."""
        client.close(self.duration(_CLOSE_MS / 1000))

    def record(self, topic: str, at_ms: int, key: bytes, value: bytes) -> Any:  # noqa: ANN401 - Java's
        """Return a record for the first partition of a topic."""
        kind = java_class(self.jvm, f"{_KAFKA}.clients.producer.ProducerRecord")
        return kind(topic, 0, at_ms, key, value)

    def ends_of(self, partitions: Iterable[Any]) -> Any:  # noqa: ANN401 - Java's
        """Return what an admin is asked for to learn where partitions end."""
        latest = java_class(self.jvm, f"{_KAFKA}.clients.admin.OffsetSpec").latest()
        wanted = self.jvm.java.util.HashMap()
        for one in partitions:
            wanted.put(one, latest)
        return wanted

    def partition(self, topic: str) -> Any:  # noqa: ANN401 - Java's
        """Return the first partition of a topic."""
        return java_class(self.jvm, f"{_KAFKA}.common.TopicPartition")(topic, 0)

    def _made(self, name: str, more: Mapping[str, str], make: str = "") -> Any:  # noqa: ANN401 - Java's
        wanted = self.jvm.java.util.HashMap()
        unique = {"client.id": f"safeconsumer-spark-{uuid4().hex[:8]}"}
        for key, value in {**self._properties, **unique, **more}.items():
            wanted.put(key, value)
        kind = java_class(self.jvm, name)
        try:
            return getattr(kind, make)(wanted) if make else kind(wanted)
        except errors() as error:
            name, said = root_cause(error)
            if name == "ConfigException":
                message = f"kafka.* or holds.control.kafka.*: {said}"
                raise ClientPropertyError(message) from None
            raise
