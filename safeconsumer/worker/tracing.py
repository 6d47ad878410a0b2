"""
Makes a span of each attempt of a worker, with OpenTelemetry's API alone.

Names of attributes are those of the semantic conventions 1.44 for messaging. They are
written out here, since the packages that define them are pinned to single versions.
"""

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, ParamSpec, TypeVar

from attrs import define, evolve
from kafka.cluster import collect_hosts
from kafka.structs import TopicPartition

from safeconsumer.errors import MissingExtraError
from safeconsumer.worker.calls import blamed, is_async, misfit, refuse_undone
from safeconsumer.worker.handlers import (
    BatchFailure,
    Context,
    Handler,
    Pause,
    RetryLater,
    StopWorker,
)
from safeconsumer.worker.outages import checked_pause
from safeconsumer.worker.settings import Tracing
from safeconsumer.worker.tracebacks import chain, message

try:
    from opentelemetry import context as contexts
    from opentelemetry import propagate, trace
    from opentelemetry.baggage.propagation import W3CBaggagePropagator
    from opentelemetry.propagators.textmap import Getter
    from opentelemetry.trace.propagation.tracecontext import (
        TraceContextTextMapPropagator,
    )
except ImportError as error:
    _message = (
        f"spans need OpenTelemetry's API ({error}): pip install 'safeconsumer[otel]'"
    )
    raise MissingExtraError(_message) from error

_P = ParamSpec("_P")
_T = TypeVar("_T")

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
# Exceptions by which a handler steers its worker, and which are no failures.
_ASKED = (Pause, RetryLater, StopWorker)
_BAGGAGE = "baggage"
# For how many partitions attributes are kept, at some 500 bytes each.
_MOST_PLACES = 4_096

# The propagator to other processes, where others may be configured.
_between = TraceContextTextMapPropagator(), W3CBaggagePropagator()

log = logging.getLogger("safeconsumer")


class _Headers(Getter[Sequence[tuple[str, bytes | None]]]):
    """
    Reads headers of records.

    A header that is no text is read as text without a context.
    """

    def get(
        self, carrier: Sequence[tuple[str, bytes | None]], key: str
    ) -> list[str] | None:
        """Return the values of this name; None if there are none."""
        found = [
            value.decode("utf-8", "replace")
            for name, value in carrier
            if name == key and value is not None
        ]
        return found or None

    def keys(self, carrier: Sequence[tuple[str, bytes | None]]) -> list[str]:
        """Return all names of headers."""
        return [name for name, _ in carrier]


_headers = _Headers()


@define(eq=False)
class Attempt:
    """
    One attempt at a record, or at a batch, and its span.

    Attributes:
        span: OpenTelemetry's span.
        context: with the span as the current one, and the baggage of a single record.
        failed: called with an exception that was raised while the context was written.
        count: the number of records handed over together; None if it is no batch.
    """

    span: trace.Span
    context: contexts.Context
    failed: Callable[[Exception], None]
    count: int | None = None

    def run(self, call: Callable[_P, _T], *args: _P.args, **settings: _P.kwargs) -> _T:
        """Call a function in this context."""
        token = contexts.attach(self.context)
        try:
            return call(*args, **settings)
        finally:
            contexts.detach(token)

    def without_baggage(self) -> "Attempt":
        """Return the same attempt, with only its span in the context."""
        alone = trace.set_span_in_context(self.span, contexts.Context())
        return evolve(self, context=alone)

    def headers(self) -> dict[str, bytes | None]:
        """
        Return the headers that replace a record's own headers in its dead letter.

        None as a value means to leave that header out. Baggage stays as the record has
        it. The result is empty if no span was made, as without an SDK, or if it is not
        sampled: then only the sender's trace can be found.
        """
        try:
            return self._headers()
        except Exception as error:  # noqa: BLE001 - a propagator failed: the headers stay
            self.failed(error)
            return {}

    def _headers(self) -> dict[str, bytes | None]:
        here = self.span.get_span_context()
        if not (here.is_valid and here.trace_flags.sampled):
            return {}
        said: dict[str, str | bytes] = {}
        propagate.inject(said, self.context)
        names = {*propagate.get_global_textmap().fields, *said} - {_BAGGAGE}
        return {name: _header(name, said.get(name)) for name in names}

    def carrier(self) -> dict[str, str]:
        """Return the writable part of the context, for :func:`within` in another process."""
        said: dict[str, str] = {}
        for one in _between:
            try:
                one.inject(said, self.context)
            except Exception as error:  # noqa: BLE001 - such as a text with lone surrogates
                self.failed(error)
        return said


def _header(name: object, value: str | bytes | None) -> bytes | None:
    # A propagator that was written for Kafka gives bytes, as Kafka has them.
    if not isinstance(name, str) or not isinstance(value, str | bytes | None):
        message = f"a propagator wrote {name!r:.60}: {value!r:.60}, not a header"
        raise TypeError(message)
    return value.encode() if isinstance(value, str) else value


def within(carrier: Mapping[str, str], handle: Handler) -> Handler:
    """Return the handler, called in the context that was sent here."""
    here = contexts.Context()
    for one in _between:
        here = one.extract(carrier, here)

    def call(given: Any, context: Context) -> object:  # noqa: ANN401 - records
        token = contexts.attach(here)
        try:
            return handle(given, context)
        finally:
            contexts.detach(token)

    return call


class Tracer:
    """
    Makes the spans of a worker. Any thread may call it.

    If it raises, the record does not fail: the handler is called without a span.

    Args:
        setting: the worker's ``trace``.
        group: the consumer's group.
        client: the consumer's ``client_id``.
        servers: the consumer's ``bootstrap_servers``.
        is_batch: whether the handler takes several records at a time.

    Attributes:
        failures: how often a span could not be made or ended, or its context written.
        gives_up: whether the worker cancels its handlers from now on.
    """

    def __init__(
        self,
        setting: Tracing,
        group: str,
        client: str | None,
        servers: str | Sequence[str],
        *,
        is_batch: bool,
    ) -> None:
        self._tracer = trace.get_tracer(
            "safeconsumer", version("safeconsumer"), setting.provider, _SCHEMA
        )
        self._is_parent = setting.parent
        self._is_batch = is_batch
        self._common: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": group,
            **_server(servers),
        }
        if client is not None:
            self._common["messaging.client.id"] = client
        self._places: dict[TopicPartition, dict[str, Any]] = {}
        self.failures = 0
        self.gives_up = False

    # ------------------------------------------------------------ one attempt

    def begin(self, given: Any, tp: TopicPartition, attempt: int) -> Attempt | None:  # noqa: ANN401 - records
        """
        Begin a span; None if none could be made.

        Args:
            given: the record, or the batch.
            tp: its partition.
            attempt: the number of the attempt, from 1.
        """
        try:
            if self._is_batch:
                return self._begin_batch(given, tp, attempt)
            return self._begin_one(given, tp, attempt)
        except Exception as error:  # noqa: BLE001 - from a span processor or a propagator
            self._failed(error)
            return None

    def carrier(self, given: Any, tp: TopicPartition, attempt: int) -> "Carrier":  # noqa: ANN401 - records
        """Return the carrier of an attempt to another process; arguments as :meth:`begin`."""
        return Carrier(self, functools.partial(self.begin, given, tp, attempt))

    def end(self, attempt: Attempt, error: BaseException | None = None) -> None:
        """
        End the span of an attempt.

        Args:
            attempt: the attempt.
            error: the handler's exception; None if it succeeded.
        """
        span = attempt.span
        try:
            if error is not None and span.is_recording():
                self._record(attempt, error)
        except Exception as wrong:  # noqa: BLE001 - from a span processor
            self._failed(wrong)
        try:
            span.end()
        except Exception as wrong:  # noqa: BLE001 - from a span processor
            self._failed(wrong)

    def _record(self, attempt: Attempt, error: BaseException) -> None:
        if not self.gives_up:
            error = _meant(error, attempt.count)
        asked = _asked(error, attempt.count)
        if asked:
            attempt.span.set_attribute("safeconsumer.asked", ",".join(asked))
        else:
            _record(attempt.span, error)

    def _begin_one(self, record: Any, tp: TopicPartition, attempt: int) -> Attempt:  # noqa: ANN401 - upstream's
        base = came = _ambient()
        links: Sequence[trace.Link] = ()
        if record.headers:
            came = propagate.extract(record.headers, base, _headers)
            sent = trace.get_current_span(came).get_span_context()
            if not self._is_parent and sent.is_valid:
                links = (trace.Link(sent),)
                base = trace.set_span_in_context(trace.INVALID_SPAN, came)
            else:
                base = came
        attributes = {
            **self._place(tp),
            "messaging.kafka.offset": record.offset,
            "safeconsumer.attempt": attempt,
        }
        if record.value is None:
            attributes["messaging.kafka.message.tombstone"] = True
        return self._begin(tp, base, came, attributes, links)

    def _begin_batch(
        self, records: Sequence[Any], tp: TopicPartition, attempt: int
    ) -> Attempt:
        base = _ambient()
        attributes = {
            **self._place(tp),
            "messaging.batch.message_count": len(records),
            "safeconsumer.attempt": attempt,
        }
        links = []
        for record in records:
            if record.headers:
                came = propagate.extract(record.headers, base, _headers)
                sent = trace.get_current_span(came).get_span_context()
                if sent.is_valid:
                    at = {"messaging.kafka.offset": record.offset}
                    links.append(trace.Link(sent, at))
        begun = self._begin(tp, base, base, attributes, links)
        begun.count = len(records)
        return begun

    def _begin(
        self,
        tp: TopicPartition,
        base: contexts.Context,
        came: contexts.Context,
        attributes: dict[str, Any],
        links: Sequence[trace.Link],
    ) -> Attempt:
        span = self._tracer.start_span(
            f"process {tp.topic}", base, trace.SpanKind.CONSUMER, attributes, links
        )
        return Attempt(span, trace.set_span_in_context(span, came), self._failed)

    def _place(self, tp: TopicPartition) -> dict[str, Any]:
        place = self._places.get(tp)
        if place is None:
            if len(self._places) >= _MOST_PLACES:  # topics may come and go
                self._places.clear()
            place = self._places[tp] = {
                **self._common,
                "messaging.destination.name": tp.topic,
                "messaging.destination.partition.id": str(tp.partition),
            }
        return place

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if self.failures == 1:
            with suppress(Exception):  # the log may be what failed
                log.error(
                    "a span failed; later ones are tried, but this is not logged again",
                    exc_info=error,
                )

    # ------------------------------------------------------------ handlers

    def around(self, handle: Handler) -> Handler:
        """Return the handler with a span around each of its calls in this process."""
        return self._around_async(handle) if is_async(handle) else self._around(handle)

    def _around(self, handle: Handler) -> Handler:
        begin, end = self.begin, self.end

        def call(given: Any, context: Context) -> None:  # noqa: ANN401 - records
            attempt = begin(given, context.partition, context.attempt)
            context.trace = attempt
            if attempt is None:
                refuse_undone(handle(given, context))
                return
            token = contexts.attach(attempt.context)
            try:
                answer = handle(given, context)
                if answer is not None:
                    refuse_undone(answer)
            except BaseException as error:
                contexts.detach(token)
                end(attempt, error)
                raise
            contexts.detach(token)
            end(attempt)

        return call

    def _around_async(self, handle: Handler) -> Handler:
        begin, end = self.begin, self.end

        async def call(given: Any, context: Context) -> None:  # noqa: ANN401 - records
            attempt = begin(given, context.partition, context.attempt)
            context.trace = attempt
            if attempt is None:
                refuse_undone(await handle(given, context))
                return
            token = contexts.attach(attempt.context)
            try:
                answer = await handle(given, context)
                if answer is not None:
                    refuse_undone(answer)
            except GeneratorExit as error:  # not awaited; any thread
                end(attempt, error)
                raise
            except BaseException as error:
                contexts.detach(token)
                end(attempt, error)
                raise
            contexts.detach(token)
            end(attempt)

        return call


class Carrier(Mapping[str, str]):
    """
    Carries an attempt to another process: the attempt begins when this is pickled.

    A pool of processes pickles the calls that it will run, and cannot give those back:
    a call that a hold takes out of its queue has not begun. Any thread.
    """

    def __init__(self, tracer: Tracer, begin: Callable[[], Attempt | None]) -> None:
        self._tracer = tracer
        self._begin = begin
        self._lock = threading.Lock()  # against a pool that breaks while it pickles
        self._attempt: Attempt | None = None
        self._said: dict[str, str] | None = None

    def end(self, error: BaseException | None) -> Attempt | None:
        """End the attempt, and return it; None if it has no span."""
        self._written()
        if self._attempt is not None:
            self._tracer.end(self._attempt, error)
        return self._attempt

    def _written(self) -> dict[str, str]:
        with self._lock:
            if self._said is None:
                attempt = self._attempt = self._begin()
                self._said = {} if attempt is None else attempt.carrier()
            return self._said

    def __reduce__(self) -> Any:  # noqa: ANN401 - what pickle asks for
        return dict, (self._written(),)

    def __getitem__(self, name: str) -> str:
        return self._written()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._written())

    def __len__(self) -> int:
        return len(self._written())


def tracer_of(
    setting: bool | Tracing,  # noqa: FBT001 - as the worker takes it
    config: Mapping[str, Any],
    *,
    is_batch: bool,
) -> Tracer:
    """
    Return the tracer of a worker.

    Args:
        setting: the worker's ``trace``, which is not False.
        config: the consumer's settings.
        is_batch: whether the handler takes several records at a time.
    """
    setting = setting if isinstance(setting, Tracing) else Tracing()
    names = config["group_id"], config["client_id"], config["bootstrap_servers"]
    return Tracer(setting, *names, is_batch=is_batch)


def _server(servers: str | Sequence[str]) -> dict[str, str | int]:
    # With several servers it is not known here from which one a record came.
    hosts = {one[:2] for one in collect_hosts(servers, randomize=False)}
    if len(hosts) != 1:
        return {}
    ((host, port),) = hosts
    return {"server.address": host, "server.port": port}


def _ambient() -> contexts.Context:
    # The context here is not that of the record: with serve() it belongs to the caller
    # that awaits the worker, for days.
    here = contexts.get_current()
    return trace.set_span_in_context(trace.INVALID_SPAN, here) if here else here


def _meant(error: BaseException, count: int | None) -> BaseException:
    # The error as the worker counts it, so that its events name the same one.
    error = blamed(error)
    if isinstance(error, Pause):
        taken = checked_pause(error)
        return error if isinstance(taken, Pause) else taken
    if count is not None and isinstance(error, BatchFailure):
        return misfit(getattr(error, "errors", None), count) or error
    return error


def _asked(error: BaseException, count: int | None) -> list[str]:
    # What a batch asks for where nothing has failed, for each record that it names.
    every = [error]
    if count is not None and isinstance(error, BatchFailure):
        every = [_meant(one, None) for one in error.errors.values()]
    if not all(isinstance(one, _ASKED) for one in every):
        return []
    return sorted({type(one).__name__ for one in every})


def _record(span: trace.Span, error: BaseException) -> None:
    kind = type(error)
    is_built_in = kind.__module__ == "builtins"
    name = (
        kind.__qualname__ if is_built_in else f"{kind.__module__}.{kind.__qualname__}"
    )
    text = message(error)
    span.set_attribute("error.type", name)
    span.set_status(trace.Status(trace.StatusCode.ERROR, text))
    # Like record_exception, which calls str() of an error without a guard and keeps all
    # of the text, possibly with a record's value, for each attempt.
    said = {
        "exception.type": name,
        "exception.message": text,
        "exception.stacktrace": chain(error),
    }
    span.add_event("exception", said)
