"""Tests Perfetto traces of real consumers, and how history and audit read the holds."""

import time
from uuid import uuid4

import pytest
from click.testing import CliRunner

from safeconsumer import Worker
from safeconsumer.audit.control import from_history
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.control_topics import read_control
from tests.harness.group.team import Team, run
from tests.harness.polling import poll_until
from tests.harness.worker.lab import Running


@pytest.mark.any_broker
def test_trace_shows_members_a_group_hold_and_a_worker(kafka_broker, tmp_path):
    folder, out = tmp_path / "journals", tmp_path / "out.json"
    with Team(kafka_broker) as team:
        member = team.subscribed("billing", journal=folder)
        got = team.settled(member)
        team.operator_holds(team.topic)
        poll_until(member, team.is_quiet(member), got=got)
        team.produce(3)
        member.pause(team.partitions[0], owner="breaker", for_=0.01)
        team.operator_lifts(team.topic)
        poll_until(member, lambda: sum(map(len, got.values())) == 32, got=got)
        member.close(autocommit=False)
        group = f"workers-{uuid4().hex[:8]}"
        consumer = team.subscribed(
            "worker", group_id=group, control=None, journal=folder
        )
        running = Running(Worker(consumer, lambda *_: None))
        running.wait_done(len(team.partitions) * 8)
        running.end()
        history = run(team, "history", "--group", team.group, "-o", "json")
    file = tmp_path / "history.json"
    file.write_text(history.stdout)
    asked = ["audit", str(folder), "--perfetto", str(out), "--history", str(file)]
    done = CliRunner().invoke(safeconsumer, asked)
    assert done.exit_code == 0, done.output
    assert "clean: 2 journals, 8 partitions" in done.stdout
    traced = out.read_text("utf-8")
    for text in (f"{team.topic} by operator:alice", "owner billing", "owner worker"):
        assert text in traced
    for one in (group, team.group):
        assert f'"group {one}"' in traced


@pytest.mark.any_broker
def test_history_and_audit_skip_an_unreadable_record(kafka_broker):
    """An unreadable record does not make the history of holds incomplete."""
    with Team(kafka_broker) as team:
        team.operator_holds(team.topic)
        junk = {"key": b"junk", "value": b"junk"}
        team.producer.send(team.settings.holds_topic, **junk).get(timeout=20)
        began = time.time()
        printed = from_history("history", run(team, "history", "-o", "json").stdout)
        live = read_control(kafka_broker.client_config, team.settings.holds_topic)
    assert printed.since == live.since == 0.0
    assert printed.spans == live.spans
    assert printed.until is not None
    assert began - 5 <= printed.until <= time.time() + 5
