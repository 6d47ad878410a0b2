"""Committed offsets from look to look: what moves though nobody reports of it."""

from typing import Any

from kafka import TopicPartition

from safeconsumer.group.commits import (
    NOTHING_SEEN,
    STILL_AFTER,
    Commits,
    CommitWatch,
    Move,
    held_by_silent,
)
from safeconsumer.group.facts import GroupFacts, MemberFacts
from safeconsumer.group.report_wire import Report
from tests.harness.console.synthetic import standing

TP = TopicPartition("t", 0)
NOBODY: frozenset[TopicPartition] = frozenset()
OWNED = frozenset({TP})


class Looker:
    """Looks at one group once a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.watch = CommitWatch(lambda: self.now)

    def look(
        self,
        offset: int | None,
        *,
        state: str = "Empty",
        owned: frozenset[TopicPartition] = NOBODY,
        silent: str | None = None,
        after: float = 1.0,
    ) -> Commits:
        self.now += after
        committed = {} if offset is None else {TP: offset}
        facts = GroupFacts(state=state, members=(), committed=committed)
        found = {} if silent is None else {TP: silent}
        return self.watch.note("g", facts, owned, found)

    def silent(self, offset: int | None, member: str = "m", **more: Any) -> Commits:  # noqa: ANN401 - of look
        return self.look(offset, state="Stable", owned=OWNED, silent=member, **more)


def test_the_first_commit_of_all() -> None:
    looker = Looker()
    looker.look(None)
    assert looker.look(9).moved == {TP: Move(None, 9)}


def test_what_stands_is_still_after_a_while() -> None:
    """Not before clients that commit by themselves would have done so."""
    looker = Looker()
    looker.look(5)
    assert looker.look(5, after=STILL_AFTER - 0.1) == NOTHING_SEEN
    assert looker.look(5, after=0.2).still == {TP}


def test_who_moved_may_be_slow() -> None:
    """Once seen, a reader that commits every 20 s is not forgotten between."""
    looker = Looker()
    looker.look(5)
    looker.look(9)
    slow = looker.look(9, after=20.0)
    assert (slow.moved, slow.still) == ({TP: Move(5, 9)}, frozenset())
    gone = looker.look(9, after=20.0)
    assert (gone.moved, gone.still) == ({}, {TP})


def test_the_last_commit_of_a_member_is_its_own() -> None:
    """It was a member in the look before, and left with a commit."""
    looker = Looker()
    looker.look(5, state="Stable", owned=OWNED)
    assert looker.look(9) == NOTHING_SEEN
    assert looker.look(9, after=STILL_AFTER).still == {TP}


def test_the_last_commit_of_who_assigned_itself_and_reports() -> None:
    looker = Looker()
    looker.look(None, owned=OWNED)
    assert looker.look(9) == NOTHING_SEEN


def test_members_of_a_rebalance_commit() -> None:
    looker = Looker()
    looker.look(5, state="PreparingRebalance")
    assert looker.look(9, state="PreparingRebalance") == NOTHING_SEEN


def test_offsets_that_are_set_back_are_no_reading() -> None:
    """An operator's work; and from there it has to stand anew."""
    looker = Looker()
    looker.look(5)
    looker.look(5, after=STILL_AFTER)
    assert looker.look(0) == NOTHING_SEEN


def test_what_a_silent_member_commits_while_it_is_held() -> None:
    """For a while: it may commit seldom."""
    looker = Looker()
    looker.silent(5)
    assert looker.silent(9) == Commits(moved_by_silent={TP: Move(5, 9)})
    assert looker.silent(9, after=20.0).moved_by_silent == {TP: Move(5, 9)}
    assert looker.silent(9, after=20.0) == NOTHING_SEEN


def test_what_was_committed_before_the_hold_is_no_disobeying() -> None:
    looker = Looker()
    looker.look(5, state="Stable", owned=OWNED)
    assert looker.silent(9) == NOTHING_SEEN


def test_what_another_member_left_is_its_own() -> None:
    looker = Looker()
    looker.silent(5, "first")
    assert looker.silent(9, "second") == NOTHING_SEEN


def test_where_a_silent_member_begins_is_no_delivery() -> None:
    """kafka-python commits the position of who has not read anything yet."""
    looker = Looker()
    looker.silent(None)
    assert looker.silent(5) == NOTHING_SEEN


def test_who_reports_again_is_believed_at_once() -> None:
    looker = Looker()
    looker.silent(5)
    looker.silent(9)
    assert looker.look(9, state="Stable", owned=OWNED) == NOTHING_SEEN


def report(**said: Any) -> Report:  # noqa: ANN401 - of Report
    return Report(group="g", member="x", applied={}, assigned={}, quiet={}, **said)


def test_whose_partitions_are_watched() -> None:
    """What is held, of members that report neither now nor in an older way."""
    tps = [TopicPartition("t", number) for number in range(4)]
    names = ("silent", "reports", "older", "free")
    members = tuple(
        MemberFacts(
            member_id=f"{name}-1", client_id=name, host="", assigned=frozenset({tp})
        )
        for name, tp in zip(names, tps, strict=True)
    )
    facts = GroupFacts(state="Stable", members=members, committed={})
    reports = (
        report(client_id="reports", member_id="reports-1"),
        report(client_id="older", member_id=None),
    )
    holds = [standing("g", f"t:{number}") for number in range(3)]
    assert held_by_silent(facts, reports, holds) == {tps[0]: "silent-1"}


def test_what_cannot_be_read_is_no_look() -> None:
    """Offsets that are read again later are not the first commit."""
    looker = Looker()
    looker.look(None)
    blind = GroupFacts(state="Empty", members=(), committed={}, has_committed=False)
    assert looker.watch.note("g", blind, NOBODY) == NOTHING_SEEN
    assert looker.look(9) == NOTHING_SEEN


def test_groups_that_are_gone_are_forgotten() -> None:
    looker = Looker()
    looker.look(5)
    assert set(looker.watch.stands_since()) == {("g", TP)}
    looker.watch.keep(set())
    assert not looker.watch.stands_since()
