"""Records per second, CPU per record and peak memory of all clients, side by side."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from attrs import frozen

from tests.bench.figures import Figure, ratio, report, tell
from tests.bench.stage import Case, Stage
from tests.bench.workers import arms, in_turns

_LAPS = 2
_STOCK, _OURS = "kafka-python", "safe-compiled"
_CLIENTS = (
    _STOCK,
    "safe-python",
    _OURS,
    "aiokafka",
    "confluent poll",
    "confluent poll tuned",
    "confluent consume",
    "confluent consume tuned",
)
# More records of 100 B than confluent-kafka's queue holds at its defaults (100,000): it
# waits for a second then.
_BYTES = 36_000_000

SMALL, _LZ4 = CASES = (Case(), Case(size=1_000, codec="lz4"))


@frozen(kw_only=True)
class Mode:
    """
    One way of reading.

    Attributes:
        name: as kafka-python calls it.
        max_records: at most so many in one call; None for one by one.
    """

    name: str
    max_records: int | None

    def clients(self) -> Iterator[str]:
        """Yield the clients that can read so; confluent's ``poll`` gives one at a time."""
        single = self.max_records is None
        other = "confluent consume" if single else "confluent poll"
        return (client for client in _CLIENTS if not client.startswith(other))


_5000 = Mode(name="poll(max_records=5000)", max_records=5000)
_500 = Mode(name="poll(max_records=500)", max_records=500)
_ITERATION = Mode(name="iteration", max_records=None)
MODES = (_5000, _500, _ITERATION)

_CPU_TARGETS = {
    (SMALL, _5000): 0.20,
    (SMALL, _500): 0.25,
    (SMALL, _ITERATION): 0.35,
    (_LZ4, _5000): 0.30,
}
_SPEED_TARGETS = {
    (SMALL, _5000, "aiokafka"): 1.0,
    (SMALL, _500, "aiokafka"): 1.2,
    (SMALL, _ITERATION, "aiokafka"): 2.0,
    (SMALL, _5000, "confluent consume tuned"): 1.2,
    (SMALL, _500, "confluent consume tuned"): 0.6,
    (SMALL, _500, "confluent consume"): 4.0,
    (SMALL, _ITERATION, "confluent poll tuned"): 1.0,
    (_LZ4, _5000, "confluent consume tuned"): 0.8,
}


@frozen(kw_only=True)
class Reading:
    """
    One client reading one topic in one way: raw values, one per lap.

    Attributes:
        case: the kind of records.
        mode: the way of reading.
        client: who read.
        records_per_s: speeds.
        cpu_us: CPU of the whole process per record, in microseconds.
        peak_mb: the largest resident memory so far, in megabytes.
    """

    case: Case
    mode: Mode
    client: str
    records_per_s: Sequence[float]
    cpu_us: Sequence[float]
    peak_mb: Sequence[float]

    @property
    def speed(self) -> float:
        return statistics.median(self.records_per_s)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpu_us)

    def line(self) -> str:
        return (
            f"{self.case.name:<20} {self.mode.name:<24} {self.client:<24}"
            f" {self.speed:>10,.0f}/s {self.cpu:>8.2f} us"
            f" {statistics.median(self.peak_mb):>7.0f} MB"
        )


def run(
    stage: Stage, cases: Sequence[Case] = CASES
) -> tuple[dict[str, object], list[Reading]]:
    """Measure all cases; return everything as plain JSON values, and the readings."""
    start = time.monotonic()
    readings: list[Reading] = []
    for case in cases:
        records = max(2_400, _BYTES // (case.size + 20))
        topic = stage.filled(case, records)
        for mode in MODES:
            readings += _measured(stage, case, mode, topic, records)
            tell(f"{case.name}, {mode.name}: {time.monotonic() - start:.0f} s")
        stage.drop(topic)
    tell("\n".join(one.line() for one in readings))
    return report(stage, list(_compared(readings)), start), readings


def _measured(
    stage: Stage, case: Case, mode: Mode, topic: str, records: int
) -> Iterator[Reading]:
    taken: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    kinds = {
        client: stage.arm(
            "throughput",
            client,
            bootstrap=stage.broker.bootstrap,
            topic=topic,
            partitions=case.partitions,
            max_records=mode.max_records,
        )
        for client in mode.clients()
    }
    for number in range(stage.sizes.rounds):
        with arms(kinds) as started:
            for client in started:
                started[client].call("read", records=records)  # warms up
            for lap in range(_LAPS):
                for client in in_turns(list(started), number * _LAPS + lap):
                    answer = started[client].call("read", records=records)
                    for what, value in answer.items():
                        taken[client][what].append(value)
    return (
        Reading(
            case=case,
            mode=mode,
            client=client,
            records_per_s=[records / wall for wall in taken[client]["wall"]],
            cpu_us=[cpu / records * 1e6 for cpu in taken[client]["cpu"]],
            peak_mb=taken[client]["peak"],
        )
        for client in kinds
    )


def _compared(readings: Iterable[Reading]) -> Iterator[Figure]:
    """Yield the ratios of our compiled decoder to each other client, per case and mode."""
    by_key = {(one.case, one.mode, one.client): one for one in readings}
    for (case, mode, client), other in by_key.items():
        if client == _OURS:
            continue
        ours, row = by_key[case, mode, _OURS], f"{case.name}, {mode.name}"
        yield ratio(
            row,
            f"CPU per record / {client}",
            {_OURS: ours.cpu_us, client: other.cpu_us},
            _OURS,
            client,
            at_most=_CPU_TARGETS.get((case, mode)) if client == _STOCK else None,
        )
        yield ratio(
            row,
            f"records/s / {client}",
            {_OURS: ours.records_per_s, client: other.records_per_s},
            _OURS,
            client,
            at_least=_SPEED_TARGETS.get((case, mode, client)),
        )
