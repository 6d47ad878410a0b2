"""ACLs really set: a member reads operators' holds and cannot write one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import (
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    KafkaAdminClient,
    ResourcePatternFilter,
    ResourceType,
)

from safeconsumer import Control
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.group import events as control_events
from safeconsumer.group import topics
from tests.harness.brokers import choice
from tests.harness.group.secured import PASSWORDS, SecuredBroker, allow, properties
from tests.harness.group.team import Team
from tests.harness.polling import poll_until

pytestmark = [
    pytest.mark.real_broker,  # one of its own, but not where none can be expected
    pytest.mark.skipif(
        choice._why_no_java() is not None, reason=f"{choice._why_no_java()}"
    ),
]


@pytest.fixture
def team(secured: SecuredBroker) -> Iterator[Team]:
    with Team(secured) as made:
        yield made


def permit(team: Team, *, describe: bool = True) -> None:
    """Set the ACLs that ``safeconsumer control init`` prints for members."""
    topic, settings = ResourceType.TOPIC, team.settings
    read, write = ACLOperation.READ, ACLOperation.WRITE
    ask = [ACLOperation.DESCRIBE_CONFIGS] if describe else []
    acls = [
        *allow("member", topic, settings.operator_topic, read, *ask),
        *allow("member", topic, settings.group_topic, read, write, *ask),
        *allow("member", topic, str(settings.status_topic), write),
        *allow("member", topic, team.topic, read),
        *allow("member", ResourceType.GROUP, team.group, read),
    ]
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.create_acls(acls)


def member(team: Team) -> Any:  # noqa: ANN401 - a consumer
    return team.subscribed(**team.broker.client_of("member"))


def run(team: Team, file: Path, *arguments: str) -> Any:  # noqa: ANN401 - click's
    where = ("--config", str(file), "--topic-prefix", team.prefix)
    return CliRunner().invoke(safeconsumer, [*arguments, *where])


@pytest.mark.contract("G3")
def test_a_member_obeys_an_operator_and_cannot_be_one(
    team: Team, tmp_path: Path
) -> None:
    """Its principal reads operators' holds, writes group holds, and no more."""
    permit(team)
    consumer = member(team)
    team.settled(consumer)
    operator = properties(tmp_path, team, "operator", PASSWORDS["operator"])
    forger = properties(tmp_path, team, "member", PASSWORDS["member"])
    group = ("--group", team.group)
    held = run(team, operator, "pause", "@all", *group, "--reason", "x", "--future")
    assert (held.exit_code, held.stderr) == (Status.DONE, "")
    poll_until(consumer, team.is_quiet(consumer))
    for command in (
        ("pause", team.topic, *group, "--reason", "x", "--future"),
        ("resume", "@all", *group, "--owner", "root"),
    ):
        refused = run(team, forger, *command)
        assert refused.exit_code == Status.REFUSED, refused.stderr
        assert refused.stderr.count("\n") == 1
    consumer.pause_group(team.topic)
    assert len(consumer.holds()) == 2
    doctor = run(team, operator, "doctor")
    assert "written by: super users only" in doctor.stdout


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (("operator-9b1e77c3", "guess"), "Invalid username or password"),
        (("=PLAIN\n", "=SCRAM-SHA-256\n"), "does not offer SCRAM-SHA-256"),
    ],
)
def test_a_refused_login_is_told_in_the_brokers_words(
    team: Team, tmp_path: Path, changed: tuple[str, str], said: str
) -> None:
    """kafka-python tries again for 5 s, and then says that nobody is there."""
    file = properties(tmp_path, team, "operator", PASSWORDS["operator"])
    file.write_text(file.read_text().replace(*changed))
    ended = run(team, file, "history")
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.REFUSED, 1)
    assert "the broker refuses the login" in ended.stderr
    assert said in ended.stderr


def test_an_audit_can_log_in(team: Team, tmp_path: Path) -> None:
    """Reading the topics too, with --config; a refused login is told as elsewhere."""
    consumer = team.subscribed("a", control=None, journal=str(tmp_path))
    got: dict[Any, list[int]] = {}
    poll_until(consumer, lambda: sum(map(len, got.values())) == 20, got=got)
    consumer.close()
    for word, status in ((PASSWORDS["operator"], Status.DONE), ("x", Status.REFUSED)):
        file = properties(tmp_path, team, "operator", word)
        ended = CliRunner().invoke(
            safeconsumer,
            [
                *("audit", str(tmp_path), "--against-topic", "--control"),
                *("--topic-prefix", team.prefix, "--config", str(file)),
            ],
        )
        assert ended.exit_code == status, ended.output


def test_a_record_that_is_too_large_is_told_so(team: Team, tmp_path: Path) -> None:
    """Not "no answer from the broker"."""
    team.settings = Control.prefixed(f"small-{team.group}-")
    for name in team.settings.topics:
        team.create(name, {**topics.HOLDS_SETTINGS, "max.message.bytes": "100"})
    operator = properties(tmp_path, team, "operator", PASSWORDS["operator"])
    ended = run(
        team, operator, "pause", "@all", "--group", team.group, "--future",
        "--reason", "x" * 200,
    )  # fmt: skip
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.REFUSED, 1)
    assert "MessageSizeTooLargeError" in ended.stderr


def test_who_may_see_nothing_is_told_that(team: Team, tmp_path: Path) -> None:
    """Not that there is no group or no topic, nor to make one; JSON is no empty list."""
    team.operator_holds("@all")
    config = properties(tmp_path, team, "watcher", PASSWORDS["watcher"])
    group = ("--group", team.group)
    for words in (
        ("groups",),
        ("groups", "--held"),
        ("groups", "-o", "json"),
        ("status",),
        ("history",),
        ("pause", "@all", "--reason", "r", "--yes", *group),
        ("resume", "@all", *group),
        ("extend", "@all", "--for", "1h", *group),
    ):
        ended = run(team, config, *words)
        assert (ended.exit_code, ended.stdout) == (Status.REFUSED, ""), words
        assert "no right to" in ended.stderr, words
        assert "safeconsumer control acls" in ended.stderr, words
        assert "control init" not in ended.stderr, words


def test_doctor_tells_rights_that_lack_from_topics_that_lack(
    team: Team, tmp_path: Path
) -> None:
    config = properties(tmp_path, team, "watcher", PASSWORDS["watcher"])
    topic, read, settings = ResourceType.TOPIC, ACLOperation.READ, team.settings

    def told() -> str:
        ended = run(team, config, "doctor")
        assert ended.exit_code == Status.FAILED
        assert "control init" not in ended.output
        return str(ended.output)

    assert "no right to describe any control topic" in told()
    grant = [
        *allow("watcher", topic, settings.group_topic, read),
        *allow("watcher", topic, str(settings.status_topic), read),
    ]
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.create_acls(grant)
    found = told()
    assert f"no right to describe {settings.operator_topic}" in found
    for name in (settings.group_topic, settings.status_topic):
        assert f"{name}: settings unknown, no right to DescribeConfigs" in found
    # control acls gives nobody that right on the status topic.
    assert found.count("set the ACLs of safeconsumer control acls") == 2


def test_a_member_that_may_not_describe_warns(team: Team) -> None:
    """It does not refuse: the right is not needed for anything else."""
    permit(team, describe=False)
    consumer = member(team)
    team.settled(consumer)
    told = team.told[id(consumer)].of(control_events.ControlUnchecked)
    assert ["DescribeConfigs" in one.reason for one in told] == [True]


def test_a_member_whose_rights_are_taken_away_stays_quiet(team: Team) -> None:
    """What it was told last counts; that it hears no more is told."""
    permit(team)
    consumer = member(team)
    team.settled(consumer)
    team.operator_holds("@all")
    poll_until(consumer, team.is_quiet(consumer))
    topic = ResourcePatternFilter(
        ResourceType.TOPIC,
        team.settings.operator_topic,
        ACLResourcePatternType.LITERAL,
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
    told = team.told[id(consumer)]
    poll_until(consumer, lambda: bool(told.of(control_events.ControlUnavailable)))
    assert team.is_quiet(consumer)()
