"""How old what the console says may be, and who waits for the cluster."""

import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from attrs import evolve

from safeconsumer.group import findings, follower
from safeconsumer.group.verdicts import GOOD, Finding
from tests.harness.console.harness import (
    Served,
    row_of,
    served_still,
    settled,
    until_level,
    until_settled,
)
from tests.harness.console.synthetic import alone, big, picture
from tests.harness.console.writing import FREE, groups, writing
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
        name = f"{blind.facts.partitions[0].topic}:0"
        page = asked(served, "/partition", group=blind.group, partition=name).text
    assert "Nothing is held" not in one + every
    assert ">none<" not in every
    assert "What is held is unknown." in one
    assert "What is held is unknown." in page


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


# ---------------------------------------------------------------- the doctor


class Slow:
    """Stands in for what the doctor asks: two questions, the first of which takes long."""

    def __init__(self) -> None:
        self.is_asked, self.go_on = threading.Event(), threading.Event()
        self.told: list[str] = []

    def findings(self, *_: object) -> Iterator[Finding]:
        self.is_asked.set()
        self.go_on.wait(20)
        for one in ("first", "second"):
            self.told.append(one)
            yield Finding(rank=GOOD, what=one)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow()
    monkeypatch.setattr(findings, "findings", made.findings)
    yield made
    made.go_on.set()


def test_a_slow_doctor_keeps_nobody_from_anything(slow: Slow) -> None:
    """Whoever looks or changes something does; one whose asker has gone asks no more."""
    with writing(groups()) as (served, writer):
        slots = served.state.doctors
        free = slots._value
        for _ in range(free):
            with served.client() as client, pytest.raises(httpx.ReadTimeout):
                client.get("/doctor", timeout=0.3)
        assert slow.is_asked.wait(20)  # it may be read later than it was given up
        wait_for(lambda: not slots._value, "both doctors")
        assert asked(served, "/doctor").status_code == 503
        assert asked(served, "/group", group=FREE).status_code == 200
        wish = {"group": FREE, "scopes": "topic-004:1", "reason": "x"}
        assert served.post("pause", **wish).status_code == 200
        assert len(writer.written) == 1
        slow.go_on.set()
        wait_for(lambda: slots._value == free, "the end of the doctors")
        assert slow.told == ["first"] * free
        assert asked(served, "/doctor").text.count("pill good") == 2


def test_the_console_closes_while_a_doctor_waits(
    slow: Slow, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whoever waits is told, the thread that waits is left, and nothing complains."""
    with writing(groups()) as (served, _), ThreadPoolExecutor(1) as pool:
        looks = pool.submit(asked, served, "/doctor")
        assert slow.is_asked.wait(20)
        served._server.should_exit = True
        assert looks.result(10).status_code == 503
        served.stop()
    assert slow.told == []
    assert "Traceback" not in capfd.readouterr().err


def test_groups_that_are_gone_are_forgotten() -> None:
    """Names of groups may be made of a date: none of them comes back."""
    with served_still(big()) as (still, served):
        state = served.state
        state.rows(still.known)
        assert state._views
        still.known = evolve(still.known, pictures={})
        state.rows(still.known)
        assert not state._views
