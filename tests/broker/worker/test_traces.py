"""Spans of a worker's attempts: what they say, where they live, and what carries them on."""

import asyncio
import importlib
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from opentelemetry import baggage, propagate, trace
from opentelemetry import context as contexts
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
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
from safeconsumer.errors import MissingExtraError, WorkerSettingError
from safeconsumer.worker import Tracing
from safeconsumer.worker.tracebacks import CHAIN_BYTES, MESSAGE_BYTES
from safeconsumer.worker.tracing import Tracer
from tests.broker.worker.test_contract import read_all
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.embedded_suffices

TRACE_ID, SPAN_ID = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
SENT = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"
NOT_SAMPLED = SENT[:-1] + "0"
FULL = {"traceparent": SENT, "tracestate": "vendor=1", "baggage": "a=b"}
TWICE = Retry(attempts=2, first=0.05, most=0.05)
ONCE = Retry(attempts=1, first=0.05, most=0.05)


class Spans:
    """What was recorded, by a provider of our own."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def one(self) -> ReadableSpan:
        (span,) = self.all
        return span

    def tracing(self, *, parent: bool = False) -> Tracing:
        return Tracing(parent=parent, provider=self.provider)

    def attempt(
        self,
        error: BaseException | None = None,
        *,
        parent: bool = False,
        batch: int | None = None,
        **headers: bytes,
    ) -> tuple[trace.SpanContext, dict[str, Any]]:
        """Make an attempt without a worker; return its span's context and attributes."""
        config = {"group_id": "g", "client_id": "c"}
        tracer = Tracer(self.tracing(parent=parent), config, is_batch=batch is not None)
        record = SimpleNamespace(headers=[*headers.items()], offset=0, value=None)
        given = record if batch is None else batch * [record]
        attempt = tracer.begin(given, TopicPartition("t", 0), 1)
        attempt.end(error)
        assert tracer.failures == 0
        attributes = self.all[-1].attributes if self.all else None
        return attempt.span.get_span_context(), dict(attributes or {})


@pytest.fixture
def spans() -> Spans:
    """Lend a provider that records everything."""
    return Spans()


def send(lab: Lab, *values: str, **headers: str) -> None:
    """Write to partition 0, with these headers."""
    for value in values:
        lab.producer.send(
            lab.topic,
            value=value.encode(),
            key=b"a secret key",
            headers=[(name, one.encode()) for name, one in headers.items()],
            partition=0,
        ).get(30)


def nothing(_record: object, _context: object) -> None:
    """Handle it."""


def handled(
    lab: Lab,
    spans: Spans,
    handle: Any,  # noqa: ANN401 - a worker's own
    *values: str,
    **settings: Any,  # noqa: ANN401 - a worker's own
) -> Running:
    """Send these values, and run a worker until it has done them all."""
    lab.new_topic(partitions=1)
    send(lab, *values, **settings.pop("headers", {"traceparent": SENT}))
    usual = {"trace": spans.tracing(), "retry": ONCE, "on_exhausted": "skip"}
    consumer = lab.consumer(**settings.pop("reading", {}))
    running = lab.run(handle, consumer, **{**usual, **settings})
    running.wait_done(len(values))
    running.end()
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
    """Kind, name, attributes, schema, a link to who sent it; the key is told nowhere."""
    handled(lab, spans, nothing, "one", headers=FULL)
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
def test_the_record_is_the_parent_by_option(
    spans: Spans,
    sent: str,
    parent: bool,  # noqa: FBT001
) -> None:
    """Then the attempt is part of its sender's trace, and sampled as it is; a link is not."""
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
def test_a_damaged_context_is_none(spans: Spans, damaged: bytes, parent: bool) -> None:  # noqa: FBT001
    """The record is handled, in a trace of its own without a link."""
    spans.attempt(parent=parent, traceparent=damaged, baggage=b"\xff%;=,=")
    assert (spans.one.parent, spans.one.links) == (None, ())


class Odd(Exception):  # noqa: N818 - a test's
    """One whose text ends the process."""

    def __str__(self) -> str:
        raise SystemExit(3)


class Huge(Exception):  # noqa: N818 - a test's
    """One whose text has all of its record."""

    def __str__(self) -> str:
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
        (BatchFailure({}), None, "BatchFailure"),
    ],
)
def test_a_span_says_what_became_of_its_attempt(
    spans: Spans, error: Exception, asked: str | None, kind: str | None
) -> None:
    """What a handler asks for is no error; what is one is told with its class, and cut."""
    batch = 2 if isinstance(error, BatchFailure) else None
    _, attributes = spans.attempt(error, batch=batch)
    assert attributes.get("safeconsumer.asked") == asked
    assert str(attributes.get(error_attributes.ERROR_TYPE, "")).endswith(kind or "")
    is_error = spans.one.status.status_code is StatusCode.ERROR
    assert is_error is bool(kind) is (error_attributes.ERROR_TYPE in attributes)
    for event in spans.one.events:
        said = event.attributes or {}
        assert len(str(said["exception.message"])) <= MESSAGE_BYTES
        assert len(str(said["exception.stacktrace"])) <= CHAIN_BYTES + len("\n...\n")


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

    how = {"batch": 3, "batch_within": 10.0, "trace": spans.tracing(parent=True)}
    running = lab.run(handle, **how)
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


# ------------------------------------------------------------ one for each attempt


def test_each_attempt_is_a_span(lab: Lab, spans: Spans, place: str) -> None:
    """One that failed says so, wherever it ran; one that asks for later is no error."""
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


async def sleeps(_record: object, _context: object) -> None:
    """Take longer than anybody waits."""
    await asyncio.sleep(30)


def blocks(_record: object, _context: object) -> None:
    """Take longer than anybody waits."""
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
def test_what_is_not_the_handlers_own_end_is_in_its_span(
    lab: Lab,
    spans: Spans,
    handle: Any,  # noqa: ANN401 - a handler
    place: str,
    ended: str,
) -> None:
    """A limit, by which its process is killed; a deserializer before it."""
    reading = {"value_deserializer": int} if ended == "DeserializationError" else {}
    how = {"executor": place, "handler_timeout": None if reading else 0.2}
    handled(lab, spans, handle, "one", reading=reading, **how)
    kind = str((spans.one.attributes or {})[error_attributes.ERROR_TYPE])
    assert kind.endswith(f".{ended}")
    assert len(spans.one.links) == 1


def test_what_a_hold_puts_back_has_no_span(lab: Lab, spans: Spans, place: str) -> None:
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
    how = {"executor": place, "concurrency": 1, "trace": spans.tracing()}
    running = lab.run(handler_for(place), consumer, **how)
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
    assert record.value in (b"one", b"two")
    raise ValueError(here.trace_id, here.span_id, dict(baggage.get_all()))


async def tell_async(record: Any, context: object) -> None:  # noqa: ANN401 - upstream's
    """As ``tell``, in a task that the handler made."""

    async def told() -> None:
        tell(record, context)

    await asyncio.create_task(told())


def test_the_span_is_current_in_the_handler(lab: Lab, spans: Spans, place: str) -> None:
    """Wherever it runs, with the baggage of its own record, and of no other."""
    failed: list[BaseException] = []

    def sink(_record: object, failure: Any) -> None:  # noqa: ANN401 - a Failure
        failed.append(failure.error)

    lab.new_topic(partitions=1)
    send(lab, "one", traceparent=SENT, baggage="tenant=a%20b")
    send(lab, "two")
    handle = tell_async if place == "asyncio" else tell
    how = {"executor": place, "concurrency": 1, "dead_letter": sink, "retry": ONCE}
    running = lab.run(handle, trace=spans.tracing(), **how)
    running.wait_done(2)
    running.end()
    contexts = [span.context for span in spans.all]
    baggages: list[object] = [{"tenant": "a b"}, {}]
    assert [error.args for error in failed] == [
        (here.trace_id, here.span_id, carried)
        for here, carried in zip(contexts, baggages, strict=True)
    ]


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


# ------------------------------------------------------------ dead letters


def contexts_of(letter: Any, name: str = "traceparent") -> list[str]:  # noqa: ANN401 - upstream's
    return [value.decode() for key, value in letter.headers if key == name]


def buried(
    lab: Lab,
    *,
    sent: Mapping[str, str] = MappingProxyType(FULL),
    **settings: Any,  # noqa: ANN401 - a worker's own
) -> tuple[Worker, Any]:
    """Have a record with these headers fail for good; return its worker and letter."""
    lab.new_topic(partitions=1)
    send(lab, "bad", **sent)
    dead = lab.other_topic()
    settings = {"handle": obey, "retry": ONCE, **settings}
    letters = DeadLetter(lab.producer, dead, max_ratio=None)
    running = lab.run(settings.pop("handle"), dead_letter=letters, **settings)
    running.wait_done(1)
    running.end()
    (letter,) = read_all(lab, dead, 1)
    return running.worker, letter


@pytest.mark.any_broker
@pytest.mark.parametrize("has_sdk", [True, False])
def test_a_letter_keeps_its_records_context(
    lab: Lab,
    spans: Spans,
    has_sdk: bool,  # noqa: FBT001
) -> None:
    """Whole: the span of an attempt is found by where the letter says it comes from."""
    _, letter = buried(lab, trace=spans.tracing() if has_sdk else True)
    assert contexts_of(letter) == [SENT]
    assert contexts_of(letter, "tracestate") == ["vendor=1"]
    assert contexts_of(letter, "baggage") == ["a=b"]
    place = dict(letter.headers)
    for span in spans.all:
        said = span.attributes or {}
        assert place["dead-letter-topic"].decode() == said["messaging.destination.name"]
        assert int(place["dead-letter-offset"]) == said["messaging.kafka.offset"]
    assert len(spans.all) == has_sdk


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
    """A house's own: it brings baggage that nobody can write, and fails to write its own."""

    fields = {"house"}  # type: ignore[assignment]  # noqa: RUF012 - a property there

    def extract(self, _carrier: Any, context: Any = None, **_: Any) -> Any:  # type: ignore[override]  # noqa: ANN401
        """Read a text that was cut in the middle of an emoji."""
        return baggage.set_baggage("user", "\ud83d", context)

    def inject(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 - any
        raise OSError


@contextmanager
def propagating(house: TextMapPropagator) -> Iterator[None]:
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(house)
    try:
        yield
    finally:
        propagate.set_global_textmap(before)


def test_a_context_that_cannot_be_written_is_no_records_fault(
    lab: Lab, spans: Spans
) -> None:
    """Its handler is called, once; its letter keeps the record's headers."""
    with propagating(House()):
        worker, letter = buried(lab, trace=spans.tracing(), executor="process")
    assert spans.one.status.status_code is StatusCode.ERROR
    assert contexts_of(letter) == [SENT]
    assert worker.hook_failures["trace"] == 1


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
    for name in ("opentelemetry", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'safeconsumer\[otel\]'"):
        Worker(lab.consumer(), nothing, trace=True)


def import_again(monkeypatch: pytest.MonkeyPatch, room: str, name: str) -> None:
    """Have a module imported anew within this test."""
    importlib.import_module(f"{room}.{name}")
    monkeypatch.delitem(sys.modules, f"{room}.{name}")
    monkeypatch.delattr(sys.modules[room], name)


def test_impossible_settings_are_refused() -> None:
    """A provider that provides nothing, and a parent that is neither here nor there."""
    with pytest.raises(WorkerSettingError, match="provider must be"):
        Tracing(provider=object())
    with pytest.raises(WorkerSettingError, match="parent must be"):
        Tracing(parent="link")  # type: ignore[arg-type]  # that is the point
