"""Tests the metrics of a worker, of a member that obeys holds, and of the console."""

import time

import pytest

from safeconsumer import Retry, Worker
from safeconsumer.console import figures as module
from safeconsumer.worker.settings import Limits
from tests.harness.console.harness import (
    console,
    console_of,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.console.synthetic import Limited, big
from tests.harness.group.team import Team, settled
from tests.harness.members import Polled
from tests.harness.metrics.scraping import (
    console_text,
    console_values,
    needs_promtool,
    promtool,
    text_of,
    values,
)
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for


@pytest.mark.any_broker
def test_metrics_of_a_worker_include_those_of_its_consumer(lab, recording):
    """The test reads the metrics while the worker runs and after it has stopped."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "", ""]})
    running = lab.run(recording)
    running.wait_done(3)
    now = time.time()
    wait_for(
        lambda: values(running.worker)["worker_last_poll_timestamp_seconds"] > now,
        "another poll",
    )
    found = values(running.worker)
    assert found["consumer_assigned_partitions"] == 1
    assert found["rebalances_total"] >= 1
    assert found["worker_done_total"] == 3
    assert found['worker_handler_seconds_bucket{le="+Inf"}'] == 3
    assert found["worker_handler_seconds_count"] == 3
    assert found["worker_handler_seconds_sum"] > 0
    assert found['worker_pause_seconds_total{owner="worker:drain"}'] >= 0
    assert found['worker_alarms_total{event="handler_stalled"}'] == 0
    running.end()
    after = values(running.worker)
    assert after["worker_done_total"] == 3
    assert "worker_last_poll_timestamp_seconds" not in after
    assert after["consumer_assigned_partitions"] == 0


@pytest.mark.any_broker
def test_failed_worker_keeps_the_time_of_its_last_poll(lab):
    """The worker failed without being stopped, so the alert WorkerNotPolling must fire."""

    def fails(*_):
        raise ValueError

    lab.new_topic(partitions=1)
    lab.produce({0: [""]})
    running = lab.run(fails, retry=Retry(attempts=1))
    wait_for(lambda: running.worker.stats().state == "closed", "its end")
    found = values(running.worker)["worker_last_poll_timestamp_seconds"]
    assert found <= time.time()


@pytest.mark.any_broker
def test_metrics_of_a_member_describe_its_reading_of_control_topics(kafka_broker):
    with Team(kafka_broker) as team:
        member = team.ready()
        team.write_raw(team.settings.holds_topic, b"garbage", b"garbage")
        team.operator_holds(team.topic)
        poll_until(member, team.is_quiet(member))
        wait_for(
            lambda: (
                member.poll(10) == {}
                and values(member)["control_skipped_records_total"] == 1
            ),
            "the garbage",
        )
        found = values(member)
        assert (found["control_ready"], found["control_gated_partitions"]) == (1, 0)
        assert found['holds{kind="operator"}'] == 1
        assert found['hold_changes_total{change="placed",kind="operator"}'] == 1
        assert found["control_resets_total"] == 0
        assert len(values(member)) < 100
        member.close(autocommit=False)
        closed = values(member)
        assert "control_ready" not in closed
        assert closed["control_skipped_records_total"] == 1


@needs_promtool
def test_promtool_accepts_the_metrics_of_members_and_workers(safe):
    consumer = safe(client_id="works", group_id="g", enable_auto_commit=False)
    worker = Worker(consumer, print, limits=Limits(records=1000))
    other = safe(client_id="other", group_id="h")
    other.pause_all()
    output = promtool("check", "metrics", given=text_of(worker, other))
    assert not output.strip()


# ---------------------------------------------------------------- a console


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let a scrape wait longer for the first response on a slow machine."""
    monkeypatch.setattr(module, "_FIRST_ANSWER_SECONDS", 30.0)


@pytest.mark.any_broker
def test_metrics_of_a_console_show_that_a_group_becomes_quiet(kafka_broker):
    """The metrics of members, partitions and holds agree with the console's pages."""
    with Team(kafka_broker) as team, console(team) as served:
        until_complete(served)
        members = settled(team, "billing-1", "billing-2")
        with Polled(*members):
            until_settled(served, team.group, members=2, reporting=2)
            flowing = {}

            def is_flowing():
                flowing.clear()
                flowing.update(console_values(console_text(served)))
                both = flowing.get("group_members obeys") == 2
                return both and flowing.get("group_partitions flowing") == 4

            wait_for(is_flowing, "both to read")
            answer = served.pause(
                group=team.group, scopes=team.topic, reason="r", **{"for": "1h"}
            )
            assert answer.is_success, answer.text
            until_level(served, team.group, "quiet")
            quiet = console_values(console_text(served))
    assert flowing["group_partitions flowing"] == 4
    assert flowing["group_holds"] == 0
    assert "group_next_expiry_timestamp_seconds" not in flowing
    assert quiet["group_partitions quiet"] == 4
    assert quiet["group_partitions held_flowing"] == 0
    assert quiet["group_members obeys"] == 2
    assert quiet["group_members silent"] == 0
    assert quiet["group_holds"] == 1
    assert quiet["group_unlimited_holds"] == 0
    assert quiet[f"group_topic_held {team.topic}"] == 1
    assert f"group_held_lag_records {team.topic}" not in quiet  # no commits
    assert quiet["console_snapshot_age_seconds"] < 10
    left = quiet["group_next_expiry_timestamp_seconds"]
    assert left > 1_700_000_000


@needs_promtool
def test_promtool_accepts_the_metrics_of_a_console():
    given = console_text(console_of(big(), Limited))
    assert not promtool("check", "metrics", given=given).strip()
