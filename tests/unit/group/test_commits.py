"""Tests the detection of offset commits by owners that do not report."""

from typing import NamedTuple

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.group.commits import (
    CommitWatch,
    Move,
    moved_at_once,
    times_to_look_up,
)
from safeconsumer.group.facts import GroupFacts, MemberFacts
from safeconsumer.group.report_wire import Report
from safeconsumer.group.view import View
from tests.harness.console.synthetic import hold_of
from tests.harness.listing import short

TP = TopicPartition("t", 0)


class Look(NamedTuple):
    """An observed offset, the silent owner, and the seconds since the last observation."""

    offset: int | None
    silent: str | None = "m"
    after: float = 1.0
    is_answered: bool = True


def looked(watch, clock, look):
    clock[0] += look.after
    committed = {} if look.offset is None else {TP: look.offset}
    facts = GroupFacts(
        state="Stable", members=(), committed=committed, has_committed=look.is_answered
    )
    return watch.note("g", facts, {} if look.silent is None else {TP: look.silent})


@pytest.mark.parametrize(
    ("looks", "moved"),
    [
        ([Look(5), Look(5), Look(9)], Move(5, 9)),
        # The first offset may have been observed before the hold was placed.
        ([Look(5), Look(9)], None),
        ([Look(5), Look(9), Look(12)], Move(9, 12)),
        # The view watches a move for a while, since a member may commit rarely.
        ([Look(5), Look(5), Look(9), Look(9, after=20)], Move(5, 9)),
        ([Look(5), Look(5), Look(9), Look(9, after=20), Look(9, after=20)], None),
        # The offset was committed before the hold, or by another member.
        ([Look(5, None), Look(5, None), Look(9)], None),
        ([Look(5, "first"), Look(5, "first"), Look(9, "second")], None),
        # kafka-python commits the position of a member that has not read a record yet.
        ([Look(None), Look(5)], None),
        # An operator has moved the offset back.
        ([Look(5), Look(5), Look(0)], None),
        # Once a member reports again, the view trusts its reports.
        ([Look(5), Look(5), Look(9), Look(9, None)], None),
        # While a query is not answered, commits and their times cannot be observed.
        ([Look(5), Look(5), Look(5, is_answered=False)], None),
        ([Look(5), Look(5), Look(5, is_answered=False), Look(9)], None),
    ],
    ids=short,
)
def test_commit_by_a_silent_member_under_a_hold_counts_as_a_move(looks, moved):
    clock = [100.0]
    watch = CommitWatch(lambda: clock[0])
    found = [looked(watch, clock, one) for one in looks]
    assert found[-1] == ({} if moved is None else {TP: moved})


def report(**fields):
    return Report(group="g", member="x", applied={}, assigned={}, quiet={}, **fields)


def test_held_partitions_of_silent_members_are_watched():
    tps = [TopicPartition("t", number) for number in range(3)]
    names = ("silent", "reports", "free")
    members = tuple(
        MemberFacts(
            member_id=f"{name}-1", client_id=name, host="", assigned=frozenset({tp})
        )
        for name, tp in zip(names, tps, strict=True)
    )
    facts = GroupFacts(state="Stable", members=members, committed={})
    view = View(
        group="g",
        facts=facts,
        reports=(report(client_id="reports", member_id="reports-1"),),
        holds=tuple(hold_of("g", f"t:{number}") for number in range(2)),
    )
    assert view.held_by_silent == {tps[0]: "silent-1"}
    assert evolve(view, reports_are_read=False).held_by_silent == {}


def test_groups_without_holds_are_dropped():
    clock = [100.0]
    watch = CommitWatch(lambda: clock[0])
    looked(watch, clock, Look(5))
    assert watch._last.keys() == {"g"}
    watch.keep(set())
    assert not watch._last


LATE = TopicPartition("t", 7)


@pytest.mark.parametrize(
    ("offset", "timed", "expected"),
    [
        pytest.param(50, {"t"}, None, id="no record since the hold"),
        pytest.param(51, {"t"}, Move(50, 51, is_proven=False), id="only older records"),
        pytest.param(80, {"t"}, Move(50, 80, is_proven=False), id="up to recent ones"),
        pytest.param(81, {"t"}, Move(80, 81), id="a recent record"),
        pytest.param(81, set(), Move(50, 81, is_proven=False), id="producers' times"),
    ],
)
def test_single_view_detects_deliveries_under_a_hold(offset, timed, expected):
    found = moved_at_once({LATE: offset}, {LATE: 50}, {LATE: 80}, timed)
    assert found == ({} if expected is None else {LATE: expected})


def test_single_view_looks_up_offsets_at_times_when_members_already_obey_the_hold():
    """For some seconds after a hold is placed, members may still deliver records."""
    old, new, newest = (TopicPartition("t", number) for number in range(3))
    since = {old: 100.0, new: 980.0, newest: 995.0}
    held, recent = times_to_look_up(1_000.0, since)
    assert held == {old: 110.0, new: 990.0}
    assert recent == {old: 970.0, new: 990.0}
