"""Tests OpenTelemetry's instrumentor of kafka-python with our consumer."""

import sys
from contextlib import contextmanager

import pytest
from kafka import KafkaProducer
from opentelemetry.instrumentation.kafka import KafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from safeconsumer import SafeConsumer
from tests.harness.group.team import Team
from tests.harness.polling import poll_until
from tests.harness.processes import ran
from tests.sim.playing import simulated
from tests.sim.reading import Reader

pytestmark = pytest.mark.any_broker


@contextmanager
def instrumented():
    """Instrument kafka-python during the block; yield the exporter that collects spans."""
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
def test_iteration_creates_spans_only_while_kafka_python_is_instrumented(lab):
    """The instrumentation starts and ends between two records that the same poll fetched."""
    (tp,) = lab.topic("t", 1, records=9)
    reader = Reader(lab, SafeConsumer, tps=[tp], how="iterate")
    reader.take(3)
    with instrumented() as found:
        reader.take(3)
    reader.take(3)
    assert reader.offsets(tp) == [*range(9)]
    assert names(found) == 3 * ["receive"]


_BEFORE = """
import functools, sys
import kafka

seen = []
stock = kafka.KafkaConsumer.__next__

@functools.wraps(stock)
def traced(consumer):
    record = stock(consumer)
    seen.append(record.offset)
    return record

kafka.KafkaConsumer.__next__ = traced

from safeconsumer import SafeConsumer

consumer = SafeConsumer(
    sys.argv[1],
    bootstrap_servers=sys.argv[2],
    auto_offset_reset="earliest",
    consumer_timeout_ms=20_000,
)
for _ in range(5):
    next(consumer)
consumer.close()
print(seen)
"""


def test_wrapper_installed_before_our_import_sees_every_record(
    kafka_broker, kafka_topic
):
    """The wrapper is a plain function that has the attributes of upstream's function."""
    topic = kafka_topic(partitions=1)
    with KafkaProducer(**kafka_broker.client_config) as producer:
        for _ in range(5):
            producer.send(topic, b"x")
    where = ",".join(kafka_broker.client_config["bootstrap_servers"])
    command = [sys.executable, "-c", _BEFORE, topic, where]
    done = ran(*command, check=True)
    assert done.stdout.strip() == "[0, 1, 2, 3, 4]"


def test_control_traffic_creates_no_spans(kafka_broker):
    """The member reads holds and writes reports, and an operator places a hold."""
    with instrumented() as exported, Team(kafka_broker) as team:
        exported.clear()  # drops the spans of the team's own records
        member = team.subscribed()
        team.settled(member)
        team.operator_holds(team.topic)
        poll_until(member, team.is_quiet(member))
        member.close()
        assert names(exported) == []
