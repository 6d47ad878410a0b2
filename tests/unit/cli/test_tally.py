"""The referee: judges deliveries by what the program asked for."""

import pytest
from kafka import TopicPartition

from safeconsumer.demo.tally import Tally

TP = TopicPartition("orders", 0)
OTHER_TP = TopicPartition("orders", 1)


@pytest.fixture
def tally() -> Tally:
    """Three records in each of two partitions, both owned by the watched member."""
    tally = Tally()
    for tp in (TP, OTHER_TP):
        for offset in range(3):
            tally.produced(tp, offset)
    tally.owned("watched", [TP, OTHER_TP])
    return tally


def test_what_nobody_was_given_is_missing(tally: Tally) -> None:
    """By partition and in all."""
    tally.delivered("watched", TP, 0)

    assert (tally.missing(TP), tally.missing(OTHER_TP), tally.missing()) == (2, 3, 5)


def test_only_a_partition_that_is_wished_paused_can_leak(tally: Tally) -> None:
    """The program's wish decides, not what the consumer says."""
    tally.paused(lambda tp: tp == TP)
    tally.delivered("watched", TP, 0)
    tally.delivered("watched", OTHER_TP, 0)

    assert tally.counts().while_paused == 1


def test_after_the_resume_nothing_leaks(tally: Tally) -> None:
    """Deliveries are counted as those after the resume instead."""
    tally.paused(lambda _: True)
    tally.delivered("watched", TP, 0)
    tally.resumed()
    tally.delivered("watched", TP, 1)

    counts = tally.counts()
    assert (counts.while_paused, counts.after_resume) == (1, 1)


def test_a_play_without_pause_has_no_such_counts(tally: Tally) -> None:
    """None, not 0: nothing was tried."""
    tally.delivered("watched", TP, 0)

    counts = tally.counts()
    assert (counts.while_paused, counts.after_resume) == (None, None)


def test_again_in_one_ownership_is_a_duplicate(tally: Tally) -> None:
    """Whatever was committed."""
    tally.delivered("watched", TP, 0)
    tally.delivered("watched", TP, 0)

    assert tally.counts().duplicated == 1


@pytest.mark.parametrize(("committed", "duplicated"), [(0, 0), (1, 1)])
def test_in_a_later_ownership_the_commit_decides(
    tally: Tally, committed: int, duplicated: int
) -> None:
    """From the committed offset on, Kafka delivers again; below it, never."""
    tally.delivered("watched", TP, 0)
    tally.committed({TP: committed})
    tally.owned("watched", [])
    tally.owned("watched", [TP])
    tally.delivered("watched", TP, 0)

    assert tally.counts().duplicated == duplicated


def test_an_eager_rebalance_that_gives_it_back_is_a_later_ownership(
    tally: Tally,
) -> None:
    """The assignment looks the same before and after; the listener tells."""
    tally.delivered("watched", TP, 0)
    tally.assigned("watched", [TP])
    tally.delivered("watched", TP, 0)

    assert tally.counts().duplicated == 0


@pytest.mark.parametrize(("still_owned", "duplicated"), [([TP], 1), ([], 0)])
def test_by_two_members_counts_if_both_work_on_it(
    tally: Tally, still_owned: list[TopicPartition], duplicated: int
) -> None:
    """One that gave the partition up may have its work done again."""
    tally.delivered("watched", TP, 0)
    tally.owned("watched", still_owned)
    tally.owned("other", [TP])
    tally.delivered("other", TP, 0)

    assert tally.counts().duplicated == duplicated


def test_rows_show_every_partition_in_order(tally: Tally) -> None:
    """Also those without a record, with what went wrong in each."""
    empty = TopicPartition("payments", 0)
    tally.watched([empty])
    tally.paused(lambda tp: tp == TP)
    tally.delivered("watched", TP, 0)
    tally.delivered("watched", TP, 0)

    rows = tally.rows()
    assert [TP, OTHER_TP, empty] == [row.tp for row in rows]
    assert [row.wrong for row in rows] == [3, 0, 0]
    assert [row.is_wished_paused for row in rows] == [True, False, False]
    assert [row.produced for row in rows] == [3, 3, 0]
