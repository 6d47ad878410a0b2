"""Commands wait a limited time for a verdict and for an unresponsive cluster."""

from types import SimpleNamespace

import pytest
from attrs import evolve
from click.testing import CliRunner
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import (
    against,
    connection,
    holding,
    waiting,
    watching,
)
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.group import clients
from safeconsumer.group.clients import BOOTSTRAP_MS
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import movements
from safeconsumer.group.operator import Operator
from safeconsumer.group.plan import place_action
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.view import Times
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from safeconsumer.holds.scope import Partition
from tests.harness.group.views import facts, report, viewed


class Clock:
    """A clock that stands in for ``time``; its time passes only in ``sleep``."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (waiting, watching):
        monkeypatch.setattr(module, "time", made)
    return made


def test_login_time_counts_toward_the_timeout(clock, monkeypatch):
    looks = []

    def look(_, group, *, timeout, has_lags):
        assert not has_lags
        looks.append(timeout)
        clock.sleep(timeout)
        raise KafkaTimeoutError(group)

    monkeypatch.setattr(connection, "_check_login", lambda _: clock.sleep(2.0))
    monkeypatch.setattr(Operator, "look", look)
    asked = ("wait", "quiet", "--group", "g", "--timeout", "5s", "--bootstrap", "b:1")
    ended = CliRunner().invoke(safeconsumer, asked)
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.UNREACHABLE, 1)
    assert (looks, clock.now) == ([3.0], 105.0)
    assert "no answer within 5s" in ended.stderr


@pytest.mark.parametrize(
    ("timeout", "words"), [(0.0, "1.5s"), (2.5, "2.5s"), (12.0, "12s"), (90.0, "1m30s")]
)
def test_wait_without_an_answer_reports_how_long_it_took(clock, timeout, words):
    """One check of the group may take 1.5 s even if the timeout is shorter."""

    def look(_, *, timeout, **__):
        clock.sleep(timeout)
        raise KafkaTimeoutError

    operator = SimpleNamespace(look=look)
    with pytest.raises(KafkaTimeoutError) as raised:
        waiting.wait_until(operator, "g", lambda *_: (False, ""), timeout)
    assert raised.value.args == (f"no answer within {words}",)


def test_wait_stops_immediately_once_its_condition_can_no_longer_be_met(clock):
    def look(*_, **__):
        clock.sleep(0.5)
        return viewed()

    def judge(*_):
        message = "lifted meanwhile"
        raise waiting.NeverReachedError(message)

    ended = waiting.wait_until(SimpleNamespace(look=look), "g", judge, 60.0)
    assert (ended.is_reached, ended.sentence) == (False, "lifted meanwhile")
    assert ended.waited == 0.5


def test_wait_flowing_continues_if_its_request_for_the_topics_times_out(clock):
    """Like each check of the group, the request may take up to the remaining time."""
    tp, limits = TopicPartition("t", 0), []

    def within(seconds, _):
        limits.append(seconds)
        if len(limits) == 1:
            clock.sleep(seconds / 2)
            raise KafkaTimeoutError
        return ()

    flowing = viewed(facts("a", tp), report("a", 0, quiet={}))
    operator = SimpleNamespace(look=lambda *_, **__: flowing, within=within)
    ended = waiting.wait_until(
        operator,
        "g",
        lambda view, until: waiting.flows(operator, view, (), until),
        60.0,
    )
    assert (ended.is_reached, ended.sentence) == (True, "flowing: t:0")
    assert limits == [60.0, 29.75]


def test_wait_of_a_pause_fails_once_its_hold_has_expired():
    """Members obey the hold beyond its end for the allowed clock skew."""
    tp = TopicPartition("t", 0)
    action = place_action(group="g", owner="alice", texts=["t"], reason="x", for_="3s")
    (change,) = action.changes
    own = HoldRecord(key=change.key, hold=change.hold, at=100.0, offset=1)
    quiet = viewed(facts("a", tp), report("a", 0), holds=(own,), skew=30.0)
    reached, _ = holding._is_quiet(evolve(quiet, times=Times(102.0)), action)
    assert reached
    with pytest.raises(waiting.NeverReachedError, match=r"expired since: t$"):
        holding._is_quiet(evolve(quiet, times=Times(104.0)), action)


MANY = 40
PARTITIONS = [TopicPartition("t", number) for number in range(MANY)]


def held(topic, *, is_moved=False):
    """Return a view of a group with many partitions, and holds on a topic's partitions."""
    holds = (
        HoldRecord(
            key=ControlKey("g", "alice", f"{topic}:{number}"),
            hold=ControlHold(
                "h",
                "x",
                reset=Reset(((topic, number, 4),), (), "4") if is_moved else None,
            ),
            at=1.0,
            offset=1,
        )
        for number in range(MANY)
    )
    return evolve(viewed(facts("a", *PARTITIONS)), holds=tuple(holds))


SEVERAL = scopes_of([f"t:0-{MANY - 1}"], "g")


@pytest.mark.parametrize(
    "judge",
    [
        lambda: waiting.is_flowing(held("other"), ()),
        lambda: waiting.is_flowing(held("other"), SEVERAL),
        lambda: watching._is_quiet(held("t"), SEVERAL),
        lambda: movements(held("t", is_moved=True), SEVERAL),
    ],
    ids=["flowing", "flowing in scopes", "quiet", "moved"],
)
def test_verdict_does_not_compare_each_hold_with_each_partition(monkeypatch, judge):
    """Such a comparison of 1,000 holds with 5,000 partitions takes 1.5 s."""
    compared = []
    covers = Partition.covers
    monkeypatch.setattr(
        Partition, "covers", lambda one, tp: compared.append(tp) or covers(one, tp)
    )
    judge()
    assert len(compared) <= 2 * MANY


@pytest.mark.parametrize(
    ("base", "limit"), [({}, BOOTSTRAP_MS), ({"bootstrap_timeout_ms": 60_000}, 60_000)]
)
def test_audit_against_topics_waits_for_a_broker_as_long_as_other_commands(
    monkeypatch, base, limit
):
    limits = []

    def consumer(**configs):
        limits.append(configs.get("bootstrap_timeout_ms"))
        raise KafkaTimeoutError

    monkeypatch.setattr(clients, "SafeConsumer", consumer)
    with pytest.raises(KafkaTimeoutError):
        against.topic_journal(base, [])
    assert limits == [limit]
