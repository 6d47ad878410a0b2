"""Tests the spans that a worker creates for its attempts."""

import asyncio
import contextvars
import importlib
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from opentelemetry import baggage, propagate, trace
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import SpanKind, StatusCode

from safeconsumer import (
    BatchFailure,
    DeadLetter,
    Pause,
    Reject,
    Retry,
    RetryLater,
    StopWorker,
    Worker,
)
from safeconsumer.errors import MissingExtraError
from safeconsumer.worker import Context, Tracing
from safeconsumer.worker.revocation import Revocation
from safeconsumer.worker.tracebacks import CHAIN_BYTES, MESSAGE_BYTES
from safeconsumer.worker.tracing import Tracer

pytestmark = pytest.mark.embedded_suffices

TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"
NOT_SAMPLED = SENT[:-1] + "0"
LINKED = {"traceparent": SENT}
FULL = {**LINKED, "tracestate": "vendor=1", "baggage": "a=b"}
TWICE = Retry(attempts=2, first=0.05, most=0.05)
ONCE = Retry(attempts=1, first=0.05, most=0.05)


class Spans:
    """The spans that the test's own tracer provider has recorded."""

    def __init__(self):
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self):
        return self._exporter.get_finished_spans()

    @property
    def one(self):
        (span,) = self.all
        return span

    def tracing(self, *, parent=False):
        return Tracing(parent=parent, provider=self.provider)

    def attempt(self, error=None, *, parent=False, batch=None, **headers):
        """Make an attempt without a worker; return its context and its span's attributes."""
        config = {"group_id": "g", "client_id": "c"}
        tracer = Tracer(self.tracing(parent=parent), config)
        records = [
            SimpleNamespace(headers=[*headers.items()], offset=offset, value=None)
            for offset in range(batch or 1)
        ]
        given = records[0] if batch is None else records
        context = Context(TopicPartition("t", 0), 1, Revocation(), lambda: None)

        def call():
            with suppress(BaseException), tracer.block(given, context):
                found.append(trace.get_current_span().get_span_context())
                if error is not None:
                    raise error

        found = []
        contextvars.copy_context().run(call)
        assert tracer.failures == 0
        attributes = self.all[-1].attributes if self.all else None
        return found[0], dict(attributes or {})


@pytest.fixture
def spans():
    """Return the spans that a new tracer provider records."""
    return Spans()


def send(lab, value, headers):
    """Write a record with these headers to partition 0."""
    lab.producer.send(
        lab.topic,
        value=value.encode(),
        key=b"a secret key",
        headers=[(name, one.encode()) for name, one in headers.items()],
        partition=0,
    ).get(30)


def nothing(_record, _context):
    """Do nothing."""


def handled(lab, handle, headers, *, reading=None, **settings):
    """Send values with their headers; run a worker until it has handled all of them."""
    lab.new_topic(partitions=1)
    for value, some in headers.items():
        send(lab, value, some)
    settings = {"retry": ONCE, "on_exhausted": "skip", **settings}
    running = lab.run(handle, lab.consumer(**(reading or {})), **settings)
    running.wait_done(len(headers))
    running.end()
    return running


_asked = set()


def obey(record, _context):
    """Raise the error that the record's value names."""
    if record.value == b"bad":
        message = "planted"
        raise ValueError(message)
    place = record.topic, record.offset
    if record.value == b"later" and place not in _asked:
        _asked.add(place)  # RetryLater does not count as an attempt
        raise RetryLater(0.05)


async def obey_async(record, context):
    await asyncio.sleep(0)
    obey(record, context)


@pytest.fixture(params=["thread", "process", "asyncio"])
def place(request):
    """Return the kind of executor; the test runs once with each kind."""
    return request.param


def handler_for(place):
    """Return ``obey``; for asyncio return its coroutine function."""
    return obey_async if place == "asyncio" else obey


# ------------------------------------------------------------ attributes of a span


def test_span_has_the_attributes_of_the_semantic_conventions(lab, spans):
    """No attribute contains the record's key."""
    handled(lab, nothing, {"one": FULL}, trace=spans.tracing())
    span = spans.one
    assert (span.name, span.kind) == (f"process {lab.topic}", SpanKind.CONSUMER)
    assert dict(span.attributes or {}) == {
        names.MESSAGING_SYSTEM: "kafka",
        names.MESSAGING_OPERATION_NAME: "process",
        names.MESSAGING_OPERATION_TYPE: "process",
        names.MESSAGING_DESTINATION_NAME: lab.topic,
        names.MESSAGING_DESTINATION_PARTITION_ID: "0",
        names.MESSAGING_CONSUMER_GROUP_NAME: lab.group,
        names.MESSAGING_CLIENT_ID: lab.consumer().config["client_id"],
        names.MESSAGING_KAFKA_OFFSET: 0,
        "safeconsumer.attempt": 1,
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


@pytest.mark.parametrize("sent", [SENT, NOT_SAMPLED])
@pytest.mark.parametrize("parent", [False, True])
def test_context_of_a_record_becomes_the_parent_only_with_the_option_parent(
    spans, sent, parent
):
    headers = {"traceparent": sent.encode(), "tracestate": b"vendor=1"}
    here, _ = spans.attempt(parent=parent, **headers)
    assert (here.trace_id == TRACE_ID) is parent
    assert here.trace_flags.sampled is (sent == SENT or not parent)
    assert len(spans.all) == here.trace_flags.sampled
    for span in spans.all:
        assert bool(span.parent) is parent
        assert bool(span.links) is not parent
        assert (span.context.trace_state == {"vendor": "1"}) is parent


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe\x00", SENT.encode()[:-2]])
@pytest.mark.parametrize("parent", [False, True])
def test_damaged_trace_context_creates_neither_parent_nor_link(spans, damaged, parent):
    spans.attempt(parent=parent, traceparent=damaged, baggage=b"\xff%;=,=")
    assert (spans.one.parent, spans.one.links) == (None, ())


class Odd(Exception):  # noqa: N818 - a test's error
    """An error whose conversion to text would end the process."""

    def __str__(self):
        raise SystemExit(3)


class Huge(Exception):  # noqa: N818 - a test's error
    """An error whose text has a million characters."""

    def __str__(self):
        return 1_000_000 * "x"


LATER = RetryLater(0.01)


@pytest.mark.parametrize(
    ("error", "asked", "kind"),
    [
        (Pause(0.05), "Pause", None),
        (StopWorker(), "StopWorker", None),
        (Reject("no"), None, "safeconsumer.worker.handlers.Reject"),
        (Odd(), None, f"{__name__}.Odd"),
        (Huge(), None, f"{__name__}.Huge"),
        (BatchFailure({0: Pause(0.01), 1: LATER}), "Pause,RetryLater", None),
        (BatchFailure({0: ValueError(), 1: LATER}), None, "BatchFailure"),
        (BatchFailure({}), None, None),
    ],
)
def test_span_reports_the_outcome_of_its_attempt(spans, error, asked, kind):
    """A request from the handler, such as a pause, does not count as an error."""
    batch = 2 if isinstance(error, BatchFailure) else None
    _, attributes = spans.attempt(error, batch=batch)
    assert attributes.get("safeconsumer.asked") == asked
    assert str(attributes.get(error_attributes.ERROR_TYPE, "")).endswith(kind or "")
    is_error = spans.one.status.status_code is StatusCode.ERROR
    assert is_error is bool(kind) is (error_attributes.ERROR_TYPE in attributes)
    for event in spans.one.events:
        fields = event.attributes or {}
        assert len(str(fields["exception.message"])) <= MESSAGE_BYTES
        assert len(str(fields["exception.stacktrace"])) <= CHAIN_BYTES + len("\n...\n")


def test_batch_has_one_span_with_a_link_for_each_record(spans):
    here, attributes = spans.attempt(parent=True, batch=3, traceparent=SENT.encode())
    assert here.span_id == spans.one.context.span_id
    assert attributes[names.MESSAGING_BATCH_MESSAGE_COUNT] == 3
    assert names.MESSAGING_KAFKA_OFFSET not in attributes
    assert spans.one.parent is None
    assert [dict(link.attributes or {}) for link in spans.one.links] == [
        {names.MESSAGING_KAFKA_OFFSET: offset} for offset in range(3)
    ]


def test_batch_span_has_no_link_for_a_record_without_context(spans):
    spans.attempt(batch=2)
    assert spans.one.links == ()


# ------------------------------------------------------------ a span per attempt


def test_each_attempt_has_its_own_span(lab, spans, place):
    how = {"executor": place, "concurrency": 1, "trace": spans.tracing()}
    headers = {"bad": LINKED, "later": LINKED}
    handled(lab, handler_for(place), headers, **how, retry=TWICE)
    attributes = [dict(span.attributes or {}) for span in spans.all]
    assert [one["messaging.kafka.offset"] for one in attributes] == [0, 0, 1, 1]
    assert [one["safeconsumer.attempt"] for one in attributes] == [1, 2, 1, 1]
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
    assert [one.get("safeconsumer.asked") for one in attributes[2:]] == [
        "RetryLater",
        None,
    ]
    assert all(len(span.links) == 1 for span in spans.all)
    assert len({span.context.trace_id for span in spans.all}) == 4


async def sleeps(_record, _context):
    """Run for longer than the time limit."""
    await asyncio.sleep(30)


def blocks(_record, _context):
    """Run for longer than the time limit."""
    threading.Event().wait(30)


@pytest.mark.filterwarnings("ignore:value_deserializer:DeprecationWarning")
@pytest.mark.parametrize(
    ("handle", "place", "ended"),
    [
        (sleeps, "asyncio", "HandlerTimeoutError"),
        (blocks, "process", "HandlerTimeoutError"),
        (nothing, "thread", "DeserializationError"),
    ],
)
def test_span_reports_timeouts_and_deserialization_errors(
    lab, spans, handle, place, ended
):
    reading = {"value_deserializer": int} if ended == "DeserializationError" else {}
    how = {"executor": place, "handler_timeout": None if reading else 0.2}
    how["trace"] = spans.tracing()
    handled(lab, handle, {"one": LINKED}, reading=reading, **how)
    kind = str((spans.one.attributes or {})[error_attributes.ERROR_TYPE])
    assert kind.endswith(f".{ended}")
    assert len(spans.one.links) == 1


# ------------------------------------------------------------ the context


def fail_with_span(record, _context):
    """Raise an error that contains the current span, because errors can cross processes."""
    here = trace.get_current_span().get_span_context()
    assert record.value in (b"one", b"two")
    raise ValueError(here.trace_id, here.span_id, dict(baggage.get_all()))


async def fail_with_span_of_task(record, context):
    """Raise an error that contains the current span, in a task that the handler creates."""

    async def reported():
        fail_with_span(record, context)

    await asyncio.create_task(reported())


def test_span_is_current_in_the_handler(lab, spans, place):
    failed = []

    def sink(_record, failure):
        failed.append(failure.error)

    headers = {"one": {**LINKED, "baggage": "tenant=a%20b"}, "two": {}}
    handle = fail_with_span_of_task if place == "asyncio" else fail_with_span
    how = {"executor": place, "concurrency": 1, "trace": spans.tracing()}
    handled(lab, handle, headers, dead_letter=sink, **how)
    contexts = [span.context for span in spans.all]
    baggages = [{"tenant": "a b"}, {}]
    assert [error.args for error in failed] == [
        (here.trace_id, here.span_id, carried)
        for here, carried in zip(contexts, baggages, strict=True)
    ]


def test_current_span_of_the_caller_is_not_the_parent(spans):
    """With ``serve()``, handlers run in the context of its caller, perhaps for days."""
    theirs = spans.provider.get_tracer("theirs")
    with theirs.start_as_current_span("days"):
        here, _ = spans.attempt(parent=True)
    first, days = spans.all
    assert days.name == "days"
    assert first.parent is None
    assert here.trace_id == first.context.trace_id != days.context.trace_id


# ------------------------------------------------------------ dead letters


def contexts_of(letter, name="traceparent"):
    return [value.decode() for key, value in letter.headers if key == name]


def buried(lab, **settings):
    """Let a record with headers fail for good; return the worker and its dead letter."""
    dead = lab.other_topic()
    letters = DeadLetter(lab.producer, dead, max_ratio=None)
    running = handled(lab, obey, {"bad": FULL}, dead_letter=letters, **settings)
    (letter,) = lab.read(dead, 1)
    return running.worker, letter


@pytest.mark.any_broker
@pytest.mark.parametrize("has_sdk", [True, False])
def test_dead_letter_keeps_the_context_of_its_record(lab, spans, has_sdk):
    _, letter = buried(lab, trace=spans.tracing() if has_sdk else True)
    assert contexts_of(letter) == [SENT]
    assert contexts_of(letter, "tracestate") == ["vendor=1"]
    assert contexts_of(letter, "baggage") == ["a=b"]
    place = dict(letter.headers)
    for span in spans.all:
        attributes = span.attributes or {}
        assert (
            place["dead-letter-topic"].decode()
            == attributes["messaging.destination.name"]
        )
        assert int(place["dead-letter-offset"]) == attributes["messaging.kafka.offset"]
    assert len(spans.all) == has_sdk


# ------------------------------------------------------------ disabled or failing


def test_span_processor_that_raises_does_not_fail_any_record(lab):
    spans = Spans()

    class Broken(SpanProcessor):
        def on_start(self, *_, **__):
            raise OSError

        def on_end(self, *_):
            raise OSError

    spans.provider.add_span_processor(Broken())
    headers = {"one": LINKED, "later": LINKED}
    running = handled(lab, obey, headers, trace=spans.tracing())
    assert running.worker.hook_failures["trace"] == 3
    assert running.worker.stats().hook_failures == 3


class House(TextMapPropagator):
    """A propagator that returns unencodable baggage, and fails to inject a context."""

    fields = {"house"}  # noqa: RUF012 - a property in the base class

    def extract(self, _carrier, context=None, **_):
        """Return baggage with a text that is cut within an emoji and so cannot be encoded."""
        return baggage.set_baggage("user", "\ud83d", context)

    def inject(self, *_, **__):
        raise OSError


@contextmanager
def propagating(house):
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(house)
    try:
        yield
    finally:
        propagate.set_global_textmap(before)


def test_trace_context_that_cannot_be_written_does_not_fail_any_record(lab, spans):
    with propagating(House()):
        worker, letter = buried(lab, trace=spans.tracing(), executor="process")
    assert spans.one.status.status_code is StatusCode.ERROR
    assert contexts_of(letter) == [SENT]
    assert worker.hook_failures["trace"] == 1


def test_opentelemetry_is_not_imported_without_trace():
    program = "import sys, safeconsumer.worker; print('opentelemetry' in sys.modules)"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


def test_missing_opentelemetry_is_reported_with_the_extra_to_install(lab, monkeypatch):
    lab.new_topic(partitions=1)
    import_again(monkeypatch, "safeconsumer.worker", "tracing")
    for name in ("opentelemetry", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'safeconsumer\[otel\]'"):
        Worker(lab.consumer(), nothing, trace=True)


def import_again(monkeypatch, room, name):
    """Make the test import a module again, even if it is already loaded."""
    importlib.import_module(f"{room}.{name}")
    monkeypatch.delitem(sys.modules, f"{room}.{name}")
    monkeypatch.delattr(sys.modules[room], name)
