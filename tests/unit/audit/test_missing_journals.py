"""A fleet of which one journal is gone, as with the disk of a pod."""

import pytest

from safeconsumer.audit.report import UNKNOWN, VIOLATED, rows_of, status_of
from tests.harness.audit.bad import TP
from tests.harness.audit.telling import Telling, check


def fleet():
    """Have three members own a partition by turns, and commit what each got."""
    several = []
    for number, name in enumerate("abc"):
        told = Telling(name, at=1000.0 * (number + 1))
        told.assigned(TP, generation=2 * number + 1)
        told.poll(TP, 10 * number, 10 * number + 10).commit(TP, 10 * number + 10)
        several.append(told.revoked(TP, generation=2 * number + 2))
    return several


def status(several):
    (result,) = check([one.journal() for one in several]).values()
    return status_of(rows_of(result), is_complete=True)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="no commit names the journal of who made it: what a missing journal has "
    "looks like records that nobody delivered",
)
def test_a_journal_that_is_gone_is_missing_and_no_violation():
    """S5: A2 and A4 cannot be told; somebody delivered and committed what lies between."""
    first, _, last = fleet()
    assert status([first, last]) == UNKNOWN


def test_what_nobody_delivered_is_a_violation_with_every_journal_there():
    """The twin: the next owner skips what its predecessor did not commit."""
    first, second, last = fleet()
    assert status([first, second, last]) == 0
    passed = Telling("c", at=3000.0).assigned(TP, generation=5).poll(TP, 25, 30)
    assert status([first, second, passed]) == VIOLATED
