"""What each client reached with one kind of records, and how they compare."""

import statistics
from collections.abc import Iterable, Sequence

from attrs import frozen

from tests.bench.cases import ITERATION, POLL_500, POLL_5000, TARGETS, Case, Mode
from tests.bench.figures import Figure, ratio_of_pairs

_SMALL, _LZ4 = TARGETS
_STOCK, _OURS = "kafka-python", "safe-compiled"
_CPU_TARGETS = {
    (_SMALL, POLL_5000): 0.20,
    (_SMALL, POLL_500): 0.25,
    (_SMALL, ITERATION): 0.35,
    (_LZ4, POLL_5000): 0.30,
}
_SPEED_TARGETS = {
    (_SMALL, POLL_5000, "aiokafka"): 1.0,
    (_SMALL, POLL_500, "aiokafka"): 1.2,
    (_SMALL, ITERATION, "aiokafka"): 2.0,
    (_SMALL, POLL_5000, "confluent consume tuned"): 1.2,
    (_SMALL, POLL_500, "confluent consume tuned"): 0.6,
    (_SMALL, POLL_500, "confluent consume"): 4.0,
    (_SMALL, ITERATION, "confluent poll tuned"): 1.0,
    (_LZ4, POLL_5000, "confluent consume tuned"): 0.8,
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

    @property
    def peak(self) -> float:
        return statistics.median(self.peak_mb)

    def as_dict(self) -> dict[str, object]:
        return {
            "partitions": self.case.partitions,
            "value_bytes": self.case.size,
            "codec": self.case.codec,
            "headers": self.case.headers,
            "mode": self.mode.name,
            "client": self.client,
            "records_per_s": round(self.speed),
            "cpu_us_per_record": round(self.cpu, 3),
            "peak_mb": round(self.peak, 1),
            "rounds": {
                "records_per_s": [round(one) for one in self.records_per_s],
                "cpu_us_per_record": [round(one, 3) for one in self.cpu_us],
                "peak_mb": [round(one, 1) for one in self.peak_mb],
            },
        }


def compared(readings: Iterable[Reading]) -> list[Figure]:
    """Return the ratios of our compiled decoder to each other client, per case and mode."""
    by_key = {(one.case, one.mode, one.client): one for one in readings}
    figures = []
    for (case, mode, client), other in by_key.items():
        ours = by_key.get((case, mode, _OURS))
        if ours is None or client == _OURS:
            continue
        cpu_target = _CPU_TARGETS.get((case, mode)) if client == _STOCK else None
        row = f"{case.name}, {mode.name}"
        figures += [
            Figure(
                row=row,
                name=f"CPU per record / {client}",
                measured=ratio_of_pairs(ours.cpu_us, other.cpu_us),
                unit="x",
                at_most=cpu_target,
                rounds={_OURS: ours.cpu_us, client: other.cpu_us},
            ),
            Figure(
                row=row,
                name=f"records/s / {client}",
                measured=ratio_of_pairs(ours.records_per_s, other.records_per_s),
                unit="x",
                at_least=_SPEED_TARGETS.get((case, mode, client)),
                rounds={_OURS: ours.records_per_s, client: other.records_per_s},
            ),
        ]
    return figures


def as_table(readings: Iterable[Reading]) -> str:
    """Return one line per reading."""
    return "\n".join(
        f"{one.case.name:<28} {one.mode.name:<24} {one.client:<18}"
        f" {one.speed:>10,.0f}/s {one.cpu:>8.2f} us {one.peak:>7.0f} MB"
        for one in readings
    )
