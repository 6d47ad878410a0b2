"""Tests resets of a running group (G10) while its members are killed."""

import itertools
import random
import time

import pytest

from safeconsumer.cli.errors import Status
from tests.harness.brokers.java import JavaBroker
from tests.harness.group.rounds import KINDS, TARGETS, Rounds
from tests.harness.group.team import run
from tests.harness.members import Polled
from tests.harness.polling import poll_until

MINUTES = 5
LEAST = len(KINDS)
"""The minimum of rounds per group in a nightly run: one of each kind."""


def operate(team, command, *arguments):
    ended = run(team, command, "--group", team.group, "--owner", "alice", *arguments)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")


@pytest.mark.any_broker
@pytest.mark.contract("G10")
@pytest.mark.parametrize("target", [2, 5, 8], ids=["back", "nowhere", "forward"])
@pytest.mark.usefixtures("time_to_look")
def test_reset_sets_the_offsets_of_a_running_group(team, target):
    """The group's member continues reading at the target, and commits from there on."""
    consumer = team.subscribed("a", control=team.quick)
    team.catch_up(consumer)
    with Polled(consumer):
        operate(team, "pause", team.topic, "--reason", "x", "--wait", "60s")
        team.produce(5)
        operate(team, "reset-offsets", team.topic, "--to", str(target), "--wait", "60s")
        assert team.committed() == dict.fromkeys(range(4), target)
    operate(team, "resume", team.topic)
    expected, came = {tp: [*range(target, 10)] for tp in team.partitions}, {}
    poll_until(consumer, lambda: came == expected, got=came)
    consumer.commit()
    assert team.committed() == dict.fromkeys(range(4), 10)


# ---------------------------------------------------------------- rounds


def drawn(chance):
    """Yield the kinds of rounds endlessly: all kinds in random order, again and again."""
    while True:
        yield from chance.sample(KINDS, len(KINDS))


@pytest.mark.nightly
@pytest.mark.real_broker
@pytest.mark.timeout(60 * MINUTES + 900)
@pytest.mark.usefixtures("time_to_look")
@pytest.mark.parametrize("assignor", ["eager", "cooperative"])
@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
def test_reset_is_applied_once_to_each_partition_despite_failures(
    tmp_path, assignor, is_static
):
    """After the lift each record from the target onwards is delivered exactly once."""
    chance = random.Random(f"{assignor} {is_static}")  # noqa: S311 - a test draws
    end, log = time.monotonic() + 60 * MINUTES, tmp_path / "log"
    with (
        JavaBroker() as broker,
        Rounds(broker, chance, assignor, log, is_static=is_static) as rounds,
    ):
        for number, kind in enumerate(drawn(chance)):
            if number >= LEAST and time.monotonic() > end:
                break
            result = rounds.play(kind, chance.choice(TARGETS))
            assert result.faults == [], result


@pytest.mark.nightly
@pytest.mark.real_broker
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("time_to_look")
def test_judge_detects_members_that_repeat_a_reset_after_the_lift(tmp_path):
    """Because of a planted fault, members never finish a reset, so new owners repeat it."""
    chance = random.Random(0)  # noqa: S311 - a test draws
    with (
        JavaBroker() as broker,
        Rounds(broker, chance, "eager", tmp_path / "log", is_right=False) as rounds,
    ):
        results = (rounds.play("nothing", "offset") for _ in itertools.count())
        several = itertools.islice(results, 8)
        assert any("twice" in one for result in several for one in result.faults)
