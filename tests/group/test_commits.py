"""
Committed offsets from look to look: what moves though nobody owns it.
"""

from kafka import TopicPartition

from safeconsumer.group.commits import (
    NOTHING_SEEN,
    STILL_AFTER,
    Commits,
    CommitWatch,
    Move,
)
from safeconsumer.group.facts import GroupFacts

TP = TopicPartition("t", 0)
NOBODY: frozenset[TopicPartition] = frozenset()
OWNED = frozenset({TP})


class Looker:
    """
    Looks at one group once a second.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.watch = CommitWatch(lambda: self.now)

    def look(
        self,
        offset: int | None,
        *,
        state: str = "Empty",
        owned: frozenset[TopicPartition] = NOBODY,
        after: float = 1.0,
    ) -> Commits:
        self.now += after
        committed = {} if offset is None else {TP: offset}
        facts = GroupFacts(state=state, members=(), committed=committed)
        return self.watch.note("g", facts, owned)


def test_one_look_tells_nothing() -> None:
    assert Looker().look(5) == NOTHING_SEEN


def test_what_goes_on_though_nobody_owns_it() -> None:
    looker = Looker()
    looker.look(5)
    assert looker.look(9).moved == {TP: Move(5, 9)}


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
