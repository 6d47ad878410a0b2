"""The figures of a worker and of a member that obeys control topics, on a broker."""

import time

import pytest

from safeconsumer import ALL, Retry, Worker
from safeconsumer.worker.settings import Limits
from tests.harness.group.team import Team
from tests.harness.metrics.scraping import needs_promtool, promtool, text_of, values
from tests.harness.polling import poll_until
from tests.harness.waiting import wait_for


@pytest.mark.any_broker
def test_a_worker_brings_its_consumer(lab, recording):
    """Both have their figures, before it runs, while it does, and after its end."""
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
def test_a_worker_that_died_goes_on_being_one_that_does_not_poll(lab):
    """It was not asked to end: WorkerNotPolling has what it fires for."""

    def fails(*_):
        raise ValueError

    lab.new_topic(partitions=1)
    lab.produce({0: [""]})
    running = lab.run(fails, retry=Retry(attempts=1))
    wait_for(lambda: running.worker.stats().state == "closed", "its end")
    found = values(running.worker)["worker_last_poll_timestamp_seconds"]
    assert found <= time.time()


@pytest.mark.any_broker
def test_what_a_member_knows_of_the_control_topics(kafka_broker):
    """Read, gated, skipped; holds by their source; and no word once it is closed."""
    with Team(kafka_broker) as team:
        member = team.subscribed()
        team.settled(member)
        team.write_raw(team.settings.operator_topic, b"garbage", b"garbage")
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
        member.pause_group(ALL)
        assert values(member)['holds{kind="group"}'] == 1
        assert len(values(member)) < 100
        member.close(autocommit=False)
        closed = values(member)
        assert "control_ready" not in closed
        assert closed["control_skipped_records_total"] == 1


@needs_promtool
def test_promtool_finds_nothing(safe):
    """Two consumers and a worker in one registry: names, units, help, types."""
    consumer = safe(client_id="works", group_id="g", enable_auto_commit=False)
    worker = Worker(consumer, print, limits=Limits(records=1000))
    other = safe(client_id="other", group_id="h")
    other.pause_all()
    said = promtool("check", "metrics", given=text_of(worker, other))
    assert not said.strip()
