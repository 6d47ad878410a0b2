"""Checks the arguments of a worker or a pump, and builds the parts that it is made of."""

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from safeconsumer.events.dispatch import Hook
from safeconsumer.worker.breaker import Breaker
from safeconsumer.worker.client import ConsumerClient, Emitter
from safeconsumer.worker.dead_letters import DeadLetters, Sink, letters_of
from safeconsumer.worker.executors import ExecutorName, cut
from safeconsumer.worker.executors.base import START_SECONDS, Calls
from safeconsumer.worker.executors.lifespan import MakeLifespan, check_lifespan
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.queue import Lanes, OnExhausted, Policy, Queue, order_of
from safeconsumer.worker.results import Schedule
from safeconsumer.worker.routes import Handler, chosen
from safeconsumer.worker.settings import (
    Commit,
    DeadLetter,
    Drain,
    Limits,
    Retry,
    Tracing,
    check_breaker,
    check_consumer,
    check_counts,
    check_key,
    check_kinds,
    check_on_exhausted,
    check_trace,
    traced,
)
from safeconsumer.worker.throttle import PerTopic, check_throttles, check_timeout

if TYPE_CHECKING:
    from safeconsumer.worker.tracing import Tracer


@frozen(kw_only=True)
class Settings:
    """
    The arguments that workers and pumps have in common, under the same names.

    Raises:
        WorkerSettingError: a setting is impossible, or does not fit the consumer.
    """

    consumer: Any
    limits: Limits
    retry: Retry
    dead_letter: DeadLetter | Sink | None
    on_exhausted: OnExhausted
    drain: Drain
    commit: Commit
    breaker: Breaker | None
    on_event: Hook | None

    def __attrs_post_init__(self) -> None:
        check_kinds(
            limits=self.limits, retry=self.retry, drain=self.drain, commit=self.commit
        )
        check_consumer(self.consumer, self.limits, self.drain)
        check_on_exhausted(self.on_exhausted)
        check_breaker(self.breaker)


@frozen(kw_only=True)
class Handling:
    """
    The arguments of a worker that concern its handlers, under the same names.

    Attributes:
        called: the handler, or one object that calls several handlers.

    Raises:
        WorkerSettingError: a setting is impossible.
    """

    handle: object
    handlers: object
    order: str
    key: Callable[[Any], object]
    executor: ExecutorName
    concurrency: int
    batch: int | None
    batch_within: float
    rate: float | None
    topic_concurrency: Mapping[str, int] | None
    handler_timeout: float | None
    lifespan: MakeLifespan | None
    trace: bool | Tracing = field(converter=traced)
    called: Handler = field(init=False)

    @called.default
    def _chosen(self) -> Handler:
        return chosen(self.handle, self.handlers, self.executor)

    def __attrs_post_init__(self) -> None:
        check_key(self.key, self.order)
        batch = 1 if self.batch is None else self.batch
        check_counts(concurrency=self.concurrency, batch=batch)
        check_throttles(self.batch, self.batch_within, self.rate)
        check_timeout(self.handler_timeout)
        check_lifespan(self.lifespan, self.executor)
        check_trace(self.trace)

    @property
    def is_batch(self) -> bool:
        """Whether the handler gets several records at a time."""
        return self.batch is not None

    def policy(self) -> dict[str, Any]:
        """Return the fields of a policy that concern handlers."""
        topics = self.topic_concurrency
        return {
            "is_batch": self.is_batch,
            "within": self.batch_within,
            "rate": self.rate,
            "per_topic": None if topics is None else PerTopic(topics),
            **cut(self.executor, self.batch, is_traced=self.trace is not False),
        }

    def tracer(self, config: Mapping[str, Any]) -> "Tracer | None":
        """
        Return the object that makes spans; None if spans are off.

        Args:
            config: the consumer's settings.

        Raises:
            MissingExtraError: OpenTelemetry's API is not installed.
        """
        if self.trace is False:
            return None
        from safeconsumer.worker import tracing  # noqa: PLC0415  an extra's

        return tracing.Tracer(self.trace, config, is_batch=self.is_batch)

    def calls(
        self, called: Handler, parts: "Parts", age: float, tracer: "Tracer | None"
    ) -> Calls:
        """
        Return the callable for handlers, with how it is called.

        Args:
            called: the handler, with the wrappers around it.
            parts: the worker's parts.
            age: seconds; ``Limits.age``.
            tracer: makes spans of the calls; None if spans are off.
        """
        return Calls(
            handle=called,
            is_batch=self.is_batch,
            seconds=parts.schedule.queue.policy.lane_seconds,
            deadline=lambda: parts.engine.departures.deadline,
            emit=parts.emit,
            timeout=self.handler_timeout,
            lifespan=self.lifespan,
            start_seconds=max(START_SECONDS, age),
            trace=tracer,
        )


@frozen
class Parts:
    """The parts of a worker or a pump."""

    client: ConsumerClient
    emit: Emitter
    engine: Engine
    letters: DeadLetters | None
    schedule: Schedule


def assembled(
    settings: Settings,
    client: ConsumerClient,
    order: str,
    key: Callable[[Any], object],
    **policy: Any,  # noqa: ANN401 - the policy's own
) -> Parts:
    """
    Build the parts and connect them with each other.

    Raises:
        WorkerSettingError: a setting is impossible.
    """
    config = settings.consumer.config
    emit = Emitter(
        settings.on_event,
        config["client_id"],
        config["group_id"],
        is_logged=client.membership.is_logged,
    )
    engine = Engine(
        client,
        limits=settings.limits,
        drain=settings.drain,
        commit=settings.commit,
        emit=emit,
    )
    letters = letters_of(settings.dead_letter, settings.retry, config["group_id"], emit)
    queue = Queue(
        engine.held,
        Lanes(order_of(order), key),
        _policy(settings, letters, policy),
        time.monotonic,
        client.others,
    )
    schedule = Schedule(queue, emit, client.pause, settings.breaker)
    if letters is not None:
        letters.then = schedule.letter_acknowledged
        letters.refused = schedule.letter_refused
        letters.broken = schedule.fail
        engine.departures.in_flight = letters.in_flight
    return Parts(client, emit, engine, letters, schedule)


def _policy(
    settings: Settings, letters: DeadLetters | None, more: Mapping[str, Any]
) -> Policy:
    dead_letter = settings.dead_letter
    return Policy(
        retry=settings.retry,
        on_exhausted=settings.on_exhausted,
        post=None if letters is None else letters.post,
        max_ratio=getattr(dead_letter, "max_ratio", None),
        max_consecutive=getattr(dead_letter, "max_consecutive", None),
        span=settings.limits.span,
        **more,
    )
