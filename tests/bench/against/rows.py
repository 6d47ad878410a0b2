"""The same work in a worker and in other frameworks, on one broker."""

import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import frozen

from tests.bench import report
from tests.bench.against.arms import Account, Arm, FrameworkMember, Roll, account
from tests.bench.against.venvs import clients_of
from tests.bench.cases import Case
from tests.bench.figures import Figure
from tests.bench.loads import fill
from tests.bench.stage import SMOKE, Stage
from tests.bench.workers import in_turns

OURS = "safeconsumer"

# One after the other where it can only be so, and as many at a time as it can.
SERIAL = (
    Arm("safeconsumer, partition", OURS, {"order": "partition"}),
    Arm("arroyo, RunTask", "arroyo", {"is_serial": True}),
    Arm("quixstreams", "quixstreams"),
    Arm("faststream, 1 worker", "faststream", {"workers": 1}),
)
PARALLEL = (
    Arm("safeconsumer, unordered", OURS, {"order": "unordered"}),
    Arm("arroyo, 8 threads", "arroyo"),
    Arm("faststream, 8 workers", "faststream"),
)
BY_KEY = Arm("safeconsumer, key", OURS, {"order": "key"})
# Its default commits before the handler; this commits after it.
ACKS = Arm("faststream, ACK", "faststream", {"ack": "ACK"})
BUSY = (*PARALLEL, SERIAL[2], ACKS)


@frozen
class Against:
    """What is compared, and on what."""

    stage: Stage
    frameworks: Collection[str]
    folder: Path

    @property
    def bootstrap(self) -> str:
        return str(self.stage.broker.bootstrap)

    @property
    def is_smoke(self) -> bool:
        return self.stage.sizes == SMOKE

    def chosen(self, arms: Sequence[Arm]) -> list[Arm]:
        return [one for one in arms if one.framework in {OURS, *self.frameworks}]

    def member(
        self, arm: Arm, topic: str, group: str, **told: object
    ) -> FrameworkMember:
        shared = {"topic": topic, "group": group, "bootstrap": self.bootstrap}
        return FrameworkMember(arm, self.folder, {**shared, **told})

    def in_turns(
        self, arms: Sequence[Arm], topic: str, rounds: int, **told: object
    ) -> dict[str, list[dict[str, float]]]:
        """Measure each arm in fresh processes, in another order each round."""
        chosen = {arm.name: arm for arm in self.chosen(arms)}
        values = defaultdict(list)
        for lap in range(rounds):
            for name in in_turns(list(chosen), lap):
                group = f"{topic}-{time.monotonic_ns()}"
                member = self.member(chosen[name], topic, group, **told)
                values[name].append(member.measured())
        return values

    def at_once(
        self, arms: Sequence[Arm], act: Callable[[Arm], list[Figure]]
    ) -> list[Figure]:
        """Let all arms act at the same time: they mostly wait."""
        chosen = self.chosen(arms)
        with ThreadPoolExecutor(len(chosen)) as pool:
            return [figure for figures in pool.map(act, chosen) for figure in figures]


def no_op(against: Against) -> list[Figure]:
    """Do nothing with records: CPU for each, and records per second."""
    stage = against.stage
    count = min(60_000, stage.sizes.records * 2)
    topic = fill(stage, Case(partitions=8, size=100), count, keys=97)
    told = {"records": count * 3 // 4, "seconds": 20.0}
    values = against.in_turns(
        (*SERIAL, BY_KEY, *PARALLEL), topic, stage.sizes.rounds, **told
    )
    stage.drop(topic)
    return [
        *_medians("against-no-op", "CPU per record", values, "cpu_us", "us"),
        *_medians("against-no-op", "records/s", values, "per_second", "1/s"),
    ]


def waiting(against: Against) -> list[Figure]:
    """Handle records that take 1 ms of waiting."""
    stage = against.stage
    count = min(60_000, stage.sizes.records * 2)
    topic = fill(stage, Case(partitions=4, size=1_000), count)
    told = {"sleep": 0.001, "seconds": 0.5 if against.is_smoke else 4.0}
    arms = (BY_KEY, *PARALLEL, *SERIAL[1:], ACKS)
    values = against.in_turns(arms, topic, stage.sizes.rounds, **told)
    stage.drop(topic)
    return _medians("against-waiting", "records/s, 1 ms", values, "per_second", "1/s")


def memory(against: Against) -> list[Figure]:
    """Take 100 ms for each record of a long backlog: peak memory."""
    stage = against.stage
    count = stage.sizes.records * 4
    topic = fill(stage, Case(partitions=4, size=1_000), count)
    told = {"sleep": 0.1, "seconds": 0.5 if against.is_smoke else 10.0}
    values = against.in_turns((SERIAL[0], *PARALLEL, SERIAL[2]), topic, 1, **told)
    stage.drop(topic)
    return _medians("against-memory", "peak, 100 ms", values, "peak_mb", "MB")


def slow(against: Against) -> list[Figure]:
    """Take two and a half times ``max.poll.interval.ms`` for eight of the records."""
    count, seconds = 4_000, 25.0
    told = {"sleep": 0.001, "slow": seconds, "poll_ms": 10_000}

    def act(arm: Arm) -> list[Figure]:
        topic = fill(against.stage, Case(partitions=2, size=100), count)
        group, trace = f"g-{topic}", Path(folder) / topic
        member = against.member(arm, topic, group, trace=str(trace), **told)
        roll = Roll(against.bootstrap, group)
        member.wait_began()
        time.sleep(2.4 * seconds)
        roll.close()
        is_over = member.is_over
        member.end()
        found = account(against.bootstrap, group, topic, trace)
        evicted = max(len(roll.members) - 1, bool(roll.empty))
        return [
            _counted("against-slow", arm, "evictions", evicted),
            _counted("against-slow", arm, "gave up by itself", is_over),
            *_accounted("against-slow", arm, found, count),
        ]

    with tempfile.TemporaryDirectory() as folder:
        return against.at_once(BUSY, act)


def rebalance(against: Against) -> list[Figure]:
    """Let a member join and stop while records are handled, and kill another one."""
    # More than can be handled meanwhile, so that everybody is busy all the time.
    count = 16_000
    told = {"sleep": 0.05}

    def act(arm: Arm) -> list[Figure]:
        topic = fill(against.stage, Case(partitions=4, size=100), count)
        group, trace = f"g-{topic}", Path(folder) / topic
        told_here = {**told, "trace": str(trace)}
        stays = against.member(arm, topic, group, **told_here)
        stays.wait_began()
        for number in (signal.SIGTERM, signal.SIGKILL):
            other = against.member(arm, topic, group, **told_here)
            other.wait_began()
            time.sleep(4.0)
            other.end(number)
        # Until what the killed one had is given to the one that stays, and committed.
        time.sleep(20.0)
        stays.end()
        found = account(against.bootstrap, group, topic, trace)
        return _accounted("against-rebalance", arm, found, count)

    with tempfile.TemporaryDirectory() as folder:
        return against.at_once(BUSY, act)


ROWS: Mapping[str, Callable[[Against], list[Figure]]] = {
    "against-no-op": no_op,
    "against-waiting": waiting,
    "against-memory": memory,
    "against-slow": slow,
    "against-rebalance": rebalance,
}


def run(
    stage: Stage,
    frameworks: Collection[str],
    only: Collection[str],
    *,
    folder: Path,
    smoke: bool,
) -> dict[str, object]:
    """Measure the rows and return everything as plain JSON values."""
    start = time.monotonic()
    against = Against(stage, frameworks, folder)
    # Before anything is measured: it installs what is not there.
    versions = {name: clients_of(name, folder) for name in (OURS, *frameworks)}
    figures = []
    for name, row in ROWS.items():
        if not only or name in only:
            figures += row(against)
    sys.stderr.write(report.as_table(figures) + "\n")
    result = report.as_dict(
        figures,
        broker=stage.broker.kind,
        smoke=smoke,
        seconds=time.monotonic() - start,
    )
    return {**result, "against": versions}


def _medians(
    row: str,
    what: str,
    values: Mapping[str, Sequence[Mapping[str, float]]],
    key: str,
    unit: str,
) -> list[Figure]:
    figures = []
    for name, ones in values.items():
        rounds = [one[key] for one in ones]
        figures.append(
            Figure(
                row=row,
                name=f"{what}, {name}",
                measured=statistics.median(rounds),
                unit=unit,
                rounds={name: rounds},
            )
        )
    return figures


def _accounted(row: str, arm: Arm, found: Account, count: int) -> list[Figure]:
    return [
        _counted(row, arm, f"handled, of {count}", found.handled),
        _counted(row, arm, "handled again, or to be", found.again),
        _counted(row, arm, "committed and handled by nobody", found.lost),
    ]


def _counted(row: str, arm: Arm, what: str, count: float) -> Figure:
    # What is promised is a target for us alone.
    ours = arm.framework == OURS and what in {
        "evictions",
        "gave up by itself",
        "committed and handled by nobody",
    }
    return Figure(
        row=row,
        name=f"{what}, {arm.name}",
        measured=count,
        unit="",
        at_most=0 if ours else None,
    )
