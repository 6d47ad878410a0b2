"""Reads and writes the control topics with confluent-kafka and a member's settings."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from safeconsumer.clients.control_topics import Progress, TopicLostError
from safeconsumer.errors.base import MissingExtraError
from safeconsumer.group import topics
from safeconsumer.group.barrier import Offsets
from safeconsumer.group.control_clients import (
    WRITE_SECONDS,
    ControlClients,
    RecreatedTopic,
    StatusTopic,
)
from safeconsumer.group.fold import NO_TIME_MS, RawRecord
from safeconsumer.group.topics import Facts

try:
    from confluent_kafka import (
        TIMESTAMP_NOT_AVAILABLE,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicCollection,
        TopicPartition,
    )
    from confluent_kafka import Consumer as UpstreamConsumer
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it re-exports them silently
        AclOperation,
        AdminClient,
        ConfigResource,
        OffsetSpec,
        ResourceType,
    )
except ImportError as error:
    _MESSAGE = (
        "safeconsumer.clients.confluent needs confluent-kafka: "
        "pip install 'safeconsumer[confluent]'"
    )
    raise MissingExtraError(_MESSAGE) from error

__all__ = [
    "KafkaException",
    "Message",
    "TopicPartition",
    "UpstreamConsumer",
    "control_clients",
]

# The settings for a member's group, records and callbacks. All other settings, even
# future ones, are taken to concern the connection and authentication.
_NOT_COPIED = (
    *("allow.auto.create.topics", "auto.", "check.crcs", "client.id", "client.rack"),
    *("consume.callback.", "coordinator.query.", "default.topic.config"),
    *("enable.auto.", "enable.partition.eof", "error_cb", "fetch.", "group."),
    *("heartbeat.", "isolation.level", "max.partition.", "max.poll.", "offset.store."),
    *("on_commit", "partition.assignment.", "queued.", "session.", "statistics."),
    *("stats_cb", "throttle_cb"),
)
_FIRST: Any = OffsetSpec.earliest()  # type: ignore[no-untyped-call]  # upstream's
_LAST: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # likewise
_ASK_SECONDS = 5.0
_TURN_SECONDS = 0.1
_MOST = 10_000
_CLOSED = "its client is closed"
_REFUSED = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}
# The names of librdkafka's own errors start with an underscore, but are public.
_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - see above
_MISSING = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - see above
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - see above
}


def control_clients(settings: Mapping[str, Any]) -> ControlClients:
    """
    Return the control clients for a member with these settings.

    Args:
        settings: the member's settings by librdkafka's names, including
            confluent-kafka's callbacks.
    """
    copied = {k: v for k, v in settings.items() if not k.startswith(_NOT_COPIED)}
    group_id, client_id = settings.get("group.id"), settings.get("client.id")
    base = {**copied, "client.id": f"{client_id or 'safeconsumer'}-control"}
    return ControlClients(
        group_id=group_id,
        client_id=str(client_id or ""),
        holds_topic=lambda name: HoldsTopic(base, name, group_id),
        status_topic=lambda name: StatusTopic(
            partial(_ReportProducer, base, name), _is_missing, _is_refused
        ),
    )


class HoldsTopic:
    """
    Reads the holds topic with one consumer, and sends queries with an admin client.

    A fetch keeps a consumer's connection busy for half a second, so urgent requests use
    a separate connection.

    Args:
        base: the settings of the connection.
        name: the topic.
        group: the member's group. The consumer never joins the group. Because it has
            the group's name, it does not need more permissions than the member.
    """

    def __init__(self, base: Mapping[str, Any], name: str, group: str | None) -> None:
        self._base, self._name, self._group = base, name, group
        self._admin: AdminClient | None = None
        self._consumer: UpstreamConsumer | None = None
        self._id: str | None = None
        self._progress = Progress(name)

    @property
    def positions(self) -> Offsets:
        """The offset below which all records were returned."""
        return self._progress.offsets

    @property
    def is_complete(self) -> bool:
        """Whether the reader has reached the end that the topic had at :meth:`begin`."""
        return self._progress.is_complete

    def facts(self) -> Facts:
        """Return the topic's settings; raise if the topic is missing or may not be read."""
        admin = AdminClient(dict(self._base))
        described = _described(admin, self._name)
        may = described.authorized_operations
        if may and AclOperation.READ not in may:
            code, why = KafkaError.TOPIC_AUTHORIZATION_FAILED, topics.ACLS
            raise KafkaException(
                KafkaError(code, f"no right to read {self._name}: {why}")
            )
        resource = ConfigResource(ResourceType.TOPIC, self._name)
        settings: dict[str, str] | None = None
        try:
            (future,) = admin.describe_configs(
                [resource], request_timeout=_ASK_SECONDS
            ).values()
            settings = {key: str(one.value) for key, one in _result(future).items()}
        except KafkaException as error:
            if error.args[0].code() not in _REFUSED:
                raise
        return Facts(self._name, len(described.partitions), settings)

    def begin(self) -> tuple[RecreatedTopic, ...]:
        """Connect; return the topic if it was recreated."""
        self._admin = admin = AdminClient(dict(self._base))
        # Describe the topic first, so that its leader is known for the next request.
        # Otherwise librdkafka 2.16 retries only after 3 s.
        found = str(_described(admin, self._name).topic_id)
        first = int(_result(self._ask(_FIRST)).offset)
        end = int(_result(self._ask(_LAST)).offset)
        is_other = self._id not in {None, found}
        beginning = self._progress.beginning(first, end, is_other=is_other)
        self._consumer = UpstreamConsumer(
            {
                **self._base,
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "group.id": self._group,
                "isolation.level": "read_uncommitted",
            }
        )
        self._consumer.assign([TopicPartition(self._name, 0, beginning.at)])
        self._id = found
        return self._progress.begin(beginning)

    def turn(self, wait_ms: float) -> Sequence[RawRecord]:
        """Return the next records."""
        consumer = self._consumer
        if consumer is None:
            raise TopicLostError(_CLOSED)
        began = time.monotonic()
        first = consumer.poll(min(wait_ms / 1000, _TURN_SECONDS))
        several = [] if first is None else [first, *consumer.consume(_MOST, 0)]
        found, at, error = _readable(several, self._progress.at)
        if error is not None and not found:
            raise KafkaException(error)
        if self._progress.is_time_to_ask():
            note = partial(self._note_end, at)
            self._ask(_LAST).add_done_callback(note)
        if self._progress.is_time_to_compare() and self._admin is not None:
            _ask_about(self._admin, self._name).add_done_callback(self._note_id)
        self._progress.note_read(began, _TURN_SECONDS, at)
        if error is not None:
            self._progress.lose(f"cannot be read further: {error.str()}")
        return found

    def _note_end(self, asked_at: int, future: Any) -> None:  # noqa: ANN401 - confluent-kafka's future
        if future.exception() is None:
            self._progress.note_end(asked_at, int(future.result().offset))

    def _note_id(self, future: Any) -> None:  # noqa: ANN401 - likewise
        if future.exception() is None and str(future.result().topic_id) != self._id:
            self._progress.lose("was recreated")

    def ask_end(self, answer: Callable[[Offsets | None], object]) -> None:
        """Call ``answer`` with the topic's end; None if it was recreated or unanswered."""
        self._ask(_LAST).add_done_callback(partial(self._answer, answer))

    def _ask(self, which: Any) -> Any:  # noqa: ANN401 - confluent-kafka's, untyped
        admin = self._admin
        if admin is None:
            raise TopicLostError(_CLOSED)
        asked = {TopicPartition(self._name, 0): which}
        (future,) = admin.list_offsets(asked, request_timeout=_ASK_SECONDS).values()
        return future

    def _answer(
        self,
        answer: Callable[[Offsets | None], object],
        future: Any,  # noqa: ANN401 - confluent-kafka's future
    ) -> None:
        admin = self._admin
        if future.exception() is not None or admin is None:
            answer(None)
            return
        ends = {(self._name, 0): int(future.result().offset)}

        def described(topic: Any) -> None:  # noqa: ANN401 - likewise
            # Request the id after the end: if the id is still the same then, the end
            # belongs to the same topic, because ids are never reused.
            self._note_id(topic)
            is_known = topic.exception() is None and not self._progress.is_lost
            answer(ends if is_known else None)

        _ask_about(admin, self._name).add_done_callback(described)

    def wake(self) -> None:
        """Do nothing, because :meth:`turn` never takes longer than 100 ms."""

    def close(self) -> None:
        """Close the clients."""
        consumer, self._consumer, self._admin = self._consumer, None, None
        if consumer is not None:
            consumer.close()


class _ReportProducer:
    # Each write waits, because a producer learns only from the answer that the topic is
    # missing.

    def __init__(self, base: Mapping[str, Any], name: str) -> None:
        _described(AdminClient(dict(base)), name)
        self._name = name
        self._producer = Producer(
            {
                **base,
                "acks": "all",
                "allow.auto.create.topics": False,
                "compression.type": "gzip",
                "enable.idempotence": False,
                "linger.ms": 0,
                "message.timeout.ms": WRITE_SECONDS * 1000,
            }
        )

    def write(self, key: bytes, value: bytes, at_ms: int) -> int:
        answers: list[tuple[KafkaError | None, Message]] = []
        self._producer.produce(
            self._name,
            value,
            key,
            partition=0,
            timestamp=at_ms,
            on_delivery=lambda error, message: answers.append((error, message)),
        )
        self._producer.flush(WRITE_SECONDS + 1)
        if not answers:
            message = "no answer to a report"
            raise TimeoutError(message)
        ((error, answered),) = answers
        if error is not None:
            raise KafkaException(error)
        return int(answered.timestamp()[1])

    def close(self) -> None:
        pass  # the producer stops when its last reference is gone


def _readable(
    messages: Sequence[Message], at: int
) -> tuple[list[RawRecord], int, KafkaError | None]:
    """
    Return the records before the first error, the offset after them, and the error.

    Args:
        messages: the messages of a consumer, in order.
        at: the offset before them.
    """
    found: list[RawRecord] = []
    for message in messages:
        error, offset = message.error(), int(message.offset() or 0)
        if error is None:
            kind, at_ms = message.timestamp()
            at_ms = NO_TIME_MS if kind == TIMESTAMP_NOT_AVAILABLE else at_ms
            found.append(RawRecord(message.key(), message.value(), offset, at_ms))
            at = offset + 1
        elif error.code() == _EOF:  # the end may be past compacted records
            at = max(at, offset)
        else:
            return found, at, error
    return found, at, None


def _ask_about(admin: AdminClient, name: str) -> Any:  # noqa: ANN401 - confluent-kafka's future
    (future,) = admin.describe_topics(
        TopicCollection([name]),
        include_authorized_operations=True,
        request_timeout=_ASK_SECONDS,
    ).values()
    return future


def _described(admin: AdminClient, name: str) -> Any:  # noqa: ANN401 - a TopicDescription
    try:
        return _result(_ask_about(admin, name))
    except KafkaException as error:
        if _code(error) not in _MISSING:
            raise
        code = KafkaError.UNKNOWN_TOPIC_OR_PART
        raise KafkaException(KafkaError(code, topics.absent(name))) from error


def _result(future: Any) -> Any:  # noqa: ANN401 - confluent-kafka's future
    # confluent-kafka 2.16 keeps a future's error in a cycle. If that error were raised
    # here, its traceback would keep our clients, with four threads each, alive until
    # the garbage collector runs.
    failed = future.exception()
    if isinstance(failed, KafkaException):
        raise KafkaException(*failed.args)
    return future.result()


def _code(error: BaseException) -> int | None:
    cause = error.args[0] if isinstance(error, KafkaException) else None
    return cause.code() if isinstance(cause, KafkaError) else None


def _is_missing(error: BaseException) -> bool:
    return _code(error) in _MISSING


def _is_refused(error: BaseException) -> bool:
    return _code(error) in _REFUSED
