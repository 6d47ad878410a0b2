"""
An operator's whole story by command line, with the rights that are printed and no more.
"""

import json

import pytest
from kafka.admin import (
    ACLOperation,
    KafkaAdminClient,
    ResourceType,
)

from safeconsumer.cli.errors import Status
from tests.brokers import choice
from tests.group.operating import Polled
from tests.group.secured import allow
from tests.group.story import Story
from tests.kafka.polling import poll_until

pytestmark = [
    pytest.mark.real_broker,  # one of its own, but not where none can be expected
    pytest.mark.skipif(
        choice._why_no_java() is not None, reason=f"{choice._why_no_java()}"
    ),
]


OWNER = ("--owner", "alice")


def test_an_operators_story(story: Story) -> None:
    """
    Dry run, pause, a rebalance, a member that ignores it, resume, expiry, history.

    Alice has the rights that ``control init`` prints, and no more.
    """
    team = story.team
    first = story.member("billing-1")
    got = team.settled(first)
    poll_until(first, lambda: sum(map(len, got.values())) == 20, got=got)
    first.commit()
    with Polled(first):
        looks_first(story)
        pauses_and_waits(story)
        team.produce(3)
        second = story.member("billing-2")
        poll_until(second, lambda: len(second.assignment()) == 2)
        with Polled(second):
            sees_a_rebalance(story)
            sees_who_ignores_it(story)
            lifts_and_lets_expire(story)
    past = json.loads(story.alice("history", "--json").stdout)
    assert [(one["scope"], one["is_held"]) for one in past] == [
        (team.topic, True),
        (team.topic, False),
        (f"{team.topic}:0", True),
        (f"{team.topic}:1", True),
    ]


def looks_first(story: Story) -> None:
    topic = story.team.topic
    dry = story.alice("pause", topic, "--reason", "x", "--dry-run", *OWNER)
    assert (dry.exit_code, dry.stderr) == (Status.DONE, "")
    assert f"would cover 4 partitions: {topic}:0-3" in dry.stdout
    assert "0 records wait there already" in dry.stdout
    assert "unknown" not in dry.stdout
    assert story.alice("history").stdout == "nothing\n"


def pauses_and_waits(story: Story) -> None:
    held = story.alice(
        "pause", story.team.topic, "--reason", "x", "--wait", "--json", *OWNER
    )
    assert (held.exit_code, held.stderr) == (Status.DONE, "")
    document = json.loads(held.stdout)
    (placed,) = document["held"]
    assert placed["principal"] == "User:alice"
    assert document["wait"]["sentence"] == "1 of 1 members quiet"


def sees_a_rebalance(story: Story) -> None:
    quiet = story.alice("wait", "quiet", "--timeout", "20s")
    assert (quiet.exit_code, quiet.stderr) == (Status.DONE, "")
    assert quiet.stdout == "2 of 2 members quiet\n"
    shown = json.loads(story.alice("status", "--json").stdout)
    assert shown["unread"] == []
    waits = shown["backlog"]
    assert (waits["lag"], waits["written_since_hold"]) == (12, 12)


def sees_who_ignores_it(story: Story) -> None:
    plain = story.member("plain", control=None)
    poll_until(plain, lambda: bool(plain.assignment()))
    with Polled(plain):
        ignored = story.alice("wait", "quiet", "--timeout", "1s")
        assert (ignored.exit_code, ignored.stdout) == (Status.FAILED, "")
        assert "1 do not report" in ignored.stderr
        listed = json.loads(story.run("alice", "groups", "--json").stdout)
        (own,) = [one for one in listed if one["group"] == story.team.group]
        assert "1 do not report" in own["disobeying"]
    plain.close(autocommit=False)
    quiet = story.alice("wait", "quiet", "--timeout", "20s")
    assert (quiet.exit_code, quiet.stderr) == (Status.DONE, "")


def lifts_and_lets_expire(story: Story) -> None:
    topic = story.team.topic
    lifted = story.alice("resume", topic, *OWNER)
    assert (lifted.exit_code, lifted.stderr) == (Status.DONE, "")
    flows = story.alice("wait", "flowing", "--timeout", "20s")
    assert (flows.exit_code, flows.stderr) == (Status.DONE, "")
    short = story.alice("pause", f"{topic}:0-1", "--reason", "x", "--for", "2s", *OWNER)
    assert short.exit_code == Status.DONE, short.stderr
    flows = story.alice("wait", "flowing", "--timeout", "20s")
    assert (flows.exit_code, flows.stderr) == (Status.DONE, "")


def test_a_member_cannot_do_what_alice_can(story: Story) -> None:
    """And is told so in the broker's words, with what would be needed."""
    group = ("--group", story.team.group)
    for command in (
        ("pause", "@all", *group, "--reason", "x", "--new-group"),
        ("resume", "@all", *group, "--future"),
    ):
        refused = story.run("member", *command)
        assert (refused.exit_code, refused.stdout) == (Status.REFUSED, "")
        assert "AuthorizationFailedError" in refused.stderr


def test_doctor_says_who_has_rights_of_operators(story: Story) -> None:
    """Everybody may write it: that was called "ok". And who was not named."""
    expected = ("doctor", "--operators", "User:alice")
    well = story.run("operator", *expected)
    assert well.exit_code == Status.DONE, well.stdout
    assert "written by: User:alice; deleted by: super users only" in well.stdout
    not_named = story.run("operator", "doctor", "--operators", "User:bob")
    assert not_named.exit_code == Status.FAILED
    assert "PROBLEM  User:alice can place and lift operators' holds" in not_named.stdout
    topic = story.team.settings.operator_topic
    deleting = ACLOperation.DELETE, ACLOperation.ALTER_CONFIGS
    with KafkaAdminClient(**story.team.broker.client_config) as admin:
        admin.create_acls(
            [
                *allow("*", ResourceType.TOPIC, topic, ACLOperation.WRITE),
                *allow("eve", ResourceType.TOPIC, topic, *deleting),
            ]
        )
    bad = story.run("operator", *expected)
    assert bad.exit_code == Status.FAILED
    assert "PROBLEM  User:* can place and lift operators' holds" in bad.stdout
    assert "User:eve can delete it" in bad.stdout
    assert "User:eve can change its settings" in bad.stdout
    assert "PROBLEM  User:*" in story.run("operator", "doctor").stdout
    # Alice may not read ACLs: that is not well, it is unknown.
    assert "ACLs could not be read" in story.run("alice", "doctor").stdout


def test_doctor_looks_at_settings_that_lose_holds(story: Story) -> None:
    team = story.team
    name = f"short-{team.group}"
    team.create(name, {"cleanup.policy": "compact", "delete.retention.ms": "1000",
                       "max.message.bytes": "100"})  # fmt: skip
    ended = story.run("operator", "doctor", "--operator-topic", name)
    assert ended.exit_code == Status.FAILED
    assert "delete.retention.ms=1000: a member that cannot read" in ended.stdout
    assert "max.message.bytes=100: holds that are longer" in ended.stdout
