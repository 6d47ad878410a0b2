"""Builds the parts that a worker is made of, and connects them."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from safeconsumer.worker.client import ConsumerClient, Emitter
from safeconsumer.worker.dead_letters import checked_sink
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.executors import ExecutorName, choose
from safeconsumer.worker.executors.base import START_SECONDS, Calls, Runner
from safeconsumer.worker.handlers import Handler
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.options import Options
from safeconsumer.worker.queue import QUANTUM, Policy, Queue
from safeconsumer.worker.retry import SAMPLE
from safeconsumer.worker.settings import DeadLetter

if TYPE_CHECKING:
    from safeconsumer.worker.tracing import Tracer


@frozen(kw_only=True)
class Surroundings:
    """
    What is around a worker: its clocks, and what runs its handlers.

    Attributes:
        clock: returns the time in seconds, on the clock of everything that waits.
        wall: returns the time of events, in seconds since the epoch.
        choose: makes the runner of handlers.
        policy: fields of the policy that no option sets, or others than options do.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    choose: Callable[[ExecutorName, Decisions, Calls, int], Runner] = choose
    policy: Mapping[str, Any] = field(factory=dict)


@frozen
class Parts:
    """The parts of a worker."""

    client: ConsumerClient
    emit: Emitter
    engine: Engine
    decisions: Decisions


def assembled(options: Options, client: ConsumerClient, around: Surroundings) -> Parts:
    """
    Build the parts and connect them with each other.

    Raises:
        WorkerSettingError: a setting is impossible.
    """
    config, clock = options.consumer.config, around.clock
    emit = Emitter(
        options.on_event,
        config["client_id"],
        config["group_id"],
        around.wall,
        is_logged=client.membership.is_logged,
    )
    engine = Engine(
        client,
        limits=options.limits,
        drain=options.drain,
        commit=options.commit,
        emit=emit,
        clock=clock,
    )
    sink = checked_sink(options.dead_letter, config["group_id"])
    queue = Queue(
        engine.kept,
        Order(options.order),
        _policy(options, {"sink": sink, **around.policy}),
        clock,
        client.membership.ledger,
    )
    decisions = Decisions(queue, emit, client.pause, options.breaker)
    return Parts(client, emit, engine, decisions)


def _policy(options: Options, more: Mapping[str, Any]) -> Policy:
    is_topic = isinstance(options.dead_letter, DeadLetter)
    limits = options.dead_letter if is_topic else None
    settings = {
        "max_ratio": getattr(limits, "max_ratio", None),
        "sample": getattr(limits, "sample", SAMPLE),
        "is_batch": options.is_batch,
        "within": options.batch_within,
        "quantum": options.batch or QUANTUM,
        **more,
    }
    return Policy(
        retry=options.retry,
        on_exhausted=options.on_exhausted,
        span=options.limits.span,
        **settings,
    )


def tracer_of(options: Options) -> "Tracer | None":
    """
    Return the object that makes spans; None if spans are off.

    Raises:
        MissingExtraError: OpenTelemetry's API is not installed.
    """
    if options.trace is False:
        return None
    from safeconsumer.worker import tracing  # noqa: PLC0415  an extra's

    config = options.consumer.config
    return tracing.Tracer(options.trace, config, is_batch=options.is_batch)


def calls_of(
    options: Options, called: Handler, parts: Parts, tracer: "Tracer | None"
) -> Calls:
    """
    Return the callable for handlers, with how it is called.

    Args:
        options: the worker's.
        called: the handler, with the wrappers around it.
        parts: the worker's parts.
        tracer: makes spans of the calls; None if spans are off.
    """
    return Calls(
        handle=called,
        is_batch=options.is_batch,
        seconds=parts.decisions.queue.policy.lane_seconds,
        deadline=lambda: parts.engine.departures.deadline,
        emit=parts.emit,
        timeout=options.handler_timeout,
        lifespan=options.lifespan,
        start_seconds=max(START_SECONDS, options.limits.age),
        trace=tracer,
        journal=parts.decisions.journal,
    )
