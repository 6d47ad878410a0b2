"""What the console says of groups to Prometheus."""

import pytest

from safeconsumer.console import figures as module
from tests.harness.console.harness import (
    console,
    console_of,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.console.synthetic import Limited, big
from tests.harness.group.settled import settled
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.metrics.scraping import (
    console_text,
    console_values,
    needs_promtool,
    promtool,
)
from tests.harness.waiting import wait_for


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let a scrape wait for the first answer, however slow the machine is."""
    monkeypatch.setattr(module, "_MOMENT", 30.0)


@pytest.mark.any_broker
def test_from_flowing_to_quiet(kafka_broker):
    """Members, partitions, holds and what waits: as the pages say it."""
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
    assert flowing["group_holds operator"] == 0
    assert "group_next_expiry_timestamp_seconds" not in flowing
    assert quiet["group_partitions quiet"] == 4
    assert quiet["group_partitions held_flowing"] == 0
    assert quiet["group_members obeys"] == 2
    assert quiet["group_members silent"] == 0
    assert quiet["group_holds operator"] == 1
    assert quiet["group_unlimited_holds operator"] == 0
    assert quiet[f"group_topic_held {team.topic}"] == 1
    assert f"group_held_lag_records {team.topic}" not in quiet  # nobody committed
    assert quiet["console_snapshot_age_seconds"] < 10
    left = quiet["group_next_expiry_timestamp_seconds"]
    assert left > 1_700_000_000


@needs_promtool
def test_promtool_finds_nothing_in_it():
    """Names, help and types; with many groups."""
    given = console_text(console_of(big(), Limited))
    assert not promtool("check", "metrics", given=given).strip()
