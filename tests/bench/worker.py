"""What a worker costs over a plain poll loop on the same consumer, in the same run."""

import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from tests.bench import report
from tests.bench.cases import Case
from tests.bench.figures import Figure, ratio_of_pairs
from tests.bench.loads import fill
from tests.bench.stage import SMOKE, Stage
from tests.bench.workers import in_turns

_ROOT = Path(__file__).parents[2]
_TIMEOUT = 240.0
_MIB = 1024 * 1024

Values = Mapping[str, list[dict[str, float]]]
_RATIOS = {"partition": 1.15, "unordered": 1.15, "key": 1.30, "asyncio": 2.5}
_PROCESS_RATIO = 3.0
_SURPLUS_US = 0.7
# As many customers, say: some records of each in every poll.
_KEYS = 97


def no_op(stage: Stage) -> list[Figure]:
    """CPU per record with a handler that does nothing."""
    count = stage.sizes.records * 5
    topic = fill(stage, Case(partitions=16, size=100), count, keys=_KEYS)
    names = ["plain", *_RATIOS, "process"]
    figures = []
    for decoder in ("compiled",) if stage.sizes == SMOKE else ("python", "compiled"):
        arms = {
            name: {"mode": name, "topic": topic, "records": count, "decoder": decoder}
            for name in names
        }
        values = _run(stage, arms)
        figures += [_cost(decoder, name, values) for name in names[1:]]
        if decoder == "compiled":
            figures += [_surplus(name, values) for name in names[1:4]]
    stage.drop(topic)
    return figures


def _cost(decoder: str, name: str, values: Values) -> Figure:
    limit = _RATIOS.get(name, _PROCESS_RATIO) if decoder == "python" else None
    ours, plain = _of(values, name, "cpu_us"), _of(values, "plain", "cpu_us")
    return Figure(
        row="no-op",
        name=f"CPU per record, {name} / plain, {decoder} decoder",
        measured=ratio_of_pairs(ours, plain),
        unit="x",
        at_most=limit,
        rounds={name: ours, "plain": plain},
        note="raw values in microseconds",
    )


def _surplus(name: str, values: Values) -> Figure:
    ours, plain = _of(values, name, "cpu_us"), _of(values, "plain", "cpu_us")
    extra = sorted(one - other for one, other in zip(ours, plain, strict=True))
    return Figure(
        row="no-op",
        name=f"CPU per record, {name} - plain, compiled decoder",
        measured=extra[len(extra) // 2],
        unit="us",
        at_most=_SURPLUS_US,
        rounds={name: ours, "plain": plain},
    )


def waiting(stage: Stage) -> list[Figure]:
    """Handle records that take 1 ms of waiting, eight at a time, against one."""
    count = min(stage.sizes.records, 10_000)
    topic = fill(stage, Case(partitions=4, size=1000), count)
    seconds = _seconds(stage, 4.0)
    shared = {"topic": topic, "records": count, "sleep": 0.001, "seconds": seconds}
    arms = {
        "one": {"mode": "key", "concurrency": 1, **shared},
        "eight": {"mode": "key", "concurrency": 8, **shared},
    }
    values = _run(stage, arms)
    stage.drop(topic)
    eight, one = (_of(values, name, "per_second") for name in ("eight", "one"))
    return [
        Figure(
            row="waiting",
            name="records/s, 8 threads by key / 1 thread, 1 ms handler",
            measured=ratio_of_pairs(eight, one),
            unit="x",
            at_least=6.5,
            rounds={"eight": eight, "one": one},
        )
    ]


def memory(stage: Stage) -> list[Figure]:
    """Peak memory with 100 ms handlers, a long backlog and a limit of 16 MiB."""
    count = stage.sizes.records * 4
    topic = fill(stage, Case(partitions=4, size=1000), count)
    seconds = _seconds(stage, 12.0)
    shared = {"topic": topic, "records": count, "sleep": 0.1, "seconds": seconds}
    tight = {"limit_bytes": 16 * _MIB, "limit_records": 100_000}
    arms = {
        "plain": {"mode": "plain", **shared},
        "worker": {"mode": "partition", **shared, **tight},
        "pool": {"mode": "pool", **shared},
    }
    values = _run(stage, arms, rounds=1)
    stage.drop(topic)
    peak = {name: _of(values, name, "peak_mb") for name in arms}
    return [
        Figure(
            row="memory",
            name=f"peak, {name} - plain",
            measured=peak[name][0] - peak["plain"][0],
            unit="MB",
            at_most=limit,
            rounds=peak,
        )
        for name, limit in (("worker", 32.0), ("pool", None))
    ]


def hot(stage: Stage) -> list[Figure]:
    """One partition of four is slow; the other three, against their rate without it."""
    count = min(stage.sizes.records, 20_000)
    topic = fill(stage, Case(partitions=4, size=100), count)
    shared = {"mode": "partition", "topic": topic, "records": count, "sleep": 0.001}
    shared["seconds"] = _seconds(stage, 3.0)
    values = _run(stage, {"hot": {**shared, "slow": 1.0}, "even": shared})
    stage.drop(topic)
    three = [0.75 * one for one in _of(values, "even", "per_second")]
    beside = _of(values, "hot", "others_per_second")
    return [
        Figure(
            row="hot",
            name="records/s of three partitions, one slow beside them / none",
            measured=ratio_of_pairs(beside, three),
            unit="x",
            at_least=0.9,
            rounds={"hot": beside, "even": three},
        )
    ]


ROWS: dict[str, Callable[[Stage], list[Figure]]] = {
    "no-op": no_op,
    "waiting": waiting,
    "memory": memory,
    "hot": hot,
}


def run(stage: Stage, only: Collection[str], *, smoke: bool) -> dict[str, object]:
    """Measure the rows and return everything as plain JSON values."""
    start = time.monotonic()
    figures = []
    for name, row in ROWS.items():
        if not only or name in only:
            figures += row(stage)
    seconds = time.monotonic() - start
    sys.stderr.write(report.as_table(figures) + "\n")
    return report.as_dict(
        figures, broker=stage.broker.kind, smoke=smoke, seconds=seconds
    )


def _run(
    stage: Stage, arms: Mapping[str, Mapping[str, object]], rounds: int | None = None
) -> Values:
    values: dict[str, list[dict[str, float]]] = defaultdict(list)
    for lap in range(rounds or stage.sizes.rounds):
        for name in in_turns(list(arms), lap):
            values[name].append(_one(stage, arms[name]))
    return values


def _seconds(stage: Stage, real: float) -> float:
    return 0.3 if stage.sizes == SMOKE else real


def _one(stage: Stage, arm: Mapping[str, object]) -> dict[str, float]:
    told = {"seconds": 60.0, "config": dict(stage.broker.client_config), **arm}
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "tests.bench.working", json.dumps(told)],
        cwd=_ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=_TIMEOUT,
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _of(values: Values, name: str, figure: str) -> Sequence[float]:
    return [one[figure] for one in values[name]]
