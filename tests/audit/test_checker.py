"""
The reference checker: rejects every bad fleet for its one fault, passes the good ones.
"""

from collections.abc import Callable

import pytest

from safeconsumer.audit import checker
from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.facts import Address
from tests.audit.bad import BAD, GOOD, TP, Fleet
from tests.audit.telling import Telling


def broken(fleet: Fleet, settings: Settings | None = None) -> set[str]:
    journals = [one.journal() for one in fleet]
    found = check(journals, settings)
    return {one.check for verdict in found.values() for one in verdict.findings}


def expected(make: Callable[[], Fleet]) -> str:
    return make.__name__.partition("_")[0].upper()


@pytest.mark.parametrize("make", BAD, ids=lambda make: make.__name__)
def test_a_bad_fleet_is_rejected_for_its_one_fault(make: Callable[[], Fleet]) -> None:
    """
    No other check is touched by it.
    """
    assert broken(make()) == {expected(make)}


@pytest.mark.parametrize("make", GOOD, ids=lambda make: make.__name__)
def test_a_good_fleet_passes(make: Callable[[], Fleet]) -> None:
    """
    Compaction, transactions, crashes, seeks and threads are no faults.
    """
    assert broken(make()) == set()


def test_every_check_has_a_bad_fleet() -> None:
    """
    A check that nothing can fail is worth nothing.
    """
    assert {expected(make) for make in BAD} == set(checker.CHECKS)


def test_what_is_not_delivered_yet_is_lost_only_when_drained() -> None:
    """
    A held partition's records wait.
    """
    fleet = [
        Telling("producer").then("acked", tp=TP, first=0, last=9),
        Telling("a").assigned(TP).poll(TP, 0, 5),
    ]
    assert broken(fleet) == set()
    assert broken(fleet, Settings(is_drained=True)) == {"S2"}


def test_what_no_handler_completed_is_missing_once_drained() -> None:
    """
    W5: delivered is not enough where there are workers; members that are none, are.
    """
    fleet = [
        Telling("producer").then("acked", tp=TP, first=0, last=9),
        Telling("a").then("working", order="key").assigned(TP).poll(TP, 0, 9),
    ]
    fleet[1].handle(TP, 0, 1, 2, 3, 4, 6, 7, 8).commit(TP, 5).revoked(TP)
    fleet.append(Telling("b", at=2000).assigned(TP, generation=2).poll(TP, 5, 10))
    assert broken(fleet, Settings(is_drained=True)) == set()
    fleet[-1] = Telling("b", at=2000).then("working", order="key")
    fleet[-1].assigned(TP, generation=2).poll(TP, 5, 10).handle(TP, 6, 7, 8, 9)
    assert broken(fleet, Settings(is_drained=True)) == {"W5"}
    assert broken(fleet) == set()


def test_partitions_do_not_touch_each_other() -> None:
    """
    Each is judged alone.
    """
    told = Telling().assigned(TP, "returns:1").pause("returns")
    told.poll(TP, 0, 5).poll("returns:1", 0, 3)
    judged = check([told.journal()])
    orders, returns = Address("g", "orders", 0), Address("g", "returns", 1)
    assert list(judged) == [orders, returns]
    assert judged[orders].findings == ()
    (found,) = judged[returns].findings
    assert (found.check, found.member, found.offset) == ("S1", "a", 0)
    assert "returns was held by app" in found.evidence
