"""Tests holds on members with other clients while members join, leave or are killed."""

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial

import pytest

from tests.harness.group.aiokafka import ASSIGNORS
from tests.harness.group.confluent import NEWER, settings_of
from tests.harness.group.printing import PrintingMember
from tests.harness.group.team import run
from tests.harness.waiting import wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.any_broker]

ROUNDS, MINUTES = 100, 20  # the number of rounds and the time limit for each protocol
WAIT = "60s"
REMEMBERED = 70.0  # seconds during which commands still wait for a killed member


def confluent_of(team, protocol, name):
    """Return the settings for a member that uses confluent-kafka."""
    # A member that is killed has committed all its records by then, because everything
    # is held at that time.
    settings = settings_of(team, name, protocol)
    settings |= {"enable.auto.commit": True, "auto.commit.interval.ms": 300}
    if protocol != NEWER:
        settings |= {"session.timeout.ms": 6000}
    return settings


def aiokafka_of(team, assignor, name):
    """Return the settings for a member that uses aiokafka and the named assignor."""
    return {
        "auto_commit_interval_ms": 300,
        "auto_offset_reset": "earliest",
        "bootstrap_servers": team.broker.client_config["bootstrap_servers"],
        "client_id": name,
        "group_id": team.group,
        "heartbeat_interval_ms": 300,
        "partition_assignment_strategy": assignor,
        "session_timeout_ms": 6000,
    }


class Rounds:
    """
    A team's members in processes, a producer, and the records the members received.

    Args:
        team: the cluster, the group and the topic of the members.
        game: the members' client, the function that makes their settings, and their
            protocol.
        closing: the exit stack that kills the members.
        is_right: if False, a fault is planted in each member.
    """

    def __init__(self, team, game, closing, *, is_right=True):
        self._client, settings_of, protocol = game
        self._settings_of = partial(settings_of, team, protocol)
        self.team, self._is_right = team, is_right
        self._closing, self._members = closing, []
        self._over = threading.Event()
        self.sent, self._killed_at = 5, -REMEMBERED
        self._thread = threading.Thread(target=self._produce, daemon=True)

    def __enter__(self):
        self._thread.start()
        for name in "ab":
            self.member(name)
        wait_for(lambda: len(self.written()) >= 20, "some records")
        return self

    def __exit__(self, *_):
        self.end_producing()

    def end_producing(self):
        self._over.set()
        self._thread.join()

    def _produce(self):
        while not self._over.wait(0.05):
            self.team.produce(1)
            self.sent += 1

    def member(self, name):
        team = self.team
        given = self._client, self._settings_of(name), team.prefix, [team.topic]
        made = PrintingMember(*given, is_right=self._is_right)
        self._members.append(self._closing.enter_context(made))
        return made

    def written(self):
        """Return the time, partition and offset of every record that a member received."""
        lines = (line for one in self._members for line in list(one.lines))
        return [(at, partition, offset) for at, _, partition, offset in lines]

    def command(self, *arguments):
        return run(self.team, *arguments, "--group", self.team.group)

    def play(self, scope, number, *, is_killed):
        """Hold a scope while a third member joins and leaves; return records that leaked."""
        numbers = {1} if scope.endswith(":1") else {0, 1, 2, 3}
        held = {tp for tp in self.team.partitions if tp.partition in numbers}
        owner = ("--owner", "alice")
        placed = self.command(
            "pause", scope, *owner, "--reason", f"{number}", "--future"
        )
        assert placed.exit_code == 0, placed.output
        self._wait_until_quiet(scope, held)
        quiet_at, name = time.time(), f"c{number}"
        third = self.member(name)
        wait_for(
            lambda: self._has_come(name, must_own=number % 4 > 1),
            "the third member",
            pause=0.1,
        )
        if is_killed:
            third.kill()
            self._killed_at = time.monotonic()
        else:
            third.begin_to_end()
        self._wait_until_quiet(scope, held)
        until = time.time()
        leaked = [
            one
            for one in self.written()
            if quiet_at < one[0] < until and one[1] in numbers
        ]
        assert self.command("resume", scope, *owner).exit_code == 0
        lifted = time.time()
        wait_for(
            lambda: numbers <= {one[1] for one in self.written() if one[0] > lifted},
            "records of all that was held",
            pause=0.1,
        )
        return leaked

    def _has_come(self, name, *, must_own):
        """Return whether a member reports and, if ``must_own`` is set, owns a partition."""
        found = [one for one in self.team.look().members if one.name == name]
        return any((one.is_listed and one.claimed) or not must_own for one in found)

    def _wait_until_quiet(self, scope, partitions):
        """Wait until a scope is quiet; after a kill only living members must report it."""
        if time.monotonic() - self._killed_at < REMEMBERED:
            wait_for(lambda: self.team.are_quiet("ab", partitions), "quiet", pause=0.2)
            return
        quiet = self.command("wait", "quiet", scope, "--timeout", WAIT)
        assert quiet.exit_code == 0, quiet.output


GAMES = [
    ("confluent", confluent_of, "range"),
    ("confluent", confluent_of, "cooperative-sticky"),
    pytest.param(("confluent", confluent_of, NEWER), marks=pytest.mark.real_broker),
    *(("aiokafka", aiokafka_of, assignor) for assignor in ASSIGNORS),
]
IDS = [
    *("confluent-range", "confluent-cooperative-sticky", "confluent-consumer"),
    *(f"aiokafka-{assignor}" for assignor in ASSIGNORS),
]


@pytest.mark.timeout(2 * MINUTES * 60)
@pytest.mark.parametrize("game", GAMES, ids=IDS)
def test_rounds_of_holds_do_not_leak_lose_or_duplicate_any_record(
    team, game, record_property
):
    """Records that departed members received count, too, because members commit them."""
    chance = random.Random(game[-1])  # noqa: S311 - a test draws
    scopes = [team.topic, f"{team.topic}:1", f"re:{team.topic[:-1]}.*", "@all"]
    killed = 0
    with ExitStack() as closing:
        rounds = closing.enter_context(Rounds(team, game, closing))
        began, number = time.monotonic(), 0
        while number < ROUNDS and time.monotonic() - began < MINUTES * 60:
            number += 1
            # A member is killed only if everything is held: otherwise it would leave
            # uncommitted records.
            is_killed = number % 6 == 5
            killed += is_killed
            scope = "@all" if is_killed else chance.choice(scopes)
            assert rounds.play(scope, number, is_killed=is_killed) == []
        record_property("rounds", f"{number}, {killed} killed")
        rounds.end_producing()
        everything = {(p, n) for p in range(4) for n in range(rounds.sent)}
        wait_for(
            lambda: {(p, n) for _, p, n in rounds.written()} >= everything,
            "every record",
        )
        again = {
            one: times
            for one, times in Counter((p, n) for _, p, n in rounds.written()).items()
            if times > 1
        }
    assert again == {}, f"{number} rounds, {killed} killed"


@pytest.mark.parametrize("game", GAMES[::3], ids=IDS[::3])
def test_rounds_detect_members_with_a_planted_fault(team, game):
    """
    A negative control: members deliver records from partitions gained during a hold.

    The third member may leave before it has delivered a record; then another round
    follows.
    """
    with (
        ExitStack() as closing,
        Rounds(team, game, closing, is_right=False) as rounds,
    ):
        assert any(
            rounds.play("@all", number, is_killed=False)
            for number in range(40)
            if number % 4 > 1  # the third member gets partitions
        )
