"""
How long each operators' command takes, as a process of its own.

In a group of one member; the first round warms up and is not counted.
"""

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator

from tests.bench.figures import Figure, Row, median
from tests.bench.stage import Stage
from tests.harness.group.operating import where
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.polling import poll_until

_START = "from safeconsumer.cli.main import main; main()"
_LIMIT = 1.0
_HELP_LIMIT = 0.2


def _commands(team: Team) -> dict[str, list[str]]:
    group = ["--group", team.group]
    owner = ["--owner", "a"]
    place = ["pause", team.topic, *group, "--reason", "x", *owner]
    return {
        "--help": ["--help"],
        "control acls": ["control", "acls"],
        "control init": ["control", "init"],
        "pause": place,
        "status": ["status", *group],
        "groups": ["groups"],
        "doctor": ["doctor", *group],
        "history": ["history"],
        "resume": ["resume", team.topic, *group, *owner],
        "wait flowing": ["wait", "flowing", *group],
        "pause --dry-run": [*place, "--dry-run"],
        "pause --wait": [*place, "--wait"],
        "wait quiet": ["wait", "quiet", *group],
        "resume --all": ["resume", "--all", *group, *owner],
    }


def _run(arguments: list[str]) -> tuple[float, float]:
    before, began = os.times(), time.perf_counter()
    code = f"import sys; sys.argv[0] = 'safeconsumer'; {_START}"
    subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    took, after = time.perf_counter() - began, os.times()
    spent = after.children_user + after.children_system
    return took, spent - before.children_user - before.children_system


def commands(stage: Stage) -> Iterator[Figure]:
    """Type all of them, round by round."""
    walls: dict[str, list[float]] = defaultdict(list)
    spent: dict[str, list[float]] = defaultdict(list)
    with Team(stage.broker) as team:
        consumer = team.subscribed()
        got = team.settled(consumer)
        poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
        consumer.commit()
        with Polled(consumer):
            for number in range(stage.sizes.rounds + 1):
                for name, arguments in _commands(team).items():
                    more = [] if name == "--help" else where(team)
                    took, used = _run([*arguments, *more])
                    if number:
                        walls[name].append(took)
                        spent[name].append(used)
    for name, taken in walls.items():
        limit = _HELP_LIMIT if name == "--help" else _LIMIT
        best = min(taken)
        yield Figure("commands", f"{name}, best", best, "s", at_most=limit)
        yield median("commands", f"{name}, median", taken, "s")
        yield Figure("commands", f"{name}, CPU", min(spent[name]), "s")


ROWS: dict[str, Row] = {"commands": commands}
