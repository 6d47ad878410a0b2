"""How long commands wait: for a verdict, and for a cluster that does not answer."""

from types import SimpleNamespace

import pytest
from attrs import evolve
from click.testing import CliRunner
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer.cli import against, connection, records, waiting, watching
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.cli.errors import Status
from safeconsumer.group.clients import BOOTSTRAP_MS
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import movements
from safeconsumer.group.operator import Operator
from safeconsumer.group.scopes import scopes_of
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from safeconsumer.holds.scope import Partition
from tests.harness.group.views import facts, viewed


def test_the_login_is_in_the_time(monkeypatch):
    """On a broker that accepts and is silent a wait of 5 s took 9 s, and said 1.5 s."""
    passed = [100.0]
    looks = []

    def pass_(seconds):
        passed[0] += seconds

    def look(_, group, *, timeout, has_lags):
        assert not has_lags
        looks.append(timeout)
        pass_(timeout)
        raise KafkaTimeoutError(group)

    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=pass_)
    for module in (waiting, watching):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(connection, "_check_login", lambda _: pass_(2.0))
    monkeypatch.setattr(Operator, "look", look)
    asked = ("wait", "quiet", "--group", "g", "--timeout", "5s", "--bootstrap", "b:1")
    ended = CliRunner().invoke(safeconsumer, asked)
    assert (ended.exit_code, ended.stderr.count("\n")) == (Status.UNREACHABLE, 1)
    assert (looks, passed) == ([3.0], [105.0])
    assert "no answer within 5s" in ended.stderr


def test_a_wait_for_what_can_no_longer_be_ends_at_once(monkeypatch):
    """``pause --wait`` waited a minute for a hold that somebody had lifted."""
    passed = [100.0]

    def look(*_, **__):
        passed[0] += 0.5
        return viewed()

    def judge(_):
        message = "lifted meanwhile"
        raise waiting.InVainError(message)

    def sleep(seconds):
        passed[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: passed[0], sleep=sleep)
    monkeypatch.setattr(waiting, "time", clock)
    operator = SimpleNamespace(look=look)
    ended = waiting.wait_until(operator, "g", judge, 60.0)
    assert (ended.is_reached, ended.sentence) == (False, "lifted meanwhile")
    assert ended.waited == 0.5


MANY = 40
PARTITIONS = [TopicPartition("t", number) for number in range(MANY)]


def held(topic, *, is_moved=False):
    """Return a group of many partitions, and a hold of each partition of a topic."""
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
def test_a_look_does_not_ask_each_hold_about_each_partition(monkeypatch, judge):
    """1,000 holds and 5,000 partitions took 1.5 s, four times a second."""
    asked = []
    covers = Partition.covers
    monkeypatch.setattr(
        Partition, "covers", lambda one, tp: asked.append(tp) or covers(one, tp)
    )
    judge()
    assert len(asked) <= 2 * MANY


@pytest.fixture
def bootstrap_waits(monkeypatch):
    """Have no consumer find its cluster; return how long each was to wait for it."""
    waits = []

    def made(**configs):
        waits.append(configs.get("bootstrap_timeout_ms"))
        raise KafkaTimeoutError

    monkeypatch.setattr(records, "KafkaConsumer", made)
    return waits


def test_an_audit_against_topics_waits_no_longer(bootstrap_waits):
    """By kafka-python's default it was half a minute, for a mistyped address."""
    for base in ({}, {"bootstrap_timeout_ms": 60_000}):
        with pytest.raises(KafkaTimeoutError):
            against.topic_journal(base, [])
    assert bootstrap_waits == [BOOTSTRAP_MS, 60_000]
