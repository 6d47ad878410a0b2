"""
How long each operators' command takes, as a process of its own: ``python -m`` this.

On a Java broker that it starts, with a group of one member. Prints wall clock, best and
median of some rounds, and CPU; the first round warms up and is not counted.
"""

import os
import statistics
import subprocess
import sys
import time

from tests.harness.brokers.java import JavaBroker
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.polling import poll_until

_ROUNDS = 5
_START = "from safeconsumer.cli.main import main; main()"


def _commands(team: Team) -> dict[str, list[str]]:
    group = ["--group", team.group]
    place = ["pause", team.topic, *group, "--reason", "x", "--owner", "a"]
    return {
        "--help": ["--help"],
        "control acls": ["control", "acls"],
        "control init": ["control", "init"],
        "pause": place,
        "status": ["status", *group],
        "groups": ["groups"],
        "doctor": ["doctor", *group],
        "history": ["history"],
        "resume": ["resume", team.topic, *group, "--owner", "a"],
        "wait flowing": ["wait", "flowing", *group],
        "pause --dry-run": [*place, "--dry-run"],
        "pause --wait": [*place, "--wait"],
        "wait quiet": ["wait", "quiet", *group],
        "resume --all": ["resume", "--all", *group, "--owner", "a"],
    }


def _where(team: Team) -> dict[str, str]:
    settings = team.settings
    return {
        "--bootstrap": team.broker.bootstrap,
        "--operator-topic": settings.operator_topic,
        "--group-topic": settings.group_topic,
        "--status-topic": str(settings.status_topic),
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


def main() -> None:
    """Measure and print."""
    with JavaBroker() as broker, Team(broker) as team:
        consumer = team.subscribed()
        got = team.settled(consumer)
        poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
        consumer.commit()
        where = [text for pair in _where(team).items() for text in pair]
        found: dict[str, list[tuple[float, float]]] = {}
        with Polled(consumer):
            for number in range(_ROUNDS + 1):
                for name, arguments in _commands(team).items():
                    more = [] if name == "--help" else where
                    measured = _run([*arguments, *more])
                    if number:
                        found.setdefault(name, []).append(measured)
    load = os.getloadavg()[0]
    lines = [f"load {load:.0f}", "command | best | median | CPU"]
    for name, measured in found.items():
        walls, spent = zip(*measured, strict=True)
        lines.append(
            f"{name} | {min(walls):.2f} s | {statistics.median(walls):.2f} s | "
            f"{min(spent):.2f} s"
        )
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
