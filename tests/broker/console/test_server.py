"""What the console's pages and calls answer of a real group, and how old that may be."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer.console import changing
from safeconsumer.group import follower
from tests.harness.console.harness import (
    row_of,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.group.team import run, settled
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices


@pytest.mark.any_broker
def test_pause_to_quiet_to_resume(team, served):
    """An operator's way, by REST: pause, look until it is quiet, resume."""
    members = settled(team, "a", "b")
    group = team.group
    with Polled(*members):
        until_settled(served, group, members=2, reporting=2)
        wish = {"group": group, "scopes": f"{team.topic}:0 {team.topic}:1"}
        done = served.post("/place", **wish, reason="db", **{"for": "1h"})
        assert done.status_code == 200
        assert len(done.json()["held"]) == 2
        assert done.json()["covers"] == [f"{team.topic}:0", f"{team.topic}:1"]
        until_level(served, group, "quiet")
        verdict = row_of(served, group)
        assert (verdict["quiet"], verdict["held"]) == (2, 2)
        held = served.get("/group", group=group)["holds"]
        assert [one["reason"] for one in held] == ["db", "db"]
        with served.client() as client:
            page = client.get("/group", params={"group": group}).text
        assert '<span class="pill quiet">quiet</span>' in page
        assert "held by alice until" in page
        for number in (0, 1):
            ended = served.post("/lift", group=group, scope=f"{team.topic}:{number}")
            assert ended.status_code == 200
        until_level(served, group, "flows")


@pytest.mark.embedded_broker
def test_a_preview_that_waits_for_the_broker_holds_nobody_up(team, served):
    """The cluster is asked on a thread: other calls are answered meanwhile."""
    members = settled(team, "a")

    def previewed():
        with served.client() as client:
            return client.get("/place", params=wish).text

    with Polled(*members), ThreadPoolExecutor(1) as pool:
        until_settled(served, team.group, members=1, reporting=1)
        wish = {"group": team.group, "scopes": team.topic, "reason": "x"}
        team.broker.clear_requests()
        with team.broker.hold("DescribeConfigs", "safeconsumer-cli") as hold:
            asked = pool.submit(previewed)
            hold.wait()
            assert served.get("/")["groups"]
            assert not asked.done()
        week = f"{team.topic} deletes records after 1w"
        assert week in asked.result(20)
        assert week in previewed()
        every = team.broker.requests("DescribeConfigs")
        # An answer stands for a minute: an open page looks again with every change.
        assert len([one for one in every if one.client_id == "safeconsumer-cli"]) == 1


@pytest.mark.embedded_broker
@pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "POLICY_VIOLATION"])
def test_a_refused_write_is_no_outage(team, served, error):
    team.broker.fail("Produce", error)
    wish = {"group": team.group, "scopes": "@all", "reason": "x"}
    refused = served.pause(**wish)
    assert refused.status_code == 403
    assert "acknowledged: nothing" in refused.json()["title"]
    assert served.pause(**wish).status_code == 200


def test_a_dry_run_and_a_preview_are_one_document(team, served):
    members = settled(team, "a", plain=("plain",))
    for one in members:
        one.commit({tp: OffsetAndMetadata(1, "", -1) for tp in one.assignment()})
    with Polled(*members):
        until_settled(served, team.group, members=2, reporting=1)
        team.operator_holds(f"{team.topic}:0", owner="alice")
        team.operator_holds(f"{team.topic}:1", owner="bob")
        wait_for(lambda: row_of(served, team.group)["hold_count"] == 2, "the holds")
        wish = {"group": team.group, "scopes": f"{team.topic}:0-2", "reason": "x"}

        def is_known():
            told = served.get("/place", **wish)
            said = [one["sentence"] for one in told["points"]]
            disobeying = [one for one in said if "would not obey" in one]
            return told["waiting"] == 12 and len(disobeying) == 1

        wait_for(is_known, "what waits")
        dry = run(
            team, "pause", f"{team.topic}:0-2", "--group", team.group,
            "--reason", "x", "--owner", "alice", "--replace", "--dry-run", "-o", "json",
        )  # fmt: skip
        told = {"dry_run": True, **served.get("/place", **wish)}
        assert told.pop("known")
        assert told.pop("agreement") == served.plan(**wish)["agreement"]
        assert json.loads(dry.stdout) == told


@pytest.mark.embedded_broker
def test_the_broker_away_and_back(team, served):
    """The last snapshot stays, with its age; writes are refused; then all is well."""
    team.operator_holds(team.topic)
    wait_for(lambda: row_of(served, team.group).get("hold_count"), "the hold")
    team.broker.down()
    try:
        wait_for(lambda: served.state.snapshot().trouble is not None, "trouble", 20)
        known = served.get("/group", group=team.group)
        assert known["known"]["trouble"]
        assert len(known["holds"]) == 1
        with served.client() as client:
            assert client.get("/ready").status_code == 503
            page = client.get("/").text
            wish = {"group": team.group, "scopes": "@all", "reason": "x"}
            preview = client.get("/place", params=wish).text
        assert "The broker does not answer." in page
        assert "Members keep obeying the holds that have not ended" in page
        said = "unknown: what has changed meanwhile. The broker does not answer."
        assert said in preview
        assert served.pause(**wish).status_code == 503
    finally:
        team.broker.up()
    until_complete(served)
    assert asked(served, "/ready").text == "ready"
    assert served.get("/")["known"]["trouble"] is None
    assert row_of(served, team.group)["hold_count"] == 1


# ---------------------------------------------------------------- what stands


@pytest.fixture
def committed(team, served):
    """Serve a console that knows the team's group, which has committed and is empty."""
    member = team.member(control=None)
    member.assign(team.partitions)
    member.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    wait_for(lambda: row_of(served, team.group).get("state") == "Empty", "the group")
    return served


def reasons(served):
    """Return why what stands is held, as the topic has it."""
    with served.state.commands.lend() as operator:
        return [str(one.hold.reason) for one in operator.holds() if one.hold]


@pytest.mark.embedded_broker
def test_what_stands_is_read_before_it_is_replaced(team, committed, monkeypatch):
    """The console's own reader hears nothing, and does not know it yet."""
    monkeypatch.setattr(changing, "_SEEN_WITHIN", 2.0)  # it waits for it in vain
    wish = {"group": team.group, "scopes": team.topic, "reason": "a look", "for": "1s"}
    with team.broker.hold("Fetch", "safeconsumer-console") as silence:
        silence.wait()
        team.operator_holds(team.topic, owner="alice")
        assert row_of(committed, team.group)["hold_count"] == 0
        refused = committed.post("/place", **wish)
        assert refused.status_code == 409
        assert "Replace what you hold already" in refused.json()["detail"]
        assert reasons(committed) == ["test"]
        wanted = {"group": team.group, "scope": team.topic}
        assert committed.post("/lift", **wanted).status_code == 200
        assert reasons(committed) == []


# ---------------------------------------------------------------- ages

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


@pytest.mark.embedded_broker
def test_what_is_old_is_unknown(team, quiet, monkeypatch):
    """The cluster's answer hangs, and nothing is raised: green it is not for long."""
    monkeypatch.setattr(follower, "OLD_AFTER", 3.0)
    late = team.broker.hold("DescribeGroups", client_id=CONSOLE)
    late.wait()
    until_level(quiet, team.group, "unknown")
    row = row_of(quiet, team.group)
    assert (row["words"], row["quiet"]) == ("unknown", None)
    assert row["sentence"].endswith("ago: 1 of 1 members quiet")
    assert quiet.get("/")["known"]["trouble"]
    assert asked(quiet, "/ready").status_code == 503
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
    wait_for(lambda: asked(quiet, "/ready").status_code == 200, "its readiness")


@pytest.mark.embedded_broker
def test_an_age_is_of_what_was_read_to_its_end(team, quiet):
    """The console's reader is slow: a hold that was acknowledged makes what it has old."""
    following = quiet.state.follower
    late = team.broker.hold("Fetch", client_id=CONSOLE)
    late.wait()
    team.operator_holds(f"{team.topic}:1")
    at = time.monotonic()
    wait_for(lambda: (following._asked.at or 0) > at, "a survey")
    with following._lock:
        assert following.snapshot().as_of <= at
    late.release()
    wait_for(lambda: following.snapshot().as_of > at, "what it had not read")
    assert row_of(quiet, team.group)["held"] == 2
