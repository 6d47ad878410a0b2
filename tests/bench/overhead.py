"""What safety costs: the rows of the table "figures to reach", against the stock client."""

import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

from safeconsumer.testing import EmbeddedBroker
from tests.bench.figures import Figure, Row, percentile, ratio
from tests.bench.stage import Stage
from tests.bench.workers import Arm, arms, in_turns

_FULL, _QUIET = 8, 20
_PARTITIONS = 4
_LIMIT = 1.02
_TIMEOUT = 60.0
_RESUME_WAIT_MS = 5000
_PER_RECORD = "raw values in microseconds per record"

Seconds = dict[str, list[float]]
Mode = Mapping[str, object]

_BY_POLL: dict[str, Mode] = {
    "poll(max_records=5000)": {"max_records": 5000},
    "poll(), default 500": {"max_records": None},
}
_BY_ITERATION: dict[str, Mode] = {"iteration": {"iterate": True}}
# By the compiled decoder: the target of each way of reading.
_COMPILED = {
    "poll(max_records=5000)": 0.20,
    "poll(), default 500": 0.25,
    "iteration": 0.35,
}
# The same client twice: how far from 1 a ratio gets by chance.
_CONTROL = "stock again, 0 paused"


# ---------------------------------------------------------------- CPU per record


def compared(stage: Stage, row: str, modes: Mapping[str, Mode]) -> Iterator[Figure]:
    """Read as a group member, without holds and with 20 on partitions without records."""
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
    pairs = {
        "0 holds": ("safe, 0 paused", "stock, 0 paused", _LIMIT),
        "20 holds": ("safe, 20 paused", "stock, 20 paused", _LIMIT),
        "stock / stock": (_CONTROL, "stock, 0 paused", None),
    }
    for name, cpu in _read(stage, kinds, modes).items():
        for what, (over, under, limit) in pairs.items():
            yield _per_record(
                stage, row, f"{name}, {what}", cpu, over, under, limit, _PAUSED_ALIKE
            )
    stage.drop(topic)


_PAUSED_ALIKE = (
    "CPU of the whole process; 8 partitions with 100-byte values and 20 empty ones, "
    "which the arms with holds have paused, stock and safe alike; "
)


def compiled(stage: Stage) -> Iterator[Figure]:
    """With the compiled decoder against the stock client, which decodes in Python."""
    topic = stage.topic(_FULL, records=stage.sizes.records)
    settings = {"topic": topic, "partitions": _FULL}
    kinds = {
        "stock": stage.arm("reading", "stock", **settings),
        "safe": stage.arm("reading", "safe", decoder="compiled", **settings),
    }
    for name, cpu in _read(stage, kinds, {**_BY_POLL, **_BY_ITERATION}).items():
        yield _per_record(
            stage,
            "compiled",
            f"{name}, compiled decoder",
            cpu,
            "safe",
            "stock",
            _COMPILED[name],
        )
    stage.drop(topic)


def many_holds(stage: Stage) -> Iterator[Figure]:
    """Place holds on partitions of subscribed topics that do not exist yet."""
    count = stage.sizes.strangers
    topic = stage.topic(_FULL, records=stage.sizes.records)
    one = stage.arm("reading", "safe", topic=topic, partitions=_FULL, by_pattern=True)
    placed: Seconds = defaultdict(list)
    cpu: Seconds = defaultdict(list)
    mode = {"max_records": 5000, "records": stage.sizes.records}
    for _ in range(stage.sizes.rounds):
        with arms({"without": one, "with": one}) as started:
            for name, value in (
                started["with"].call("hold_strangers", count=count).items()
            ):
                placed[name].append(value)
            _laps(started, mode, stage.sizes.laps, cpu)
    stage.drop(topic)
    for name, what, limit, unit in (
        (f"{count} holds placed one by one", "seconds", 5.0, "s"),
        (f"memory of {count} holds", "mb", 150.0, "MB"),
    ):
        yield Figure(
            row="many-holds",
            name=name,
            measured=statistics.median(placed[what]),
            unit=unit,
            at_most=limit,
            rounds={"safe": placed[what]},
        )
    name = f"poll with {count} holds elsewhere / with none"
    yield _per_record(stage, "many-holds", name, cpu, "with", "without", _LIMIT)


def _per_record(  # noqa: PLR0913, PLR0917 - two arms of a row, and its target
    stage: Stage,
    row: str,
    name: str,
    cpu: Seconds,
    over: str,
    under: str,
    limit: float | None,
    note: str = "",
) -> Figure:
    fastest = min(cpu[over]) / min(cpu[under])
    note += f"ratio of the fastest runs {fastest:.3f}; {_PER_RECORD}"
    scale = 1e6 / stage.sizes.records
    return ratio(row, name, cpu, over, under, at_most=limit, scale=scale, note=note)


def _read(
    stage: Stage,
    kinds: Mapping[str, Mapping[str, object]],
    modes: Mapping[str, Mode],
) -> dict[str, Seconds]:
    cpu: dict[str, Seconds] = {name: defaultdict(list) for name in modes}
    for _ in range(stage.sizes.rounds):
        with arms(kinds) as started:
            for name, mode in modes.items():
                step = {**mode, "records": stage.sizes.records}
                _laps(started, step, stage.sizes.laps, cpu[name])
    return cpu


def _laps(started: Mapping[str, Arm], step: Mode, laps: int, cpu: Seconds) -> None:
    names = list(started)
    for name in names:
        started[name].call("read", **step)  # warms up; not counted
    for lap in range(laps):
        for name in in_turns(names, lap):
            cpu[name].append(started[name].call("read", **step)["cpu"])


# ---------------------------------------------------------------- ten thousand


def ten_thousand(stage: Stage) -> Iterator[Figure]:
    """
    ``pause`` and ``resume`` of one partition, and the ``poll`` after each.

    On an embedded broker in another process: ten thousand partitions are more than a
    real broker on this machine carries, and what is measured is the client's CPU.
    """
    count = stage.sizes.assigned
    taken: dict[str, Seconds] = defaultdict(lambda: defaultdict(list))
    with EmbeddedBroker() as broker:
        own = Stage(broker=broker, sizes=stage.sizes)
        topic = own.topic(count)
        kinds = {
            client: own.arm("assigned", client, topic=topic, partitions=count)
            for client in ("stock", "safe")
        }
        for _ in range(stage.sizes.rounds):
            with arms(kinds) as started:
                for lap in range(stage.sizes.laps):
                    for client in in_turns(list(started), lap):
                        for what, value in started[client].call("toggle").items():
                            taken[what][client].append(value)
                        for what, values in started[client].call("in_a_row").items():
                            taken[what][client].extend(values)
    for what in ("pause", "resume"):
        for when, key in (("in a row", f"{what}_in_a_row"), ("between polls", what)):
            micros = {
                client: [round(one * 1e6, 2) for one in values]
                for client, values in taken[key].items()
            }
            yield Figure(
                row="ten-thousand",
                name=f"{what} of one partition {when}, {count} assigned",
                measured=statistics.median(micros["safe"]),
                unit="us",
                at_most=100.0,
                rounds=micros,
                note="median of all calls; between polls the caches are cold",
            )
    for what, key, limit in (
        ("that sends the fetch", "poll_sending", 1.1),
        ("while one is in flight", "poll_waiting", 1.1),
        ("draining as many empty answers", "drain", None),
    ):
        name = f"the next poll {what}, {count} assigned"
        yield _milliseconds("ten-thousand", name, taken[key], "safe", "stock", limit)


def _milliseconds(  # noqa: PLR0913, PLR0917 - two arms of a row, and its target
    row: str, name: str, taken: Seconds, over: str, under: str, limit: float | None
) -> Figure:
    note = "raw values in milliseconds"
    return ratio(row, name, taken, over, under, at_most=limit, scale=1e3, note=note)


# ---------------------------------------------------------------- pausing


def refetch(stage: Stage) -> Iterator[Figure]:
    """Bytes fetched over bytes produced, with a pause and a resume every 10 records."""
    records = stage.sizes.toggled
    topic = stage.topic(_PARTITIONS, records=records, size=500)
    kinds = {
        client: stage.arm("toggling", client, topic=topic, partitions=_PARTITIONS)
        for client in ("safe", "stock")
    }
    for how, name in (
        ("poll", "poll, one paused in turn"),
        ("all", "poll, all paused and resumed"),
        ("iterate", "iteration, one paused in turn"),
    ):
        with arms(kinds) as started:
            safe = started["safe"].call("run", how=how, records=records, bound=60.0)
            stock = started["stock"].call(
                "run", how=how, records=records, bound=stage.sizes.stock_bound
            )
        if safe["delivered"] != records:
            message = f"{name}: {safe['delivered']} of {records} records delivered"
            raise ValueError(message)
        yield Figure(
            row="refetch",
            name=name,
            measured=safe["fetched"] / safe["produced"],
            unit="x",
            at_most=1.05,
            rounds={
                f"{client}, {what}": [value]
                for client, answer in (("safe", safe), ("stock", stock))
                for what, value in answer.items()
            },
            note=f"bytes of records in Fetch answers; {records} records; "
            f"the stock client was given {stage.sizes.stock_bound:g} s",
        )
    stage.drop(topic)


def resume_latency(stage: Stage) -> Iterator[Figure]:
    """From ``resume`` on another thread to the return of a waiting ``poll(5000)``."""
    tries = stage.sizes.resumes
    topic = stage.topic(1, empty=1, records=tries + 200)
    for flowing, wait in ((False, "nothing in flight"), (True, "a fetch in flight")):
        kinds = {
            client: stage.arm("parked", client, topic=topic, flowing=flowing)
            for client in ("safe", "stock")
        }
        with arms(kinds) as started:
            taken = {
                "safe": _resumed(started["safe"], tries),
                "stock": _resumed(started["stock"], max(1, tries // 20)),
            }
        for percent in (50, 99):
            yield Figure(
                row="resume-latency",
                name=f"resume ends poll, {wait}, p{percent}",
                measured=percentile(taken["safe"], percent),
                unit="ms",
                at_most=50.0 if percent == 99 else None,
                rounds=taken,
                note="a try without a record counts as the whole time of the poll",
            )
    stage.drop(topic)


def _resumed(arm: Arm, tries: int) -> list[float]:
    bound = tries * (_RESUME_WAIT_MS / 1000 + 1) + 30
    answer = arm.call("resume", bound, tries=tries, wait_ms=_RESUME_WAIT_MS)
    return [round(one * 1000, 3) for one in answer["seconds"]]


def all_paused(stage: Stage) -> Iterator[Figure]:
    """Both clients side by side, everything paused, polling for a second each time."""
    polls = stage.sizes.idle_polls
    topic = stage.topic(_PARTITIONS, records=400)
    kinds = {
        client: stage.arm("idle", client, topic=topic, partitions=_PARTITIONS)
        for client in ("safe", "stock")
    }
    taken: dict[str, dict[str, list[float]]] = defaultdict(dict)
    with arms(kinds) as started:
        for arm in started.values():
            arm.begin("poll", polls=polls)
        for client, arm in started.items():
            for what, value in arm.answer(polls * 3.0 + 30).items():
                taken[what][client] = [value]
    stage.drop(topic)
    row, name = "all-paused", f"poll(1000) x {polls}, all paused"
    (wall,), (cpu,) = taken["wall"]["safe"], taken["cpu"]["safe"]
    came = taken["fetches"]["safe"][0] + taken["records"]["safe"][0]
    yield Figure(
        row=row,
        name=f"{name}: wall",
        measured=wall,
        unit="s",
        at_least=polls * 29 / 30,
        at_most=polls * 31 / 30,
        rounds=taken["wall"],
    )
    yield Figure(
        row=row,
        name=f"{name}: CPU",
        measured=100 * cpu / wall,
        unit="%",
        at_most=5.0,
        rounds=taken["cpu"],
        note="raw values in seconds",
    )
    yield Figure(
        row=row,
        name=f"{name}: fetches and records",
        measured=came,
        unit="",
        at_most=0,
        rounds=taken["fetches"],
    )


# ---------------------------------------------------------------- what an import takes

_STOCK = "from kafka import KafkaConsumer"
_SAFE = "from safeconsumer import KafkaConsumer"
_SCRIPT = (
    "import time; wall, cpu = time.perf_counter(), time.process_time(); "
    "{statement}; "
    "print(time.perf_counter() - wall, time.process_time() - cpu)"
)


def imports(stage: Stage) -> Iterator[Figure]:
    """Import in fresh interpreters, in turns; compiled files are there already."""
    wall: Seconds = defaultdict(list)
    cpu: Seconds = defaultdict(list)
    statements = [_STOCK, _SAFE]
    for statement in statements:
        import_seconds(statement)
    for lap in range(stage.sizes.imports):
        for statement in in_turns(statements, lap):
            one = import_seconds(statement)
            wall[statement].append(one[0])
            cpu[statement].append(one[1])
    # An import waits for nothing: what wall has on top is what else runs here.
    for name, taken, limit in (("CPU", cpu, 1.25), ("wall", wall, None)):
        what = f"{_SAFE}, {name} / stock"
        yield _milliseconds("import", what, taken, _SAFE, _STOCK, limit)


def import_seconds(
    statement: str, env: Mapping[str, str] | None = None
) -> tuple[float, float]:
    """Return the seconds of wall and of CPU that a statement takes a new interpreter."""
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", _SCRIPT.format(statement=statement)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        env={**os.environ, **(env or {})},
    )
    wall, cpu = done.stdout.split()
    return float(wall), float(cpu)


ROWS: dict[str, Row] = {
    "poll": lambda stage: compared(stage, "poll", _BY_POLL),
    "iteration": lambda stage: compared(stage, "iteration", _BY_ITERATION),
    "ten-thousand": ten_thousand,
    "compiled": compiled,
    "many-holds": many_holds,
    "refetch": refetch,
    "resume-latency": resume_latency,
    "all-paused": all_paused,
    "import": imports,
}
