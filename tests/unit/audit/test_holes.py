"""A2 of offsets that no member had a record of, and of which no topic was read."""

from typing import Any

import pytest

from safeconsumer.audit.report import CLEAN, UNKNOWN, rows_of, status_of
from safeconsumer.audit.results import Result, Settings
from tests.harness.audit.bad import TP, Fleet
from tests.harness.audit.telling import Telling, check

KEPT_WHOLE = frozenset({"orders"})


def judged(fleet: Fleet, **assumed: Any) -> Result:  # noqa: ANN401 - of any kind
    settings = Settings(**assumed)
    (result,) = check([one.journal() for one in fleet], settings).values()
    return result


def jumped() -> Telling:
    """Have a client jump over seven offsets between two polls."""
    told = Telling().assigned(TP).poll(TP, 0, 20)
    return told.poll(TP, 20, 30, first=27, count=3).commit(TP, 30)


def left_out() -> Telling:
    """Have seven offsets lie in the middle of what one poll returned."""
    return Telling().assigned(TP).poll(TP, 0, 30, count=23, gaps=[[20, 27]])


def moved_over() -> Telling:
    """Have a commit pass over seven offsets, as over markers."""
    told = Telling().assigned(TP).poll(TP, 0, 20)
    told.then("moved", tp=TP, from_=20, next=27)
    return told.commit(TP, 27)


@pytest.mark.xfail(strict=True, reason="A2 is clean whatever a position went over")
@pytest.mark.parametrize("told", [jumped(), left_out(), moved_over()])
def test_a_hole_in_a_topic_that_is_not_compacted_is_not_judged(told: Telling) -> None:
    result = judged([told], uncompacted=KEPT_WHOLE)
    assert result.findings == ()
    assert result.unjudged["A2"].startswith("offsets 20 to 26 had no record")
    assert "--against-topic" in result.unjudged["A2"]
    assert status_of(rows_of(result), is_complete=True) == UNKNOWN


@pytest.mark.xfail(strict=True, reason="nothing counts offsets without a record")
def test_a_hole_in_any_other_topic_is_counted_and_no_reason_to_doubt() -> None:
    result = judged([jumped()])
    (row,) = (one.as_dict() for one in rows_of(result) if one.check == "A2")
    assert (row["unrecorded"], row["unjudged"]) == (7, "")
    assert status_of(rows_of(result), is_complete=True) == CLEAN
