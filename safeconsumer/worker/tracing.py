"""
Makes a span for each attempt of a worker; uses only OpenTelemetry's API.

The attributes have the names of the semantic conventions 1.44 for messaging. This
module spells them out, because each package that defines them is pinned to a single
version.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import Any

from kafka.structs import TopicPartition

from safeconsumer.errors.base import MissingExtraError
from safeconsumer.worker.calls import done_places
from safeconsumer.worker.groups import deciding_error
from safeconsumer.worker.handlers import (
    BatchFailure,
    Context,
    Handler,
    Pause,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.settings import Tracing
from safeconsumer.worker.tracebacks import chain, message

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.composite import CompositePropagator
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )
except ImportError as error:
    _message = (
        f"spans need OpenTelemetry's API ({error}): pip install 'safeconsumer[otel]'"
    )
    raise MissingExtraError(_message) from error

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
# Exceptions that control the worker, and are not failures.
_REQUESTS = (Pause, RetryLater, StopWorker)

# The propagator that is used between processes, whatever propagators these have
# configured.
_between = CompositePropagator(
    [TraceContextTextMapPropagator(), W3CBaggagePropagator()]
)

log = logging.getLogger("safeconsumer")


def within(carrier: Mapping[str, str], handle: Handler) -> Handler:
    """Return a handler whose calls run in the context of the carrier."""
    here = _between.extract(carrier, contexts.Context())

    def call(given: Any, context: Context) -> object:  # noqa: ANN401 - records
        contexts.attach(here)  # each call has its own copy of the context
        return handle(given, context)

    return call


class Tracer:
    """
    Makes the spans of a worker, on any thread.

    If OpenTelemetry raises an exception, the record does not fail; its handler runs
    without a span.

    Args:
        setting: the value of the worker's option ``trace``, other than False.
        config: the consumer's settings.

    Attributes:
        failures: the number of spans that could not be created, ended or passed on.
    """

    def __init__(
        self,
        setting: bool | Tracing,  # noqa: FBT001 - as the worker takes it
        config: Mapping[str, Any],
    ) -> None:
        setting = setting if isinstance(setting, Tracing) else Tracing()
        self._tracer = trace.get_tracer(
            "safeconsumer", version("safeconsumer"), setting.provider, _SCHEMA
        )
        self._is_parent = setting.parent
        self._common: dict[str, str] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": config["group_id"],
        }
        if config["client_id"] is not None:
            self._common["messaging.client.id"] = config["client_id"]
        self.failures = 0

    @contextmanager
    def block(self, given: Any, context: Context) -> Iterator[Any]:  # noqa: ANN401 - records
        """
        Make the span of an attempt, which is the current span during the call.

        Each call of a handler has its own copy of the context, so the span need not be
        detached at the end. If no span can be made, the call runs without one.
        """
        span: trace.Span = trace.INVALID_SPAN
        here = _ambient()
        try:
            span, here = self._begin(given, context.partition, context.attempt, here)
        except Exception as error:  # noqa: BLE001 - a span processor or a propagator raised
            self._failed(error)
        contexts.attach(here)
        raised: BaseException | None = None
        try:
            yield given
        except BaseException as error:
            raised = error
            raise
        finally:
            if isinstance(given, list) and len(done_places(raised, len(given))) == len(
                given
            ):
                raised = None  # a BatchFailure that names no record
            self._end(span, raised)

    def _end(self, span: trace.Span, error: BaseException | None) -> None:
        try:
            if error is not None and span.is_recording():
                _record(span, error)
            span.end()
        except Exception as wrong:  # noqa: BLE001 - a span processor raised
            self._failed(wrong)

    def _begin(
        self,
        given: Any,  # noqa: ANN401 - records
        tp: TopicPartition,
        attempt: int,
        here: contexts.Context,
    ) -> tuple[trace.Span, contexts.Context]:
        attributes: dict[str, Any] = {
            **self._common,
            "messaging.destination.name": tp.topic,
            "messaging.destination.partition.id": str(tp.partition),
            "safeconsumer.attempt": attempt,
        }
        if isinstance(given, list):  # a batch
            attributes["messaging.batch.message_count"] = len(given)
            links = [
                link
                for one in given
                for link in _links(_sender_context(one, here), one)
            ]
        else:
            attributes["messaging.kafka.offset"] = given.offset
            here = _sender_context(given, here)
            links = [] if self._is_parent else _links(here)
        base = trace.set_span_in_context(trace.INVALID_SPAN, here) if links else here
        span = self._tracer.start_span(
            f"process {tp.topic}", base, trace.SpanKind.CONSUMER, attributes, links
        )
        return span, trace.set_span_in_context(span, base)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            with suppress(Exception):  # the log itself may fail
                log.error(
                    "a span failed; further failures are counted, but not logged",
                    exc_info=error,
                )

    def carrier(self) -> dict[str, str]:
        """Return the current context as a carrier, for :func:`within` in another process."""
        texts: dict[str, str] = {}
        try:
            _between.inject(texts)
        except Exception as error:  # noqa: BLE001 - for example for lone surrogates
            self._failed(error)
        return texts


def _ambient() -> contexts.Context:
    # The current context is not related to the record. With serve() it belongs to the
    # caller, which may await the worker for days.
    here = contexts.get_current()
    return trace.set_span_in_context(trace.INVALID_SPAN, here) if here else here


def _sender_context(record: Any, here: contexts.Context) -> contexts.Context:  # noqa: ANN401 - upstream's record
    # Returns the trace context that a record's sender put into the headers. If several
    # headers have the same name, the last one is used, because it is newest. A header
    # that is not text cannot contain a context.
    if not record.headers:
        return here
    texts = {
        name: value.decode("utf-8", "replace")
        for name, value in record.headers
        if value is not None
    }
    return propagate.extract(texts, here)


def _links(sender: contexts.Context, record: Any = None) -> list[trace.Link]:  # noqa: ANN401 - upstream's record
    # Returns a link to the sender of a record, with the record's offset if it is in a
    # batch.
    sent = trace.get_current_span(sender).get_span_context()
    if not sent.is_valid:
        return []
    at = None if record is None else {"messaging.kafka.offset": record.offset}
    return [trace.Link(sent, at)]


def _requests(error: BaseException) -> list[str]:
    # Returns the names of the control exceptions of an attempt that did not fail; each
    # record of a batch may have one.
    named = error.errors if isinstance(error, BatchFailure) else {0: error}
    every = [*named.values()] if isinstance(named, dict) else []
    if not all(isinstance(one, _REQUESTS) for one in every):
        return []
    return sorted({type(one).__name__ for one in every})


def _record(span: trace.Span, error: BaseException) -> None:
    error = deciding_error(error)
    requests = _requests(error)
    if requests:
        span.set_attribute("safeconsumer.asked", ",".join(requests))
        return
    kind = type(error)
    is_built_in = kind.__module__ == "builtins"
    name = (
        kind.__qualname__ if is_built_in else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = message(error)
    span.set_attribute("error.type", name)
    span.set_status(trace.Status(trace.StatusCode.ERROR, text))
    # Not record_exception(), which calls str() on the error without a guard and keeps
    # the whole text, which may contain a record's value, for each attempt.
    attributes = {
        "exception.type": name,
        "exception.message": text,
        "exception.stacktrace": chain(error),
    }
    span.add_event("exception", attributes)
