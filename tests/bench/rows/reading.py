"""CPU per record: by ``poll``, by iteration, and with a great many holds elsewhere."""

import statistics
from collections import defaultdict
from collections.abc import Mapping

from tests.bench.figures import Figure, ratio_of_pairs
from tests.bench.stage import Stage
from tests.bench.workers import Arm, arms, in_turns

_FULL = 8
_QUIET = 20
_LIMIT = 1.02
_SCRAPED_LIMIT = 1.01
_STRANGERS_SECONDS = 5.0
_STRANGERS_MB = 150.0

# The same client twice: how far from 1 a ratio gets by chance.
_CONTROL = "stock again, 0 paused"

# By the compiled decoder: how records are read, and the target.
_COMPILED: dict[str, tuple[dict[str, object], float]] = {
    "poll(max_records=5000)": ({"max_records": 5000}, 0.20),
    "poll(), default 500": ({"max_records": None}, 0.25),
    "iteration": ({"iterate": True}, 0.35),
}

_NOTE = (
    "CPU of the whole process, median of the ratios of neighbouring runs; a group "
    "member, 8 partitions with 100-byte values and 20 empty ones, which the arms "
    "with holds have paused, stock and safe alike"
)

Seconds = dict[str, list[float]]


def poll_cpu(stage: Stage) -> list[Figure]:
    """``poll(max_records=5000)`` and with the default of 500."""
    modes = {
        "poll(max_records=5000)": {"max_records": 5000},
        "poll(), default 500": {"max_records": None},
    }
    return _compared(stage, "poll", modes)


def iteration_cpu(stage: Stage) -> list[Figure]:
    """``for record in consumer``."""
    return _compared(stage, "iteration", {"iteration": {"iterate": True}})


def compiled_cpu(stage: Stage) -> list[Figure]:
    """With the compiled decoder against the stock client, which decodes in Python."""
    topic = stage.topic(_FULL, records=stage.sizes.records)
    settings = {"topic": topic, "partitions": _FULL}
    kinds = {
        "stock": stage.arm("reading", "stock", **settings),
        "safe": stage.arm("reading", "safe", decoder="compiled", **settings),
    }
    cpu: dict[str, Seconds] = {name: defaultdict(list) for name in _COMPILED}
    for _ in range(stage.sizes.rounds):
        with arms(kinds) as started:
            for name, (mode, _) in _COMPILED.items():
                step = {**mode, "records": stage.sizes.records}
                _laps(started, step, stage.sizes.laps, cpu[name])
    stage.drop(topic)
    return [
        Figure(
            row="compiled",
            name=f"{name}, compiled decoder",
            measured=ratio_of_pairs(cpu[name]["safe"], cpu[name]["stock"]),
            unit="x",
            at_most=limit,
            rounds=_per_record(cpu[name], stage.sizes.records),
            note=f"ratio of the fastest runs "
            f"{min(cpu[name]['safe']) / min(cpu[name]['stock']):.3f}; raw values in "
            "microseconds per record",
        )
        for name, (_, limit) in _COMPILED.items()
    ]


def many_holds(stage: Stage) -> list[Figure]:
    """Place holds on partitions of subscribed topics that do not exist yet."""
    count = stage.sizes.strangers
    topic = stage.topic(_FULL, records=stage.sizes.records)
    settings = {"topic": topic, "partitions": _FULL, "by_pattern": True}
    kinds = {
        "without": stage.arm("reading", "safe", **settings),
        "with": stage.arm("reading", "safe", **settings),
    }
    placed: dict[str, list[float]] = {"seconds": [], "bytes": []}
    cpu: Seconds = defaultdict(list)
    mode = {"max_records": 5000, "records": stage.sizes.records}
    for _ in range(stage.sizes.rounds):
        with arms(kinds) as started:
            one = started["with"].call("hold_strangers", count=count)
            for name, value in one.items():
                placed[name].append(value)
            _laps(started, mode, stage.sizes.laps, cpu)
    stage.drop(topic)
    megabytes = [value / 1e6 for value in placed["bytes"] if value is not None]
    return [
        Figure(
            row="many-holds",
            name=f"{count} holds placed one by one",
            measured=statistics.median(placed["seconds"]),
            unit="s",
            at_most=_STRANGERS_SECONDS,
            rounds={"safe": placed["seconds"]},
        ),
        Figure(
            row="many-holds",
            name=f"memory of {count} holds",
            measured=statistics.median(megabytes) if megabytes else 0.0,
            unit="MB",
            at_most=_STRANGERS_MB if megabytes else None,
            rounds={"safe": megabytes} if megabytes else {},
            note="growth of resident memory" if megabytes else "not told by this OS",
        ),
        Figure(
            row="many-holds",
            name=f"poll with {count} holds elsewhere / with none",
            measured=ratio_of_pairs(cpu["with"], cpu["without"]),
            unit="x",
            at_most=_LIMIT,
            rounds=_per_record(cpu, stage.sizes.records),
            note="CPU, both safe; raw values in microseconds per record",
        ),
    ]


def scraped_cpu(stage: Stage) -> list[Figure]:
    """Read while somebody asks for the metrics each second, and while nobody does."""
    topic = stage.topic(_FULL, records=stage.sizes.records)
    settings = {"topic": topic, "partitions": _FULL}
    kinds = {
        "without": stage.arm("reading", "safe", **settings),
        "with": stage.arm("reading", "safe", is_scraped=True, **settings),
    }
    cpu: Seconds = defaultdict(list)
    mode = {"max_records": None, "records": stage.sizes.records}
    for _ in range(stage.sizes.rounds):
        with arms(kinds) as started:
            _laps(started, mode, stage.sizes.laps, cpu)
    stage.drop(topic)
    return [
        Figure(
            row="metrics",
            name="poll with a scrape a second / with none",
            measured=ratio_of_pairs(cpu["with"], cpu["without"]),
            unit="x",
            at_most=_SCRAPED_LIMIT,
            rounds=_per_record(cpu, stage.sizes.records),
            note="CPU, both safe; raw values in microseconds per record",
        )
    ]


def _compared(
    stage: Stage, row: str, modes: Mapping[str, Mapping[str, object]]
) -> list[Figure]:
    topic = stage.topic(_FULL, empty=_QUIET, records=stage.sizes.records)
    settings = {"topic": topic, "partitions": _FULL + _QUIET}
    kinds = {
        f"{client}, {quiet} paused": stage.arm(
            "reading", client, quiet=quiet, **settings
        )
        for client in ("stock", "safe")
        for quiet in (0, _QUIET)
    }
    kinds[_CONTROL] = stage.arm("reading", "stock", **settings)
    cpu: dict[str, Seconds] = {name: defaultdict(list) for name in modes}
    for _ in range(stage.sizes.rounds):
        with arms(kinds) as started:
            for name, mode in modes.items():
                step = {**mode, "records": stage.sizes.records}
                _laps(started, step, stage.sizes.laps, cpu[name])
    stage.drop(topic)
    return [
        one
        for name in modes
        for one in _ratios(row, name, cpu[name], stage.sizes.records)
    ]


def _ratios(row: str, name: str, cpu: Seconds, records: int) -> list[Figure]:
    pairs = {
        f"{name}, 0 holds": ("safe, 0 paused", "stock, 0 paused", _LIMIT),
        f"{name}, 20 holds": ("safe, 20 paused", "stock, 20 paused", _LIMIT),
        f"{name}, stock / stock": (_CONTROL, "stock, 0 paused", None),
    }
    return [
        Figure(
            row=row,
            name=what,
            measured=ratio_of_pairs(cpu[over], cpu[under]),
            unit="x",
            at_most=limit,
            rounds=_per_record({arm: cpu[arm] for arm in (over, under)}, records),
            note=f"{_NOTE}; ratio of the fastest runs "
            f"{min(cpu[over]) / min(cpu[under]):.3f}; raw values in microseconds "
            "per record",
        )
        for what, (over, under, limit) in pairs.items()
    ]


def _laps(
    started: Mapping[str, Arm], step: Mapping[str, object], laps: int, cpu: Seconds
) -> None:
    names = list(started)
    for name in names:
        started[name].call("read", **step)  # warms up; not counted
    for lap in range(laps):
        for name in in_turns(names, lap):
            cpu[name].append(started[name].call("read", **step)["cpu"])


def _per_record(cpu: Seconds, records: int) -> Seconds:
    return {
        arm: [round(one / records * 1e6, 3) for one in values]
        for arm, values in cpu.items()
    }
