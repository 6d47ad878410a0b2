"""Measures the additional cost over the stock client, which promise P15 limits."""

import os
from collections import defaultdict

from safeconsumer.testing import EmbeddedBroker
from tests.bench.figures import median, ratio
from tests.bench.stage import Stage
from tests.bench.workers import in_turns, lapped
from tests.harness.processes import ran_python

FULL, QUIET = 8, 20
_LIMIT = 1.02

# The ways to read, each with the largest number of records per call; None stands for
# iteration.
_BY_POLL = {"poll(max_records=5000)": 5000, "poll(), default 500": 500}
_BY_ITERATION = {"iteration": None}
# A second process with the same client shows how far a ratio differs from 1 by chance.
_CONTROL = "stock again, 0 paused"
_ALIKE = (
    "CPU of the whole process; 8 partitions with 100-byte values and 20 empty ones, "
    "which the variants with holds have paused, stock and safe alike; "
)

# ---------------------------------------------------------------- CPU per record


def read(stage, kinds, max_records):
    """Let all variants read the same records; in each lap they read one after another."""
    sizes = stage.sizes
    how = {name: {**kind, "max_records": max_records} for name, kind in kinds.items()}
    return lapped(
        how, "read", rounds=sizes.rounds, laps=sizes.laps, records=sizes.records
    )


def _per_record(  # noqa: PLR0913, PLR0917 - two variants, a row and its target
    stage, row, name, taken, over, under, limit, note=""
):
    cpu = taken["cpu"]
    note += f"ratio of the fastest runs {min(cpu[over]) / min(cpu[under]):.3f}; "
    note += "raw values in microseconds per record"
    scale = 1e6 / stage.sizes.records
    return ratio(row, name, cpu, over, under, at_most=limit, scale=scale, note=note)


def compared(stage, row, modes):
    """Compare group members, both without holds and with holds on 20 empty partitions."""
    topic = stage.topic(FULL, empty=QUIET, records=stage.sizes.records)
    every = {"partitions": FULL + QUIET, "is_member": True}
    kinds = {
        f"{name}, {quiet} paused": stage.reader(client, topic, quiet=quiet, **every)
        for name, client in (("stock", "kafka-python"), ("safe", "safe-python"))
        for quiet in (0, QUIET)
    }
    kinds[_CONTROL] = stage.reader("kafka-python", topic, **every)
    pairs = {
        "0 holds": ("safe, 0 paused", "stock, 0 paused", _LIMIT),
        "20 holds": ("safe, 20 paused", "stock, 20 paused", _LIMIT),
        "stock / stock": (_CONTROL, "stock, 0 paused", None),
    }
    for mode, most in modes.items():
        taken = read(stage, kinds, most)
        for what, two in pairs.items():
            yield _per_record(stage, row, f"{mode}, {what}", taken, *two, _ALIKE)
    stage.drop(topic)


def many_holds(stage):
    """Measure the cost of many holds on partitions of topics that do not exist."""
    count, row = stage.sizes.strangers, "many-holds"
    topic = stage.topic(FULL, records=stage.sizes.records)
    kinds = {
        name: stage.reader(
            "safe-python", topic, partitions=FULL, is_member=True, strangers=held
        )
        for name, held in (("without", 0), ("with", count))
    }
    taken = read(stage, kinds, 5000)
    stage.drop(topic)
    seconds, mb = taken["placed"]["with"], taken["mb"]["with"]
    yield median(row, f"{count} holds placed one by one", seconds, "s", at_most=5.0)
    yield median(row, f"memory of {count} holds", mb, "MB", at_most=150.0)
    name = f"poll with {count} holds elsewhere / with none"
    yield _per_record(stage, row, name, taken, "with", "without", _LIMIT)


# ---------------------------------------------------------------- ten thousand


def ten_thousand(stage):
    """
    Time ``pause`` and ``resume`` for one partition while ten thousand are assigned.

    The consumer runs in its own process and reads from an embedded broker, because a
    real broker on this machine cannot serve this many partitions.
    """
    row, sizes = "ten-thousand", stage.sizes
    with EmbeddedBroker() as broker:
        many = Stage(broker=broker, sizes=sizes)
        topic = many.topic(sizes.assigned)
        variant = many.reader("safe-python", topic, partitions=sizes.assigned)
        how = {"rounds": sizes.rounds, "laps": 1, "warm_up": None}
        taken = lapped({"safe": variant}, "toggle", **how)
    for what in ("pause", "resume"):
        micros = [round(one * 1e6, 2) for one in taken[what]["safe"]]
        name = f"{what} of one partition in a row, {sizes.assigned} assigned"
        yield median(row, name, micros, "us", at_most=100.0)


# ---------------------------------------------------------------- cost of imports

_STOCK = "from kafka import KafkaConsumer"
SAFE = "from safeconsumer import KafkaConsumer"
_SCRIPT = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); "
    "{statement}; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)


def timed(stage, imports):
    """Time the imports in turn, each in a fresh interpreter; the first lap does not count."""
    taken = defaultdict(lambda: defaultdict(list))
    for lap in range(-1, 3 * stage.sizes.rounds):
        for name in in_turns(list(imports), lap):
            statement, env = imports[name]
            script = _SCRIPT.format(statement=statement)
            done = ran_python("-c", script, env=os.environ | env, check=True)
            if lap >= 0:
                took, used = map(float, done.stdout.split())
                taken["wall"][name].append(took)
                taken["CPU"][name].append(used)
    return taken


def imports(stage):
    """Compare the time to import our class with the time to import kafka-python's class."""
    taken = timed(stage, {one: (one, {}) for one in (_STOCK, SAFE)})
    # An import never waits, so wall time beyond the CPU time is caused by other
    # processes.
    for name, limit in (("CPU", 1.25), ("wall", None)):
        what = f"{SAFE}, {name} / stock"
        note = "raw values in milliseconds"
        both = taken[name], SAFE, _STOCK
        yield ratio("import", what, *both, at_most=limit, scale=1e3, note=note)


ROWS = {
    "poll": lambda stage: compared(stage, "poll", _BY_POLL),
    "iteration": lambda stage: compared(stage, "iteration", _BY_ITERATION),
    "many-holds": many_holds,
    "ten-thousand": ten_thousand,
    "import": imports,
}
