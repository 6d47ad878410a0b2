"""G10 on a broker: offsets of a live group are moved while its members are killed."""

import itertools
import json
import random
import subprocess
import sys
import time
from collections import Counter

import pytest
from kafka.admin import KafkaAdminClient

from safeconsumer.cli.errors import Status
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.any_broker

LIMIT = 40.0
ROUNDS = 3


class Rounds:
    """Members as processes, and what they wrote down."""

    def __init__(self, team, folder, assignor):
        self._team, self._folder, self._assignor = team, folder, assignor
        self.members = []
        self._names = (f"m{number}" for number in itertools.count())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.members:
            one.kill()
            one.wait()

    def start(self):
        name, team = next(self._names), self._team
        configs = {
            **team.broker.client_config,
            "client_id": f"{name}@{team.topic}",
            "group_id": team.group,
        }
        program = [sys.executable, "-m", "tests.harness.group.resetting_member"]
        given = [str(self._folder / name), self._assignor, team.prefix]
        self.members.append(
            subprocess.Popen([*program, *given, json.dumps(configs)])  # noqa: S603 - our own code
        )

    def kill(self, chance):
        one = self.members.pop(chance.randrange(len(self.members)))
        one.kill()
        one.wait()

    def came(self):
        """Return how often each record came, by partition and offset."""
        lines = [
            line
            for path in self._folder.iterdir()
            for line in path.read_text().splitlines()
        ]
        return Counter(tuple(map(int, line.split())) for line in lines)

    def has(self, expected):
        """Wait until these records came."""
        wait_for(lambda: self.came() >= expected, "all came", LIMIT)


def records(first, end):
    """Return each record of all partitions from one offset to before another, once."""
    return Counter(itertools.product(range(4), range(first, end)))


def operate(team, command, *arguments):
    ended = run(team, command, "--group", team.group, "--owner", "alice", *arguments)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")


def move(team, rounds, chance, target):
    """Move everything to an offset, while a member is killed before, in or after it."""
    operate(team, "pause", team.topic, "--reason", "x", "--wait", "60s")
    began = time.monotonic()
    at = chance.choice([0.0, 0.1, 0.3, 1.0])
    operate(team, "reset-offsets", team.topic, "--to", str(target))
    wait_for(lambda: time.monotonic() - began > at, "the moment")
    rounds.kill(chance)
    rounds.start()
    ended = run(team, "wait", "moved", "--group", team.group, "--timeout", "60s")
    assert ended.exit_code == Status.DONE
    rounds.kill(chance)
    rounds.start()


@pytest.mark.parametrize("target", [2, 5, 8], ids=["back", "nowhere", "forward"])
@pytest.mark.usefixtures("time_to_look")
def test_a_group_that_runs_is_moved(team, target):
    """Its member goes on at the target, and commits what it gets from there."""
    consumer = team.subscribed("a", control=team.quick)
    got = team.settled(consumer)
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    consumer.commit()
    with Polled(consumer):
        operate(team, "pause", team.topic, "--reason", "x", "--wait", "60s")
        team.produce(5)
        operate(team, "reset-offsets", team.topic, "--to", str(target), "--wait", "60s")
        assert committed(team) == {target}
    operate(team, "resume", team.topic)
    expected, came = {tp: [*range(target, 10)] for tp in team.partitions}, {}
    poll_until(consumer, lambda: came == expected, got=came)
    consumer.commit()
    assert committed(team) == {10}


@pytest.mark.nightly
@pytest.mark.parametrize("assignor", ["eager", "cooperative"])
def test_each_partition_is_moved_once_whoever_is_killed(team, tmp_path, assignor):
    """After the lift its first record is the target, and each one from there comes once."""
    chance, end = random.Random(assignor), 5  # noqa: S311 - a test draws
    with Rounds(team, tmp_path, assignor) as rounds:
        for _ in range(3):
            rounds.start()
        rounds.has(records(0, end))
        expected = rounds.came()
        for _ in range(ROUNDS):
            target = chance.randrange(end + 1)
            move(team, rounds, chance, target)
            team.produce(5)
            end += 5
            assert rounds.came() == expected
            operate(team, "resume", team.topic)
            expected += records(target, end)
            rounds.has(expected)
            wait_for(lambda now=end: committed(team) == {now}, "committed", LIMIT)
            assert rounds.came() == expected


def committed(team):
    """Return the offsets that the group has committed."""
    with KafkaAdminClient(**team.broker.client_config) as admin:
        (found,) = admin.list_group_offsets([team.group]).values()
    return {one.offset for one in found.values()}
