"""Who may talk to the console, and what its pages and calls answer."""

import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer.audit.journal import read
from safeconsumer.audit.shared import SharedJournal
from safeconsumer.console.serve import Setup
from safeconsumer.group import wire
from safeconsumer.group.operator import Operator
from safeconsumer.group.report_wire import (
    STREAM,
    Report,
    encode_report,
    encode_report_key,
)
from safeconsumer.group.settings import Control
from safeconsumer.group.wire import ControlHold
from tests.harness.console.harness import (
    TOKEN,
    Served,
    console,
    row_of,
    serving,
    settled,
    until_complete,
    until_level,
    until_settled,
)
from tests.harness.group.operating import run
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices


@pytest.fixture(scope="module")
def shared(kafka_broker: Any) -> Iterator[Served]:  # noqa: ANN401 - any kind
    """Serve one console for all tests that change nothing."""
    with Team(kafka_broker) as team, console(team) as made:
        until_complete(made)
        yield made


# ---------------------------------------------------------------- who may


@pytest.mark.parametrize(
    "path", ["/", "/group?group=g", "/metrics", "/api/v1/groups", "/nowhere"]
)
def test_nobody_comes_in_without_the_token(shared: Served, path: str) -> None:
    with shared.stranger() as stranger:
        answer = stranger.get(path)
    assert answer.status_code == 401
    assert "safeconsumer console printed" in answer.text
    is_problem = answer.headers["content-type"] == "application/problem+json"
    assert is_problem == path.startswith("/api/")


def test_the_link_works_once(served: Served) -> None:
    """Whoever finds it in a terminal later does not come in."""
    with served.stranger() as first:
        assert first.get(served.link).status_code == 200
        assert first.get("/").status_code == 200
        cookie = first.cookies.jar
        (session,) = cookie
        assert session.has_nonstandard_attr("HttpOnly")
        assert session.get_nonstandard_attr("SameSite") == "strict"
    with served.stranger() as second:
        assert second.get(served.link).status_code == 401
        assert second.get("/").status_code == 401
        assert second.get("/login?token=").status_code == 401


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("HEAD", {}, 200),
        ("GET", {"sec-purpose": "prefetch;prerender"}, 503),
        ("GET", {"purpose": "prefetch"}, 503),
        ("GET", {"x-purpose": "preview"}, 503),
    ],
)
def test_only_a_click_uses_the_link_up(
    served: Served, method: str, headers: dict[str, str], status: int
) -> None:
    """Not a program that looks whether the link is good, nor a browser that guesses."""
    with served.stranger() as looking:
        answer = looking.request(method, served.link, headers=headers)
        assert (answer.status_code, len(looking.cookies)) == (status, 0)
    with served.stranger() as person:
        person.get(served.link)
        assert person.get("/").status_code == 200


def test_a_wrong_method_is_told_what_there_is(shared: Served) -> None:
    """It was told that the console is read only."""
    with shared.client() as client:
        for method, path, allowed in (
            ("POST", "/api/v1/groups", "GET, HEAD"),
            ("GET", "/api/v1/pause", "POST"),
            ("POST", "/history", "GET, HEAD"),
        ):
            answer = client.request(method, path)
            assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
            assert f"it accepts {allowed}" in answer.text
            assert "read-only" not in answer.text


def test_a_token_file_works_for_several(shared: Served) -> None:
    for _ in range(2):
        with shared.stranger() as browser:
            browser.get(shared.lasting_link)
            assert browser.get("/").status_code == 200
    with shared.stranger(authorization=f"Bearer {TOKEN}x") as wrong:
        assert wrong.get("/api/v1/groups").status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", ""]
)
def test_another_host_name_is_not_answered(shared: Served, host: str) -> None:
    """A page of others that renames itself to our address gets nothing (rebinding)."""
    with shared.client(host=host.format(port=shared.port)) as client:
        answer = client.get("/")
    assert answer.status_code == 400
    assert f"through a tunnel with the same port: ssh -L {shared.port}:" in answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"},
    ],
)
def test_a_page_of_others_changes_nothing(
    shared: Served, headers: dict[str, str]
) -> None:
    """The browser brings the cookie along, and says where the request is from."""
    with shared.stranger() as browser:
        browser.get(shared.lasting_link)
        for path in ("/place", "/lift", "/api/v1/pause", "/api/v1/resume"):
            assert browser.post(path, headers=headers).status_code == 403


def test_a_form_carries_a_token(shared: Served) -> None:
    with shared.stranger() as browser:
        browser.get(shared.lasting_link)
        own = {"sec-fetch-site": "same-origin", "origin": shared.url}
        assert browser.post("/place", headers=own, data={}).status_code == 403
        forged = browser.post("/place", headers=own, data={"form": "x"})
        assert forged.status_code == 403


def test_the_api_takes_json_only(shared: Served) -> None:
    """A form of others cannot send it without asking the browser first."""
    with shared.client() as client:
        answer = client.post("/api/v1/pause", data={"group": "g"})
    assert answer.status_code == 415


@pytest.mark.parametrize("path", ["/", "/static/console.css", "/nowhere", "/live"])
def test_every_answer_tells_the_browser_what_is_allowed(
    shared: Served, path: str
) -> None:
    with shared.client() as client:
        headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; ")
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    is_asset = path.startswith("/static/")
    assert ("no-store" in headers["cache-control"]) != is_asset


def test_read_only_has_no_way_to_write(team: Team) -> None:
    """Not even a route, and no producer."""
    with console(team, is_read_only=True) as served, served.client() as client:
        until_complete(served)
        for path in ("/place", "/lift"):
            assert client.get(path).status_code == 404
            assert client.post(path, data={}).status_code == 404
        for path in ("pause", "resume"):
            answer = client.post(f"/api/v1/{path}", json={})
            assert answer.status_code == 404
            assert "--read-only changes nothing" in answer.json()["detail"]
        assert "read-only" not in client.get("/nowhere").text
        page = client.get("/").text
        assert "read only" in page
        assert "Hold something" not in page


# ---------------------------------------------------------------- what is said


@pytest.mark.any_broker
def test_pause_to_quiet_to_resume(team: Team, served: Served) -> None:
    """An operator's way, by REST: pause, look until it is quiet, resume."""
    members = settled(team, "a", "b")
    group = team.group
    with Polled(*members):
        until_settled(served, group, members=2, reporting=2)
        wish = {"group": group, "scopes": f"{team.topic}:0 {team.topic}:1"}
        done = served.post("pause", **wish, reason="db", **{"for": "1h"})
        assert done.status_code == 200
        assert len(done.json()["acknowledged"]) == 2
        covers = done.json()["preview"]["covers"]
        assert covers == [f"{team.topic}:0", f"{team.topic}:1"]
        until_level(served, group, "quiet")
        verdict = row_of(served, group)
        assert (verdict["quiet"], verdict["held"]) == (2, 2)
        held = served.get("holds", group=group)["holds"]
        assert [one["reason"] for one in held] == ["db", "db"]
        with served.client() as client:
            query = {"group": group, "partition": f"{team.topic}:0"}
            page = client.get("/partition", params=query).text
        assert '<span class="pill quiet">quiet</span>' in page
        assert "yes: this is the answer" in page
        for number in (0, 1):
            ended = served.post("resume", group=group, scope=f"{team.topic}:{number}")
            assert ended.status_code == 200
        until_level(served, group, "flows")


def test_what_is_held_here_is_written_down(team: Team, tmp_path: Path) -> None:
    """For audits; a journal that cannot be written keeps anything from being held."""
    path = tmp_path / "ops.journal"
    members = settled(team, "a")
    with console(team, journal=SharedJournal(path)) as served, Polled(*members):
        until_settled(served, team.group, members=1, reporting=1)
        wish = {"group": team.group, "scopes": f"{team.topic}:0", "reason": "db"}
        assert served.pause(**wish).status_code == 200
        ended = served.post("resume", group=team.group, scope=f"{team.topic}:0")
        assert ended.status_code == 200
        said = [one.event for one in read(path).entries]
        assert said == ["group-asked", "group-hold", "group-lift", "group-lifted"]
        path.write_text("something else")
        refused = served.pause(**wish)
        assert (refused.status_code, refused.json()["title"]) == (
            *(500, "Nothing was written."),
        )
        assert served.get("holds")["holds"] == []


@pytest.mark.embedded_broker
def test_history_is_in_the_topics_order(team: Team, served: Served) -> None:
    """As the command prints it: a broker's clock may go back, or not move at all."""
    now_ms = 1_700_000_000_000
    past = [(now_ms, "1"), (now_ms - 60_000, "2"), (now_ms - 60_000, "3")]
    for at_ms, reason in past:
        team.write_at(at_ms, ControlHold(reason, reason, None))
    wait_for(lambda: len(served.state.snapshot().records) == len(past), "the records")
    with Operator(team.broker.client_config, team.settings) as operator:
        told = [one.hold.reason for one in operator.records() if one.hold]
    with served.client() as client:
        page = client.get("/history").text
    shown = re.findall(r'<td class="long">(\d)</td>', page)
    assert shown[::-1] == told == ["1", "2", "3"]


@pytest.mark.any_broker
def test_a_plain_client_is_never_shown_as_quiet(team: Team, served: Served) -> None:
    """It obeys nothing and says nothing: nobody can tell."""
    members = settled(team, "a", plain=("plain",))
    with Polled(*members):
        until_settled(served, team.group, members=2, reporting=1)
        wish = {"group": team.group, "scopes": "@all", "reason": "db"}
        assert any(
            one["level"] == "alarm"
            and one["sentence"].startswith("would not obey: plain: does not report")
            for one in served.plan(**wish)["points"]
        )
        assert served.pause(**wish).status_code == 200
        wait_for(lambda: row_of(served, team.group)["quiet"] == 2, "the other member")
        row = row_of(served, team.group)
        assert row["level"] == "unknown"
        assert "plain does not report" in row["sentence"]


def test_anothers_hold_is_lifted_by_typing_its_scope(
    team: Team, served: Served
) -> None:
    """By accident nobody lifts what somebody else holds."""
    team.operator_holds(team.topic, owner="bob")
    wait_for(lambda: bool(served.get("holds")["holds"]), "the hold")
    wanted = {"group": team.group, "scope": team.topic, "owner": "bob"}
    refused = served.post("resume", **wanted)
    assert refused.status_code == 409
    nameless = served.post("resume", **wanted, typed=team.topic)
    assert nameless.status_code == 409
    wanted["id"] = nameless.json()["preview"]["hold"]["id"]
    assert served.post("resume", **wanted, typed=team.topic).status_code == 200
    assert served.get("holds")["holds"] == []
    assert served.post("resume", **wanted, typed=team.topic).status_code == 404


def test_a_group_that_is_nearly_right(team: Team, served: Served) -> None:
    """With what was perhaps meant; held before it exists only if that is said."""
    members = settled(team, "a")
    with Polled(*members):
        until_settled(served, team.group, members=1, reporting=1)
        group = f"{team.group}x"
        wish = {"group": group, "scopes": "@all", "reason": "x"}
        refused = served.post("pause", **wish)
        assert refused.status_code == 409
        said = f"no group '{group}' here; did you mean {team.group}"
        assert said in refused.json()["detail"]
        assert served.pause(**wish).status_code == 200
        # That it is held does not make it one, once it was asked about.
        agreed = f"Hold {group} before it exists"
        wait_for(lambda: agreed in served.plan(**wish)["to_agree"], "the group")
        assert f"did you mean {group}?" not in str(served.plan(**wish)["points"])


@pytest.mark.embedded_broker
def test_a_preview_that_waits_for_the_broker_holds_nobody_up(
    team: Team, served: Served
) -> None:
    """The cluster is asked on a thread: other calls are answered meanwhile."""
    members = settled(team, "a")

    def previewed() -> str:
        with served.client() as client:
            return client.get("/place", params=wish).text

    with Polled(*members), ThreadPoolExecutor(1) as pool:
        until_settled(served, team.group, members=1, reporting=1)
        wish = {"group": team.group, "scopes": team.topic, "reason": "x"}
        team.broker.clear_requests()
        with team.broker.hold("DescribeConfigs", "safeconsumer-cli") as hold:
            asked = pool.submit(previewed)
            hold.wait()
            assert served.get("groups")["groups"]
            assert not asked.done()
        week = f"{team.topic} deletes records after 1w"
        assert week in asked.result(20)
        assert week in previewed()
        every = team.broker.requests("DescribeConfigs")
        # An answer stands for a minute: an open page looks again with every change.
        assert len([one for one in every if one.client_id == "safeconsumer-cli"]) == 1


@pytest.mark.embedded_broker
@pytest.mark.parametrize("error", ["TOPIC_AUTHORIZATION_FAILED", "POLICY_VIOLATION"])
def test_a_refused_write_is_no_outage(team: Team, served: Served, error: str) -> None:
    """As for commands: trying again does not help."""
    team.broker.fail("Produce", error)
    wish = {"group": team.group, "scopes": "@all", "reason": "x"}
    refused = served.pause(**wish)
    assert refused.status_code == 403
    assert "acknowledged: nothing" in refused.json()["title"]
    assert served.pause(**wish).status_code == 200


def test_a_dry_run_and_a_preview_are_one_document(team: Team, served: Served) -> None:
    """The same members, the same sentences, the same values."""
    members = settled(team, "a", plain=("plain",))
    for one in members:
        one.commit({tp: OffsetAndMetadata(1, "", -1) for tp in one.assignment()})
    with Polled(*members):
        until_settled(served, team.group, members=2, reporting=1)
        team.operator_holds(f"{team.topic}:0", owner="alice")
        team.operator_holds(f"{team.topic}:1", owner="bob")
        wait_for(lambda: len(served.get("holds")["holds"]) == 2, "the holds")
        wish = {"group": team.group, "scopes": f"{team.topic}:0-2", "reason": "x"}

        def is_known() -> bool:
            told = served.plan(**wish)
            return told["waiting"] == 12 and len(told["disobeying"]) == 1

        wait_for(is_known, "what waits")
        dry = run(
            team, "pause", f"{team.topic}:0-2", "--group", team.group,
            "--reason", "x", "--owner", "alice", "--replace", "--dry-run", "--json",
        )  # fmt: skip
        told = {"dry_run": True, **served.plan(**wish)}
        assert told.pop("agreement")
        assert json.loads(dry.stdout) == told


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"group": "g", "scopes": "", "reason": "x"}, "give a scope to hold"),
        ({"group": "g", "scopes": "orders:x", "reason": "x"}, "not a partition"),
        ({"group": "g", "scopes": "re:(", "reason": "x"}, "not an RE2 pattern"),
        ({"group": "g", "scopes": "orders", "reason": " "}, "give a reason"),
        ({"group": "", "scopes": "orders", "reason": "x"}, "a group must be"),
        ({"group": "g", "scopes": "a", "reason": "x", "for": "soon"}, "not a duration"),
        (
            {"group": "g", "scopes": "a", "reason": "x", "for": "1h", "until": "18:30"},
            "give one of them",
        ),
    ],
)
def test_what_is_no_wish(shared: Served, wish: dict[str, str], said: str) -> None:
    """Nothing is written, and the problem says what to do."""
    answer = shared.post("pause", **wish)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert said in answer.json()["title"]


def test_bodies_that_are_none(shared: Served) -> None:
    with shared.client(**{"content-type": "application/json"}) as client:
        for body in (b"", b"[]", b'{"group": 1}', b"[" * 100_000, b"\xff"):
            assert client.post("/api/v1/pause", content=body).status_code == 400


@pytest.mark.parametrize("name", ["duration", "for_", "dry_run", "owner", "x\x07"])
def test_a_member_that_no_call_takes_is_refused(shared: Served, name: str) -> None:
    """``duration`` was passed over, and what was placed had no end."""
    wish = {"group": "g", "scopes": "t:0", "reason": "x"}
    answer = shared.post("pause", **wish, **{name: "10s"})
    said = answer.json()
    assert (answer.status_code, repr(name) in said["title"]) == (400, True), said
    assert "its body may have group, scopes, reason, for" in said["detail"]
    assert shared.get("holds")["holds"] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "holds?groups=billing"),
        ("GET", "groups?group=billing"),
        ("GET", "ready?timeout=1s"),
        ("POST", "pause?dry_run=true"),
    ],
)
def test_a_query_that_no_call_takes_is_refused(
    shared: Served, method: str, path: str
) -> None:
    """``holds?groups=billing`` were all groups' holds."""
    wish = {"group": "g", "scopes": "t:0", "reason": "x"}
    body = {"json": wish} if method == "POST" else {}
    with shared.client() as client:
        answer = client.request(method, f"/api/v1/{path}", **body)
    assert answer.status_code == 400
    assert "is not a parameter of /" in answer.json()["title"]


@pytest.mark.any_broker
def test_nothing_is_said_of_what_was_not_read() -> None:
    """``[]`` would say that there is none."""
    setup = Setup(
        base={"bootstrap_servers": ["127.0.0.1:1"]},
        settings=Control(),
        owner="alice",
        port=0,
        token=TOKEN,
    )
    with serving(setup) as unread, unread.client() as client:
        for path in ("groups", "holds", "holds?group=g"):
            answer = client.get(f"/api/v1/{path}")
            assert (answer.status_code, answer.json()["title"]) == (
                503,
                "what is held is not known yet",
            )


@pytest.mark.any_broker
def test_unknown_groups_and_partitions(shared: Served) -> None:
    """A typing error is not shown as a group without holds."""
    with shared.client() as client:
        for path in ("/group", "/partition?partition=a:1", "/api/v1/holds"):
            for group in ("typo", ""):
                url = httpx.URL(path).copy_merge_params({"group": group})
                answer = client.get(url)
                assert answer.status_code == 404, url
                assert "check the spelling" in answer.text


def test_a_table_says_since_when_and_not_when_it_was_extended(
    team: Team, served: Served
) -> None:
    """What has piled up since is what the column is read for."""
    key = wire.ControlKey(team.group, "carol", team.topic)
    hold = wire.ControlHold("id", "extended", None, since_ms=1_600_000_000_000)
    team.writer.send(
        team.settings.operator_topic,
        key=wire.encode_key(key),
        value=wire.encode_hold(hold),
        partition=0,
    ).get(10)
    wait_for(lambda: bool(served.get("holds")["holds"]), "the hold")
    with served.client() as client:
        page = client.get("/group", params={"group": team.group}).text
    row = page.partition("carol")[2]
    assert row.partition('datetime="')[2].startswith("2020-09-13")


HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>'\"&{{7*7}}"


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_stream_that_ended_badly_is_named(
    team: Team, served: Served, monkeypatch: pytest.MonkeyPatch, *, is_killed: bool
) -> None:
    """Killed, or stopped in a batch: that is run again when it is started again."""
    monkeypatch.setattr("safeconsumer.group.known.SILENT_AFTER", 1.0)
    report = Report(
        group=team.group,
        member="s",
        client_id="stream nightly",
        host="h",
        kind=STREAM,
        state="ready" if is_killed else "stopped",
        busy={team.topic: ((0, 0),)},
        member_id="",
        generation=-1,
        at_ms=int(time.time() * 1000),
        applied={},
        assigned={},
        quiet={},
    )
    assert team.settings.status_topic is not None
    team.operator_holds(team.topic)
    team.writer.send(
        team.settings.status_topic,
        key=encode_report_key(team.group, "s"),
        value=encode_report(report),
        partition=0,
    ).get(10)
    said = "is not heard of any more" if is_killed else "in the middle of a batch"
    with served.client() as client:

        def is_named() -> bool:
            page = client.get("/group", params={"group": team.group}).text
            return f"stream nightly on h {said}" in page.replace("was stopped ", "")

        wait_for(is_named, "the stream")


def test_names_full_of_markup_are_text(served: Served) -> None:
    """Owners and reasons come from whoever may write; so do group names."""
    wish = {"group": HOSTILE, "scopes": "@all", "reason": HOSTILE}
    assert served.pause(**wish).status_code == 200
    with served.client() as client:
        for path in ("/", "/history", "/group", "/place", "/lift", "/doctor"):
            given = {"group": HOSTILE, "scope": "@all", "owner": "alice"}
            page = client.get(path, params=given).text
            assert "<script>alert" not in page, path
            assert "<img src=x" not in page, path
            assert "49" not in page.split("alert(2)")[-1][:20], path
        assert "&lt;script&gt;alert(1)" in client.get("/").text


@pytest.mark.embedded_broker
def test_the_broker_away_and_back(team: Team, served: Served) -> None:
    """The last snapshot stays, with its age; writes are refused; then all is well."""
    team.operator_holds(team.topic)
    wait_for(lambda: bool(served.get("holds")["holds"]), "the hold")
    team.broker.down()
    try:
        wait_for(lambda: served.state.snapshot().trouble is not None, "trouble", 20)
        known = served.get("holds")
        assert known["known"]["trouble"]
        assert len(known["holds"]) == 1
        with served.client() as client:
            assert client.get("/api/v1/ready").status_code == 503
            page = client.get("/").text
            wish = {"group": team.group, "scopes": "@all", "reason": "x"}
            preview = client.get("/place", params=wish).text
        assert "The broker does not answer." in page
        assert "Members keep obeying those holds" in page
        said = "nobody knows: what has changed meanwhile. The broker does not answer."
        assert said in preview
        assert served.pause(**wish).status_code == 503
    finally:
        team.broker.up()
    until_complete(served)
    assert served.get("ready")["known"]["trouble"] is None
    assert served.get("holds")["holds"]


def test_nothing_of_a_token_is_logged_or_shown(shared: Served) -> None:
    with shared.client() as client:
        pages = [client.get(path).text for path in ("/", "/history", "/doctor")]
    assert not any(TOKEN in page or shared.state.auth.token in page for page in pages)
