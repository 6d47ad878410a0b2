"""Order per key over all workers: found where it is broken, and only there."""

from tests.harness.audit.telling import Telling
from tests.system.churn.order import overtaken

TP = "orders:0"


def test_repeats_by_the_next_worker_are_in_order() -> None:
    """What was done and not committed comes again; lanes overtake each other."""
    one = Telling("a").handle(TP, 0, 1).begin(TP, 5, "=other").begin(TP, 2)
    two = Telling("b", at=2000).handle(TP, 1).handle(TP, 2, ok=False)
    two.complete(TP, 2, "dead-letter").handle(TP, 3)
    assert overtaken([one.journal(), two.journal()]) == []


def test_a_record_begun_before_one_that_nobody_has_completed_is_found() -> None:
    """However long afterwards that is done."""
    one = Telling("a").handle(TP, 0).handle(TP, 1, ok=False)
    two = Telling("b", at=2000).handle(TP, 2).handle(TP, 1)
    assert overtaken([one.journal(), two.journal()]) == ["b, entry 1: 2 before 1"]
