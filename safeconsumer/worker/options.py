"""Declares the options of a worker, and refuses impossible ones."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias, get_args

from attrs import field, frozen
from attrs.validators import optional

from safeconsumer._checks import not_negative, positive, positive_int
from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.events.dispatch import Hook
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.dead_letters import Sink
from safeconsumer.worker.executors import ExecutorName, check_kind
from safeconsumer.worker.executors.lifespan import MakeLifespan, check_lifespan
from safeconsumer.worker.handlers import Handle, HandleBatch
from safeconsumer.worker.queue import OnExhausted
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    Tracing,
    check_callable,
    refuse_class,
)

OrderName: TypeAlias = Literal["partition", "key", "unordered"]
_Check: TypeAlias = Callable[[object, Any, Any], None]
# The methods of our consumer that a worker needs and kafka-python's does not have.
_OURS = ("config", "holds", "pause_all")


# ------------------------------------------------------------ checks


def _is_a(*kinds: type) -> _Check:
    names = " or ".join(kind.__name__ for kind in kinds)

    def check(_self: object, attribute: Any, value: object) -> None:  # noqa: ANN401 - attrs'
        if not isinstance(value, kinds):
            _refuse(f"{attribute.name} must be a {names}, not {value!r}")

    return check


def _is_one_of(*names: str) -> _Check:
    listed = f"{', '.join(map(repr, names[:-1]))} or {names[-1]!r}"

    def check(_self: object, attribute: Any, value: object) -> None:  # noqa: ANN401 - attrs'
        if value not in names:
            _refuse(f"{attribute.name} must be {listed}, not {value!r}")

    return check


def _has_no_keys(self: Any, _attribute: object, value: object) -> None:  # noqa: ANN401 - below
    if value is not None and self.order == "key":
        _refuse(
            "with batches order must be 'unordered' or 'partition', not 'key': a batch "
            "would mix keys"
        )


def _has_batches(self: Any, _attribute: object, value: object) -> None:  # noqa: ANN401 - below
    if value and self.batch is None:
        _refuse("batch_within needs batch: without it no record waits for others")


def _can_be_entered(self: Any, _attribute: object, value: Any) -> None:  # noqa: ANN401 - below
    check_lifespan(value, self.executor)


def _can_be_called(self: Any, _attribute: object, value: Any) -> None:  # noqa: ANN401 - below
    refuse_class(value, "the handler")
    check_callable(value, "the handler", "record", "context")
    check_kind(value, self.executor)


def _suits(self: Any, _attribute: object, consumer: Any) -> None:  # noqa: ANN401 - below
    is_class = isinstance(consumer, type)
    if is_class or not all(hasattr(consumer, name) for name in _OURS):
        kind = consumer if is_class else type(consumer)
        _refuse(
            f"the consumer must be a safeconsumer.SafeConsumer, not "
            f"{'the class ' if is_class else ''}{kind.__module__}."
            f"{kind.__qualname__}: make it with safeconsumer.KafkaConsumer(...), which "
            f"takes all arguments of kafka.KafkaConsumer"
        )
    config = consumer.config
    if config["group_id"] is None:
        _refuse("the consumer has no group_id, so nothing can be committed: set one")
    if config["enable_auto_commit"]:
        _refuse(
            "the consumer commits by itself what it returned, finished or not: make "
            "it with enable_auto_commit=False"
        )
    _check_sizes(self.limits, config)
    half = config["max_poll_interval_ms"] / 2000
    if self.drain.revoke >= half:
        _refuse(
            f"drain.revoke {self.drain.revoke:g} s must be less than half of "
            f"max_poll_interval_ms ({half:g} s), or a drain gets the member evicted"
        )


def _check_sizes(limits: Limits, config: Mapping[str, Any]) -> None:
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


def _refuse(message: str) -> None:
    raise WorkerSettingError(message)


# ------------------------------------------------------------ options


@frozen(kw_only=True)
class Options:
    """
    The options of a worker. A pump and ``run_worker`` are workers, too.

    Raises:
        WorkerSettingError: one is impossible; the message names it.
    """

    order: OrderName = field(validator=_is_one_of(*get_args(OrderName)))
    executor: ExecutorName = field(
        default="thread", validator=_is_one_of(*get_args(ExecutorName))
    )
    concurrency: int = field(default=1, validator=positive_int)
    batch: int | None = field(validator=[optional(positive_int), _has_no_keys])
    batch_within: float = field(default=0.0, validator=[not_negative, _has_batches])
    handler_timeout: float | None = field(default=None, validator=optional(positive))
    lifespan: MakeLifespan | None = field(default=None, validator=_can_be_entered)
    limits: Limits = field(validator=_is_a(Limits))
    retry: Retry = field(validator=_is_a(Retry))
    dead_letter: DeadLetter | Sink | None
    on_exhausted: OnExhausted = field(validator=_is_one_of(*get_args(OnExhausted)))
    drain: Drain = field(validator=_is_a(Drain))
    commit: Commit = field(validator=_is_a(Commit))
    breaker: Breaker | None = field(validator=optional(_is_a(Breaker)))
    on_event: Hook | None
    trace: bool | Tracing = field(default=False, validator=_is_a(bool, Tracing))
    # Checked last, as they must fit the others.
    consumer: Any = field(validator=_suits)
    handle: Handle | HandleBatch = field(validator=_can_be_called)

    @property
    def is_batch(self) -> bool:
        """Whether the handler gets several records at a time."""
        return self.batch is not None
