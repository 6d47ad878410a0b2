"""
Records that come one by one: latency, CPU, and what a member costs that has nothing.

All clients are members of a group, with all of one topic each, and take turns.
"""

import os
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence

import confluent_kafka
from attrs import evolve, frozen

from tests.bench import report
from tests.bench.figures import Figure, percentile, ratio_of_pairs
from tests.bench.stage import Stage, send
from tests.bench.workers import Arm, arms, in_turns

_STOCK, _OURS = "kafka-python", "safe-auto"
CLIENTS = (_STOCK, _OURS, "aiokafka", "confluent-kafka")
_PARTITIONS = 8

# By row, client that it is compared with, and percentile: at most that ratio.
_TARGETS = {
    ("latency", _STOCK, 50): 0.8,
    ("latency", _STOCK, 99): 0.8,
    ("latency", "aiokafka", 50): 1.0,
    ("latency", "confluent-kafka", 50): 2.0,
}
_CPU_TARGETS = {_STOCK: 0.6, "aiokafka": 1.2}
_MORE_IDLE_MB = 5.0
_MORE_LOADED = 1.2
_IDLE_CPU = 1.0

ROWS = ("latency", "cpu", "idle-cpu", "memory")


@frozen(kw_only=True)
class Amounts:
    """How much is measured; the defaults are the real thing."""

    laps: int = 4
    rate: float = 500.0
    records: int = 2_500
    backlog: int = 200_000
    idle_polls: int = 10


_SMOKE = Amounts(laps=1, rate=200.0, records=20, backlog=500, idle_polls=1)


class _Taken:
    """Raw values of each client: a list of figures per lap, or per round."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, list[float]]] = {
            name: defaultdict(list) for name in CLIENTS
        }

    def of(self, client: str, what: str) -> list[float]:
        return self.values[client][what]


def run(stage: Stage, *, smoke: bool) -> dict[str, object]:
    """Measure everything; return it as plain JSON values."""
    start = time.monotonic()
    amounts, taken = _SMOKE if smoke else Amounts(), _Taken()
    for number in range(stage.sizes.rounds):
        _round(stage, amounts, number, taken)
        sys.stderr.write(f"round {number + 1}: {time.monotonic() - start:.0f} s\n")
    figures = [*_latency(taken), *_cpu(taken), *_idle(taken), *_memory(taken)]
    if smoke:  # it proves nothing, so it judges nothing
        figures = [evolve(one, at_most=None, at_least=None) for one in figures]
    sys.stderr.write(f"{_as_table(taken)}\n{report.as_table(figures)}\n")
    return report.as_dict(
        figures,
        broker=stage.broker.kind,
        smoke=smoke,
        seconds=time.monotonic() - start,
    )


def _round(stage: Stage, amounts: Amounts, number: int, taken: _Taken) -> None:
    topics = {client: stage.topic(_PARTITIONS) for client in CLIENTS}
    kinds = {
        client: stage.arm(
            "following", client, bootstrap=stage.broker.bootstrap, topic=topic
        )
        for client, topic in topics.items()
    }
    with arms(kinds) as started:
        for client, arm in started.items():
            resident = arm.call("settle")["resident"]
            taken.of(client, "resident").append(resident)
        for client, arm in started.items():
            _produce(stage, topics[client], amounts.backlog, rate=None)
            peak = arm.call("drain", records=amounts.backlog)["peak"]
            taken.of(client, "peak").append(peak)
        for lap in range(amounts.laps):
            for client in in_turns(list(started), number * amounts.laps + lap):
                said = _followed(stage, started[client], topics[client], amounts)
                delays = said.pop("delays")
                for percent in (50, 99):
                    taken.of(client, f"p{percent}").append(percentile(delays, percent))
                for what, value in said.items():
                    taken.of(client, what).append(value)
        for lap in range(2):
            for client in in_turns(list(started), number + lap):
                said = started[client].call("idle", polls=amounts.idle_polls)
                taken.of(client, "idle").append(said["cpu"] / said["wall"])
    for topic in topics.values():
        stage.drop(topic)


def _followed(
    stage: Stage, arm: Arm, topic: str, amounts: Amounts
) -> dict[str, object]:
    arm.begin("follow", records=amounts.records)
    # It does not matter whether the arm polls by then: what waits is its first records.
    _produce(stage, topic, amounts.records, rate=amounts.rate)
    return arm.answer(60.0)


def _produce(stage: Stage, topic: str, records: int, rate: float | None) -> None:
    # The time stands in the value: clocks of processes on one machine are one clock.
    settings = {"bootstrap.servers": stage.broker.bootstrap, "acks": 1}
    settings["linger.ms"] = 20 if rate is None else 0
    producer = confluent_kafka.Producer(settings)
    producer.list_topics(topic, timeout=30)  # it is connected when the first one leaves
    padding = os.urandom(50).hex()[:100] if rate is None else ""
    started, pause = time.monotonic(), threading.Event()
    for number in range(records):
        if rate is not None:
            pause.wait(max(0.0, started + number / rate - time.monotonic()))
        value = f"{time.monotonic_ns()}".encode() if rate else padding.encode()
        send(producer, topic, value=value, partition=number % _PARTITIONS)
        producer.poll(0)
    if producer.flush(60):
        message = f"{topic}: not all of {records} records were produced in time"
        raise TimeoutError(message)


def _latency(taken: _Taken) -> list[Figure]:
    return [
        Figure(
            row="latency",
            name=f"produced to returned, p{percent} / {client}",
            measured=ratio_of_pairs(
                taken.of(_OURS, f"p{percent}"), taken.of(client, f"p{percent}")
            ),
            unit="x",
            at_most=_TARGETS.get(("latency", client, percent)),
            rounds={
                one: [round(value * 1e3, 3) for value in taken.of(one, f"p{percent}")]
                for one in (_OURS, client)
            },
            note="raw values in milliseconds",
        )
        for client in CLIENTS
        if client != _OURS
        for percent in (50, 99)
    ]


def _cpu(taken: _Taken) -> list[Figure]:
    return [
        _ratio(taken, "cpu", "cpu", f"CPU per record / {client}", client, target)
        for client in CLIENTS
        if client != _OURS
        for target in (_CPU_TARGETS.get(client),)
    ]


def _idle(taken: _Taken) -> list[Figure]:
    return [
        _ratio(taken, "idle-cpu", "idle", f"CPU of poll(1000) / {client}", client, one)
        for client in CLIENTS
        if client != _OURS
        for one in (_IDLE_CPU if client == _STOCK else None,)
    ]


def _memory(taken: _Taken) -> list[Figure]:
    resident = taken.of(_OURS, "resident")
    differences = [
        ours - theirs
        for ours, theirs in zip(resident, taken.of(_STOCK, "resident"), strict=True)
    ]
    return [
        Figure(
            row="memory",
            name=f"resident, idle, over {_STOCK}",
            measured=statistics.median(differences),
            unit="MB",
            at_most=_MORE_IDLE_MB,
            rounds={_OURS: resident, _STOCK: taken.of(_STOCK, "resident")},
        ),
        _ratio(
            taken, "memory", "peak", f"peak under load / {_STOCK}", _STOCK, _MORE_LOADED
        ),
    ]


def _ratio(  # noqa: PLR0913, PLR0917 - a figure has that many parts
    taken: _Taken, row: str, what: str, name: str, client: str, at_most: float | None
) -> Figure:
    ours, theirs = taken.of(_OURS, what), taken.of(client, what)
    return Figure(
        row=row,
        name=name,
        measured=ratio_of_pairs(ours, theirs),
        unit="x",
        at_most=at_most,
        rounds={_OURS: ours, client: theirs},
    )


def _as_table(taken: _Taken) -> str:
    def middle(client: str, what: str, times: float = 1.0) -> float:
        values: Sequence[float] = taken.of(client, what)
        return statistics.median(values) * times

    return "\n".join(
        f"{client:<16} p50 {middle(client, 'p50', 1e3):6.2f} ms"
        f"  p99 {middle(client, 'p99', 1e3):6.2f} ms"
        f"  CPU {middle(client, 'cpu', 1e6):6.0f} us a record"
        f"  {middle(client, 'waits'):5.2f} waits  {middle(client, 'polls'):5.2f} polls"
        f"  idle {middle(client, 'idle', 1e3):5.2f} ms/s"
        f"  {middle(client, 'resident'):5.1f} MB, {middle(client, 'peak'):5.1f} MB peak"
        for client in CLIENTS
    )
