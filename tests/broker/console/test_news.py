"""How old what the console says may be, and who waits for the cluster."""

import re
import time

import pytest

from safeconsumer.group import follower
from tests.harness.console.harness import (
    row_of,
    until_level,
    until_settled,
)
from tests.harness.group.settled import settled
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_broker

CONSOLE = "safeconsumer-console"


def asked(served, path, **query):
    with served.client() as client:
        return client.get(path, params=query)


@pytest.fixture
def quiet(team, served):
    """Make a group of one member that is held and quiet."""
    members = settled(team, "a")
    team.operator_holds(f"{team.topic}:0")
    with Polled(*members):
        until_settled(served, team.group, members=1, reporting=1)
        until_level(served, team.group, "quiet")
        yield served


# ---------------------------------------------------------------- ages


def test_what_is_old_is_unknown(team, quiet, monkeypatch):
    """The cluster's answer hangs, and nothing is raised: green it is not for long."""
    monkeypatch.setattr(follower, "OLD_AFTER", 3.0)
    late = team.broker.hold("DescribeGroups", client_id=CONSOLE)
    late.wait()
    until_level(quiet, team.group, "unknown")
    row = row_of(quiet, team.group)
    assert (row["words"], row["quiet"]) == ("unknown", None)
    assert row["sentence"].endswith("ago: 1 of 1 members quiet")
    assert quiet.get("groups")["known"]["trouble"]
    assert asked(quiet, "/api/v1/ready").status_code == 503
    page = asked(quiet, "/group", group=team.group).text
    (part,) = re.findall(r'<tr id="p-\w+" class="unknown">.*?</tr>', page, re.DOTALL)[
        :1
    ]
    assert "ago: " in part
    assert "The cluster has not answered for a while." in page
    assert "pill quiet" not in page
    assert "pill good" not in page
    late.release()
    until_level(quiet, team.group, "quiet")
    assert asked(quiet, "/api/v1/ready").status_code == 200


def test_an_age_is_of_what_was_read_to_its_end(team, quiet):
    """The console's reader is slow: a hold that was acknowledged makes what it has old."""
    following = quiet.state.follower
    late = team.broker.hold("Fetch", client_id=CONSOLE)
    late.wait()
    team.operator_holds(f"{team.topic}:1")
    at = time.monotonic()
    wait_for(lambda: (following._asked.at or 0) > at, "a survey")
    with following._lock:
        assert following.snapshot().heard_at <= at
    late.release()
    wait_for(lambda: following.snapshot().heard_at > at, "what it had not read")
    assert row_of(quiet, team.group)["held"] == 2
