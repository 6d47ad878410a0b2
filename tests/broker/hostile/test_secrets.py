"""
Tests that no output contains a password; the broker requires passwords.

The tests collect all output of this package at the most verbose level: logs, events,
journals, errors with their causes, ``repr``, and the output of commands.
"""

import base64
import logging
import traceback

import pytest
from click.testing import CliRunner
from kafka.admin import ACLOperation, KafkaAdminClient, ResourceType
from kafka.errors import KafkaError

from safeconsumer import SafeConsumer
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.events.log import log_event
from safeconsumer.group.properties import client_configs, read_properties
from safeconsumer.journal.writer import JournalWriter
from tests.harness.brokers import choice
from tests.harness.group.secured import (
    PASSWORDS,
    SecuredBroker,
    allow,
    properties,
)
from tests.harness.group.team import Team
from tests.harness.polling import poll_until

pytestmark = [
    pytest.mark.real_broker,
    pytest.mark.skipif(
        choice.why_no_java() is not None, reason=f"{choice.why_no_java()}"
    ),
]

GUESS = "guess-71d2ba90"


def permit(team):
    """Permit the member to read its topic and the holds, and to write reports."""
    settings, topic = team.settings, ResourceType.TOPIC
    read, write = ACLOperation.READ, ACLOperation.WRITE
    with KafkaAdminClient(**team.broker.client_config) as admin:
        admin.create_acls(
            [
                *allow("member", topic, settings.holds_topic, read),
                *allow("member", topic, str(settings.status_topic), write),
                *allow("member", topic, team.topic, read),
                *allow("member", ResourceType.GROUP, team.group, read),
            ]
        )


def run(team, file, *arguments):
    where = ("--config", str(file), "--topic-prefix", team.prefix)
    return CliRunner().invoke(safeconsumer, [*arguments, *where])


class Collected(logging.Handler):
    """Collects output of any kind."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.parts = []

    def emit(self, record):
        if record.name.startswith("kafka."):
            return  # kafka-python's own DEBUG lines always contain passwords
        self.parts.append(record.getMessage())
        self.parts.append(repr(record.args))
        if record.exc_info and record.exc_info[1]:
            self.add(record.exc_info[1])

    def add(self, *things):
        for one in things:
            if isinstance(one, BaseException):
                self.parts += traceback.format_exception(one)
            self.parts += [str(one), repr(one)]

    def leaks(self):
        secrets = [*PASSWORDS.values(), GUESS]
        forms = [form for one in secrets for form in _forms(one)]
        return [
            part[:300] for part in self.parts if any(form in part for form in forms)
        ]


def _forms(secret):
    # Returns the password as plain text, and in base64 for each alignment.
    shifted = (base64.b64encode(b"\0" * n + secret.encode()).decode() for n in range(3))
    return [secret, *(text[4:-4] for text in shifted)]


@pytest.fixture
def collected():
    root, handler = logging.getLogger(), Collected()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture(scope="module")
def secured():
    with SecuredBroker() as broker:
        yield broker


@pytest.fixture
def team(secured):
    with Team(secured) as made:
        yield made


def test_search_finds_a_password_in_any_form(collected):
    logging.getLogger("any").debug("config %s", {"password": PASSWORDS["member"]})
    whole = base64.b64encode(f"\0member\0{PASSWORDS['member']}".encode()).decode()
    collected.add(ValueError(GUESS), whole)
    assert len(collected.leaks()) >= 5


def test_output_of_a_member_and_its_operator_contains_no_password(
    team, collected, tmp_path
):
    """The collected output includes the member's journal and its ``repr``."""
    permit(team)
    collected.parts.clear()  # lines from kafka-python's admin client do not count
    journal = JournalWriter(tmp_path / "journals", member="m", group=team.group)
    more = {"hooks": [log_event, collected.add], "journal": journal}
    consumer = team.subscribed(**more, **team.broker.client_of("member"))
    team.settled(consumer)
    consumer.pause(team.topic)
    consumer.poll(timeout_ms=100)
    operator = properties(tmp_path, team, "operator", PASSWORDS["operator"])
    output = [
        run(team, operator, "pause", "@all", "--group", team.group, "--reason", "x"),
        run(team, operator, "status", "--group", team.group, "-o", "json"),
        run(team, operator, "doctor", "--group", team.group),
        run(team, operator, "history"),
    ]
    poll_until(consumer, team.is_quiet(consumer))
    collected.add(*(one.output for one in output), consumer, *consumer.holds())
    collected.add(*map(consumer.explain, team.partitions), team.settings)
    collected.add(*(path.read_text() for path in (tmp_path / "journals").iterdir()))
    assert any("HoldsPlaced" in part for part in collected.parts)
    assert collected.leaks() == []


def test_output_about_a_refused_login_contains_no_password(team, collected, tmp_path):
    """The broker refuses the login of a consumer and of a command."""
    config = {**team.broker.client_of("member"), "sasl_plain_password": GUESS}
    config["bootstrap_timeout_ms"] = 1000
    with pytest.raises(KafkaError) as refused:
        SafeConsumer(team.topic, group_id=team.group, **config)
    collected.add(refused.value)
    wrong = properties(tmp_path, team, "operator", GUESS)
    collected.add(run(team, wrong, "status", "--group", team.group).output)
    assert collected.leaks() == []


def test_error_about_a_setting_contains_no_password(collected):
    """The consumer's other settings include passwords."""
    secret = PASSWORDS["member"]
    config = {
        "sasl_plain_password": secret,
        "sasl_plain_username": "member",
    }
    config["bootstrap_timeout_ms"] = 500
    for wrong in (
        {"no_such_setting": 1},
        {"max_poll_records": "x"},
        {"api_version": 7},
    ):
        with pytest.raises(Exception) as refused:  # noqa: PT011 - any setting
            SafeConsumer(bootstrap_servers="127.0.0.1:1", **config, **wrong)
        collected.add(refused.value)
    for text in (
        f'sasl.jaas.config=x required user="u" password="{secret}";',
        f"ssl.key.password={secret}\nretry.backoff.ms=soon",
        f"ssl.keystore.password={secret}\nssl.keystore.location=/k.jks",
    ):
        with pytest.raises(ValueError) as refused:  # noqa: PT011 - any setting
            client_configs(read_properties(text))
        collected.add(refused.value)
    assert collected.leaks() == []
