"""
What got slower since another commit: the package of today beside that of the commit.

Both are run by the measuring code of today, on one broker, in turns. The other commit
runs twice: what its two processes differ by is the noise of the machine.
"""

import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from attrs import frozen

from tests.bench.figures import Figure, ratio_of_pairs, report
from tests.bench.overhead import import_seconds
from tests.bench.stage import Stage
from tests.bench.workers import arms, in_turns
from tests.harness.processes import ROOT

CLEAN, WORSE, UNTOLD = 0, 1, 3  # 2 is argparse's, for a wrong use

# A ratio below this is called no regression, however quiet the machine is.
_LEAST = 1.03
# With more noise than this a row cannot be called clean.
_NOISIEST = 0.15

_PARTITIONS = 8
_NOW, _THEN, _AGAIN = "now", "then", "then, again"
_NAMES = [_NOW, _THEN, _AGAIN]

Rounds = list[dict[str, list[float]]]
"""
For each round of fresh processes the seconds of CPU of each arm, one per lap.
"""


class ValueOfAgainstError(Exception):
    """There is nothing of this name to compare with."""


@frozen
class Verdict:
    """
    One row: how much more CPU it takes now, and how much of that is noise.

    Attributes:
        row: its name, as ``--only`` takes it.
        ratio: CPU now / CPU then, the median over all laps.
        noise: how far from 1 two arms of the same commit were in the worst round.
        rounds: the raw values, in milliseconds.
    """

    row: str
    ratio: float
    noise: float
    rounds: Mapping[str, list[float]]

    @classmethod
    def of(cls, row: str, rounds: Rounds) -> "Verdict":
        """Judge what was measured."""
        together = {
            name: [one for taken in rounds for one in taken[name]] for name in _NAMES
        }
        return cls(
            row,
            ratio_of_pairs(together[_NOW], together[_THEN]),
            max(
                abs(
                    statistics.median(taken[_AGAIN]) / statistics.median(taken[_THEN])
                    - 1
                )
                for taken in rounds
            ),
            {name: [round(one * 1e3, 2) for one in together[name]] for name in _NAMES},
        )

    @property
    def status(self) -> int:
        """One of CLEAN, WORSE and UNTOLD."""
        if self.ratio > max(_LEAST, 1 + self.noise):
            return WORSE
        return UNTOLD if self.noise > _NOISIEST else CLEAN

    def figure(self) -> Figure:
        """Return it as the other benchmarks report."""
        return Figure(
            row=self.row,
            name="CPU now / then"
            + (", too noisy to tell" if self.status == UNTOLD else ""),
            measured=self.ratio,
            unit="x",
            at_most=None if self.status == UNTOLD else max(_LEAST, 1 + self.noise),
            rounds=self.rounds,
            note=f"two arms of the old commit: {self.noise:.3f} apart in the worst "
            "round; raw values in milliseconds",
        )


def run(stage: Stage, commit: str, only: Collection[str]) -> dict[str, object]:
    """Measure the rows; return everything, and the exit status, as plain JSON values."""
    start = time.monotonic()
    with _package_of(commit) as folder:
        verdicts = [
            Verdict.of(name, row(stage, _environment(folder)))
            for name, row in ROWS.items()
            if not only or name in only
        ]
    result = report(stage, [one.figure() for one in verdicts], start)
    statuses = {one.status for one in verdicts}
    status = next((one for one in (WORSE, UNTOLD) if one in statuses), CLEAN)
    return {**result, "against": commit, "status": status}


def check_commit(commit: str) -> None:
    """
    Look whether git knows the commit.

    Raises:
        ValueOfAgainstError: it does not, or none is named.
    """
    command = ["git", "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    done = subprocess.run(  # noqa: S603 - our own command
        command, cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        message = f"git knows no commit {commit!r}" if commit else "which commit?"
        raise ValueOfAgainstError(message)


@contextlib.contextmanager
def _package_of(commit: str) -> Iterator[Path]:
    # Built as it is installed: the decoder is compiled code.
    with tempfile.TemporaryDirectory(prefix="safeconsumer-bench-") as folder:
        kept, sources = Path(folder) / "sources.tar", Path(folder) / "sources"
        package = Path(folder) / "package"
        command = ["git", "archive", f"--output={kept}", commit]
        subprocess.run(command, cwd=ROOT, check=True)  # noqa: S603 - our own command
        shutil.unpack_archive(kept, sources, filter="data")
        subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
            cwd=sources,
            check=True,
            stdout=sys.stderr,
        )
        (wheel,) = Path(folder).glob("*.whl")
        shutil.unpack_archive(wheel, package, "zip")
        yield package


def _environment(folder: Path) -> dict[str, str]:
    # Without PYTHONSAFEPATH the working directory, with today's package, comes first.
    path = os.pathsep.join((str(folder), str(ROOT)))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": path}


def _reading(
    decoder: str, **mode: object
) -> Callable[[Stage, Mapping[str, str]], Rounds]:
    def measured(stage: Stage, env: Mapping[str, str]) -> Rounds:
        records = stage.sizes.records
        topic = stage.topic(_PARTITIONS, records=records)
        one = stage.arm(
            "reading", "safe", topic=topic, partitions=_PARTITIONS, decoder=decoder
        )
        kinds = {_NOW: one, _THEN: {**one, "env": env}, _AGAIN: {**one, "env": env}}
        rounds: Rounds = []
        for _ in range(stage.sizes.rounds):
            rounds.append(defaultdict(list))
            with arms(kinds) as started:
                for name in _NAMES:
                    started[name].call("read", records=records, **mode)  # warms up
                for lap in range(stage.sizes.laps):
                    for name in in_turns(_NAMES, lap):
                        cpu = started[name].call("read", records=records, **mode)["cpu"]
                        rounds[-1][name].append(cpu)
        stage.drop(topic)
        return rounds

    return measured


def _importing(stage: Stage, env: Mapping[str, str]) -> Rounds:
    statement = "from safeconsumer import KafkaConsumer"
    environments: dict[str, Mapping[str, str]] = {_NOW: {}, _THEN: env, _AGAIN: env}
    for one in environments.values():
        import_seconds(statement, one)  # compiles
    taken: dict[str, list[float]] = defaultdict(list)
    for lap in range(stage.sizes.imports):
        for name in in_turns(_NAMES, lap):
            taken[name].append(import_seconds(statement, environments[name])[1])
    return [taken]


ROWS: dict[str, Callable[[Stage, Mapping[str, str]], Rounds]] = {
    "poll-5000": _reading("compiled", max_records=5000),
    "poll-500": _reading("compiled"),
    "iteration": _reading("compiled", iterate=True),
    "poll-500-python": _reading("python"),
    "import": _importing,
}
