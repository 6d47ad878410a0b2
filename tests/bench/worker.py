"""Compares the CPU use of a worker with that of a simple poll loop."""

from tests.bench.figures import median, ratio
from tests.bench.stage import Case
from tests.bench.workers import lapped

_RATIOS = {
    "partition": 1.15,
    "unordered": 1.15,
    "key": 1.30,
    "asyncio": 2.5,
}
_SURPLUS_US = {"partition": 2.0, "unordered": 2.0, "key": 2.2}
SPREAD = Case(partitions=16)
# With so few distinct keys, every poll returns records with every key.
KEYS = 97


def run(stage, variants, rounds=None, laps=1):
    """Let workers and poll loops process the same records."""
    how = ("working", "safe")
    kinds = {name: stage.variant(*how, **one) for name, one in variants.items()}
    rounds = rounds or stage.sizes.rounds
    return lapped(kinds, "run", rounds=rounds, laps=laps, warm_up=None)


def no_op(stage):
    """Measure the CPU time per record with a handler that does nothing."""
    count = stage.sizes.records * 5
    topic = stage.filled(SPREAD, count, keys=KEYS)
    for decoder in ("python", "compiled"):
        shared = {"topic": topic, "records": count, "decoder": decoder}
        names = ["plain", *_RATIOS]
        cpu = run(stage, {name: {"mode": name, **shared} for name in names})["cpu_us"]
        for name, limit in _RATIOS.items():
            what = f"CPU per record, {name} / plain, {decoder} decoder"
            at_most = limit if decoder == "python" else None
            yield ratio("no-op", what, cpu, name, "plain", at_most=at_most)
    stage.drop(topic)
    for name, limit in _SURPLUS_US.items():
        pairs = zip(cpu[name], cpu["plain"], strict=True)
        surplus = [one - other for one, other in pairs]
        what = f"CPU per record, {name} - plain, compiled decoder"
        yield median("no-op", what, surplus, "us", at_most=limit)


def processes(stage):
    """Measure the CPU time per record of a worker whose handlers run in processes."""
    count = stage.sizes.records // 4
    topic = stage.filled(SPREAD, count)
    shared = {"topic": topic, "records": count, "concurrency": 2}
    variants = {name: {"mode": name, **shared} for name in ("plain", "process")}
    cpu = run(stage, variants)["cpu_us"]
    stage.drop(topic)
    surplus = [
        one - other for one, other in zip(cpu["process"], cpu["plain"], strict=True)
    ]
    yield median("processes", "CPU, process - plain", surplus, "us", at_most=120.0)


ROWS = {
    "no-op": no_op,
    "processes": processes,
}
