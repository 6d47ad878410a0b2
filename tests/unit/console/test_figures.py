"""Tests the figures of groups that the console exports to Prometheus."""

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

AGE = "console_snapshot_age_seconds"


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Let a scrape wait for the first answer, however slow the machine is."""
    monkeypatch.setattr(module, "_FIRST_ANSWER_SECONDS", 10_000.0)


def names_of(state, snapshot=None):
    """Return how many figures have each name."""
    return Counter(name for name, _ in _all(state, snapshot or state.snapshot()))


def figures_of(view):
    """Return the figures of one group, by name and state."""
    state = console_of(alone(view), Limited).state
    return {
        " ".join((name, one.labels.get("state", ""))).strip(): one.value
        for name, one in _all(state, state.snapshot())
    }


# ---------------------------------------------------------------- the port


def run_console(monkeypatch, port, inside):
    """Run the command without a cluster, and call ``inside()`` while it serves."""

    def serve(_, __, show):
        show(Figures(console_of(big(), Limited).state))
        inside()

    monkeypatch.setattr("safeconsumer.console.serve.serve", serve)
    where = ("--bootstrap", "127.0.0.1:1", "--metrics", str(port))
    return CliRunner().invoke(safeconsumer, ["console", *where])


def test_figures_have_their_own_port_without_a_token(monkeypatch):
    """The token permits holds, and the port of the pages refuses other host names."""
    port = free_port()

    def scrape():
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=None) as client:
            answer = client.get("/metrics", headers={"host": "console.internal:9100"})
        assert console_values(answer.text)[AGE] < follower.OLD_AFTER

    ended = run_console(monkeypatch, port, scrape)
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert f"http://127.0.0.1:{port}/metrics, without a token" in ended.stdout


def test_metrics_port_in_use_is_a_usage_error(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run_console(monkeypatch, port, lambda: None)
    assert ended.exit_code == Status.USAGE
    assert f"127.0.0.1:{port}: Address already in use" in ended.stderr
    assert "choose another --metrics" in ended.stderr


# ---------------------------------------------------------------- groups


def test_every_held_or_reporting_group_has_figures():
    state = console_of(big(), Limited).state
    figures = list(_all(state, state.snapshot()))
    known = {one.name: one.labels for one in table.of("console")}
    for name, one in figures:
        assert set(one.labels) == {label.name for label in known[name]}
        for label in known[name]:
            assert not label.values or one.labels[label.name] in label.values
    names = Counter(name for name, _ in figures)
    assert names["group_members"] == 200 * len(table.MEMBER_STATES)
    assert names["group_topic_held"] == 40  # one in five of the 200 groups is held
    lags = [one.value for name, one in figures if name == "group_held_lag_records"]
    assert lags == [3 * 25] * 40
    states = [one for _, one in figures if one.labels.get("state") == "held_flowing"]
    assert sum(one.value for one in states) == 4 * 25


@pytest.mark.contract("G8")
def test_group_that_cannot_be_described_has_no_member_figures():
    known = viewed(0, is_held=True)
    facts = GroupFacts(state=UNKNOWN, members=(), committed={}, has_committed=False)
    reported = figures_of(evolve(known, facts=facts))
    assert "group_members silent" not in reported
    assert reported["group_partitions unknown"] == 25
    assert reported["group_quiet"] == 0
    lost = figures_of(evolve(known, facts=facts, reports=()))
    assert "group_partitions unknown" not in lost


def placed(hold, seconds, **changed):
    """Return a hold that was placed this many seconds ago."""
    body = evolve(hold.hold, since_ms=int((time.time() - seconds) * 1000))
    return evolve(hold, hold=body, **changed)


@pytest.mark.parametrize(
    ("kind", "margin"),
    [("members are gone", 3600), ("a clock is behind", -3600), ("renewed", 600)],
)
def test_retention_margin_is_measured_by_the_brokers_clock(kind, margin):
    """Without members, the margin is based on the time at which the hold was placed."""
    held = viewed(0, is_held=True)
    (hold,) = held.holds
    if kind == "members are gone":
        facts = evolve(held.facts, state="Empty", members=())
        held = evolve(held, times=Times(None, hold.at), reports=(), facts=facts)
    elif kind == "a clock is behind":
        later = placed(hold, 0, at=time.time() + 7200, offset=10)
        held = evolve(held, holds=(later,), times=Times(None, later.at))
    else:
        held = evolve(held, holds=(placed(hold, 3000),))
    found = figures_of(held)["group_retention_margin_seconds"]
    assert margin - 500 < found <= margin + 0.0011  # in whole milliseconds


@pytest.mark.parametrize(
    ("holds", "count"),
    [
        ([], 0),
        ([(1000, 600)], 1),
        ([(1000, 899), (2000, 60)], 2),
        ([(1000, 901), (899, 600), (1000, -1)], 0),
        ([(1000, None), (899, 60), (1000, 60)], 1),
    ],
    ids=["none", "one", "two", "too far off, too new or over", "one of three"],
)
def test_older_holds_that_expire_within_15_minutes_are_counted(holds, count):
    """Each hold is given by its age and its remaining time, in seconds."""
    held = viewed(0, is_held=True)
    (hold,) = held.holds

    def written(ago, left):
        ttl = None if left is None else (ago + left) * 1000
        return evolve(hold, at=held.times.now - ago, hold=evolve(hold.hold, ttl_ms=ttl))

    several = tuple(written(ago, left) for ago, left in holds)
    assert figures_of(evolve(held, holds=several))["group_expiring_holds"] == count


def test_oldest_unlimited_hold_is_exported_with_its_time():
    name = "group_oldest_unlimited_hold_timestamp_seconds"
    held = viewed(0, is_held=True)
    (hold,) = held.holds
    assert name not in figures_of(held)
    endless = evolve(hold, hold=evolve(hold.hold, ttl_ms=None))
    assert figures_of(evolve(held, holds=(endless,)))[name] == endless.since


# ---------------------------------------------------------------- retention


class Connection(Limited):
    """A connection that answers a few requests, perhaps slowly, and then fails."""

    def __init__(self, answers=1, *, is_slow=False):
        super().__init__()
        self.answers = answers
        self.may_answer = Event()
        if not is_slow:
            self.may_answer.set()

    def retention(self, names):
        known = super().retention(names)
        self.may_answer.wait()
        if len(self.asked) > self.answers:
            raise KafkaTimeoutError
        return known


def test_unreadable_retention_is_not_exported_and_is_requested_once_a_minute():
    connection = Connection(answers=0)
    state = console_of(groups(), lambda: connection).state
    for _ in range(3):
        names = names_of(state)
    assert "group_retention_margin_seconds" not in names
    assert "group_partitions" in names
    assert len(connection.asked) == 1


def test_scrape_does_not_wait_for_a_slow_broker(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_ANSWER_SECONDS", 0.0)
    connection = Connection(is_slow=True)
    state = console_of(groups(), lambda: connection).state

    def margins():
        found = names_of(state)
        assert found["group_topic_held"] == 2
        return found["group_retention_margin_seconds"]

    assert [margins() for _ in range(3)] == [0, 0, 0]
    connection.may_answer.set()
    wait_for(lambda: margins() == 2, "the answer")
    assert len(connection.asked) == 1


def test_known_retention_is_kept_if_a_later_request_fails():
    connection = Connection()
    state = console_of(groups(), lambda: connection).state
    for names in ({"a"}, {"a", "b"}):  # the new group causes a second request
        assert module._limits(state, names) == {"a": 3600.0}


# ---------------------------------------------------------------- old snapshots


def test_only_the_age_is_exported_if_the_snapshot_becomes_old_during_a_query(
    monkeypatch,
):
    state = console_of(groups(), Limited).state
    snapshot = state.snapshot()
    was_old = iter([False])
    is_old = property(lambda _: next(was_old, True))
    monkeypatch.setattr(follower.Snapshot, "is_old", is_old)
    assert list(names_of(state, snapshot)) == [AGE]


def test_old_or_incomplete_snapshot_has_no_group_figures():
    state = console_of(groups(), Limited).state
    now = state.snapshot()
    old = evolve(now, as_of=now.as_of - follower.OLD_AFTER)
    for snapshot in (old, evolve(now, is_complete=False)):
        assert list(names_of(state, snapshot)) == [AGE]
