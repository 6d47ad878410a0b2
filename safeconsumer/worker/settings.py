"""
Options of workers and pumps: frozen, and impossible ones refused at construction.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

from attrs import field, frozen

from safeconsumer._checks import (
    is_number,
    not_negative,
    positive,
    positive_int,
    share_of_one,
)
from safeconsumer.errors import WorkerSettingError
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.handlers import is_async, is_generator
from safeconsumer.worker.queue import Order, order_of, record_key
from safeconsumer.worker.retry import Retry
from safeconsumer.worker.tracebacks import shown
from safeconsumer.worker.watermarks import Limits

__all__ = ["Breaker", "Commit", "DeadLetter", "Drain", "Limits", "Retry", "Tracing"]


def _optional_int(self: object, attribute: Any, value: object) -> None:  # noqa: ANN401 - attrs'
    if value is not None:
        positive_int(self, attribute, value)


def _optional_share(self: object, attribute: Any, value: object) -> None:  # noqa: ANN401 - attrs'
    if value is not None and not (is_number(value) and value == 1):
        share_of_one(self, attribute, value)


@frozen(kw_only=True)
class Commit:
    """
    When offsets of finished records are committed.

    Args:
        every: seconds between two commits.
        records: commit earlier once so many records were finished; None for no limit.
        timeout: seconds a commit may take at a drain and at the end; at a drain no more
            than ``Drain.shutdown``, or 1 s.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    every: float = field(default=5.0, validator=positive)
    records: int | None = field(default=None, validator=_optional_int)
    timeout: float = field(default=5.0, validator=positive)


@frozen(kw_only=True)
class Drain:
    """
    How long running handlers are waited for.

    Args:
        revoke: seconds before an eager join; less than half of the consumer's
            ``max_poll_interval_ms``. Partitions of a cooperative revocation get no
            more than 1 s.
        shutdown: seconds when the worker stops; the last commit, ending what runs
            handlers and leaving the group take no more than 2 s beyond them, whatever
            the broker does.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    revoke: float = field(default=10.0, validator=not_negative)
    shutdown: float = field(default=25.0, validator=not_negative)


@frozen(kw_only=True)
class Tracing:
    """
    How the attempts of a worker become spans; needs the extra ``otel``.

    Args:
        parent: whether a single record's own context, out of its headers, becomes the
            parent of its attempts, which are part of its sender's trace then, sampled
            as that is. Otherwise each attempt begins a trace of its own, linked to it,
            as the attempts of a batch always do: of a batch above 128 records
            OpenTelemetry's SDK keeps the last links, with the number of those that it
            drops, unless ``OTEL_SPAN_LINK_COUNT_LIMIT`` says more.
        provider: OpenTelemetry's ``TracerProvider``; None for the global one, which may
            be set later.

    Raises:
        WorkerSettingError: a value is impossible.
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


# A legal name, https://kafka.apache.org/documentation/#basic_ops_add_topic.
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


@frozen
class DeadLetter:
    """
    Where records go that failed for good; each is complete once this acknowledged it.

    A letter that is not acknowledged is tried again, with the waits of ``Retry``, and
    never dropped; the record blocks its lane meanwhile. What can never be written, such
    as a record that is larger than the producer's ``max_request_size``, goes the way of
    ``on_exhausted``.

    Args:
        producer: a ``kafka.KafkaProducer`` without serializers, with ``acks`` of 1 or
            more and without a ``transactional_id``, or anything with its ``send``.
        topic: where to; the letter has the record's key, value and headers as bytes,
            and headers ``dead-letter-*`` that say where it stood, in which group, and
            what failed: the exception, its message and its last frames, cut to fit.
        max_ratio: stop the worker, without completing the record, once more than this
            part of the last 100 to 1,000 records failed for good; None for no limit.
        max_consecutive: the same for records that failed one after the other.
        timeout: seconds without an acknowledgement after which an event says so, again
            and again. A letter is sent again once its producer has given it up, as
            KafkaProducer does after ``delivery_timeout_ms``: sent before, both arrive.

    Raises:
        WorkerSettingError: a value is impossible.
    """

    producer: Any = field()
    topic: str = field()
    max_ratio: float | None = field(
        default=0.1, kw_only=True, validator=_optional_share
    )
    max_consecutive: int | None = field(
        default=100, kw_only=True, validator=_optional_int
    )
    timeout: float = field(default=30.0, kw_only=True, validator=positive)

    @producer.validator
    def _can_send(self, _attribute: object, value: object) -> None:
        send = getattr(value, "send", None)
        if not callable(send) or isinstance(value, type):
            message = f"producer must have a send(), as KafkaProducer, not {value!r}"
            raise WorkerSettingError(message)
        if is_async(send):
            message = (
                f"send() of {shown(value)} is a coroutine function, and dead letters "
                f"are sent by a thread: give a kafka.KafkaProducer"
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
                f"are written as the bytes that came"
            )
    if config.get("acks") == 0:
        _refuse(
            "the producer of dead letters must not have acks=0: nobody would know "
            "whether a letter was written"
        )
    if config.get("transactional_id") is not None:
        _refuse(
            "the producer of dead letters must have no transactional_id: what it sends "
            "is not written before its transaction is committed"
        )


# What a worker needs of a consumer that kafka-python's has not.
_OURS = ("config", "holds", "pause_all")


def check_consumer(consumer: Any, limits: Limits, drain: Drain) -> None:  # noqa: ANN401 - upstream's
    """
    Return if a worker can run on this consumer with these settings.

    Raises:
        WorkerSettingError: names the setting, and what would do.
    """
    is_class = isinstance(consumer, type)
    if is_class or not all(hasattr(consumer, name) for name in _OURS):
        kind = consumer if is_class else type(consumer)
        _refuse(
            f"the consumer must be a safeconsumer.SafeConsumer, not "
            f"{'the class ' if is_class else ''}{kind.__module__}."
            f"{kind.__qualname__}: make it with safeconsumer.KafkaConsumer(...), which "
            f"takes all that kafka.KafkaConsumer takes"
        )
    config = consumer.config
    if config["group_id"] is None:
        _refuse("the consumer has no group_id, so nothing could be committed: give one")
    if config["enable_auto_commit"]:
        _refuse(
            "the consumer commits by itself what it returned, finished or not: make "
            "it with enable_auto_commit=False"
        )
    if limits.records < config["max_poll_records"]:
        _refuse(
            f"limits.records {limits.records} is below one poll "
            f"(max_poll_records={config['max_poll_records']}): raise one or lower "
            f"the other"
        )
    one_fetch = config["max_partition_fetch_bytes"]
    if limits.bytes < one_fetch:
        _refuse(
            f"limits.bytes {limits.bytes} is below one fetch "
            f"(max_partition_fetch_bytes={one_fetch}): raise one or lower the other"
        )
    half = config["max_poll_interval_ms"] / 2000
    if drain.revoke >= half:
        _refuse(
            f"drain.revoke {drain.revoke:g} s must be less than half of "
            f"max_poll_interval_ms ({half:g} s), or a drain gets the member evicted"
        )


def check_on_exhausted(value: object) -> None:
    """
    Return if it says what becomes of a record that failed for good.

    Raises:
        WorkerSettingError: it does not.
    """
    if value not in ("stop", "skip", "block"):
        _refuse(f"on_exhausted is 'stop', 'skip' or 'block', not {value!r}")


def check_counts(**counts: object) -> None:
    """
    Return if each is a whole number, 1 or more.

    Raises:
        WorkerSettingError: names one that is not.
    """
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            _refuse(f"{name} must be a whole number, 1 or more, not {value!r}")


def refuse_circle(consumes: Callable[[str], bool], dead_letter: object) -> None:
    """
    Return if what is written as a dead letter is not consumed here again.

    Args:
        consumes: tells whether a topic is consumed here.
        dead_letter: the setting of this name.

    Raises:
        WorkerSettingError: it is.
    """
    topic = getattr(dead_letter, "topic", None)
    if isinstance(topic, str) and consumes(topic):
        _refuse(
            f"the topic of dead letters, {topic}, is consumed here: its letters "
            f"would come back, fail and be written again; give it another topic"
        )


def check_callable(value: object, what: str, *takes: str) -> Callable[..., Any]:
    """
    Return what is callable.

    Args:
        value: what was given.
        what: it is.
        takes: names of what it is called with, if that is known.

    Raises:
        WorkerSettingError: it is not; or it cannot be called with these.
    """
    if not callable(value):
        _refuse(f"{what} must be callable, not {value!r}")
    if takes:
        _check_signature(value, what, takes)
    return value  # type: ignore[return-value]  # it is callable


def _check_signature(value: Any, what: str, takes: tuple[str, ...]) -> None:  # noqa: ANN401 - callable
    # A decorator may add arguments to what it wraps, and some show the signature of
    # what they wrap as theirs: nobody knows what those take.
    if hasattr(value, "__wrapped__") or hasattr(value, "__signature__"):
        return
    try:
        signature = inspect.signature(value, follow_wrapped=False)
    except (TypeError, ValueError):  # some that are written in C have none
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
    Return if calling it does something: an object would be made, and nothing be done.

    Raises:
        WorkerSettingError: it is a class.
    """
    called = value
    while isinstance(called, functools.partial):
        called = called.func
    if isinstance(called, type):
        _refuse(
            f"{what} is the class {called.__qualname__}, and calling it makes an "
            f"object and does nothing else: give an object of it"
        )


def check_key(key: object, order: str) -> None:
    """
    Return if it can make the keys of records, and somebody asks for them.

    Raises:
        WorkerSettingError: names what is wrong with it.
    """
    check_callable(key, "key", "record")
    if is_async(key) or is_generator(key):
        _refuse(
            f"key returns the key of a record, and {shown(key)} does not: make it "
            f"a plain function"
        )
    if key is not record_key and order_of(order) is not Order.KEY:
        _refuse(f"key is for order='key', and with order={order!r} nobody asks for it")


_KINDS = {
    "limits": Limits,
    "retry": Retry,
    "drain": Drain,
    "commit": Commit,
}


def check_kinds(**settings: object) -> None:
    """
    Return if each is what its name says.

    Raises:
        WorkerSettingError: names one that is not.
    """
    for name, value in settings.items():
        kind = _KINDS[name]
        if not isinstance(value, kind):
            _refuse(f"{name} must be a {kind.__name__}, not {value!r}")


def check_breaker(value: object) -> None:
    """
    Return if it is a breaker, or None.

    Raises:
        WorkerSettingError: it is not.
    """
    if value is not None and not isinstance(value, Breaker):
        _refuse(f"breaker must be a Breaker, or None, not {value!r}")


def check_trace(value: object) -> None:
    """
    Return if it says whether spans are made, and how.

    Raises:
        WorkerSettingError: it does not.
    """
    if not isinstance(value, (bool, Tracing)):
        _refuse(f"trace must be True, False or a Tracing, not {value!r}")


def _refuse(message: str) -> None:
    raise WorkerSettingError(message)
