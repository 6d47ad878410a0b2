"""
Compares the CPU, time and memory of the working tree with those of an earlier commit.

Processes with the old and the new code take turns on the same records. Each of the
three rounds starts new processes.
"""

from tests.bench import overhead, throughput, worker
from tests.bench.figures import judged
from tests.bench.throughput import OURS, READING
from tests.bench.workers import lapped

ROUNDS = 3
_LAPS = 3
_RUNS = 5


_READING = ("5000", "500", "iteration", "alone", "deserializer", "1KB-lz4")


def _figures(stage, row, taken, names):
    for what, name in names.items():
        yield judged(row, name, taken[what], stage.sizes.rounds)


def _reading(row):
    def figures(stage):
        variants = {
            name: {"client": OURS, "env": env} for name, env in stage.states.items()
        }
        taken = throughput.read(stage, READING[row], variants, _LAPS)
        names = {
            "cpu": "CPU per record",
            "wall": "time per record",
            "peak": "peak memory",
        }
        yield from _figures(stage, row, taken, names)

    return figures


def holds(stage):
    """Compare members that decode records in Python, with holds on 20 empty partitions."""
    full, quiet = overhead.FULL, overhead.QUIET
    topic = stage.topic(full, empty=quiet, records=stage.sizes.records)
    how = {"quiet": quiet, "partitions": full + quiet, "is_member": True}
    kinds = {
        name: stage.reader("safe-python", topic, env=env, **how)
        for name, env in stage.states.items()
    }
    for most in (5000, 500):
        taken = overhead.read(stage, kinds, most)
        name = f"CPU per record, poll(max_records={most})"
        yield from _figures(stage, "holds", taken, {"cpu": name})
    stage.drop(topic)


def imports(stage):
    statements = {name: (overhead.SAFE, env) for name, env in stage.states.items()}
    taken = overhead.timed(stage, statements)
    yield from _figures(stage, "import", taken, {"CPU": "CPU of importing the class"})


def no_op(stage):
    """Compare workers whose handlers do nothing."""
    count = stage.sizes.records * 5
    topic = stage.filled(worker.SPREAD, count, keys=worker.KEYS)
    for mode in ("partition", "unordered", "key"):
        how = {"topic": topic, "records": count, "mode": mode}
        variants = {name: {"env": env, **how} for name, env in stage.states.items()}
        taken = worker.run(stage, variants, laps=_RUNS)
        yield from _figures(
            stage, "no-op", taken, {"cpu_us": f"CPU per record, {mode}"}
        )
    stage.drop(topic)


def resident(stage):
    """Compare the memory of members that receive no records."""
    topic = stage.topic(overhead.FULL)
    how = {"partitions": overhead.FULL, "is_member": True}
    kinds = {
        name: stage.reader(OURS, topic, env=env, **how)
        for name, env in stage.states.items()
    }
    rounds = stage.sizes.rounds
    taken = lapped(kinds, "settle", rounds=rounds, laps=1, warm_up=None)
    stage.drop(topic)
    yield from _figures(stage, "resident", taken, {"resident": "idle memory"})


ROWS = {
    **{row: _reading(row) for row in _READING},
    "holds": holds,
    "import": imports,
    "no-op": no_op,
    "resident": resident,
}
