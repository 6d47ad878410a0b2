"""Defines options of workers and pumps; they refuse invalid values when created."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from attrs import field, frozen
from attrs.validators import optional

from safeconsumer._checks import (
    not_negative,
    positive,
    positive_int,
    share_of_one,
)
from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.worker.handlers import is_async
from safeconsumer.worker.retry import SAMPLE, Retry
from safeconsumer.worker.tracebacks import shown
from safeconsumer.worker.watermarks import Limits

__all__ = ["Commit", "DeadLetter", "Drain", "Limits", "Retry", "Tracing"]


_share_or_none: Any = optional(share_of_one)


@frozen(kw_only=True)
class Commit:
    """
    The option that determines when the offsets of finished records are committed.

    Args:
        every: seconds between two commits.

    Raises:
        WorkerSettingError: a value is invalid.
    """

    every: float = field(default=5.0, validator=positive)


@frozen(kw_only=True)
class Drain:
    """
    The longest waits for running handlers and for the commit that follows.

    Args:
        revoke: seconds to wait before partitions leave in a rebalance; must be less
            than half of the consumer's ``max_poll_interval_ms``. Running handlers get
            all of this time before an eager join, and at most 1 s in a cooperative
            revocation. During this time a refused commit is retried, for example while
            the group's coordinator moves to another broker.
        shutdown: seconds to wait when the worker stops. After that, the last commit,
            stopping the handlers' threads or processes, and leaving the group take at
            most 2 s more, whatever the broker does.

    Raises:
        WorkerSettingError: a value is invalid.
    """

    revoke: float = field(default=10.0, validator=not_negative)
    shutdown: float = field(default=25.0, validator=not_negative)


@frozen(kw_only=True)
class Tracing:
    """
    The options for the spans of a worker's attempts; requires the extra ``otel``.

    Args:
        parent: whether the trace context in a record's headers becomes the parent of
            the record's attempts, which then belong to the sender's trace and are
            sampled with it. If not, each attempt starts a new trace with a link to
            the sender's trace. An attempt at a batch always starts a new trace, with
            links to the senders' traces. If a batch has more than 128 records,
            OpenTelemetry's SDK keeps the last links and counts the dropped ones, unless
            ``OTEL_SPAN_LINK_COUNT_LIMIT`` is higher.
        provider: OpenTelemetry's ``TracerProvider``; None for the global provider,
            which may be set later.

    Raises:
        WorkerSettingError: a value is invalid.
    """

    parent: bool = field(default=False)
    provider: Any = None

    @parent.validator
    def _is_yes_or_no(self, _attribute: object, value: object) -> None:
        if not isinstance(value, bool):
            _refuse(f"parent must be True or False, not {value!r}")

    def __attrs_post_init__(self) -> None:
        provides = getattr(self.provider, "get_tracer", None)
        if self.provider is not None and not callable(provides):
            _refuse(
                f"provider must be a TracerProvider, or None, not {self.provider!r}"
            )


# A valid topic name, see https://kafka.apache.org/documentation/#basic_ops_add_topic.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@frozen
class DeadLetter:
    """
    The topic for records that failed for good; a record is complete once acknowledged.

    A letter that is not acknowledged is sent again, with the waits of ``Retry`` in
    between, and never dropped; meanwhile its record blocks its lane. The worker sends
    the letter again only after the producer has given up on the previous one, as
    KafkaProducer does after ``delivery_timeout_ms``. Otherwise both letters might
    arrive. For a record that can never be written, such as one larger than the
    producer's ``max_request_size``, the policy ``on_exhausted`` applies.

    Args:
        producer: a ``kafka.KafkaProducer`` without serializers, with ``acks`` of 1 or
            more and without a ``transactional_id``, or any object with the same
            ``send``.
        topic: the topic to write to. A letter has the record's key, value and headers
            as bytes. Additional headers ``dead-letter-*`` contain the record's
            position, the group, and the exception with its message and last frames, cut
            to fit.
        max_ratio: the share of recent records that may fail for good; None for no
            limit. Above this share the worker stops, and the record stays incomplete.
            The worker also stops if the first six records fail for good and none has
            succeeded.
        sample: the minimum number of records for ``max_ratio`` to apply; at most ten
            times as many recent records are counted.

    Raises:
        WorkerSettingError: a value is invalid.
    """

    producer: Any = field()
    topic: str = field()
    max_ratio: float | None = field(default=0.1, kw_only=True, validator=_share_or_none)
    sample: int = field(default=SAMPLE, kw_only=True, validator=positive_int)

    @producer.validator
    def _can_send(self, _attribute: object, value: object) -> None:
        send = getattr(value, "send", None)
        if not callable(send) or isinstance(value, type):
            message = f"producer must have a send(), as KafkaProducer, not {value!r}"
            raise WorkerSettingError(message)
        if is_async(send):
            message = (
                f"send() of {shown(value)} is a coroutine function, but a thread "
                f"sends dead letters: give a kafka.KafkaProducer"
            )
            raise WorkerSettingError(message)
        config = getattr(value, "config", None)
        if isinstance(config, dict):
            _check_producer(config)

    @topic.validator
    def _is_named(self, _attribute: object, value: object) -> None:
        if not isinstance(value, str) or _TOPIC.fullmatch(value) is None:
            message = f"topic must be the name of a topic, not {value!r}"
            raise WorkerSettingError(message)


def _check_producer(config: dict[str, Any]) -> None:
    for name in ("key_serializer", "value_serializer"):
        if config.get(name) is not None:
            _refuse(
                f"the producer of dead letters must have no {name}: keys and values "
                f"are written as the original bytes"
            )
    if config.get("acks") == 0:
        _refuse(
            "the producer of dead letters must not have acks=0: it would not be known "
            "whether a letter was written"
        )
    if config.get("transactional_id") is not None:
        _refuse(
            "the producer of dead letters must have no transactional_id: its letters "
            "would not be visible before the transaction is committed"
        )


def refuse_loop(consumes: Callable[[str], bool], dead_letter: object) -> None:
    """
    Refuse a dead-letter topic that the same consumer consumes.

    Args:
        consumes: returns whether the consumer consumes a topic.
        dead_letter: the setting ``dead_letter``.

    Raises:
        WorkerSettingError: the consumer consumes the dead-letter topic.
    """
    topic = getattr(dead_letter, "topic", None)
    if isinstance(topic, str) and consumes(topic):
        _refuse(
            f"the topic of dead letters, {topic}, is consumed here: the letters "
            f"would come back, fail and be written again; give it another topic"
        )


def check_callable(value: object, what: str, *takes: str) -> Callable[..., Any]:
    """
    Return the value if it is callable; refuse any other value.

    Args:
        value: the value to check.
        what: the name of the setting.
        takes: the names of the arguments that it is called with, if these are known.

    Raises:
        WorkerSettingError: the value is not callable, or cannot be called with these
            arguments.
    """
    if not callable(value):
        _refuse(f"{what} must be callable, not {value!r}")
    if takes:
        check_signature(value, what, takes)
    return value  # type: ignore[return-value]  # it is callable


def check_signature(
    value: Any,  # noqa: ANN401 - callable
    what: str,
    takes: tuple[str, ...],
    *,
    passes_on: bool = False,
) -> None:
    """
    Refuse a callable if its signature shows that it does not take these arguments.

    A decorator may add arguments but show the signature of the wrapped function, so the
    arguments of a decorated function are not known.

    Args:
        value: the callable.
        what: the name of the setting.
        takes: the names of the arguments that it is called with.
        passes_on: whether the callable's decorator passes on all arguments.

    Raises:
        WorkerSettingError: the value does not take these arguments.
    """
    is_known = passes_on or not hasattr(value, "__wrapped__")
    if not is_known or hasattr(value, "__signature__"):
        return
    try:
        signature = inspect.signature(value, follow_wrapped=passes_on)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*takes)
    except TypeError as error:
        _refuse(
            f"{what} is called with ({', '.join(takes)}), which {shown(value)} does "
            f"not take: {error}"
        )


def refuse_class(value: object, what: str) -> None:
    """
    Refuse a class in place of a function; a call would only create an instance.

    Raises:
        WorkerSettingError: the value is a class.
    """
    called = value
    while isinstance(called, functools.partial):
        called = called.func
    if isinstance(called, type):
        _refuse(
            f"{what} is the class {called.__qualname__}, and calling it makes an "
            f"object and does nothing else: give an object of it"
        )


def _refuse(message: str) -> None:
    raise WorkerSettingError(message)
