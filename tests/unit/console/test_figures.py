"""The figures of groups that the console exports to Prometheus."""

import socket
import time
from collections import Counter
from threading import Event

import httpx2
import pytest
from attrs import evolve
from click.testing import CliRunner
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.console import figures as module
from safeconsumer.console.figures import Figures, _all
from safeconsumer.group import follower
from safeconsumer.group.facts import UNKNOWN, GroupFacts
from safeconsumer.group.view import Times
from safeconsumer.metrics import table
from safeconsumer.testing._ports import free_port
from tests.harness.console.harness import console_of, groups
from tests.harness.console.synthetic import Limited, alone, big, viewed
from tests.harness.metrics.scraping import console_values
from tests.harness.waiting import wait_for


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let a scrape wait for the first answer, however slow the machine is."""
    monkeypatch.setattr(module, "_MOMENT", 30.0)


def run_console(monkeypatch, port, inside):
    """Type the command, with a cluster that is not there."""

    def serving(_, __, show):
        state = console_of(big(), Limited).state
        show(Figures(state))
        inside()

    monkeypatch.setattr("safeconsumer.console.serve.serve", serving)
    where = ("--bootstrap", "127.0.0.1:1", "--metrics", str(port))
    return CliRunner().invoke(safeconsumer, ["console", *where])


def test_figures_at_a_port_of_their_own(monkeypatch):
    """Without the token that places holds, and under whatever name."""
    port = free_port()

    def scraped():
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
            told = client.get("/metrics", headers={"host": "console.internal:9100"})
            figures = console_values(told.text)
            assert figures["console_snapshot_age_seconds"] < 10

    ended = run_console(monkeypatch, port, scraped)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert f"http://127.0.0.1:{port}/metrics, without a token" in ended.stdout


def test_their_port_is_taken(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_console(monkeypatch, port, lambda: None)
    assert ended.exit_code == Status.USAGE
    assert f"127.0.0.1:{port}: Address already in use" in ended.stderr
    assert "choose another --metrics" in ended.stderr


def test_every_group_that_is_held_or_reports_has_its_figures():
    """Of the table; no group and no topic is left out, however many there are."""
    state = console_of(big(), Limited).state
    figures = list(_all(state, state.snapshot()))
    known = {one.name: one.labels for one in table.of("console")}
    for one in figures:
        assert set(one.labels) == {label.name for label in known[one.name]}
        for label in known[one.name]:
            assert not label.values or one.labels[label.name] in label.values
    names = Counter(one.name for one in figures)
    assert names["group_members"] == 200 * len(table.MEMBER_STATES)
    assert names["group_topic_held"] == 40  # a fifth of 200 groups
    lags = [one.value for one in figures if one.name == "group_held_lag_records"]
    assert lags == [3 * 25] * 40
    states = [one for one in figures if one.labels.get("state") == "held_flowing"]
    assert sum(one.value for one in states) == 4 * 25


def figures_of(seen):
    """Return figures by name and state."""
    state = console_of(alone(seen), Limited).state
    figures = list(_all(state, state.snapshot()))
    return {
        " ".join((one.name, one.labels.get("state", ""))).strip(): one.value
        for one in figures
    }


@pytest.mark.contract("G8")
def test_members_that_nobody_lists_have_no_figures():
    """That none is silent was not known."""
    known = viewed(0, is_held=True)
    facts = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)
    reported = figures_of(evolve(known, facts=facts))
    assert "group_members silent" not in reported
    assert reported["group_partitions unknown"] == 25
    assert reported["group_quiet"] == 0
    lost = figures_of(evolve(known, facts=facts, reports=()))
    assert "group_partitions unknown" not in lost


def since(hold, seconds, **changed):
    """Return a hold that was placed so many seconds ago, and extended since."""
    body = evolve(hold.hold, since_ms=int((time.time() - seconds) * 1000))
    return evolve(hold, hold=body, **changed)


@pytest.mark.parametrize(
    ("kind", "margin"),
    [("members are gone", 3600), ("a clock is behind", -3600), ("renewed", 600)],
)
def test_the_margin_until_records_are_deleted(kind, margin):
    """Data waits though nobody tells the broker's time; by the broker's clock, not ours."""
    held = viewed(0, is_held=True)
    (hold,) = held.holds
    if kind == "members are gone":
        facts = evolve(held.facts, state="Empty", members=())
        held = evolve(held, times=Times(None, hold.at), reports=(), facts=facts)
    elif kind == "a clock is behind":
        later = since(hold, 0, at=time.time() + 7200, offset=10)
        held = evolve(held, holds=(later,), times=Times(None, later.at))
    else:
        held = evolve(held, holds=(since(hold, 3000),))
    found = figures_of(held)["group_retention_margin_seconds"]
    assert margin - 100 < found <= margin + 0.0011  # in whole milliseconds


@pytest.mark.parametrize(
    ("ends", "count"),
    [
        ([], 0),
        ([(1000, 600)], 1),
        ([(1000, 899), (2000, 60)], 2),
        # Too early; just placed or extended; over.
        ([(1000, 901), (899, 600), (1000, -1)], 0),
        ([(1000, None), (899, 60), (1000, 60)], 1),
    ],
)
def test_holds_that_expire_soon_are_counted(ends, count):
    """RawRecord so many seconds ago, they end in so many: each, whatever others do."""
    held = viewed(0, is_held=True)
    (hold,) = held.holds
    assert held.times.now is not None

    def written(ago, left):
        ttl = None if left is None else (ago + left) * 1000
        return evolve(hold, at=held.times.now - ago, hold=evolve(hold.hold, ttl_ms=ttl))

    holds = tuple(written(ago, left) for ago, left in ends)
    assert figures_of(evolve(held, holds=holds))["group_expiring_holds"] == count


def test_when_the_oldest_endless_hold_was_placed():
    name = "group_oldest_unlimited_hold_timestamp_seconds"
    held = viewed(0, is_held=True)
    assert name not in figures_of(held)
    endless = tuple(map(without_end, held.holds))
    found = figures_of(evolve(held, holds=endless))
    assert found[name] == min(one.since or 0 for one in endless)


def without_end(one):
    assert one.hold is not None
    return evolve(one, hold=evolve(one.hold, ttl_ms=None))


def test_retention_that_nobody_tells():
    """Is no figure; the others are there; a refusal stands for a minute, as an answer."""
    asked = []

    def fails():
        asked.append(1)
        raise KafkaTimeoutError

    state = console_of(groups(), fails).state
    for _ in range(3):
        names = {one.name for one in _all(state, state.snapshot())}
    assert "group_retention_margin_seconds" not in names
    assert "group_partitions" in names
    assert len(asked) == 1


class Frozen(Limited):
    """Does not answer until it is let go."""

    def __init__(self):
        super().__init__()
        self.may_answer = Event()

    def retention(self, names):
        known = super().retention(names)
        self.may_answer.wait(30)
        return known


def test_a_scrape_waits_for_no_broker(monkeypatch):
    """One question is underway, and no scrape is late for it; its answer counts."""
    monkeypatch.setattr(module, "_MOMENT", 0.0)
    cluster = Frozen()
    state = console_of(groups(), lambda: cluster).state

    def margins():
        found = Counter(one.name for one in _all(state, state.snapshot()))
        assert found["group_topic_held"] == 2
        return found["group_retention_margin_seconds"]

    assert [margins() for _ in range(3)] == [0, 0, 0]
    cluster.may_answer.set()
    wait_for(lambda: margins() == 2, "the answer")
    assert len(cluster.asked) == 1


class Once(Limited):
    """Answers one question, and refuses all others."""

    def retention(self, names):
        if self.asked:
            raise KafkaTimeoutError
        return super().retention(names)


def test_what_was_answered_stands_until_there_is_more():
    cluster = Once()
    state = console_of(groups(), lambda: cluster).state
    for names in ({"a"}, {"a", "b"}):  # asked again, for the new one
        assert module._limits(state, names) == {"a": 3600.0}


def test_what_gets_old_while_it_is_asked_is_not_told(monkeypatch):
    """A snapshot is judged once more when all is there."""
    state = console_of(groups(), Limited).state
    seen = state.snapshot()
    ages = iter((0.0, 0.0))
    monkeypatch.setattr(
        follower.Snapshot,
        "is_old",
        property(lambda _: next(ages, follower.OLD_AFTER) >= follower.OLD_AFTER),
    )
    next(ages)
    found = [one.name for one in _all(state, seen)]
    assert found == ["console_snapshot_age_seconds"]


def test_what_is_old_says_nothing_of_groups():
    state = console_of(groups(), Limited).state
    old = state.snapshot()
    old = evolve(old, as_of=old.as_of - follower.OLD_AFTER)
    assert [one.name for one in _all(state, old)] == ["console_snapshot_age_seconds"]
    new = evolve(state.snapshot(), is_complete=False)
    assert [one.name for one in _all(state, new)] == ["console_snapshot_age_seconds"]
