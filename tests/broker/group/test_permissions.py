"""Tests ACLs: members may only read holds, and users without permission get advice."""

import pytest
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
    ResourceType,
)

from safeconsumer.cli.errors import Status
from safeconsumer.group import events as control_events
from safeconsumer.holds.scope import ALL
from tests.harness.brokers import choice
from tests.harness.group.secured import PASSWORDS, allow
from tests.harness.polling import poll_until

pytestmark = [
    pytest.mark.real_broker,  # the module starts its own broker
    pytest.mark.skipif(
        choice.why_no_java() is not None, reason=f"{choice.why_no_java()}"
    ),
]


def member(story):
    consumer = story.member("a")
    story.team.settled(consumer)
    return consumer


@pytest.mark.contract("G3")
def test_member_with_acls_obeys_holds_but_cannot_write_any(story):
    """The member's principal may read holds and write reports."""
    consumer = member(story)
    group = ("--group", story.team.group)
    held = story.alice("pause", "@all", "--reason", "x", "--future")
    assert (held.exit_code, held.stderr) == (Status.DONE, "")
    poll_until(consumer, story.team.is_quiet(consumer))
    for command in (
        ("pause", "@all", *group, "--reason", "x", "--future", "--owner", "eve"),
        ("resume", "@all", *group),
    ):
        refused = story.run("member", *command)
        assert (refused.exit_code, refused.stdout) == (Status.REFUSED, "")
        assert refused.stderr.count("\n") == 1
        assert "AuthorizationFailedError" in refused.stderr
    assert [hold.scope for hold in consumer.holds()] == [ALL]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("operator-9b1e77c3", "guess"), "Invalid username or password"),
        (("=PLAIN\n", "=SCRAM-SHA-256\n"), "does not offer SCRAM-SHA-256"),
    ],
)
def test_refused_login_is_reported_with_the_brokers_message(story, changed, message):
    """
    The error line contains the user's name, but no password.

    By itself kafka-python would retry for 5 s and then report that no broker is
    available.
    """
    file = story.files["operator"]
    file.write_text(file.read_text().replace(*changed))
    ended = story.run("operator", "history")
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.REFUSED, 1)
    assert "the broker refuses the login" in ended.stderr
    assert message in ended.stderr
    assert "the user is operator" in ended.stderr
    assert "guess" not in ended.stderr
    assert PASSWORDS["operator"] not in ended.stderr


def test_audit_logs_in_with_the_config_file(story, tmp_path):
    """With ``--config`` the audit reads the topics; it also reports a refused login."""
    consumer = story.team.subscribed("a", control=None, journal=str(tmp_path))
    got = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    consumer.close()
    asked = ("audit", str(tmp_path), "--against-topic", "--control")
    ended = story.run("operator", *asked)
    assert ended.exit_code == Status.DONE, ended.output
    file = story.files["operator"]
    file.write_text(file.read_text().replace(PASSWORDS["operator"], "x"))
    assert story.run("operator", *asked).exit_code == Status.REFUSED


def test_user_without_permissions_gets_advice_about_acls(story):
    """No command advises the user to create a topic, or prints an empty list as JSON."""
    story.team.operator_holds("@all")
    group = ("--group", story.team.group)
    for words in (
        ("status",),
        ("status", "--all"),
        ("status", "-o", "json"),
        ("history",),
        ("pause", "@all", "--reason", "r", *group),
        ("resume", "@all", *group),
        ("extend", "@all", "--for", "1h", *group),
    ):
        ended = story.run("watcher", *words)
        assert (ended.exit_code, ended.stdout) == (Status.REFUSED, ""), words
        assert "no right to" in ended.stderr, words
        assert "safeconsumer control acls" in ended.stderr, words
        assert "control init" not in ended.stderr, words


def test_doctor_distinguishes_missing_permissions_from_missing_topics(story):
    topic, read, settings = ResourceType.TOPIC, ACLOperation.READ, story.team.settings

    def printed():
        ended = story.run("watcher", "doctor")
        assert ended.exit_code == Status.FAILED
        assert "control init" not in ended.output
        return str(ended.output)

    assert "no right to describe any control topic" in printed()
    story.grant(allow("watcher", topic, str(settings.status_topic), read))
    found = printed()
    assert f"no right to describe {settings.holds_topic}" in found
    name = settings.status_topic
    assert f"{name}: settings unknown, no right to DescribeConfigs" in found
    # ``control acls`` does not grant any user DescribeConfigs on the status topic.
    assert found.count("set the ACLs of safeconsumer control acls") == 1


def test_member_without_permission_to_describe_configs_emits_a_warning_event(story):
    """Members need the permission DescribeConfigs only for this check."""
    team, read = story.team, ACLOperation.READ
    for name in (team.settings.holds_topic, team.topic):
        story.grant(allow("watcher", ResourceType.TOPIC, name, read))
    story.grant(allow("watcher", ResourceType.GROUP, team.group, read))
    consumer = team.ready(**team.broker.client_of("watcher"))
    emitted = team.emitted(consumer).of(control_events.ControlUnchecked)
    assert ["DescribeConfigs" in one.reason for one in emitted] == [True]


def test_member_whose_acls_are_removed_stays_quiet(story):
    """The holds that the member has read stay in force; an event reports the missing ACLs."""
    team, consumer = story.team, member(story)
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))
    topic = ResourcePatternFilter(
        ResourceType.TOPIC, team.settings.holds_topic, ACLResourcePatternType.LITERAL
    )
    every = ACLFilter(
        principal="User:member",
        host="*",
        operation=ACLOperation.READ,
        permission_type=ACLPermissionType.ALLOW,
        resource_pattern=topic,
    )
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.delete_acls([every])
    emitted = team.emitted(consumer)
    poll_until(consumer, lambda: bool(emitted.of(control_events.ControlUnavailable)))
    assert team.is_quiet(consumer)()
