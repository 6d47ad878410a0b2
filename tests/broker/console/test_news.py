"""How old what the console says may be, and who waits for the cluster."""

import re
import time
from collections.abc import Iterator

import httpx
import pytest
from attrs import evolve

from safeconsumer.group import follower
from tests.harness.console.harness import (
    Served,
    row_of,
    served_still,
    until_level,
    until_settled,
)
from tests.harness.console.synthetic import alone, big, picture
from tests.harness.group.settled import settled
from tests.harness.group.team import Team
from tests.harness.members import Polled
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_broker

CONSOLE = "safeconsumer-console"


def asked(served: Served, path: str, **query: str) -> httpx.Response:
    with served.client() as client:
        return client.get(path, params=query)


@pytest.fixture
def quiet(team: Team, served: Served) -> Iterator[Served]:
    """Make a group of one member that is held and quiet."""
    members = settled(team, "a")
    team.operator_holds(f"{team.topic}:0")
    with Polled(*members):
        until_settled(served, team.group, members=1, reporting=1)
        until_level(served, team.group, "quiet")
        yield served


# ---------------------------------------------------------------- ages


def test_what_is_old_is_unknown(
    team: Team, quiet: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_an_age_is_of_what_was_read_to_its_end(team: Team, quiet: Served) -> None:
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


def test_an_alarm_stays_one() -> None:
    """What was wrong may be so still."""
    still = big()
    with served_still(still) as (_, served):
        old = evolve(still.known, heard_at=time.monotonic() - follower.OLD_AFTER)
        rows = served.state.rows(old)
    assert {one.verdict.level for one in rows} == {"alarm", "unknown"}


@pytest.mark.contract("G8")
def test_what_is_held_is_unknown_where_the_topics_cannot_be_read() -> None:
    """The page of a group said beside it that nothing is held, the list "none"."""
    blind = evolve(picture(0, is_held=False), ends=None)
    with served_still(alone(blind)) as (_, served):
        one = asked(served, "/group", group=blind.group).text
        every = asked(served, "/").text
    assert "Nothing is held" not in one + every
    assert ">none<" not in every
    assert "What is held is unknown." in one


def test_the_age_is_in_the_tag_of_a_page(
    quiet: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is sent again only if there is news; what gets old is news, too."""
    known = quiet.state.follower.snapshot()
    with quiet.client() as client:
        monkeypatch.setattr(
            quiet.state.follower,
            "snapshot",
            lambda: evolve(known, heard_at=time.monotonic()),
        )
        first = client.get("/")
        again = {"if-none-match": first.headers["etag"]}
        assert client.get("/", headers=again).status_code == 304
        aged = evolve(known, heard_at=time.monotonic() - follower.OLD_AFTER)
        monkeypatch.setattr(quiet.state.follower, "snapshot", lambda: aged)
        assert client.get("/", headers=again).status_code == 200


def test_groups_that_are_gone_are_forgotten() -> None:
    """Names of groups may be made of a date: none of them comes back."""
    with served_still(big()) as (still, served):
        state = served.state
        state.rows(still.known)
        assert state._views
        still.known = evolve(still.known, pictures={})
        state.rows(still.known)
        assert not state._views
