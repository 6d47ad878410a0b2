"""
Records that come one by one: latency, CPU, and what a member costs that has nothing.

All clients are members of a group, with all of one topic each, and take turns.
"""

import os
import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

import confluent_kafka

from tests.bench.figures import Figure, percentile, ratio, report, tell
from tests.bench.stage import Stage, send
from tests.bench.workers import Arm, arms, in_turns

_STOCK, _OURS = "kafka-python", "safe-auto"
_CLIENTS = (_STOCK, _OURS, "aiokafka", "confluent-kafka")
_PARTITIONS = 8

_LAPS = 4
_RATE = 500.0  # records per second
_RECORDS = 2_500
_BACKLOG = 200_000
_IDLE_POLLS = 10

# By what is compared: a name, how raw values are scaled, and by client at most what.
_RATIOS: dict[str, tuple[str, float, dict[str, float]]] = {
    "p50": (
        "produced to returned, p50",
        1e3,
        {_STOCK: 0.8, "aiokafka": 1.0, "confluent-kafka": 2.0},
    ),
    "p99": ("produced to returned, p99", 1e3, {_STOCK: 0.8}),
    "cpu": ("CPU per record", 1e6, {_STOCK: 0.6, "aiokafka": 1.2}),
    "idle": ("CPU of poll(1000)", 1e3, {_STOCK: 1.0}),
}

Taken = dict[str, dict[str, list[float]]]
"""By what was measured and by client: a value per lap, or per round."""


def run(stage: Stage) -> dict[str, object]:
    """
    Measure everything; return it as plain JSON values.

    Raises:
        SystemExit: the broker is an embedded one.
    """
    if not stage.broker.is_real:
        message = (
            "trickle needs Apache Kafka (--kafka=java or --bootstrap): the embedded "
            "broker answers a waiting request when its time is over, and not when a "
            "record comes"
        )
        raise SystemExit(message)
    start = time.monotonic()
    taken: Taken = defaultdict(lambda: defaultdict(list))
    for number in range(stage.sizes.rounds):
        _round(stage, number, taken)
        tell(f"round {number + 1}: {time.monotonic() - start:.0f} s")
    tell(_table(taken))
    return report(stage, list(_figures(taken)), start)


def _round(stage: Stage, number: int, taken: Taken) -> None:
    topics = {client: stage.topic(_PARTITIONS) for client in _CLIENTS}
    kinds = {
        client: stage.arm(
            "following", client, bootstrap=stage.broker.bootstrap, topic=topic
        )
        for client, topic in topics.items()
    }
    with arms(kinds) as started:
        for client, arm in started.items():
            taken["resident"][client].append(arm.call("settle")["resident"])
        for client, arm in started.items():
            _produce(stage, topics[client], _BACKLOG, rate=None)
            taken["peak"][client].append(arm.call("drain", records=_BACKLOG)["peak"])
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
                said = started[client].call("idle", polls=_IDLE_POLLS)
                taken["idle"][client].append(said["cpu"] / said["wall"])
    for topic in topics.values():
        stage.drop(topic)


def _followed(stage: Stage, arm: Arm, topic: str) -> dict[str, list[float]]:
    arm.begin("follow", records=_RECORDS)
    # It does not matter whether the arm polls by then: what waits is its first records.
    _produce(stage, topic, _RECORDS, rate=_RATE)
    return arm.answer(60.0)


def _produce(stage: Stage, topic: str, records: int, rate: float | None) -> None:
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


def _figures(taken: Taken) -> Iterator[Figure]:
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
    yield Figure(
        row="memory",
        name=f"resident, idle, over {_STOCK}",
        measured=statistics.median(
            ours - theirs
            for ours, theirs in zip(resident[_OURS], resident[_STOCK], strict=True)
        ),
        unit="MB",
        at_most=5.0,
        rounds={one: resident[one] for one in (_OURS, _STOCK)},
    )
    name = f"peak under load / {_STOCK}"
    yield ratio("memory", name, taken["peak"], _OURS, _STOCK, at_most=1.2)


def _table(taken: Taken) -> str:
    def middle(what: str, client: str, times: float = 1.0) -> float:
        return statistics.median(taken[what][client]) * times

    return "\n".join(
        f"{one:<16} p50 {middle('p50', one, 1e3):6.2f} ms"
        f"  p99 {middle('p99', one, 1e3):6.2f} ms"
        f"  CPU {middle('cpu', one, 1e6):6.0f} us a record"
        f"  {middle('waits', one):5.2f} waits  {middle('polls', one):5.2f} polls"
        f"  idle {middle('idle', one, 1e3):5.2f} ms/s"
        f"  {middle('resident', one):5.1f} MB, {middle('peak', one):5.1f} MB peak"
        for one in _CLIENTS
    )
