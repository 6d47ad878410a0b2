"""Committed offsets from look to look: what moves though its owner does not report."""

from typing import Any

from kafka import TopicPartition

from safeconsumer.group.commits import CommitWatch, Move, held_by_silent
from safeconsumer.group.facts import GroupFacts, MemberFacts
from safeconsumer.group.report_wire import Report
from tests.harness.console.synthetic import standing

TP = TopicPartition("t", 0)


class Looker:
    """Looks at one group once a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.watch = CommitWatch(lambda: self.now)

    def look(
        self, offset: int | None, silent: str | None = "m", after: float = 1.0
    ) -> dict[TopicPartition, Move]:
        self.now += after
        committed = {} if offset is None else {TP: offset}
        facts = GroupFacts(state="Stable", members=(), committed=committed)
        return self.watch.note("g", facts, {} if silent is None else {TP: silent})


def test_what_a_silent_member_commits_while_it_is_held() -> None:
    """For a while: it may commit seldom."""
    looker = Looker()
    looker.look(5)
    assert looker.look(9) == {TP: Move(5, 9)}
    assert looker.look(9, after=20.0) == {TP: Move(5, 9)}
    assert looker.look(9, after=20.0) == {}


def test_what_was_committed_before_the_hold_is_no_disobeying() -> None:
    looker = Looker()
    looker.look(5, None)
    assert looker.look(9) == {}


def test_what_another_member_left_is_its_own() -> None:
    looker = Looker()
    looker.look(5, "first")
    assert looker.look(9, "second") == {}


def test_where_a_silent_member_begins_is_no_delivery() -> None:
    """kafka-python commits the position of who has not read anything yet."""
    looker = Looker()
    looker.look(None)
    assert looker.look(5) == {}


def test_offsets_that_are_set_back_are_no_reading() -> None:
    """An operator's work."""
    looker = Looker()
    looker.look(5)
    assert looker.look(0) == {}


def test_who_reports_again_is_believed_at_once() -> None:
    looker = Looker()
    looker.look(5)
    looker.look(9)
    assert looker.look(9, None) == {}


def report(**said: Any) -> Report:  # noqa: ANN401 - of Report
    return Report(group="g", member="x", applied={}, assigned={}, quiet={}, **said)


def test_whose_partitions_are_watched() -> None:
    """What is held, of members that do not report."""
    tps = [TopicPartition("t", number) for number in range(3)]
    names = ("silent", "reports", "free")
    members = tuple(
        MemberFacts(
            member_id=f"{name}-1", client_id=name, host="", assigned=frozenset({tp})
        )
        for name, tp in zip(names, tps, strict=True)
    )
    facts = GroupFacts(state="Stable", members=members, committed={})
    reports = [report(client_id="reports", member_id="reports-1")]
    holds = [standing("g", f"t:{number}") for number in range(2)]
    assert held_by_silent(facts, reports, holds) == {tps[0]: "silent-1"}


def test_what_cannot_be_read_is_no_look() -> None:
    """Nobody knows what was committed meanwhile, and when."""
    looker = Looker()
    looker.look(5)
    blind = GroupFacts(state="Stable", members=(), committed={}, has_committed=False)
    assert looker.watch.note("g", blind, {TP: "m"}) == {}
    assert looker.look(9) == {}


def test_groups_that_are_gone_are_forgotten() -> None:
    looker = Looker()
    looker.look(5)
    assert looker.watch._looks.keys() == {"g"}
    looker.watch.keep(set())
    assert not looker.watch._looks
