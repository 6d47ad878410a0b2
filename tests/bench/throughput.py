"""Records per second, CPU per record and peak memory of all clients, side by side."""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

from tests.bench import report
from tests.bench.cases import CLIENTS, Case, Mode
from tests.bench.loads import fill
from tests.bench.results import Reading, as_table, compared
from tests.bench.stage import Stage
from tests.bench.workers import arms, in_turns

_LAPS = 2


def run(
    stage: Stage, cases: Sequence[Case], modes: Sequence[Mode], *, smoke: bool
) -> tuple[dict[str, object], list[Reading]]:
    """
    Measure all cases; return everything as plain JSON values, and the readings.

    Args:
        stage: the broker, and how many rounds of fresh processes.
        cases: the kinds of records.
        modes: the ways of reading.
        smoke: read next to nothing.
    """
    start = time.monotonic()
    readings: list[Reading] = []
    for case in cases:
        records = case.records(smoke=smoke)
        topic = fill(stage, case, records)
        for mode in modes:
            readings += _measured(stage, case, mode, topic, records)
            _tell(f"{case.name}, {mode.name}: {time.monotonic() - start:.0f} s")
        stage.drop(topic)
    figures = compared(readings)
    _tell(as_table(readings))
    _tell(report.as_table(figures))
    result = report.as_dict(
        figures,
        broker=stage.broker.kind,
        smoke=smoke,
        seconds=time.monotonic() - start,
    )
    return {**result, "readings": [one.as_dict() for one in readings]}, readings


def _measured(
    stage: Stage, case: Case, mode: Mode, topic: str, records: int
) -> Iterator[Reading]:
    taken: dict[str, dict[str, list[float]]] = {
        client: defaultdict(list) for client in CLIENTS
    }
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


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
