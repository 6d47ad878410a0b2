"""Rounds of holds on confluent-kafka, while members join, leave and are killed."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from tests.harness.group.confluent import NEWER, settings_of
from tests.harness.group.team import run
from tests.harness.waiting import wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.any_broker]

ROUNDS, MINUTES = 100, 20  # of each protocol: so many, or as many as there is time for
WAIT = "120s"  # of a member that was killed nothing is known for a minute

# Writes each record down before it asks for the next, and ends at SIGTERM.
PROGRAM = """
import ast, signal, sys, time
from safeconsumer import Control
from safeconsumer.clients.confluent import Consumer

settings, prefix, topic, path = sys.argv[1:]
over = []
signal.signal(signal.SIGTERM, lambda *_: over.append(True))
control = Control.prefixed(prefix, status_interval=0.5)
with Consumer(ast.literal_eval(settings), control=control, log=False) as consumer:
    consumer.subscribe([topic])
    with open(path, "a", buffering=1) as file:
        for turn in range(10**9):
            if over:
                break
            found = consumer.consume(20, 0.2) if turn % 2 else [consumer.poll(0.3)]
            for one in found:
                if one is not None and one.error() is None:
                    file.write(f"{time.time()} {one.partition()} {one.offset()}\\n")
"""


class Rounds:
    """Members of a team as processes, a producer, and what the members wrote down."""

    def __init__(self, team, protocol, folder, closing):
        self.team, self._protocol, self._folder = team, protocol, folder
        self._closing = closing
        self._over = threading.Event()
        self.sent = 5
        self._thread = threading.Thread(target=self._produce, daemon=True)

    def __enter__(self):
        self._thread.start()
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
        # What is committed soon is so before a member is killed, as nothing flows then.
        settings = settings_of(self.team, name, self._protocol)
        settings |= {"enable.auto.commit": True, "auto.commit.interval.ms": 300}
        if self._protocol != NEWER:
            settings |= {"session.timeout.ms": 6000}
        command = [sys.executable, "-c", PROGRAM, repr(settings), self.team.prefix]
        command += [self.team.topic, str(self._folder / name)]
        process = subprocess.Popen(command)  # noqa: S603 - our own code
        self._closing.callback(process.wait)
        self._closing.callback(process.kill)
        return process

    def written(self):
        """Return the time, partition and offset of every record that a member got."""
        found = []
        for path in self._folder.iterdir():
            for line in path.read_text().splitlines():
                at, *where = line.split()
                found.append((float(at), *map(int, where)))
        return found

    def command(self, *arguments):
        return run(self.team, *arguments, "--group", self.team.group)

    def play(self, scope, number):
        """Hold a scope while another member joins, and ends; return whether it was killed."""
        held = {1} if scope.endswith(":1") else {0, 1, 2, 3}
        owner = ("--owner", "alice")
        asked = ("pause", scope, *owner, "--reason", f"{number}", "--future")
        placed = self.command(*asked, "--wait", WAIT)
        assert placed.exit_code == 0, placed.output
        quiet_at = time.time()
        third = self.member(f"c{number}")
        wait_for(
            lambda: f"c{number}" in self.command("status").output, "the third member"
        )
        is_killed = number % 6 == 5
        third.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
        quiet = self.command("wait", "quiet", scope, "--timeout", WAIT)
        assert quiet.exit_code == 0, quiet.output
        until = time.time()
        leaked = [
            one
            for one in self.written()
            if quiet_at < one[0] < until and one[1] in held
        ]
        assert leaked == []
        assert self.command("resume", scope, *owner).exit_code == 0
        flowing = self.command("wait", "flowing", scope, "--timeout", "60s")
        assert flowing.exit_code == 0, flowing.output
        return is_killed


@pytest.mark.timeout(2 * MINUTES * 60)
@pytest.mark.parametrize(
    "protocol",
    ["range", "cooperative-sticky", pytest.param(NEWER, marks=pytest.mark.real_broker)],
)
def test_nothing_leaks_is_lost_or_comes_twice(
    team, protocol, tmp_path, record_property
):
    """Also across those that leave: by then each has committed what it wrote down."""
    chance = random.Random(protocol)  # noqa: S311 - a game
    scopes = [team.topic, f"{team.topic}:1", f"re:{team.topic[:-1]}.*", "@all"]
    killed = 0
    with ExitStack() as closing:
        rounds = closing.enter_context(Rounds(team, protocol, tmp_path, closing))
        for name in "ab":
            rounds.member(name)
        wait_for(lambda: len(rounds.written()) >= 20, "some records")
        began, number = time.monotonic(), 0
        while number < ROUNDS and time.monotonic() - began < MINUTES * 60:
            number += 1
            killed += rounds.play(chance.choice(scopes), number)
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
