"""
The reference checker: rejects every bad fleet for its one fault, passes the good ones.
"""

from collections.abc import Callable

import pytest

from safeconsumer.audit import checker
from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.facts import Address
from safeconsumer.audit.reading import covering
from safeconsumer.errors import JournalError
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


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        ("orders:0", True),
        ("orders:1", False),
        ("orders", True),
        ("order", False),
        ("re:ord", False),  # the whole name, or nothing
        ("re:ord.*", True),
        ("re:(?i)ORDERS", True),
        ("@all", True),
    ],
)
def test_scopes_are_read_by_the_judge_itself(scope: str, *, covers: bool) -> None:
    assert covering(scope)(("orders", 0)) is covers


@pytest.mark.parametrize(
    "scope", ["re:[[:alpha:]]+", "re:\\pL+", "re:(", "re:", "..", "a b", "orders:x"]
)
def test_what_cannot_be_read_is_said(scope: str) -> None:
    """A pattern that means something else to RE2 is not guessed at."""
    with pytest.raises(JournalError, match=r"scope|cannot be told"):
        covering(scope)


def test_an_end_that_no_ownership_had_is_not_believed() -> None:
    """For as long as something is owned: it ends with that, whoever says otherwise."""

    def told(*gone: str) -> Telling:
        one = Telling().assigned(TP, "orders:1", "returns:0")
        one.call("pause", scopes=["orders"], owner="w", lifetime="while_assigned")
        if gone:
            one.revoked(*gone)
        one.then("lift", scope="orders", owner="w", since=one.at, why="ended")
        return one.poll(TP, 0, 2)

    assert broken([told("orders:1")]) == set()
    assert broken([told()]) == {"S1"}
    assert broken([told("returns:0")]) == {"S1"}


def test_a_lift_that_no_operator_asked_for_is_not_believed() -> None:
    """What the member heard is its own word; when it was lifted is the operator's."""
    said = {"scope": "orders", "owner": "eve", "group": "g"}
    operator = Telling("operator", group="", at=1000).then("group-hold", **said)
    one = Telling().assigned(TP)
    one.at = 1010.0
    one.then("hold", scope="orders", owner="operator:eve")
    one.then("lift", scope="orders", owner="operator:eve").poll(TP, 0, 2)
    assert broken([operator, one]) == {"S1"}
    operator.at = 1010.1
    assert broken([operator.then("group-lift", **said), one]) == set()


def test_a_hold_of_the_group_that_expires_is_over_by_itself() -> None:
    said = {"scope": "orders", "owner": "eve", "group": "g"}
    operator = Telling("operator", group="", at=1000)
    operator.then("group-hold", **said, until=1020.0)
    for at, found in ((1015.0, {"G2"}), (1025.0, set())):
        one = Telling(at=1010).assigned(TP)
        one.at = at
        assert broken([operator, one.poll(TP, 0, 2)]) == found


def test_what_was_resumed_and_polled_for_must_come() -> None:
    """L1: also if it never comes; when it was there its producer's journal tells."""
    producer = Telling("producer", group="").then("acked", tp=TP, first=0, last=9)
    told = Telling().assigned(TP).poll(TP, 0, 5).pause("orders").resume("orders")
    for _ in range(40):
        told.poll()
    assert broken([told, producer]) == {"L1"}
    assert broken([told]) == set()  # perhaps nothing was there
    late = Telling("producer", group="", at=told.at - 1)
    assert broken([told, late.then("acked", tp=TP, first=0, last=9)]) == set()


@pytest.mark.parametrize(
    ("created", "acked", "found", "unjudged"),
    [
        (1000.0, None, set(), True),  # dated by its producer: that proves nothing
        (1000.0, 999.0, {"L1"}, False),
        (1000.0, 1008.0, set(), False),  # dated long before it was written
        (1008.5, None, set(), False),  # made only then
    ],
)
def test_a_producers_date_is_no_proof_of_waiting(
    created: float, acked: float | None, found: set[str], *, unjudged: bool
) -> None:
    told = Telling().assigned(TP).poll(TP, 0, 5).pause("orders").resume("orders")
    for _ in range(40):
        told.poll()
    fleet = [told.poll(TP, 5, 6, created=created)]
    if acked is not None:
        producer = Telling("producer", group="", at=acked)
        fleet.append(producer.then("acked", tp=TP, first=0, last=5))
    assert broken(fleet) == found
    (verdict,) = check([one.journal() for one in fleet]).values()
    assert ("L1" in verdict.unjudged) is unjudged


def test_a_step_of_an_iteration_waits_from_its_begin_on() -> None:
    """What the program did between two steps is no waiting."""
    for asked, found in ((1002.0, {"L1"}), (1012.0, set())):
        told = Telling().assigned(TP).pause("orders").resume("orders")
        told.at = 1013.0
        run = {"first": 0, "last": 0, "count": 1, "after": 5, "written": 1001.0}
        told.then("deliver", tp=TP, from_=0, next=1, asked=asked, **run)
        assert broken([told]) == found


def test_another_threads_change_between_look_and_entry_is_no_fault() -> None:
    """S7: what paused() returned is compared if nothing changed meanwhile."""
    seen = {"assigned": [TP], "paused": [], "gated": []}
    told = Telling().assigned(TP)
    said = {"op": "pause", "id": 77, "scopes": ["orders"], "owner": "app"}
    told.then("call", **said).then("hold", scope=TP, owner="operator:eve")
    told.then("lift", scope=TP, owner="operator:eve")
    told.then("return", **said, **seen, seen=2, seen_at=told.at)
    assert broken([told]) == set()
    told = Telling().assigned(TP).then("call", **said)
    told.then("return", **said, **seen, seen=2, seen_at=told.at)
    assert broken([told]) == {"S7"}
