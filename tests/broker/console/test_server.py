"""Tests the console with a real group: its pages, calls, outages, ages and exit."""

import json
import re
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer.console import changes
from safeconsumer.group import follower
from tests.harness.console.harness import (
    row_of,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.group.team import run, settled, where
from tests.harness.members import Polled
from tests.harness.processes import begun
from tests.harness.program import TAKES_CTRL_C, command
from tests.harness.waiting import output_of, repeat_until, result_of, wait_for

pytestmark = pytest.mark.embedded_suffices
CONSOLE, COMMANDS = "safeconsumer-console", "safeconsumer-cli"  # client ids


@pytest.mark.any_broker
def test_console_pauses_a_group_shows_it_quiet_and_resumes_it(team, served):
    members = settled(team, "a", "b")
    group, scopes = team.group, [f"{team.topic}:{number}" for number in (0, 1)]
    with Polled(*members):
        until_settled(served, group, members=2, reporting=2)
        fields = {"group": group, "scopes": " ".join(scopes), "reason": "db"}
        done = served.post("/place", **fields, **{"for": "1h"})
        assert done.status_code == 200
        assert (len(done.json()["held"]), done.json()["covers"]) == (2, scopes)
        until_level(served, group, "quiet")
        verdict = row_of(served, group)
        assert (verdict["quiet"], verdict["held"]) == (2, 2)
        held = served.get("/group", group=group)["holds"]
        assert [one["reason"] for one in held] == ["db", "db"]
        page = served.page("/group", group=group)
        assert '<span class="pill quiet">quiet</span>' in page
        assert "held by alice until" in page
        for scope in scopes:
            assert served.post("/lift", group=group, scope=scope).status_code == 200
        until_level(served, group, "flows")


@pytest.mark.embedded_broker
def test_waiting_preview_does_not_delay_other_calls_to_the_console(team, served):
    members = settled(team, "a")
    fields = {"group": team.group, "scopes": team.topic, "reason": "x"}
    with Polled(*members), ThreadPoolExecutor(1) as pool:
        until_settled(served, team.group, members=1, reporting=1)
        team.broker.clear_requests()
        with team.broker.hold("DescribeConfigs", COMMANDS) as hold:
            preview = pool.submit(served.page, "/place", **fields)
            hold.wait()
            assert served.get("/")["groups"]
            assert not preview.done()
        week = f"{team.topic} deletes records after 1w"
        assert week in result_of(preview)
        assert week in served.page("/place", **fields)
        every = team.broker.requests("DescribeConfigs")
        # The console reuses the broker's response for a minute, because an open page
        # repeats its request after every change.
        assert [one.client_id for one in every].count(COMMANDS) == 1


@pytest.mark.embedded_broker
@pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "POLICY_VIOLATION"])
def test_refused_write_has_status_403_and_does_not_count_as_an_outage(
    team, served, error
):
    team.broker.fail("Produce", error)
    fields = {"group": team.group, "scopes": "@all", "reason": "x"}
    refused = served.pause(**fields)
    assert refused.status_code == 403
    assert "acknowledged: nothing" in refused.json()["title"]
    assert served.pause(**fields).status_code == 200


def test_dry_run_of_pause_equals_the_preview_of_the_console(team, served):
    members = settled(team, "a", plain=("plain",))
    for one in members:
        one.commit({tp: OffsetAndMetadata(1, "", -1) for tp in one.assignment()})
    scopes = f"{team.topic}:0-2"
    fields = {"group": team.group, "scopes": scopes, "reason": "x"}
    with Polled(*members):
        until_settled(served, team.group, members=2, reporting=1)
        team.operator_holds(f"{team.topic}:0", owner="alice")
        team.operator_holds(f"{team.topic}:1", owner="bob")
        wait_for(lambda: row_of(served, team.group)["hold_count"] == 2, "the holds")

        def is_complete():
            plan = served.get("/place", **fields)
            points = [one["sentence"] for one in plan["points"]]
            disobeying = [one for one in points if "would not obey" in one]
            return plan["waiting"] == 12 and len(disobeying) == 1

        wait_for(is_complete, "the lag and the member that would not obey")
        dry = run(
            team, "pause", scopes, "--group", team.group, "--reason", "x",
            "--owner", "alice", "--replace", "--dry-run", "-o", "json",
        )  # fmt: skip
        preview = {"dry_run": True, **served.get("/place", **fields)}
        assert preview.pop("known")
        assert preview.pop("agreement") == served.plan(**fields)["agreement"]
        assert json.loads(dry.stdout) == preview


@pytest.mark.embedded_broker
def test_console_keeps_its_snapshot_and_refuses_writes_during_an_outage(team, served):
    team.operator_holds(team.topic)
    wait_for(lambda: row_of(served, team.group).get("hold_count"), "the hold")
    fields = {"group": team.group, "scopes": "@all", "reason": "x"}
    team.broker.down()
    try:
        wait_for(lambda: served.state.snapshot().trouble is not None, "trouble", 20)
        known = served.get("/group", group=team.group)
        assert known["known"]["trouble"]
        assert len(known["holds"]) == 1
        assert status_of(served, "/ready") == 503
        page = served.page("/")
        assert "The broker does not answer." in page
        assert "Members keep obeying the holds that have not ended" in page
        sentence = "unknown: the present state. The broker does not answer."
        assert sentence in served.page("/place", **fields)
        assert served.pause(**fields).status_code == 503
    finally:
        team.broker.up()
    until_complete(served)
    assert served.page("/ready") == "ready"
    assert served.get("/")["known"]["trouble"] is None
    assert row_of(served, team.group)["hold_count"] == 1


def status_of(served, path):
    with served.client() as client:
        return client.get(path).status_code


@pytest.mark.embedded_broker
def test_console_reads_the_holds_topic_before_it_replaces_a_hold(
    team, served, monkeypatch
):
    """The console's own reader gets no response, so the hold is missing from the snapshot."""
    monkeypatch.setattr(changes, "_SHOWN_WITHIN", 2.0)  # without a response
    member = team.member(control=None)
    member.assign(team.partitions)
    member.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    wait_for(lambda: row_of(served, team.group).get("state") == "Empty", "the group")

    def reasons():
        with served.state.commands.lend() as operator:
            return [str(one.hold.reason) for one in operator.holds() if one.hold]

    fields = {"group": team.group, "scopes": team.topic, "reason": "new", "for": "1s"}
    with team.broker.hold("Fetch", CONSOLE) as silence:
        silence.wait()
        team.operator_holds(team.topic, owner="alice")
        assert row_of(served, team.group)["hold_count"] == 0
        refused = served.post("/place", **fields)
        assert refused.status_code == 409
        assert "Replace what you hold already" in refused.json()["detail"]
        assert reasons() == ["test"]
        lift = {"group": team.group, "scope": team.topic}
        assert served.post("/lift", **lift).status_code == 200
        assert reasons() == []


# ---------------------------------------------------------------- ages


@pytest.fixture
def quiet(team, served):
    """Serve a console that shows a held group whose only member is quiet."""
    members = settled(team, "a")
    team.operator_holds(f"{team.topic}:0")
    with Polled(*members):
        until_settled(served, team.group, members=1, reporting=1)
        until_level(served, team.group, "quiet")
        yield served


@pytest.mark.embedded_broker
def test_quiet_group_becomes_unknown_if_the_broker_stops_responding(
    team, quiet, monkeypatch
):
    monkeypatch.setattr(follower, "OLD_AFTER", 3.0)
    late = team.broker.hold("DescribeGroups", client_id=CONSOLE)
    late.wait()
    until_level(quiet, team.group, "unknown")
    row = row_of(quiet, team.group)
    assert (row["words"], row["quiet"]) == ("unknown", None)
    assert row["sentence"].endswith("ago: 1 of 1 members quiet")
    assert quiet.get("/")["known"]["trouble"]
    assert status_of(quiet, "/ready") == 503
    page = quiet.page("/group", group=team.group)
    rows = re.findall(r'<tr id="p-\w+" class="unknown">.*?</tr>', page, re.DOTALL)
    assert "ago: " in rows[0]
    assert "The cluster has not answered for a while." in page
    assert "pill quiet" not in page
    assert "pill good" not in page
    late.release()
    until_level(quiet, team.group, "quiet")
    wait_for(lambda: status_of(quiet, "/ready") == 200, "its readiness")


@pytest.mark.embedded_broker
def test_snapshot_age_is_measured_from_the_last_complete_read_of_the_holds(team, quiet):
    following = quiet.state.follower
    late = team.broker.hold("Fetch", client_id=CONSOLE)
    late.wait()
    team.operator_holds(f"{team.topic}:1")
    at = time.monotonic()
    wait_for(lambda: (following._asked.at or 0) > at, "a survey")
    with following._lock:
        assert following.snapshot().as_of <= at
    late.release()
    wait_for(lambda: following.snapshot().as_of > at, "the hold to be read")
    assert row_of(quiet, team.group)["held"] == 2


# ---------------------------------------------------------------- its end


@pytest.mark.embedded_broker
def test_ctrl_c_stops_the_console_while_clients_wait(team, tmp_path):
    """One client waits for the broker; another has sent only a part of its request body."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    token = tmp_path / "token"
    token.write_text("t" * 20)
    token.chmod(0o600)
    settings = ("--port", "0", "--token-file", str(token), *where(team))
    program = command("console", *settings, first=TAKES_CTRL_C)
    fields = {"group": team.group, "scopes": "@all", "reason": "x"}
    headers = {"Authorization": f"Bearer {'t' * 20}"}
    with (
        httpx2.Client(timeout=30, headers=headers) as client,
        ThreadPoolExecutor(1) as pool,
        begun(program, **pipes) as process,
    ):
        url = httpx2.URL(process.stdout.readline().split()[-1]).join("/place")
        for _ in repeat_until(
            lambda: "preview" in client.post(url, json=fields).json(), "a preview"
        ):
            time.sleep(0.1)
        preview = client.post(url, json=fields).json()["preview"]
        late = team.broker.hold("Metadata", client_id=COMMANDS)
        agreed = {**fields, "agreed": preview["agreement"]}
        waits = pool.submit(client.post, url, json=agreed)
        late.wait()
        with socket.create_connection((url.host, url.port)) as stalled:
            head = [
                "POST /place HTTP/1.1",
                f"Host: {url.host}:{url.port}",
                f"Authorization: {headers['Authorization']}",
                "Content-Type: application/json",
                "Content-Length: 100",
            ]
            stalled.sendall("\r\n".join([*head, "", "{"]).encode())
            client.get(url.join("/live"))
            process.send_signal(signal.SIGINT)
            output, errors = output_of(process)
            answer = stalled.recv(100)
        assert result_of(waits).status_code == 503
        late.release()
    assert (output.splitlines()[-1], errors) == ("The console is closed.", "")
    assert (process.returncode, answer[:12]) == (0, b"HTTP/1.1 503")
