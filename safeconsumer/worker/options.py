"""Declares a worker's options, refuses invalid ones, and builds the worker's parts."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from attrs import field, frozen
from attrs.validators import optional

from safeconsumer._checks import not_negative, positive, positive_int
from safeconsumer.errors.base import WorkerSettingError
from safeconsumer.events.dispatch import Hook
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.calls import START_SECONDS, Calls
from safeconsumer.worker.client import ConsumerClient, Emitter
from safeconsumer.worker.dead_letters import Sink, checked_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.deserializing import Readers
from safeconsumer.worker.executors import (
    ExecutorName,
    Runner,
    check_kind,
    check_lifespan,
    choose,
)
from safeconsumer.worker.handlers import Handle, HandleBatch, Handler, MakeLifespan
from safeconsumer.worker.journal import HandlerJournal
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.partition import Order
from safeconsumer.worker.queue import QUANTUM, OnExhausted, Policy, Queue
from safeconsumer.worker.retry import SAMPLE
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    Tracing,
    check_callable,
    refuse_class,
    refuse_loop,
)

if TYPE_CHECKING:
    from safeconsumer.worker.tracing import Tracer

OrderName: TypeAlias = Literal["partition", "key", "unordered"]
_Check: TypeAlias = Callable[[object, Any, Any], None]
# The attributes of a consumer that a worker needs; kafka-python's own consumer lacks
# some of them.
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
            "the consumer commits returned records automatically, finished or not: "
            "make it with enable_auto_commit=False"
        )
    _check_sizes(self.limits, config)
    half = config["max_poll_interval_ms"] / 2000
    if self.drain.revoke >= half:
        _refuse(
            f"drain.revoke {self.drain.revoke:g} s must be less than half of "
            f"max_poll_interval_ms ({half:g} s), or a drain may evict the member"
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
    The options of a worker, including one that a pump or ``run_worker`` creates.

    Raises:
        WorkerSettingError: an option is invalid; the message names it.
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
    # These options are checked last, because they must fit the other options.
    consumer: Any = field(validator=_suits)
    handle: Handle | HandleBatch = field(validator=_can_be_called)

    @property
    def is_batch(self) -> bool:
        """Whether the handler gets batches of records."""
        return self.batch is not None


# ------------------------------------------------------------ the parts of a worker


@frozen(kw_only=True)
class Runtime:
    """
    A worker's clocks, and the function that creates the runner for its handlers.

    Attributes:
        clock: returns the time in seconds, on the clock that all waits use.
        wall: returns the time of events, in seconds since the epoch.
        choose: creates the runner that calls the handlers.
        policy: values for fields of the policy, which override those from the options.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    choose: Callable[[ExecutorName, Decisions, Calls, int], Runner] = choose
    policy: Mapping[str, Any] = field(factory=dict)


@frozen
class WorkerParts:
    """The parts of a worker, connected to each other but not started."""

    emit: Emitter
    engine: Engine
    decisions: Decisions
    tracer: "Tracer | None"
    runner: Runner


def build(options: Options, client: ConsumerClient, runtime: Runtime) -> WorkerParts:
    """
    Build the parts of a worker, without starting them.

    Raises:
        WorkerSettingError: a setting is invalid.
        MissingExtraError: ``trace`` is set, and OpenTelemetry's API is not installed.
    """
    refuse_loop(client.membership.consumed.has, options.dead_letter)
    config = options.consumer.config
    emit = Emitter(
        options.on_event,
        config["client_id"],
        config["group_id"],
        runtime.wall,
        is_logged=client.membership.is_logged,
    )
    engine = Engine(
        client,
        limits=options.limits,
        drain=options.drain,
        commit=options.commit,
        emit=emit,
        clock=runtime.clock,
    )
    order = Order(options.order)
    queue = Queue(
        engine.kept,
        order,
        _policy(options, runtime),
        runtime.clock,
        client.membership.ledger,
    )
    decisions = Decisions(queue, emit, client.pause, options.breaker)
    if client.journal is not None:
        decisions.journal = HandlerJournal(client.journal, decisions.fail, order)
    tracer = None
    if options.trace is not False:
        from safeconsumer.worker.tracing import Tracer  # noqa: PLC0415  an extra's

        tracer = Tracer(options.trace, config)
    handle: Handler = options.handle
    readers = Readers(*client.membership.deserializers())
    if readers:
        handle = readers.before(handle, is_batch=options.is_batch)
    calls = Calls(
        handle=handle,
        deadline=lambda: engine.departures.deadline,
        emit=emit,
        timeout=options.handler_timeout,
        lifespan=options.lifespan,
        start_seconds=max(START_SECONDS, options.limits.age),
        trace=tracer,
    )
    runner = runtime.choose(options.executor, decisions, calls, options.concurrency)
    return WorkerParts(emit, engine, decisions, tracer, runner)


def _policy(options: Options, runtime: Runtime) -> Policy:
    letters = (
        options.dead_letter if isinstance(options.dead_letter, DeadLetter) else None
    )
    settings = {
        "quantum": options.batch or QUANTUM,
        "sink": checked_sink(options.dead_letter, options.consumer.config["group_id"]),
        **runtime.policy,
    }
    return Policy(
        retry=options.retry,
        on_exhausted=options.on_exhausted,
        max_ratio=None if letters is None else letters.max_ratio,
        sample=SAMPLE if letters is None else letters.sample,
        span=options.limits.span,
        is_batch=options.is_batch,
        within=options.batch_within,
        **settings,
    )
