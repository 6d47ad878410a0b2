"""Spans of a worker's attempts: what they say, where they live, and what carries them on."""

import asyncio
import importlib
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.partitioner.default import DefaultPartitioner
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as contexts
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import (
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
)
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes import error_attributes, server_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from safeconsumer import (
    BatchFailure,
    DeadLetter,
    Drain,
    MissingExtraError,
    Pause,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    Tracing,
    Worker,
    WorkerSettingError,
)
from safeconsumer.events.trace_ids import add_trace_ids
from safeconsumer.worker.tracebacks import CHAIN_BYTES, MESSAGE_BYTES
from safeconsumer.worker.tracing import tracer_of
from tests.broker.worker.test_contract import read_all
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.embedded_suffices

TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"
NOT_SAMPLED = SENT[:-1] + "0"
TWICE = Retry(attempts=2, first=0.05, most=0.05)
ONCE = Retry(attempts=1, first=0.05, most=0.05)
CONFIG = {"group_id": "g", "client_id": "c", "bootstrap_servers": "localhost"}
RECORD = SimpleNamespace(headers=[], offset=0, value=b"")


class Spans:
    """What was recorded, by a provider of our own."""

    def __init__(self, sampler: Sampler | None = None) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        """What has ended, in that order."""
        return self._exporter.get_finished_spans()

    @property
    def one(self) -> ReadableSpan:
        """The only one."""
        (span,) = self.all
        return span

    def tracing(self, *, parent: bool = False) -> Tracing:
        """Return the setting that has spans recorded here."""
        return Tracing(parent=parent, provider=self.provider)


@pytest.fixture
def spans() -> Spans:
    """Lend a provider that records everything."""
    return Spans()


@contextmanager
def instrumented(spans: Spans) -> Iterator[None]:
    """Have OpenTelemetry's own instrumentor wrap kafka-python."""
    instrumentor = KafkaInstrumentor()
    instrumentor.instrument(tracer_provider=spans.provider)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def send(lab: Lab, *values: str | None, **headers: str | bytes) -> None:
    """Write to partition 0, with these headers."""
    for value in values:
        lab.producer.send(
            lab.topic,
            value=None if value is None else value.encode(),
            key=b"a secret key",
            headers=[
                (name, one if isinstance(one, bytes) else one.encode())
                for name, one in headers.items()
            ],
            partition=0,
        ).get(30)


def nothing(_record: object, _context: object) -> None:
    """Handle it."""


async def nothing_async(_record: object, _context: object) -> None:
    """Handle it."""
    await asyncio.sleep(0)


def handled(
    lab: Lab,
    spans: Spans,
    handle: Any,  # noqa: ANN401 - a worker's own
    *values: str,
    **settings: Any,  # noqa: ANN401 - a worker's own
) -> Running:
    """Send these values, and run a worker until it has done them all, or has ended."""
    lab.new_topic(partitions=1)
    send(lab, *values, **settings.pop("headers", {"traceparent": SENT}))
    usual = {"trace": spans.tracing(), "retry": ONCE, "on_exhausted": "skip"}
    consumer = lab.consumer(value_deserializer=settings.pop("deserialize", None))
    running = lab.run(handle, consumer, **{**usual, **settings})
    worker = running.worker

    def is_over() -> bool:
        return worker.stats().done == len(values) or worker.stats().state == "closed"

    wait_for(is_over, "all to be done")
    worker.stop()
    running.wait_end()
    return running


_asked: set[tuple[str, int]] = set()


def obey(record: Any, _context: object) -> None:  # noqa: ANN401 - upstream's
    """Raise what the value says."""
    if record.value == b"bad":
        message = "planted"
        raise ValueError(message)
    place = record.topic, record.offset
    if record.value == b"later" and place not in _asked:
        _asked.add(place)  # it uses up no attempt
        raise RetryLater(0.05)


async def obey_async(record: Any, context: Any) -> None:  # noqa: ANN401 - upstream's
    """As ``obey``."""
    await asyncio.sleep(0)
    obey(record, context)


@pytest.fixture(params=["thread", "process", "asyncio"])
def place(request: pytest.FixtureRequest) -> Any:  # noqa: ANN401 - its parameter
    """Lend each kind of executor."""
    return request.param


def handler_for(place: object) -> Any:  # noqa: ANN401 - a handler
    """Return ``obey``, of the kind that the executor calls."""
    return obey_async if place == "asyncio" else obey


# ------------------------------------------------------------ what a span says


def test_a_span_says_what_the_conventions_name(lab: Lab, spans: Spans) -> None:
    """
    Kind, name, attributes and schema as in the conventions; a link to who sent it.

    The key is told nowhere.
    """
    handled(
        lab,
        spans,
        nothing,
        "one",
        headers={"traceparent": SENT, "tracestate": "vendor=1"},
    )
    span = spans.one
    assert (span.name, span.kind) == (f"process {lab.topic}", SpanKind.CONSUMER)
    config = lab.consumer().config
    assert dict(span.attributes or {}) == {
        names.MESSAGING_SYSTEM: "kafka",
        names.MESSAGING_OPERATION_NAME: "process",
        names.MESSAGING_OPERATION_TYPE: "process",
        names.MESSAGING_DESTINATION_NAME: lab.topic,
        names.MESSAGING_DESTINATION_PARTITION_ID: "0",
        names.MESSAGING_CONSUMER_GROUP_NAME: lab.group,
        names.MESSAGING_CLIENT_ID: config["client_id"],
        names.MESSAGING_KAFKA_OFFSET: 0,
        "safeconsumer.attempt": 1,
        **server_of(config["bootstrap_servers"]),
    }
    scope = span.instrumentation_scope
    assert (scope.name, scope.schema_url) == ("safeconsumer", Schemas.V1_44_0.value)
    (link,) = span.links
    assert (link.context.trace_id, link.context.span_id) == (TRACE_ID, SPAN_ID)
    assert link.context.trace_state == {"vendor": "1"}
    assert span.parent is None
    assert span.context.trace_id != TRACE_ID
    assert span.status.status_code is StatusCode.UNSET
    assert "secret" not in span.to_json()


def server_of(servers: list[str]) -> dict[str, str | int]:
    """Return what the only one of these is said to be."""
    if servers[1:]:
        return {}
    host, port = servers[0].rsplit(":", 1)
    return {
        server_attributes.SERVER_ADDRESS: host,
        server_attributes.SERVER_PORT: int(port),
    }


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("kafka", ("kafka", 9092)),
        (["SSL://kafka:9093"], ("kafka", 9093)),
        (["[::1]:9094"], ("::1", 9094)),
        ("kafka:9092,kafka:9092", ("kafka", 9092)),
        (["a:9092", "b:9092"], (None, None)),
    ],
)
def test_the_server_is_named_if_there_is_one(
    spans: Spans, servers: str | list[str], expected: tuple[str | None, int | None]
) -> None:
    """Of several nobody knows which one a record came from."""
    config = {**CONFIG, "bootstrap_servers": servers}
    tracer = tracer_of(spans.tracing(), config, is_batch=False)
    begun = tracer.begin(RECORD, TopicPartition("t", 0), 1)
    assert begun is not None
    tracer.end(begun)
    attributes = spans.one.attributes or {}
    address = attributes.get(server_attributes.SERVER_ADDRESS)
    assert (address, attributes.get(server_attributes.SERVER_PORT)) == expected


@pytest.mark.parametrize("sent", [SENT, NOT_SAMPLED])
@pytest.mark.parametrize("parent", [False, True])
def test_the_record_is_the_parent_by_option(
    lab: Lab,
    spans: Spans,
    sent: str,
    parent: bool,  # noqa: FBT001
) -> None:
    """Then the attempt is part of its sender's trace, and sampled as it is; a link is not."""
    seen: list[trace.SpanContext] = []
    handled(
        lab,
        spans,
        lambda *_: seen.append(trace.get_current_span().get_span_context()),
        "one",
        trace=spans.tracing(parent=parent),
        headers={"traceparent": sent, "tracestate": "vendor=1"},
    )
    (here,) = seen
    assert (here.trace_id == TRACE_ID) is parent
    assert here.trace_flags.sampled is (sent == SENT or not parent)
    assert len(spans.all) == here.trace_flags.sampled
    for span in spans.all:
        assert bool(span.parent) is parent
        assert bool(span.links) is not parent
        assert (span.context.trace_state == {"vendor": "1"}) is parent


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"no trace",
        b"\xff\xfe\x00",
        SENT.encode()[:-2],
        b"00-" + 32 * b"0" + b"-" + 16 * b"0" + b"-01",
        b"ff" + SENT.encode()[2:],
        10_000 * b"a",
    ],
)
@pytest.mark.parametrize("parent", [False, True])
def test_a_damaged_context_is_none(spans: Spans, damaged: bytes, parent: bool) -> None:  # noqa: FBT001
    """The record is handled, in a trace of its own without a link; a tombstone is named."""
    headers = {
        "traceparent": damaged,
        "tracestate": b"\xff=,=",
        "baggage": b"\xff%;=,=",
    }
    record = SimpleNamespace(headers=[*headers.items()], offset=0, value=None)
    tracer = tracer_of(spans.tracing(parent=parent), CONFIG, is_batch=False)
    begun = tracer.begin(record, TopicPartition("t", 0), 1)
    assert begun is not None
    tracer.end(begun)
    assert spans.one.parent is None
    assert not spans.one.links
    attributes = spans.one.attributes or {}
    assert attributes[names.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] is True


# ------------------------------------------------------------ one for each attempt


def test_each_attempt_is_a_span(lab: Lab, spans: Spans, place: str) -> None:
    """
    One that failed says so with its class, status and exception, wherever it ran.

    One that asks for later is no error, and says what it asked for.
    """
    how = {"executor": place, "concurrency": 1, "retry": TWICE}
    handled(lab, spans, handler_for(place), "bad", "later", **how)
    said = [dict(span.attributes or {}) for span in spans.all]
    assert [one["messaging.kafka.offset"] for one in said] == [0, 0, 1, 1]
    assert [one["safeconsumer.attempt"] for one in said] == [1, 2, 1, 1]
    for span in spans.all[:2]:
        assert span.status.status_code is StatusCode.ERROR
        assert span.status.description == "planted"
        assert (span.attributes or {})[error_attributes.ERROR_TYPE] == "ValueError"
        (event,) = span.events
        assert (event.attributes or {})["exception.message"] == "planted"
        assert "in obey" in str((event.attributes or {})["exception.stacktrace"])
    for span in spans.all[2:]:
        assert span.status.status_code is StatusCode.UNSET
        assert error_attributes.ERROR_TYPE not in (span.attributes or {})
    assert [one.get("safeconsumer.asked") for one in said[2:]] == ["RetryLater", None]
    assert all(len(span.links) == 1 for span in spans.all)
    assert len({span.context.trace_id for span in spans.all}) == 4


class Odd(Exception):  # noqa: N818 - a test's
    """One whose text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Huge(Exception):  # noqa: N818 - a test's
    """One whose text has all of its record."""

    def __str__(self) -> str:
        return 1_000_000 * "x"


class Raising:
    """
    A handler.

    Args:
        error: with which its first call fails.
    """

    def __init__(self, error: BaseException) -> None:
        self._errors = [error]

    def __call__(self, _record: object, _context: object) -> None:
        """Fail, or not."""
        if self._errors:
            raise self._errors.pop()


def returns_a_coroutine(record: object, context: object) -> object:
    """Return what nobody awaits."""
    return nothing_async(record, context)


async def sleeps(_record: object, _context: object) -> None:
    """Take longer than anybody waits."""
    await asyncio.sleep(30)


def blocks(_record: object, _context: object) -> None:
    """Take longer than anybody waits."""
    threading.Event().wait(30)


async def awaits_cancelled(_record: object, _context: object) -> None:
    """Await what somebody has cancelled."""
    task = asyncio.ensure_future(asyncio.sleep(30))
    task.cancel()
    await task


LIMITED = {"handler_timeout": 0.2}


@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
@pytest.mark.parametrize(
    ("handle", "settings", "said"),
    [
        (Raising(Pause(0.05)), {}, "Pause"),
        (Raising(StopWorker()), {}, "StopWorker"),
        (Raising(Reject("no")), {}, ".Reject"),
        (Raising(Odd()), {}, ".Odd"),
        (returns_a_coroutine, {}, ".HandlersFailError"),
        (sleeps, {"executor": "asyncio", **LIMITED}, ".HandlerTimeoutError"),
        (blocks, {"executor": "process", **LIMITED}, ".HandlerTimeoutError"),
        (awaits_cancelled, {"executor": "asyncio"}, ".HandlerCancelledError"),
        (nothing, {"deserialize": int}, ".DeserializationError"),
    ],
)
def test_a_span_says_what_became_of_its_attempt(
    lab: Lab,
    spans: Spans,
    handle: Any,  # noqa: ANN401 - of any kind
    settings: dict[str, Any],
    said: str,
) -> None:
    """What a handler asks for is no error; all else is one, with its record's class."""
    settings = {"concurrency": 1, **settings}
    handled(lab, spans, handle, "one", **settings)
    span = spans.all[0]
    attributes = span.attributes or {}
    is_error = span.status.status_code is StatusCode.ERROR
    assert str(attributes.get("error.type", "")).endswith(said if is_error else "")
    assert attributes.get("safeconsumer.asked") == (None if is_error else said)
    assert is_error is not (said in ("Pause", "StopWorker"))
    assert len(span.links) == 1


def test_one_that_the_end_cancels(lab: Lab, spans: Spans) -> None:
    """Its span ends with what it was ended by."""
    lab.new_topic(partitions=1)
    send(lab, "one")
    running = lab.run(
        sleeps, executor="asyncio", trace=spans.tracing(), drain=Drain(shutdown=0.1)
    )
    wait_for(running.worker.running, "a handler that runs")
    running.end()
    attributes = spans.one.attributes or {}
    assert attributes["error.type"] == "asyncio.exceptions.CancelledError"


def test_an_error_is_told_cut(lab: Lab, spans: Spans) -> None:
    """As everywhere: it waits in an exporter's queue, once for each attempt."""
    handled(lab, spans, Raising(Huge()), "bad")
    (event,) = spans.one.events
    said = event.attributes or {}
    assert len(str(said["exception.message"])) == MESSAGE_BYTES
    assert len(str(said["exception.stacktrace"])) <= CHAIN_BYTES + len("\n...\n")
    assert "in __call__" in str(said["exception.stacktrace"])


@pytest.mark.parametrize(
    ("errors", "asked", "kind"),
    [
        ({1: RetryLater(0.01)}, "RetryLater", None),
        ({0: Pause(0.01), 1: RetryLater(0.01)}, "Pause,RetryLater", None),
        ({0: ValueError(), 1: RetryLater(0.01)}, None, ".BatchFailure"),
        ({7: RetryLater(0.01)}, None, "IndexError"),
    ],
)
def test_a_batch_that_asks_for_later_is_no_error(
    lab: Lab,
    spans: Spans,
    errors: dict[int, Exception],
    asked: str | None,
    kind: str | None,
) -> None:
    """If all that it names do, and it names what there is."""
    how: dict[str, Any] = {"batch": 2, "batch_within": 10.0, "concurrency": 1}
    handled(lab, spans, Raising(BatchFailure(errors)), "one", "two", retry=TWICE, **how)
    first = spans.all[0]
    attributes = first.attributes or {}
    assert attributes.get("safeconsumer.asked") == asked
    is_error = first.status.status_code is StatusCode.ERROR
    assert is_error is (asked is None)
    assert str(attributes.get("error.type", "")).endswith(kind or "")
    assert is_error is ("error.type" in attributes)


def test_a_batch_is_one_span_with_links(lab: Lab, spans: Spans) -> None:
    """One for each record that says where it came from, and how many records there are."""
    lab.new_topic(partitions=1)
    send(lab, "one", traceparent=SENT, baggage="a=b")
    send(lab, "two")
    send(lab, "three", traceparent=NOT_SAMPLED)
    calls: list[object] = []

    def handle(records: list[Any], _context: object) -> None:
        here = trace.get_current_span().get_span_context()
        calls.append((len(records), here.span_id, baggage.get_all()))

    running = lab.run(
        handle,
        batch=3,
        batch_within=10.0,
        trace=spans.tracing(parent=True),
    )
    running.wait_done(3)
    running.end()
    span = spans.one
    assert calls == [(3, span.context.span_id, {})]
    attributes = span.attributes or {}
    assert attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] == 3
    assert names.MESSAGING_KAFKA_OFFSET not in attributes
    assert span.parent is None
    assert [dict(link.attributes or {}) for link in span.links] == [
        {names.MESSAGING_KAFKA_OFFSET: 0},
        {names.MESSAGING_KAFKA_OFFSET: 2},
    ]
    assert [link.context.trace_flags.sampled for link in span.links] == [True, False]


# ------------------------------------------------------------ what did not start


@pytest.mark.parametrize("order", ["partition", "key"])
def test_what_a_hold_puts_back_has_no_span(
    lab: Lab, spans: Spans, place: str, order: str
) -> None:
    """Of what is handed over together, too: only what begins has a span."""
    lab.new_topic(partitions=1)
    send(lab, *[f"{number}" for number in range(20)])
    consumer = lab.consumer()
    tp = TopicPartition(lab.topic, 0)
    begun = Counter[int]()

    class Holding(SpanProcessor):
        def on_end(self, span: ReadableSpan) -> None:
            begun[int(str((span.attributes or {})["messaging.kafka.offset"]))] += 1
            if len(begun) == 3:
                consumer.pause(tp)

    spans.provider.add_span_processor(Holding())
    running = lab.run(
        handler_for(place),
        consumer,
        executor=place,
        concurrency=1,
        order=order,
        trace=spans.tracing(),
    )
    running.wait_done(3)
    wait_for(lambda: running.worker.running() == {}, "quiet")
    assert running.worker.stats().done == len(spans.all) == 3
    consumer.resume(tp)
    running.wait_done(20)
    running.end()
    assert begun == Counter(range(20))


# ------------------------------------------------------------ the context


def tell(record: Any, _context: object) -> None:  # noqa: ANN401 - upstream's
    """Fail with what is current here, so that it is told across processes."""
    here = trace.get_current_span().get_span_context()
    assert record.value == b"one"
    raise ValueError(here.trace_id, here.span_id, dict(baggage.get_all()))


async def tell_async(record: Any, context: object) -> None:  # noqa: ANN401 - upstream's
    """As ``tell``, in a task that the handler made."""

    async def told() -> None:
        tell(record, context)

    await asyncio.create_task(told())


def test_the_span_is_current_in_the_handler(lab: Lab, spans: Spans, place: str) -> None:
    """Wherever it runs, with the baggage of its record."""
    failed: list[BaseException] = []

    def sink(_record: object, failure: Any) -> None:  # noqa: ANN401 - a Failure
        failed.append(failure.error)

    handle = tell_async if place == "asyncio" else tell
    headers = {"traceparent": SENT, "baggage": "tenant=a%20b"}
    how = {"executor": place, "dead_letter": sink, "headers": headers}
    handled(lab, spans, handle, "one", **how)
    (error,) = failed
    here = spans.one.context
    assert error.args == (here.trace_id, here.span_id, {"tenant": "a b"})


def test_who_awaits_the_worker_is_no_parent(lab: Lab, spans: Spans) -> None:
    """``serve()`` has its caller's context, for days: its span is not all records'."""
    lab.new_topic(partitions=1)
    send(lab, "one")
    seen: list[object] = []
    done = asyncio.Event()

    async def handle(_record: object, _context: object) -> None:
        seen.append(contexts.get_value("mine"))
        done.set()
        await asyncio.sleep(0)

    worker = Worker(
        lab.consumer(), handle, executor="asyncio", trace=spans.tracing(parent=True)
    )

    async def live() -> None:
        tracer = spans.provider.get_tracer("theirs")
        contexts.attach(contexts.set_value("mine", 1))
        with tracer.start_as_current_span("days"):
            serving = asyncio.create_task(worker.serve())
            await asyncio.wait_for(done.wait(), 30)
            worker.stop()
            await serving

    asyncio.run(live())
    first, days = spans.all
    assert days.name == "days"
    assert first.parent is None
    assert first.context.trace_id != days.context.trace_id
    assert seen == [1]


def test_lines_of_a_handler_name_the_span(lab: Lab, spans: Spans) -> None:
    """By the processor for structlog; what a line has stays."""
    lines: list[Any] = []

    def handle(_record: object, _context: object) -> None:
        lines.append(add_trace_ids(None, "info", {"event": "x"}))
        lines.append(add_trace_ids(None, "info", {"trace_id": "mine"}))

    handled(lab, spans, handle, "one")
    here = spans.one.context
    span_id = f"{here.span_id:016x}"
    assert lines == [
        {"event": "x", "trace_id": format_trace_id(here.trace_id), "span_id": span_id},
        {"trace_id": "mine", "span_id": span_id},
    ]
    assert add_trace_ids(None, "info", {"event": "x"}) == {"event": "x"}


# ------------------------------------------------------------ dead letters


def contexts_of(letter: Any, name: str = "traceparent") -> list[str]:  # noqa: ANN401 - upstream's
    """Return what its headers of this name say."""
    return [value.decode() for key, value in letter.headers if key == name]


def as_header(span: ReadableSpan) -> str:
    """Return what carries a span."""
    here = span.context
    return f"00-{here.trace_id:032x}-{here.span_id:016x}-{here.trace_flags:02x}"


NOTHING = nullcontext()
FULL = {"traceparent": SENT, "tracestate": "vendor=1", "baggage": "a=b"}


def buried(
    lab: Lab,
    *,
    sent: Mapping[str, str] = MappingProxyType({}),
    producer: Any = None,  # noqa: ANN401 - kafka-python is untyped
    letters: int = 1,
    during: AbstractContextManager[None] = NOTHING,
    **settings: Any,  # noqa: ANN401 - a worker's own
) -> tuple[Worker, list[Any]]:
    """Have a record with these headers fail for good; return its worker and letters."""
    lab.new_topic(partitions=1)
    send(lab, "bad", **sent)
    dead = lab.other_topic()
    with during:
        running = lab.run(
            settings.pop("handle", obey),
            retry=settings.pop("retry", ONCE),
            dead_letter=DeadLetter(producer or lab.producer, dead, max_ratio=None),
            on_exhausted="skip",
            **settings,
        )
        running.wait_done(1)
        running.end()
        return running.worker, read_all(lab, dead, letters)


@pytest.mark.any_broker
def test_a_letter_carries_its_last_attempt(lab: Lab, spans: Spans, place: str) -> None:
    """Once, instead of its record's own context, whose state goes with it."""
    how = {"trace": spans.tracing(), "executor": place, "handle": handler_for(place)}
    _, (letter,) = buried(lab, sent={**FULL, "own": "x"}, retry=TWICE, **how)
    assert contexts_of(letter) == [as_header(spans.all[-1])]
    assert contexts_of(letter, "tracestate") == []
    assert contexts_of(letter, "baggage") == ["a=b"]
    assert contexts_of(letter, "own") == ["x"]


@pytest.mark.parametrize(
    "how", ["parent", "batch", "not sampled", "no sdk", "untraced"]
)
def test_whose_context_a_letter_carries(lab: Lab, how: str) -> None:
    """The attempt's or the batch's if it is recorded; otherwise its record's own, whole."""
    spans = Spans(ParentBased(ALWAYS_OFF) if how == "not sampled" else None)
    settings: dict[str, Any] = {
        "parent": {"trace": spans.tracing(parent=True)},
        "batch": {
            "trace": spans.tracing(),
            "batch": 5,
            "handle": Raising(BatchFailure({0: Reject("no")})),
        },
        "not sampled": {"trace": spans.tracing()},
        "no sdk": {"trace": True},
        "untraced": {},
    }[how]
    during = instrumented(spans) if how == "untraced" else NOTHING
    _, (letter,) = buried(lab, sent=FULL, during=during, **settings)
    is_recorded = how in ("parent", "batch")
    assert contexts_of(letter) == [as_header(spans.all[-1]) if is_recorded else SENT]
    assert contexts_of(letter, "tracestate") == (["vendor=1"] if how != "batch" else [])
    assert contexts_of(letter, "baggage") == ["a=b"]


def test_a_callable_is_given_what_carries_the_trace(lab: Lab, spans: Spans) -> None:
    """As headers, with the span current; the baggage only once: it may be what fails."""
    seen: list[Any] = []

    def sink(_record: object, failure: Any) -> None:  # noqa: ANN401 - a Failure
        here = trace.get_current_span().get_span_context()
        seen.append((dict(failure.trace), here.span_id, dict(baggage.get_all())))
        if not seen[1:]:
            raise ValueError

    sent = {"traceparent": SENT, "tracestate": "vendor=1", "baggage": "tenant=a"}
    handled(lab, spans, obey, "bad", dead_letter=sink, headers=sent)
    carried = {"traceparent": as_header(spans.one).encode(), "tracestate": None}
    span_id = spans.one.context.span_id
    assert seen == [(carried, span_id, {"tenant": "a"}), (carried, span_id, {})]


def test_a_letter_that_an_instrumentor_sends_has_one_context(
    lab: Lab, spans: Spans
) -> None:
    """The send's own, a child of the attempt: it appends, and takes the other's place."""
    how = {"during": instrumented(spans), "trace": spans.tracing()}
    _, (letter,) = buried(lab, sent=FULL, **how)
    attempt, sent = spans.all[-2:]
    assert sent.name.endswith(" send")
    assert sent.parent is not None
    assert sent.parent.span_id == attempt.context.span_id
    assert contexts_of(letter) == [as_header(sent)]
    assert contexts_of(letter, "baggage") == ["a=b"]


# ------------------------------------------------------------ off, and out of order


def test_a_processor_that_raises_is_nobodys_failure(lab: Lab) -> None:
    """Records are handled; what failed is counted and logged once."""
    spans = Spans()

    class Broken(SpanProcessor):
        def on_start(self, *_: object, **__: object) -> None:
            raise OSError

        def on_end(self, *_: object) -> None:
            raise OSError

    spans.provider.add_span_processor(Broken())
    running = handled(lab, spans, obey, "one", "later")
    assert running.worker.hook_failures["trace"] == 3
    assert running.worker.stats().hook_failures == 3


class House(TextMapPropagator):
    """
    A house's own: what its header says becomes baggage as it is.

    Args:
        written: what it writes as its header.
    """

    def __init__(self, written: object = None) -> None:
        self._written = written

    @property
    def fields(self) -> set[str]:
        """Its header."""
        return {"house"}

    def extract(self, carrier: Any, context: Any = None, getter: Any = None) -> Any:  # noqa: ANN401 - any
        """Read it, with texts that were cut in the middle of an emoji."""
        found = (getter or default_getter).get(carrier, "house")
        user = json.loads(found[0]) if found else "nobody"
        return baggage.set_baggage("user", user, context)

    def inject(self, carrier: Any, _context: Any = None, setter: Any = None) -> None:  # noqa: ANN401 - any
        """Write it."""
        if self._written is not None:
            (setter or default_setter).set(carrier, "house", self._written)


HALF_AN_EMOJI = r'"\ud83d"'


@pytest.fixture
def propagating() -> Iterator[Callable[..., None]]:
    """Lend what has W3C's context and others propagated."""
    before = propagate.get_global_textmap()

    def use(*others: TextMapPropagator) -> None:
        every = [TraceContextTextMapPropagator(), W3CBaggagePropagator(), *others]
        propagate.set_global_textmap(CompositePropagator(every))

    yield use
    propagate.set_global_textmap(before)


def test_baggage_that_cannot_be_written_is_no_records_fault(
    lab: Lab, spans: Spans, place: str, propagating: Callable[..., None]
) -> None:
    """Its handler is called once, in its trace, wherever it runs."""
    propagating(House())
    how = {"executor": place, "concurrency": 1, "headers": {"house": HALF_AN_EMOJI}}
    running = handled(lab, spans, handler_for(place), "one", retry=TWICE, **how)
    assert spans.one.status.status_code is StatusCode.UNSET
    is_elsewhere = place == "process"
    assert running.worker.hook_failures.get("trace", 0) == int(is_elsewhere)


@pytest.mark.parametrize(
    ("written", "expected", "failures"), [(b"abc", ["abc"], 0), (7, [], 1)]
)
def test_a_letter_with_what_a_propagator_writes(  # noqa: PLR0913, PLR0917 - fixtures
    lab: Lab,
    spans: Spans,
    propagating: Callable[..., None],
    written: object,
    expected: list[str],
    failures: int,
) -> None:
    """Bytes are what Kafka has; with what is neither the record's own headers stay."""
    propagating(House(written))
    sent = {"traceparent": SENT}
    worker, (letter,) = buried(lab, sent=sent, trace=spans.tracing())
    assert contexts_of(letter, "house") == expected
    assert contexts_of(letter) == [SENT if failures else as_header(spans.one)]
    assert worker.hook_failures.get("trace", 0) == failures


class Refusing(Sampler):
    """Raises an error at the first send of a letter, and records the rest."""

    def __init__(self, error: Exception) -> None:
        self._errors = [error]

    def should_sample(self, *asked: Any, **_: object) -> SamplingResult:  # noqa: ANN401 - its own
        """Raise, or record."""
        if asked[2].endswith(" send") and self._errors:
            raise self._errors.pop()
        return SamplingResult(Decision.RECORD_AND_SAMPLE)

    def get_description(self) -> str:
        """Say which one it is."""
        return "refusing"


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("kind", [ValueError, TypeError, AssertionError, OSError])
def test_a_tracer_that_fails_in_send_loses_no_letter(
    lab: Lab,
    kind: type[Exception],
    traced: bool,  # noqa: FBT001
) -> None:
    """It says nothing about the record: the letter is sent again."""
    spans = Spans(Refusing(kind()))
    how = {"trace": spans.tracing()} if traced else {}
    _, (letter,) = buried(lab, during=instrumented(spans), **how)
    assert letter.value == b"bad"


def test_a_letter_whose_baggage_cannot_be_written_is_sent_around_it(
    lab: Lab, spans: Spans, propagating: Callable[..., None]
) -> None:
    """It is current for the instrumentor only since we have made it so."""
    propagating(House())
    sent = {"house": HALF_AN_EMOJI, "traceparent": SENT}
    how = {"during": instrumented(spans), "trace": spans.tracing()}
    _, (letter,) = buried(lab, sent=sent, **how)
    assert contexts_of(letter) == [SENT]


def test_a_tracer_that_fails_behind_the_send_sends_no_letter_for_ever(
    lab: Lab, spans: Spans, make_producer: Callable[..., Any]
) -> None:
    """The instrumentor asks for servers that JSON can write, once upstream has sent."""
    producer = make_producer()
    producer.config["bootstrap_servers"] = set(producer.config["bootstrap_servers"])
    how = {"producer": producer, "during": instrumented(spans)}
    worker, letters = buried(lab, letters=2, **how)
    stats = worker.stats()
    assert (stats.skipped, stats.dead_letters, len(letters)) == (0, 1, 2)


def test_what_upstream_cannot_write_stays_final(
    lab: Lab, spans: Spans, make_producer: Callable[..., Any]
) -> None:
    """Also where an instrumentor has wrapped what refuses it."""
    producer = make_producer(partitioner=RefusesAll())
    how = {"producer": producer, "during": instrumented(spans)}
    worker, _ = buried(lab, letters=0, trace=spans.tracing(), **how)
    stats = worker.stats()
    assert (stats.skipped, stats.dead_letters) == (1, 0)


class RefusesAll(DefaultPartitioner):  # type: ignore[misc]  # upstream is untyped
    """A partitioner that takes nothing."""

    def partition(self, *_: object) -> int:
        """Refuse."""
        raise ValueError


def test_off_nothing_of_opentelemetry_is_imported() -> None:
    """Nor where it is installed."""
    program = "import sys, safeconsumer.worker; print('opentelemetry' in sys.modules)"
    done = subprocess.run(  # noqa: S603 - ours
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_without_the_extra_it_is_named(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything begins, with the line that installs it."""
    lab.new_topic(partitions=1)
    import_again(monkeypatch, "safeconsumer.worker", "tracing")
    import_again(monkeypatch, "safeconsumer.events", "trace_ids")
    for name in ("opentelemetry", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'safeconsumer\[otel\]'"):
        Worker(lab.consumer(), nothing, trace=True)
    with pytest.raises(MissingExtraError, match=r"pip install 'safeconsumer\[otel\]'"):
        importlib.import_module("safeconsumer.events.trace_ids")


def import_again(monkeypatch: pytest.MonkeyPatch, room: str, name: str) -> None:
    """Have a module imported anew within this test."""
    importlib.import_module(f"{room}.{name}")
    monkeypatch.delitem(sys.modules, f"{room}.{name}")
    monkeypatch.delattr(sys.modules[room], name)


@pytest.mark.parametrize("wrong", [1, None, "yes", object()])
def test_what_is_no_setting_is_refused(lab: Lab, wrong: Any) -> None:  # noqa: ANN401
    """Before anything begins."""
    lab.new_topic(partitions=1)
    with pytest.raises(WorkerSettingError, match="trace must be"):
        Worker(lab.consumer(), nothing, trace=wrong)


def test_impossible_settings_are_refused() -> None:
    """A provider that provides nothing, and a parent that is neither here nor there."""
    with pytest.raises(WorkerSettingError, match="provider must be"):
        Tracing(provider=object())
    with pytest.raises(WorkerSettingError, match="parent must be"):
        Tracing(parent="link")  # type: ignore[arg-type]  # that is the point
