"""Plays an operator's session with only the ACLs that ``control acls`` prints."""

import json

import pytest

from safeconsumer import Control
from safeconsumer.cli.errors import Status
from tests.harness.brokers import choice
from tests.harness.members import Polled
from tests.harness.polling import poll_until

pytestmark = [
    pytest.mark.usefixtures("time_to_look"),
    pytest.mark.real_broker,  # the module starts its own broker
    pytest.mark.skipif(
        choice.why_no_java() is not None, reason=f"{choice.why_no_java()}"
    ),
]


OWNER = ("--owner", "alice")


def ends_well(story, *arguments):
    """Run a command as alice; the command must succeed. Return its output."""
    ended = story.alice(*arguments)
    assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
    return ended.stdout


def look_first(story):
    topic = story.team.topic
    dry = ends_well(story, "pause", topic, "--reason", "x", "--dry-run", *OWNER)
    assert f"would cover 4 partitions: {topic}:0-3" in dry
    assert "0 records wait there already" in dry
    assert "unknown" not in dry
    assert story.alice("history").stdout == "nothing\n"


def pause_and_wait(story):
    asked = ("--reason", "x", "--wait", "60s", "-o", "json", *OWNER)
    document = json.loads(ends_well(story, "pause", story.team.topic, *asked))
    (placed,) = document["held"]
    assert placed["principal"] == "User:alice"
    assert document["wait"]["sentence"] == "1 of 1 members quiet"


def see_a_rebalance(story):
    quiet = ends_well(story, "wait", "quiet", "--timeout", "20s")
    assert quiet == "2 of 2 members quiet\n"
    shown = json.loads(story.alice("status", "-o", "json").stdout)
    assert shown["unread"] == []
    assert shown["whole_lag"] == 12


def see_a_plain_member(story):
    ignored = story.alice("wait", "quiet", "--timeout", "1s")
    assert (ignored.exit_code, ignored.stdout) == (Status.FAILED, "")
    assert "plain does not report" in ignored.stderr
    listed = json.loads(story.run("alice", "status", "-o", "json").stdout)
    (own,) = [one for one in listed["groups"] if one["group"] == story.team.group]
    assert "plain does not report" in own["sentence"]


def lift_and_let_expire(story):
    ends_well(story, "resume", story.team.topic, *OWNER)
    ends_well(story, "wait", "flowing", "--timeout", "20s")
    scopes = f"{story.team.topic}:0-1"
    short = story.alice("pause", scopes, "--reason", "x", "--for", "2s", *OWNER)
    assert short.exit_code == Status.DONE, short.stderr
    ends_well(story, "wait", "flowing", "--timeout", "20s")


@pytest.mark.contract("G1", "G2")
def test_session_of_an_operator_succeeds_with_only_the_printed_acls(story):
    """Alice has only the permissions that ``control acls`` prints."""
    team, topic = story.team, story.team.topic
    first = story.member("billing-1")
    team.catch_up(first)
    with Polled(first):
        look_first(story)
        pause_and_wait(story)
        team.produce(3)
        second = story.member("billing-2")
        poll_until(second, lambda: len(second.assignment()) == 2)
        with Polled(second):
            see_a_rebalance(story)
            plain = story.member("plain", control=None)
            poll_until(plain, lambda: bool(plain.assignment()))
            with Polled(plain):
                see_a_plain_member(story)
            plain.close(autocommit=False)
            ends_well(story, "wait", "quiet", "--timeout", "20s")
            lift_and_let_expire(story)
    past = json.loads(story.alice("history", "-o", "json").stdout)["records"]
    assert [(one["scope"], one["is_held"]) for one in past] == [
        (topic, True),
        (topic, False),
        (f"{topic}:0", True),
        (f"{topic}:1", True),
    ]


def test_printed_acls_suffice_to_reset_a_group_without_members(story):
    """Without members, the command itself commits the group's offsets."""
    team, topic = story.team, story.team.topic
    consumer = story.member("gone")
    team.catch_up(consumer)
    consumer.close()
    ends_well(story, "pause", topic, "--reason", "x", *OWNER)
    moved = ("reset-offsets", topic, "--to", "2", "--wait", "60s", *OWNER)
    assert f"{topic}:0  5 -> 2   3 again" in ends_well(story, *moved)
    ends_well(story, "resume", topic, *OWNER)


def test_doctor_names_topic_settings_that_can_lose_holds(story):
    story.prefix = f"short-{story.team.group}-"
    name = Control.prefixed(story.prefix).holds_topic
    story.team.create(name, {"cleanup.policy": "compact", "delete.retention.ms": "1000",
                             "max.message.bytes": "100"})  # fmt: skip
    ended = story.run("operator", "doctor")
    assert ended.exit_code == Status.FAILED
    assert "delete.retention.ms=1000: a member that cannot read" in ended.stdout
    assert "max.message.bytes=100: holds that are longer" in ended.stdout
