"""What members on other clients share: what is quiet, in hand, and reported as such."""

from types import SimpleNamespace

import pytest

from safeconsumer.clients.member import Member
from safeconsumer.errors import HoldSettingError, HookTypeError
from safeconsumer.group.reports import ControlStatus, MemberReports
from safeconsumer.holds.hold import Lifetime
from safeconsumer.holds.ownership import Cause

ZERO, ONE = ("orders", 0), ("orders", 1)


def member(*owned, **more):
    settings = {"client_id": "c", "group_id": "g", "hooks": (), "log": False}
    made = Member(**{**settings, "elsewhere": tuple, **more})
    made.own(owned, Cause.JOINED, all_=True)
    return made


def reported(one):
    seen = ControlStatus(state="ready", skipped=0, applied={})
    made = MemberReports(
        group="g", client_id="c", look=lambda: seen, client=one, skew=0
    )
    report = made.report()
    return report.quiet, report.busy


@pytest.mark.contract("G8", "G9")
def test_what_was_given_is_busy_until_the_next_call():
    one = member(ZERO, ONE)
    one.begin_call()
    assert one.may_give([ZERO]) == {ZERO}
    one.gave([ZERO])
    one.place(["orders"])
    assert reported(one) == ({"orders": ((1, 1),)}, {"orders": ((0, 0),)})
    one.begin_call()
    assert reported(one) == ({"orders": ((0, 1),)}, {})


def test_a_last_report_says_busy_of_nothing_that_its_program_has_done_with():
    """It counts for a minute: ``pause --wait`` failed after each member that left."""
    one = member(ZERO)
    one.gave([ZERO])
    one.end_control()
    assert reported(one) == ({}, {})


@pytest.mark.contract("G8", "G9")
def test_no_report_says_quiet_of_what_is_being_given():
    """
    A hold that arrives as records are given is either obeyed, or they are busy.

    1. The member asks whether it may give. 2. The partition counts as in hand. 3. A hold
    arrives, and a report is made. 4. The member looks: it gives nothing.
    """
    one = member(ZERO)
    said = []

    class Arriving(frozenset):
        def __rsub__(self, other):
            said.append(reported(one))
            return other - frozenset(self)

    one.place(["orders"])
    one.quiet = lambda: Arriving(one.ledger.quiet())
    assert one.may_give([ZERO]) == frozenset()
    assert said == [({}, {"orders": ((0, 0),)})]


def test_what_the_programs_threads_work_on_is_busy():
    theirs = SimpleNamespace(topic="orders", partition=0)
    one = member(ZERO, elsewhere=lambda: [theirs])
    one.place([theirs])
    assert reported(one) == ({}, {"orders": ((0, 0),)})


PASSED = {
    "given back": ([Cause.PASSING], [ZERO], {ZERO}),
    "given back after a loss": ([Cause.LOST], [ZERO], {ZERO}),
    "left out": ([Cause.PASSING], [ONE], set()),
    "unsubscribed": ([Cause.UNSUBSCRIBED], [ZERO], set()),
}


@pytest.mark.parametrize(("causes", "back", "quiet"), PASSED.values(), ids=list(PASSED))
def test_a_pause_lasts_while_its_partition_is_given_back(causes, back, quiet):
    one = member(ZERO, ONE)
    one.place([ZERO], lifetime=Lifetime.PLAIN)
    for cause in causes:
        one.own((), cause, all_=True)
    one.own(back, Cause.JOINED, all_=True)
    one.own([ZERO], Cause.JOINED, all_=False)
    assert one.quiet() == quiet


def test_a_hold_outlasts_everything_but_its_owners_lift():
    one = member(ZERO)
    one.place(["re:ord.*"], owner="db", reason="x")
    for cause in (Cause.PASSING, Cause.UNSUBSCRIBED, Cause.ASSIGNED, Cause.LOST):
        one.own((), cause, all_=True)
        one.own([ZERO], Cause.JOINED, all_=True)
        assert one.quiet() == {ZERO}
    assert [hold.owner for hold in one.lift(["orders:0"], "app")] == ["db"]
    assert one.lift(["re:ord.*"], "db") == ()
    assert one.quiet() == frozenset()


def test_a_new_identity_is_told_once():
    one, told = member(ZERO), []
    one.call_after_joins(lambda: told.append(one.membership()))
    for _ in range(2):
        one.identify("a-1", 7)
    one.identify("a-1", 8)
    assert told == [("a-1", 7), ("a-1", 8)]


def test_what_cannot_be_meant_is_refused_and_changes_nothing():
    one = member(ZERO)
    for owner in ("", "operator:alice", "worker:queue"):
        with pytest.raises(HoldSettingError):
            one.place(["orders"], owner=owner)
    with pytest.raises(HoldSettingError):
        one.place(["orders"], for_=-1)
    with pytest.raises(HoldSettingError, match="explain"):
        one.explain("orders")
    with pytest.raises(HookTypeError):
        member(hooks=print)
    assert one.holds() == ()
