"""Tests members on other clients with a broker that requires passwords and ACLs."""

import json
import threading
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from tests.harness.group.aiokafka import AiokafkaMember, Loop
from tests.harness.group.confluent import NEWER, ConfluentMember, login_of, settings_of
from tests.harness.group.printing import PrintingMember
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.java_brokers

PROTOCOLS = pytest.mark.parametrize(
    "protocol",
    [
        pytest.param("range", id="eager"),
        pytest.param("cooperative-sticky", id="coop", marks=pytest.mark.nightly),
        pytest.param(NEWER, id="848"),
    ],
)
OWNER = ("--owner", "alice")
WAIT = "60s"


def frozen_later(story, name, protocol):
    """Start a member with auto-commit in its own process, which the test can freeze."""
    settings = {**settings_of(story.team, name, protocol), **login_of(story)}
    settings |= {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
    if protocol != NEWER:
        settings["session.timeout.ms"] = 3000
    given = "confluent", settings, story.prefix, [story.team.topic]
    return PrintingMember(*given, read=lambda line: tuple(json.loads(line)[2:]))


def committed(story):
    """Return the group's committed offsets by partition."""
    team = story.team
    settings = {**settings_of(team, "looking"), **login_of(story)}
    looking = confluent_kafka.Consumer(settings)
    everything = [TopicPartition(team.topic, tp.partition) for tp in team.partitions]
    found = looking.committed(everything, 10)
    looking.close()
    return {one.partition: one.offset for one in found}


def producing(story, over):
    while not over.wait(0.05):
        story.team.produce(1)


@pytest.mark.contract("G1", "G2", "G8", "G9")
@PROTOCOLS
def test_thawed_confluent_member_obeys_holds_and_commits_no_stale_offset(
    story, protocol
):
    """
    A frozen member loses its partitions, and regains some of them when it is thawed.

    1. The member reads, and auto-commits.
    2. An operator holds a partition, and the member obeys.
    3. The member is frozen until another member owns all partitions.
    4. The other member continues reading, and commits.
    5. The thawed member still has records that it fetched before the freeze, and
    rejoins.
    """
    team = story.team
    with ExitStack() as closing:
        frozen = closing.enter_context(frozen_later(story, "a", protocol))
        wait_for(lambda: len(frozen.lines) >= 20, "the first records")
        over = threading.Event()
        thread = threading.Thread(target=producing, args=(story, over))
        thread.start()
        closing.callback(thread.join)
        closing.callback(over.set)
        held = story.alice(
            "pause", f"{team.topic}:0", *OWNER, "--reason", "x", "--wait", WAIT
        )
        assert held.exit_code == 0, held.output
        before = [one for one in frozen.lines if one[0] == 0]
        frozen.freeze()
        second = ConfluentMember(
            team,
            "b",
            protocol,
            control=team.settings,
            enable_auto_commit=True,
            auto_commit_interval_ms=100,
            **login_of(story),
        )
        closing.enter_context(second)
        wait_for(lambda: len(second.assignment) == 4, "everything for the second")
        wait_for(lambda: {1, 2, 3} <= {p for p, _ in second.came}, "its records")
        ahead = {p: n + 1 for p, n in second.came}
        wait_for(
            lambda: all(committed(story)[p] >= n for p, n in ahead.items()),
            "the second's commits",
        )
        frozen.thaw()
        wait_for(lambda: len(second.assignment) == 2, "a share for the first")
        printed = len(frozen.lines)
        wait_for(
            lambda: len(second.assignment) == 2 and len(frozen.lines) > printed + 10,
            "records of both",
        )
        assert all(committed(story)[p] >= n for p, n in ahead.items())
        assert [one for one in frozen.lines if one[0] == 0] == before
        assert 0 not in {p for p, _ in second.came}
        lifted = story.alice("resume", f"{team.topic}:0", *OWNER)
        assert lifted.exit_code == 0, lifted.output
        follows = (0, len(before))
        wait_for(
            lambda: follows in [*frozen.lines, *second.came], "the first that was held"
        )
        zero = [one for one in [*frozen.lines, *second.came] if one[0] == 0]
    assert len(zero) == len(set(zero))


def obeys(story, member):
    """Return whether a member reads and obeys a hold with its own credentials and ACLs."""
    wait_for(lambda: len(member.came) == 20, "the records")
    held = story.alice(
        "pause", story.team.topic, *OWNER, "--reason", "x", "--wait", WAIT
    )
    assert held.exit_code == 0, held.output
    return len(member.consumer.quiet()) == 4


@pytest.mark.contract("G3", "G9")
def test_control_clients_use_the_login_and_acls_of_the_member_on_confluent_kafka(story):
    """The test passes the credentials under librdkafka's setting names."""
    more = {"control": story.team.settings, **login_of(story)}
    with ConfluentMember(story.team, "a", "range", **more) as member:
        assert obeys(story, member)


@pytest.mark.contract("G3", "G9")
def test_control_clients_use_the_login_and_acls_of_the_member_on_aiokafka(story):
    """The test passes the credentials under aiokafka's setting names."""
    login = story.team.broker.client_of("member")
    names = ("security_protocol", "sasl_mechanism")
    names += ("sasl_plain_username", "sasl_plain_password")
    more = {name: login[name] for name in names}
    more["control"] = story.team.settings
    with Loop() as loop, AiokafkaMember(loop, story.team, "a", **more) as member:
        assert obeys(story, member)
