"""
Measures the latency and the CPU time of records that are produced one by one.

Each client is the only member of its group, and owns all partitions of its own topic.
The clients take turns.
"""

import threading
import time
from collections import defaultdict

from attrs import field, frozen

from tests.bench.figures import median, percentile, ratio
from tests.bench.stage import send
from tests.bench.throughput import CLIENTS, CPU, LAPS, OURS, STOCK
from tests.bench.workers import in_turns, variants

P50, P99 = "produced to returned, p50", "produced to returned, p99"
# For each measured value: its name, its unit, and the number of units in a second.
_MEASURED = {
    "p50": (P50, "ms", 1e3),
    "p99": (P99, "ms", 1e3),
    "cpu": (CPU, "us", 1e6),
}


@frozen(kw_only=True)
class Flow:
    """A steady flow of records to all partitions, with limits on each client's values."""

    partitions: int
    rate: float  # records per second
    records: int  # records in each lap
    limits: dict = field(factory=dict)


FLOWS = {
    "one-by-one": Flow(
        partitions=8,
        rate=500.0,
        records=1_500,
        limits={
            "p50": {STOCK: 0.8, "aiokafka": 1.0, "confluent-kafka, tuned": 2.0},
            "p99": {STOCK: 0.8},
            "cpu": {STOCK: 0.6, "aiokafka": 1.2},
        },
    ),
    "thousand": Flow(
        partitions=1_000, rate=50.0, records=100, limits={"cpu": {STOCK: 1.2}}
    ),
}


def measured(stage, row):
    if not stage.broker.is_real:
        message = (
            f"{row} needs Apache Kafka (--kafka=java or --bootstrap): the embedded "
            "broker answers a waiting fetch only at its time limit, not when a "
            "record arrives"
        )
        raise SystemExit(message)
    taken = defaultdict(lambda: defaultdict(list))
    for number in range(stage.sizes.rounds):
        _round(stage, FLOWS[row], number, taken)
    yield from _figures(row, taken)


def _round(stage, flow, number, taken):
    topics = {client: stage.topic(flow.partitions) for client in CLIENTS}
    every = {"partitions": flow.partitions, "is_member": True}
    kinds = {one: stage.reader(one, topic, **every) for one, topic in topics.items()}
    with variants(kinds) as started:
        for lap in range(LAPS):
            for client in in_turns(list(started), number * LAPS + lap):
                answer = _followed(stage, started[client], topics[client], flow)
                delays = answer.pop("delays")
                for percent in (50, 99):
                    taken[f"p{percent}"][client].append(percentile(delays, percent))
                for what, value in answer.items():
                    taken[what][client].append(value)
    for topic in topics.values():
        stage.drop(topic)


def _followed(stage, variant, topic, flow):
    records = max(50, flow.records // stage.sizes.scale)
    variant.begin("follow", records=records)
    # The consuming process may start to poll later, because the first records wait for
    # it.
    _produce(stage, topic, flow, records)
    return variant.answer(60.0)


def _produce(stage, topic, flow, records):
    import confluent_kafka  # noqa: PLC0415 - of an extra, which --help does without

    # The value is the time of production. The consumer can compare it with its clock,
    # because all processes on a machine share one clock.
    settings = {"bootstrap.servers": stage.broker.bootstrap, "acks": 1, "linger.ms": 0}
    producer = confluent_kafka.Producer(settings)
    # This call connects the producer before it sends the first record.
    producer.list_topics(topic, timeout=30)
    started, pause = time.monotonic(), threading.Event()
    for number in range(records):
        pause.wait(max(0.0, started + number / flow.rate - time.monotonic()))
        value, partition = f"{time.monotonic_ns()}", number % flow.partitions
        send(producer, topic, value=value.encode(), partition=partition)
        producer.poll(0)
    if producer.flush(60):
        message = f"{topic}: not all of {records} records were produced in time"
        raise TimeoutError(message)


def _figures(row, taken):
    for what, (name, unit, scale) in _MEASURED.items():
        for client in CLIENTS:
            values = [round(value * scale, 3) for value in taken[what][client]]
            yield median(row, f"{name}, {client}", values, unit)
        limits = FLOWS[row].limits.get(what, {})
        for client in CLIENTS:
            if client != OURS:
                yield ratio(
                    row,
                    f"{name} / {client}",
                    taken[what],
                    OURS,
                    client,
                    at_most=limits.get(client),
                    scale=scale,
                )


ROWS = {row: lambda stage, row=row: measured(stage, row) for row in FLOWS}
