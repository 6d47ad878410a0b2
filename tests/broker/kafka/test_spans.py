"""OpenTelemetry's instrumentor of kafka-python sees each record of an iteration."""

from contextlib import contextmanager

from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import Reader


@contextmanager
def instrumented():
    """Have kafka-python instrumented for the block; what is recorded stays."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    instrumentor = KafkaInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        yield found
    finally:
        instrumentor.uninstrument()


def names(found):
    return [span.name.split()[-1] for span in found.get_finished_spans()]


@simulated(seeds=1)
def test_an_iteration_that_runs_is_instrumented_from_then_on(lab):
    """And no longer once that is over: in the middle of what a poll returned."""
    (tp,) = lab.topic("t", 1, records=9)
    reader = Reader(lab, SafeConsumer, tps=[tp], how="iterate")
    reader.take(3)
    with instrumented() as found:
        reader.take(3)
    reader.take(3)
    assert reader.offsets(tp) == [*range(9)]
    assert names(found) == 3 * ["receive"]
