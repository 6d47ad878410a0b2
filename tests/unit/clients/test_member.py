"""What members on other clients share: what is quiet, in hand, and reported as such."""

from types import SimpleNamespace

import pytest

from safeconsumer.clients.member import HoldingConsumer, Member
from safeconsumer.errors import HoldSettingError, HookTypeError
from safeconsumer.group.reports import ControlStatus, MemberReports
from safeconsumer.holds.ownership import Cause

ZERO, ONE = ("orders", 0), ("orders", 1)
OF_THE_LIBRARY = SimpleNamespace(topic="orders", partition=0)


class Consumer(HoldingConsumer):
    """A consumer of no library, which owns partitions from its beginning."""

    def __init__(self, *owned, **more):
        settings = {"client_id": "c", "group_id": "g", "hooks": (), "log": False}
        self.member = self._member = Member(self, **{**settings, **more})
        self.member.own(owned, Cause.JOINED, all_=True)


def reported(one):
    seen = ControlStatus(state="ready", skipped=0, applied={})
    made = MemberReports(
        group="g", client_id="c", read_status=lambda: seen, client=one.member, skew=0
    )
    report = made.report()
    return report.quiet, report.busy


@pytest.mark.contract("G8", "G9")
def test_what_was_given_is_busy_until_the_next_call():
    one = Consumer(ZERO, ONE)
    one.member.begin_call()
    assert one.member.may_give([ZERO]) == {ZERO}
    one.member.gave([ZERO])
    one.hold("orders")
    assert reported(one) == ({"orders": ((1, 1),)}, {"orders": ((0, 0),)})
    one.member.begin_call()
    assert reported(one) == ({"orders": ((0, 1),)}, {})


def test_a_last_report_says_busy_of_nothing_that_its_program_has_done_with():
    """It counts for a minute: ``pause --wait`` failed after each member that left."""
    one = Consumer(ZERO)
    one.member.gave([ZERO])
    one.member.end_control()
    assert reported(one) == ({}, {})


@pytest.mark.contract("G8", "G9")
def test_no_report_says_quiet_of_what_is_being_given():
    """
    A hold that arrives as records are given is either obeyed, or they are busy.

    1. The member asks whether it may give. 2. The partition counts as in hand. 3. A hold
    arrives, and a report is made. 4. The member looks: it gives nothing.
    """
    one = Consumer(ZERO)
    said = []

    class Arriving(frozenset):
        def __rsub__(self, other):
            said.append(reported(one))
            return other - frozenset(self)

    one.hold("orders")
    one.member.quiet = lambda: Arriving(one.member.ledger.quiet())
    assert one.member.may_give([ZERO]) == frozenset()
    assert said == [({}, {"orders": ((0, 0),)})]


def test_what_the_programs_threads_work_on_is_busy():
    one = Consumer(ZERO)
    one.busy = lambda: [OF_THE_LIBRARY]
    one.hold(OF_THE_LIBRARY)
    assert reported(one) == ({}, {"orders": ((0, 0),)})


PASSED = {
    "given back": ([Cause.PASSING], [ZERO], {ZERO}),
    "given back after a loss": ([Cause.LOST], [ZERO], {ZERO}),
    "left out": ([Cause.PASSING], [ONE], set()),
    "unsubscribed": ([Cause.UNSUBSCRIBED], [ZERO], set()),
}


@pytest.mark.parametrize(("causes", "back", "quiet"), PASSED.values(), ids=list(PASSED))
def test_a_pause_lasts_while_its_partition_is_given_back(causes, back, quiet):
    one = Consumer(ZERO, ONE)
    one._pause([OF_THE_LIBRARY])
    for cause in causes:
        one.member.own((), cause, all_=True)
    one.member.own(back, Cause.JOINED, all_=True)
    one.member.own([ZERO], Cause.JOINED, all_=False)
    assert one.member.quiet() == quiet


def test_a_hold_outlasts_everything_but_its_owners_lift():
    one = Consumer(ZERO)
    one.hold("re:ord.*", owner="db", reason="x")
    for cause in (Cause.PASSING, Cause.UNSUBSCRIBED, Cause.ASSIGNED, Cause.LOST):
        one.member.own((), cause, all_=True)
        one.member.own([ZERO], Cause.JOINED, all_=True)
        assert one.member.quiet() == {ZERO}
    assert [hold.owner for hold in one.lift("orders:0")] == ["db"]
    assert one.lift("re:ord.*", owner="db") == ()
    assert one.member.quiet() == frozenset()


def test_a_new_identity_is_told_once():
    one, told = Consumer(ZERO), []
    one.member.call_after_joins(lambda: told.append(one.member.membership()))
    for _ in range(2):
        one.member.identify("a-1", 7)
    one.member.identify("a-1", 8)
    assert told == [("a-1", 7), ("a-1", 8)]


def test_what_cannot_be_meant_is_refused_and_changes_nothing():
    one = Consumer(ZERO)
    for owner in ("", "operator:alice", "worker:queue"):
        with pytest.raises(HoldSettingError):
            one.hold("orders", owner=owner)
    with pytest.raises(HoldSettingError):
        one.hold("orders", for_=-1)
    with pytest.raises(HoldSettingError, match="explain"):
        one.explain("orders")
    with pytest.raises(HookTypeError):
        Consumer(hooks=print)
    assert one.holds() == ()
