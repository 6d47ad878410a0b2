"""Tests the audit's option ``--against-topic``, which compares journals with topics."""

import pytest
from click.testing import CliRunner
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from safeconsumer.cli import records
from safeconsumer.cli.commands import safeconsumer
from tests.harness.audit.journals import MemberJournal
from tests.harness.producing import filled


def write_journal(folder, member):
    (folder / "a.journal").write_text(member.text())


def against_topic(clients, folder):
    where = ["--against-topic", "--bootstrap", clients._broker.bootstrap]
    return CliRunner().invoke(safeconsumer, ["audit", str(folder), *where])


@pytest.mark.contract("S5")
@pytest.mark.any_broker
@pytest.mark.parametrize(
    ("deleted", "read", "message"),
    [
        (0, 4, "acknowledged offsets 4 to 5"),
        # Offsets that were deleted before a member read them also count as not
        # delivered.
        (6, 3, "no member delivered offsets 3 to 5"),
    ],
)
def test_record_that_a_client_lost_is_found_in_the_topic(
    clients, tmp_path, deleted, read, message
):
    """The journal alone does not prove a loss, but the topic has the missing records."""
    topic = filled(clients, 1, 10)
    if deleted:
        with KafkaAdminClient(**clients._broker.client_config) as admin:
            admin.delete_records({TopicPartition(topic, 0): deleted})
    member = MemberJournal("a").assigned(f"{topic}:0").poll(f"{topic}:0", 0, read)
    member.revoked(f"{topic}:0").assigned(f"{topic}:0", generation=3)
    write_journal(tmp_path, member.poll(f"{topic}:0", 6, 10))
    done = against_topic(clients, tmp_path)
    assert (done.exit_code, message in done.stdout) == (1, True), done.output
    assert f"A2  {topic}:0" in done.stdout


@pytest.mark.any_broker
def test_deleted_topic_is_named_and_not_recreated(clients, tmp_path, monkeypatch):
    """Reading does not create the topic, and reports a missing partition without waiting."""
    # This many polls of half a second each would take an hour.
    monkeypatch.setattr(records, "_MAX_IDLE_POLLS", 7200)
    there = clients.topic(1)
    gone = f"{there}-gone"
    member = MemberJournal("a").assigned(f"{gone}:0", f"{there}:0", f"{there}:7")
    member.poll(f"{gone}:0", 0, 10).pause(f"{there}:0").poll(f"{there}:0", 0, 1)
    write_journal(tmp_path, member)
    done = against_topic(clients, tmp_path)
    assert done.exit_code == 1, done.output
    assert f"A1  {there}:0" in done.stdout  # the journal alone proves this violation
    assert f"the topic {gone} does not exist" in done.stderr
    assert f"{there}:7 does not exist: the topic has 1 partition" in done.stderr
    with KafkaAdminClient(**clients._broker.client_config) as admin:
        assert gone not in admin.list_topics()
    write_journal(
        tmp_path, MemberJournal("a").assigned(f"{gone}:0").poll(f"{gone}:0", 0, 10)
    )
    done = against_topic(clients, tmp_path)
    assert (done.exit_code, "could not tell" in done.stdout) == (2, True)


@pytest.mark.contract("S5")
@pytest.mark.any_broker
@pytest.mark.parametrize(("policy", "status"), [("delete", 2), ("compact", 0)])
def test_offset_gap_is_judged_by_the_topics_cleanup_policy(
    clients, tmp_path, policy, status
):
    """With ``--against-topic`` the loss is proved by the topic, which has the records."""
    topic = filled(clients, 1, 30)
    resource = ConfigResource(
        ConfigResourceType.TOPIC, topic, {"cleanup.policy": policy}
    )
    with KafkaAdminClient(**clients._broker.client_config) as admin:
        admin.alter_configs([resource])
    member = MemberJournal("a").assigned(f"{topic}:0").poll(f"{topic}:0", 0, 20)
    write_journal(tmp_path, member.poll(f"{topic}:0", 20, 30, first=27, count=3))
    where = ["--bootstrap", clients._broker.bootstrap]
    done = CliRunner().invoke(safeconsumer, ["audit", str(tmp_path), *where])
    assert (done.exit_code, "had no record" in done.stdout) == (status, True)
    done = against_topic(clients, tmp_path)
    assert (done.exit_code, "offsets 20 to 26" in done.stdout) == (1, True)
