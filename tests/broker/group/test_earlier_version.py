"""A rolling restart from version 0.5, whose members had a holds topic of their own."""

import json
import shutil
import sys
from collections import Counter

import pytest

from safeconsumer.cli.errors import Status
from safeconsumer.group import topics
from tests.bench.states import environment
from tests.harness.group.team import Team, run
from tests.harness.members import Polled
from tests.harness.polling import poll_until
from tests.harness.processes import ROOT, Process, ran
from tests.harness.waiting import wait_for

pytestmark = [pytest.mark.any_broker, pytest.mark.timeout(240)]

# The last commit of 0.5 before holds had one topic.
_COMMIT = "3f350067"

_MEMBER = """
import json, sys
from safeconsumer import Control, SafeConsumer

given = json.loads(sys.argv[1])
if "api_version" in given["client"]:  # the embedded broker's; JSON has no tuples
    given["client"]["api_version"] = tuple(given["client"]["api_version"])
consumer = SafeConsumer(
    given["topic"],
    group_id=given["group"],
    client_id="old",
    auto_offset_reset="earliest",
    control=Control.prefixed(given["prefix"], clock_skew=0.5, status_interval=0.3),
    **{"session_timeout_ms": 6000, "heartbeat_interval_ms": 1000, **given["client"]},
)
consumer.pause_group(given["topic"] + ":3", reason="its own")
while True:
    for tp, records in consumer.poll(100).items():
        print(json.dumps([tp.partition, len(records)]), flush=True)
    consumer.commit_async()
"""


@pytest.fixture
def team(kafka_broker):
    with Team(kafka_broker) as made:
        made.settings = made.quick
        made.create(f"{made.prefix}holds_group", topics.HOLDS_SETTINGS)
        yield made


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """Return the environment of a process that has the earlier version."""
    made = tmp_path_factory.mktemp("earlier")
    packed = ("git", "archive", f"--output={made}/it.tar", _COMMIT, "safeconsumer")
    if ran(*packed, cwd=ROOT).returncode:
        pytest.skip(f"this clone has no commit {_COMMIT}")
    shutil.unpack_archive(made / "it.tar", made, filter="data")
    return environment(made)


def old_member(team, env):
    """Run a member of the earlier version; it prints the count of each poll by partition."""
    given = {
        "topic": team.topic,
        "group": team.group,
        "prefix": team.prefix,
        "client": {**team.broker.client_config, **team.broker.group_config},
    }
    command = [sys.executable, "-c", _MEMBER, json.dumps(given)]
    return Process(command, read=json.loads, env=env)


def counted(printed):
    found = Counter()
    for partition, records in tuple(printed):
        found[partition] += records
    return found


@pytest.mark.contract("G1", "G3")
def test_members_of_both_versions_obey_operators(team, earlier):
    """A hold of a member of the earlier version is named, and ends."""
    scope = f"{team.topic}:0"
    group = ("--group", team.group)
    held = ("pause", "--reason", "db", "--owner", "alice", *group)
    assert run(team, *held, "--future", scope).exit_code == Status.DONE
    got = {}
    with old_member(team, earlier) as old:
        wait_for(lambda: counted(old.lines) == {1: 5, 2: 5}, "what it may read")
        named = run(team, "doctor", *group).stdout
        assert f"holds_group has a hold of {team.topic}:3" in named
        assert f"--owner app --reason 'its own' --future -- {team.topic}:3" in named
        printed = run(team, "control", "init").stdout
        assert f"{team.topic}:3 of {team.group} by app" in printed
        new = team.subscribed("new", session_timeout_ms=6000)
        poll_until(new, lambda: len(new.assignment()) == 2, got=got)
        poll_until(new, lambda: team.is_ungated(new), got=got)
        with Polled(new):
            ended = run(team, *held, f"{team.topic}:1", "--wait", "30s")
        assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
        team.produce(1)
    # The new member goes on alone.
    poll_until(new, team.has_all(new), got=got)
    poll_until(new, lambda: team.is_ungated(new), got=got)
    assert new.quiet() == set(team.partitions[:2])
    team.produce(1)
    lifted = team.partitions[3]
    poll_until(new, lambda: len(got.get(lifted, ())) == 7, got=got)
    held_now = {(str(one.scope), one.owner) for one in new.holds()}
    assert held_now == {(one, "operator:alice") for one in (scope, f"{team.topic}:1")}
    assert team.partitions[0] not in got
    assert counted(old.lines).keys() == {1, 2}


@pytest.mark.contract("G1", "G10")
def test_a_member_of_the_earlier_version_is_held_and_moves_nothing(team, earlier):
    """``reset-offsets`` names it, and ``status`` does after ``--force``."""
    group = ("--group", team.group, "--owner", "alice")
    moved = ("reset-offsets", f"{team.topic}:1", "--to", "2", *group)
    why = "old moves nothing: its client, settings or version cannot"
    with old_member(team, earlier) as old:
        wait_for(lambda: counted(old.lines).get(1) == 5, "what it may read")
        held = run(team, "pause", team.topic, *group, "--reason", "x", "--wait", "30s")
        assert (held.exit_code, held.stderr) == (Status.DONE, "")
        refused = run(team, *moved)
        assert refused.exit_code == Status.FAILED
        assert f"{team.topic}:1 would not be moved: {why}" in refused.stderr
        assert run(team, *moved, "--force").exit_code == Status.DONE
        shown = json.loads(run(team, "status", *group[:2], "-o", "json").stdout)
        assert [one["why"] for one in shown["resets"]] == [why]
        assert run(team, "resume", team.topic, *group).exit_code == Status.FAILED
