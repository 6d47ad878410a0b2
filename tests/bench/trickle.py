"""
Records that come one by one: latency, CPU, and what a member costs that has nothing.

All clients are members of a group, with all of one topic each, and take turns.
"""

import os
import threading
import time
from collections import defaultdict

import confluent_kafka

from tests.bench.figures import median, percentile, ratio
from tests.bench.stage import send
from tests.bench.workers import arms, in_turns

_STOCK, _OURS = "kafka-python", "safe-auto"
_CLIENTS = (_STOCK, _OURS, "aiokafka", "confluent-kafka")
_PARTITIONS = 8

_LAPS = 4
_RATE = 500.0  # records per second
_RECORDS = 2_500
_BACKLOG = 200_000

# By what is compared: a name, how raw values are scaled, and by client at most what.
_RATIOS = {
    "p50": (
        "produced to returned, p50",
        1e3,
        {_STOCK: 0.8, "aiokafka": 1.0, "confluent-kafka": 2.0},
    ),
    "p99": ("produced to returned, p99", 1e3, {_STOCK: 0.8}),
    "cpu": ("CPU per record", 1e6, {_STOCK: 0.6, "aiokafka": 1.2}),
    "idle": ("CPU of poll(1000)", 1e3, {_STOCK: 1.0}),
}


def measured(stage):
    if not stage.broker.is_real:
        message = (
            "trickle needs Apache Kafka (--kafka=java or --bootstrap): the embedded "
            "broker answers a waiting request when its time is over, and not when a "
            "record comes"
        )
        raise SystemExit(message)
    taken = defaultdict(lambda: defaultdict(list))
    for number in range(stage.sizes.rounds):
        _round(stage, number, taken)
    yield from _figures(taken)


def _round(stage, number, taken):
    topics = {client: stage.topic(_PARTITIONS) for client in _CLIENTS}
    every = {"partitions": _PARTITIONS, "is_member": True}
    kinds = {one: stage.reader(one, topic, **every) for one, topic in topics.items()}
    backlog = _BACKLOG // stage.sizes.scale
    with arms(kinds) as started:
        for client, arm in started.items():
            taken["resident"][client].append(arm.call("settle")["resident"])
        for client, arm in started.items():
            _produce(stage, topics[client], backlog, rate=None)
            taken["peak"][client].append(arm.call("drain", records=backlog)["peak"])
        for lap in range(_LAPS):
            for client in in_turns(list(started), number * _LAPS + lap):
                said = _followed(stage, started[client], topics[client])
                delays = said.pop("delays")
                for percent in (50, 99):
                    taken[f"p{percent}"][client].append(percentile(delays, percent))
                for what, value in said.items():
                    taken[what][client].append(value)
        for lap in range(2):
            for client in in_turns(list(started), number + lap):
                said = started[client].call(
                    "idle", polls=max(2, stage.sizes.polls // 3)
                )
                taken["idle"][client].append(said["cpu"] / said["wall"])
    for topic in topics.values():
        stage.drop(topic)


def _records(stage):
    return max(50, _RECORDS // stage.sizes.scale)


def _followed(stage, arm, topic):
    arm.begin("follow", records=_records(stage))
    # It does not matter whether the arm polls by then: what waits is its first records.
    _produce(stage, topic, _records(stage), rate=_RATE)
    return arm.answer(60.0)


def _produce(stage, topic, records, rate):
    # The time stands in the value: clocks of processes on one machine are one clock.
    settings = {"bootstrap.servers": stage.broker.bootstrap, "acks": 1}
    settings["linger.ms"] = 20 if rate is None else 0
    producer = confluent_kafka.Producer(settings)
    producer.list_topics(topic, timeout=30)  # it is connected when the first one leaves
    padding = os.urandom(50).hex()
    started, pause = time.monotonic(), threading.Event()
    for number in range(records):
        if rate is not None:
            pause.wait(max(0.0, started + number / rate - time.monotonic()))
        value = f"{time.monotonic_ns()}" if rate else padding
        send(producer, topic, value=value.encode(), partition=number % _PARTITIONS)
        producer.poll(0)
    if producer.flush(60):
        message = f"{topic}: not all of {records} records were produced in time"
        raise TimeoutError(message)


def _figures(taken):
    for what, (name, scale, limits) in _RATIOS.items():
        for client in _CLIENTS:
            if client != _OURS:
                yield ratio(
                    what,
                    f"{name} / {client}",
                    taken[what],
                    _OURS,
                    client,
                    at_most=limits.get(client),
                    scale=scale,
                )
    resident = taken["resident"]
    pairs = zip(resident[_OURS], resident[_STOCK], strict=True)
    over = [ours - theirs for ours, theirs in pairs]
    yield median("memory", f"resident, idle, over {_STOCK}", over, "MB", at_most=5.0)
    name = f"peak under load / {_STOCK}"
    yield ratio("memory", name, taken["peak"], _OURS, _STOCK, at_most=1.2)


ROWS = {"trickle": measured}
