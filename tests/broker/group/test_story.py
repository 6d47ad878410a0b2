"""An operator's whole story by command line, with the rights that are printed and no more."""

import json

import pytest
from click.testing import Result
from kafka.admin import (
    ACLOperation,
    KafkaAdminClient,
    ResourceType,
)

from safeconsumer.cli.errors import Status
from safeconsumer.group.settings import names
from tests.harness.brokers import choice
from tests.harness.group.secured import allow
from tests.harness.group.story import OWNER, Story, played

pytestmark = [
    pytest.mark.usefixtures("time_to_look"),
    pytest.mark.real_broker,  # one of its own, but not where none can be expected
    pytest.mark.skipif(
        choice._why_no_java() is not None, reason=f"{choice._why_no_java()}"
    ),
]


class ByCommand:
    """Alice at her terminal."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._topic = story.team.topic

    def _run(self, *arguments: str) -> Result:
        return self._story.alice(*arguments)

    def _ends_well(self, *arguments: str) -> str:
        ended = self._run(*arguments)
        assert (ended.exit_code, ended.stderr) == (Status.DONE, "")
        return ended.stdout

    def look_first(self) -> None:
        dry = self._ends_well(
            "pause", self._topic, "--reason", "x", "--dry-run", *OWNER
        )
        assert f"would cover 4 partitions: {self._topic}:0-3" in dry
        assert "0 records wait there already" in dry
        assert "unknown" not in dry
        assert self._run("history").stdout == "nothing\n"

    def pause_and_wait(self) -> None:
        held = self._ends_well(
            "pause", self._topic, "--reason", "x", "--wait", "60s", "-o", "json", *OWNER
        )
        document = json.loads(held)
        (placed,) = document["held"]
        assert placed["principal"] == "User:alice"
        assert document["wait"]["sentence"] == "1 of 1 members quiet"

    def see_a_rebalance(self) -> None:
        quiet = self._ends_well("wait", "quiet", "--timeout", "20s")
        assert quiet == "2 of 2 members quiet\n"
        shown = json.loads(self._run("status", "-o", "json").stdout)
        assert shown["unread"] == []
        waits = shown["backlog"]
        assert (waits["lag"], waits["written_since_hold"]) == (12, 12)

    def see_who_ignores_it(self) -> None:
        ignored = self._run("wait", "quiet", "--timeout", "1s")
        assert (ignored.exit_code, ignored.stdout) == (Status.FAILED, "")
        assert "plain does not report" in ignored.stderr
        listed = json.loads(self._story.run("alice", "groups", "-o", "json").stdout)
        (own,) = [one for one in listed if one["group"] == self._story.team.group]
        assert "plain does not report" in own["sentence"]

    def see_that_it_left(self) -> None:
        self._ends_well("wait", "quiet", "--timeout", "20s")

    def lift(self) -> None:
        self._ends_well("resume", self._topic, *OWNER)
        self._ends_well("wait", "flowing", "--timeout", "20s")

    def let_expire(self) -> None:
        scopes = f"{self._topic}:0-1"
        short = self._run("pause", scopes, "--reason", "x", "--for", "2s", *OWNER)
        assert short.exit_code == Status.DONE, short.stderr
        self._ends_well("wait", "flowing", "--timeout", "20s")

    def see_history(self) -> None:
        past = json.loads(self._run("history", "-o", "json").stdout)["records"]
        assert [(one["scope"], one["is_held"]) for one in past] == [
            (self._topic, True),
            (self._topic, False),
            (f"{self._topic}:0", True),
            (f"{self._topic}:1", True),
        ]


@pytest.mark.contract("G1", "G2")
def test_an_operators_story(story: Story) -> None:
    """Alice has the rights that ``control acls`` prints, and no more."""
    played(story, ByCommand(story))


def test_a_member_cannot_do_what_alice_can(story: Story) -> None:
    """And is told so in the broker's words, with what would be needed."""
    group = ("--group", story.team.group)
    held = story.run("alice", "pause", "@all", *group, "--reason", "x", "--future")
    assert held.exit_code == Status.DONE, held.stderr
    for command in (
        ("pause", "@all", *group, "--reason", "x", "--future", "--owner", "eve"),
        ("resume", "@all", *group),
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
    assert "the ACLs cannot be read" in story.run("alice", "doctor").stdout


def test_doctor_looks_at_settings_that_lose_holds(story: Story) -> None:
    story.prefix = f"short-{story.team.group}-"
    name = names(story.prefix)[0]
    story.team.create(name, {"cleanup.policy": "compact", "delete.retention.ms": "1000",
                             "max.message.bytes": "100"})  # fmt: skip
    ended = story.run("operator", "doctor")
    assert ended.exit_code == Status.FAILED
    assert "delete.retention.ms=1000: a member that cannot read" in ended.stdout
    assert "max.message.bytes=100: holds that are longer" in ended.stdout
