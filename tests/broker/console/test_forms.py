"""Forms and calls that are older than what stands: what was shown is done, and once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import evolve
from kafka import OffsetAndMetadata

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.console import changing
from safeconsumer.group.publisher import Change, new_hold, publish
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.console.harness import (
    Served,
    carried,
    console,
    row_of,
    until_complete,
)
from tests.harness.group.operating import fill_the_disk
from tests.harness.group.team import LIMIT, Team
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices


@pytest.fixture
def served(team: Team, served: Served) -> Served:
    """Serve a console that knows the team's group, which has committed and is empty."""
    member = team.member(control=None)
    member.assign(team.partitions)
    member.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    wait_for(lambda: row_of(served, team.group).get("state") == "Empty", "the group")
    return served


def reasons(served: Served) -> list[str]:
    """Return why what stands is held, as the topic has it."""
    with served.state.commands.lend() as operator:
        return [str(one.hold.reason) for one in operator.standing() if one.hold]


def past(served: Served) -> list[bool]:
    """Return for each record of the topics whether it holds something."""
    return [one.hold is not None for one in served.state.snapshot().records]


def until_known(served: Served, *whys: str) -> None:
    """Wait until the console knows what stands."""

    def known() -> list[str]:
        return [one["reason"] for one in served.get("holds")["holds"]]

    wait_for(lambda: known() == list(whys), f"{whys}")


def hold(team: Team, scope: str, reason: str, for_: float | None = None) -> ControlHold:
    """Hold something as alice, in the place of what she holds there."""
    made = new_hold(reason, for_)
    write(team, scope, made)
    return made


def write(team: Team, scope: str, made: ControlHold) -> None:
    """Write a hold from elsewhere; it is acknowledged on return."""
    wanted = [Change(ControlKey(team.group, "alice", scope), made)]
    publish(lambda: team.writer, team.settings.operator_topic, wanted, LIMIT)


# ---------------------------------------------------------------- stale forms


@pytest.mark.any_broker
def test_a_call_lifts_the_hold_of_its_id_and_offset(team: Team, served: Served) -> None:
    """An extension keeps the id: whoever extended it wants it to stand."""
    made = hold(team, team.topic, "x", for_=3600)
    until_known(served, "x")
    (shown,) = served.get("holds")["holds"]
    wanted = {"group": team.group, "scope": team.topic, "id": shown["id"]}
    offset = {"offset": str(shown["offset"])}
    write(team, team.topic, evolve(made, ttl_ms=2 * 3_600_000))
    refused = served.post("resume", **wanted, **offset)
    assert refused.status_code == 409
    now = refused.json()["preview"]["holds"][0]
    assert (now["id"], now["offset"]) == (shown["id"], shown["offset"] + 1)
    assert served.post("resume", **{**wanted, "id": "another"}).status_code == 409
    assert reasons(served) == ["x"]
    assert served.post("resume", **wanted).status_code == 200
    assert reasons(served) == []


def test_what_was_agreed_to_is_what_was_shown(team: Team, served: Served) -> None:
    """An open hold was cut to two seconds by a box that spoke of something else."""
    wish = {"group": team.group, "scopes": "@all", "reason": "restart", "for": "2s"}
    with served.client() as client:
        page = client.get("/place", params=wish)
        told = served.plan(**wish)
        assert "Replace" not in told["to_agree"]
        hold(team, "@all", "until I say so")
        refused = client.post("/place", data=carried(page))
        assert refused.status_code == 409
        assert "This is not what was previewed. " in refused.text
        assert "Replace what you hold already: @all" in refused.text
        assert "until I say so" in refused.text
        call = served.post("pause", **wish, agreed=told["agreement"])
        assert call.status_code == 409
        assert call.json()["preview"]["replaces"][0]["reason"] == "until I say so"
        assert reasons(served) == ["until I say so"]
        assert client.post("/place", data=carried(refused)).status_code == 303
        assert reasons(served) == ["restart"]


@pytest.mark.embedded_broker
def test_what_stands_is_read_before_it_is_replaced(
    team: Team, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console's own reader hears nothing, and does not know it yet."""
    monkeypatch.setattr(changing, "_SEEN_WITHIN", 2.0)  # it waits for it in vain
    wish = {"group": team.group, "scopes": team.topic, "reason": "a look", "for": "1s"}
    with team.broker.hold("Fetch", "safeconsumer-console") as silence:
        silence.wait()
        hold(team, team.topic, "DATA CORRUPT")
        assert served.get("holds")["holds"] == []
        refused = served.post("pause", **wish)
        assert refused.status_code == 409
        assert "Replace what you hold already" in refused.json()["detail"]
        assert reasons(served) == ["DATA CORRUPT"]
        wanted = {"group": team.group, "scope": team.topic}
        assert served.post("resume", **wanted).status_code == 200
        assert reasons(served) == []


# ---------------------------------------------------------------- the journal


@pytest.fixture
def unjournaled(
    team: Team, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    """Serve a console whose disk is full once it has journaled what is asked for."""
    fill_the_disk(monkeypatch)
    with console(team, journal=SharedJournal(tmp_path / "ops.journal")) as made:
        until_complete(made)
        yield made


def test_what_is_not_journaled_is_said_to_whoever_sends_a_form_again(
    team: Team, unjournaled: Served
) -> None:
    """It is written once; that it was not written down is so the second time, too."""
    wish = {"group": team.group, "scopes": "@all", "reason": "x"}
    told = unjournaled.plan(**wish)["agreement"]
    call = {**wish, "agreed": told, "key": "k"}
    first, second = (unjournaled.post("pause", **call) for _ in "ab")
    assert (first.status_code, second.status_code) == (500, 500)
    assert first.json()["detail"] == second.json()["detail"] == "the disk is full"
    assert past(unjournaled) == [True]


@pytest.mark.embedded_broker
def test_what_is_not_journaled_is_said_of_a_write_that_failed(
    team: Team, unjournaled: Served
) -> None:
    team.broker.fail("Produce", "POLICY_VIOLATION")
    told = unjournaled.pause(group=team.group, scopes="@all", reason="x").json()
    assert "acknowledged: nothing" in told["title"]
    assert told["detail"] == "It could not be journaled: the disk is full"
