"""Holds at random, and what a program does that has none."""

import random
import re
from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer.audit.journal import read
from safeconsumer.audit.recorded import Recorded
from safeconsumer.audit.writer import JournalWriter
from tests.system.soak.holds import Holder, Stock, covers
from tests.system.soak.settings import TOPICS

ORDERS = [TopicPartition("soak-orders", number) for number in range(3)]
AUDIT = TopicPartition("soak-audit", 0)


class Assigned:
    """The little of a consumer that pauses what is assigned to it."""

    def __init__(self, *tps: TopicPartition) -> None:
        self.quiet: set[TopicPartition] = set()
        self._tps = tps

    def assignment(self) -> set[TopicPartition]:
        return set(self._tps)

    def pause(self, *tps: TopicPartition) -> None:
        self.quiet.update(tps)

    def resume(self, *tps: TopicPartition) -> None:
        self.quiet.difference_update(tps)


def test_a_program_without_holds_pauses_what_is_assigned_and_meant() -> None:
    """And lifts no wish with another one: what is wrong then is the client's doing."""
    client = Assigned(*ORDERS, AUDIT)
    stock = Stock(client)
    stock.pause("soak-orders", owner="app")
    assert client.quiet == set(ORDERS)
    stock.pause(ORDERS[0], owner="alice")
    stock.pause(re.compile(".*-audit"), owner="app")
    stock.resume("soak-orders", owner="app")
    assert client.quiet == {ORDERS[0], AUDIT}
    stock.pause_all(owner="app")
    stock.resume(ORDERS[0], owner="alice")
    assert client.quiet == {*ORDERS, AUDIT}
    stock.resume_all(owner="app")
    assert client.quiet == {AUDIT}


@pytest.mark.parametrize(
    ("target", "covered"),
    [
        (None, {*ORDERS, AUDIT}),
        ("soak-orders", set(ORDERS)),
        (re.compile("soak-(orders|returns)"), set(ORDERS)),
        (re.compile("soak"), set()),
        (AUDIT, {AUDIT}),
    ],
)
def test_a_wish_covers_what_a_hold_would(
    target: Any,  # noqa: ANN401 - of any level
    covered: set[TopicPartition],
) -> None:
    """Patterns match the whole name."""
    assert {tp for tp in (*ORDERS, AUDIT) if covers(target, tp)} == covered


def test_everything_that_is_held_is_let_go(tmp_path: Any) -> None:  # noqa: ANN401 - a path
    """Of every level and by several owners, the same for the same seed."""
    told = []
    for _ in range(2):
        journal = JournalWriter(tmp_path)
        client = Assigned(*ORDERS, AUDIT)
        recorded = Recorded(Stock(client), journal)
        holder = Holder(recorded, random.Random(1), expires=False)  # noqa: S311
        for tenth in range(3000):
            holder.turn(tenth / 10)
        holder.lift_all()
        assert client.quiet == set()
        calls = [one for one in read(journal.path).entries if one.event == "call"]
        told.append([(one["op"], *one["scopes"], one["owner"]) for one in calls])
    assert told[0] == told[1]
    placed = {(scope, owner) for op, scope, owner in told[0] if op == "pause"}
    assert {owner for _, owner in placed} == {"app", "maintenance", "alice"}
    scopes = {scope for scope, _ in placed}
    assert {"@all", *TOPICS} < scopes
    assert any(scope.startswith("re:") for scope in scopes)
    assert any(scope.endswith(":0") for scope in scopes)
    assert len(told[0]) > 100
