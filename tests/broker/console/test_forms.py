"""Forms and calls that are older than what stands: what was shown is done, and once."""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import unescape
from pathlib import Path

import httpx
import pytest
from attrs import evolve
from kafka import OffsetAndMetadata

from safeconsumer.audit.shared import SharedJournal
from safeconsumer.console import changing, lending
from safeconsumer.console.asking import IsWanted
from safeconsumer.console.forms import Once, Outcome
from safeconsumer.console.problems import Problem
from safeconsumer.console.state import State
from safeconsumer.group.operator import Operator
from safeconsumer.group.publisher import Change, new_hold, publish
from safeconsumer.group.wire import ControlHold, ControlKey
from tests.harness.console.harness import Served, console, row_of, until_complete
from tests.harness.group.operating import fill_the_disk
from tests.harness.group.team import LIMIT, Team
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.embedded_suffices

OPEN = {"owner": "alice", "source": "operator"}


@pytest.fixture
def served(team: Team, served: Served) -> Served:
    """Serve a console that knows the team's group, which has committed and is empty."""
    member = team.member(control=None)
    member.assign(team.partitions)
    member.commit({tp: OffsetAndMetadata(0, "", -1) for tp in team.partitions})
    wait_for(lambda: row_of(served, team.group).get("state") == "Empty", "the group")
    return served


def carried(page: httpx.Response) -> dict[str, str]:
    """Return what the form of a page sends, its box ticked."""
    form = page.text[page.text.index('<form method="post"') :]
    fields = re.findall(
        r'<input type="(?:hidden|checkbox)"[^>]* name="([^"]+)"[^>]* value="([^"]*)"',
        form,
    )
    return {name: unescape(value) for name, value in fields}


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


def test_a_form_lifts_the_hold_that_it_showed(team: Team, served: Served) -> None:
    """Another that was placed since, under the same owner and scope, stays."""
    hold(team, team.topic, "short test")
    until_known(served, "short test")
    with served.client() as client:
        query = {"group": team.group, "scope": team.topic, **OPEN}
        page = client.get("/lift", params=query)
        assert "short test" in page.text
        hold(team, team.topic, "DATA CORRUPT")
        refused = client.post("/lift", data=carried(page))
        assert refused.status_code == 409
        assert "has changed. it was replaced or extended" in refused.text
        assert "DATA CORRUPT" in refused.text
        assert reasons(served) == ["DATA CORRUPT"]
        assert client.post("/lift", data=carried(refused)).status_code == 303
        assert reasons(served) == []


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
    now = refused.json()["preview"]["hold"]
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
        assert "This is not what was agreed to. " in refused.text
        assert "Replace what you hold already: @all" in refused.text
        assert "until I say so" in refused.text
        call = served.post("pause", **wish, agreed=told["agreement"])
        assert call.status_code == 409
        assert call.json()["preview"]["replaces"][0]["reason"] == "until I say so"
        assert reasons(served) == ["until I say so"]
        assert client.post("/place", data=carried(refused)).status_code == 303
        assert reasons(served) == ["restart"]


def test_an_agreement_is_for_one_wish(team: Team, served: Served) -> None:
    """Not for another group or scope or end; and yes is none."""
    wish = {"group": team.group, "scopes": "@all", "reason": "x", "for": "1h"}
    told = served.plan(**wish)["agreement"]
    for other in ({"group": "g"}, {"scopes": "@all x"}, {"for": "2h"}, {"reason": "y"}):
        answer = served.post("pause", **{**wish, **other}, agreed=told)
        assert answer.status_code == 409, other
        assert answer.json()["preview"]["agreement"] != told
    assert served.post("pause", **wish, agreed="yes").status_code == 409
    assert served.post("pause", **wish).status_code == 409
    assert reasons(served) == []
    assert served.post("pause", **wish, agreed=told).status_code == 200


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


def test_a_group_whose_name_ends_with_a_blank(team: Team, served: Served) -> None:
    """It is another than the one without."""
    group = f"{team.group} "
    with served.client() as client:
        wish = {"group": group, "scopes": "@all", "reason": "x"}
        page = client.get("/place", params=wish)
        assert carried(page)["group"] == group
        assert client.post("/place", data=carried(page)).status_code == 303
    (one,) = served.get("holds")["holds"]
    assert one["group"] == group


# ---------------------------------------------------------------- once


def test_a_form_that_is_sent_twice(team: Team, served: Served) -> None:
    """A double click; and the back button, after somebody else lifted the hold."""
    with served.client() as client:
        wish = {"group": team.group, "scopes": team.topic, "reason": "x"}
        form = carried(client.get("/place", params=wish))
        assert [client.post("/place", data=form).status_code for _ in "ab"] == [303] * 2
        assert past(served) == [True]
        team.operator_lifts(team.topic)
        assert client.post("/place", data=form).status_code == 303
        assert reasons(served) == []


def test_a_lift_that_is_sent_twice(team: Team, served: Served) -> None:
    """What was placed between the two stays."""
    hold(team, team.topic, "first")
    wanted = {"group": team.group, "scope": team.topic, "key": "one"}
    first = served.post("resume", **wanted)
    hold(team, team.topic, "second")
    second = served.post("resume", **wanted)
    assert (first.status_code, second.status_code) == (200, 200)
    same = ("acknowledged", "preview")
    assert [first.json()[one] for one in same] == [second.json()[one] for one in same]
    assert reasons(served) == ["second"]
    third = served.post("resume", **{**wanted, "key": "two"})
    assert third.json()["acknowledged"][0]["offset"] == 3
    assert reasons(served) == []


# ---------------------------------------------------------------- too late


@contextmanager
def taken(served: Served) -> Iterator[None]:
    """Keep the connection that writes, as a slow broker does."""
    with served.state.commands.lend():
        yield


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Tell when somebody who has gone was refused, who had got the connection."""
    refused, carry_out = threading.Event(), changing._carry_out

    def carried_out(
        state: State,
        given: Mapping[str, str],
        is_wanted: IsWanted,
        decide: Callable[[Operator], changing._Decided],
    ) -> Outcome:
        def decided(operator: Operator) -> changing._Decided:
            found = decide(operator)
            wait_for(lambda: not is_wanted(), "its client to be gone", LIMIT)
            return found

        try:
            return carry_out(state, given, is_wanted, decided)
        except Problem as problem:
            if problem.detail == "the client has gone":
                refused.set()
            raise

    monkeypatch.setattr(changing, "_carry_out", carried_out)
    monkeypatch.setattr(lending, "_BUSY", LIMIT)
    return refused


def give_up(served: Served, path: str, **body: str) -> None:
    """Ask for something, and go before the answer comes."""
    with served.client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(f"/api/v1/{path}", json=body, timeout=0.5)


def test_nobody_waits_for_a_pause_any_more(
    team: Team, served: Served, refused: threading.Event
) -> None:
    """Clicks that were given up were all written once the broker answered."""
    wish = {"group": team.group, "scopes": "@all", "reason": "x"}
    told = served.plan(**wish)["agreement"]
    with taken(served):
        give_up(served, "pause", **wish, agreed=told)
    assert refused.wait(LIMIT)
    assert reasons(served) == []
    assert past(served) == []


def test_nobody_waits_for_a_lift_any_more(
    team: Team, served: Served, refused: threading.Event
) -> None:
    """It lifted a hold that was placed after whoever asked had gone."""
    hold(team, team.topic, "first")
    with taken(served):
        give_up(served, "resume", group=team.group, scope=team.topic)
        team.operator_lifts(team.topic)
        hold(team, team.topic, "second")
    assert refused.wait(LIMIT)
    assert reasons(served) == ["second"]


def test_questions_hold_no_command_up(team: Team, served: Served) -> None:
    """What a preview asks takes its time."""
    hold(team, team.topic, "x")
    with served.state.questions.lend():
        wanted = {"group": team.group, "scope": team.topic}
        assert served.post("resume", **wanted).status_code == 200


def test_the_end_does_not_wait_for_a_write(served: Served) -> None:
    """And nothing is begun on a connection that is closed."""
    with taken(served):
        served.state.close()
    with pytest.raises(Problem), taken(served):
        pass


def test_only_the_last_keys_are_remembered() -> None:
    """A console runs for months."""
    once, outcome = Once(), Outcome(done=(), plan={})
    for number in range(600):
        once.remember({"key": str(number)}, outcome)
    once.remember({"scope": "orders"}, outcome)
    assert once.outcome({"key": "599"}) is outcome
    assert once.outcome({"key": "599", "scope": "orders"}) is None
    assert once.outcome({"key": "0"}) is None
    assert once.outcome({"scope": "orders"}) is None


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
