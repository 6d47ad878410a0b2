"""Tests the quiet and busy partitions that members on other clients report."""

from types import SimpleNamespace

import pytest

from safeconsumer import Control
from safeconsumer.clients.member import HoldingConsumer, Member
from safeconsumer.errors import (
    ControlSettingError,
    HoldSettingError,
    HookTypeError,
    MemberClosedError,
    TargetTypeError,
)
from safeconsumer.events import HoldCoversNothing
from safeconsumer.group.reports import ControlStatus, MemberReports
from safeconsumer.holds.ownership import Cause

ZERO, ONE = ("orders", 0), ("orders", 1)
OF_THE_LIBRARY = SimpleNamespace(topic="orders", partition=0)


class Consumer(HoldingConsumer):
    """A fake consumer, without a client library, that owns partitions from the start."""

    topics, numbers = frozenset({"orders"}), None

    def _subscribed(self):
        return self.topics

    def _known_numbers(self, topic):
        assert topic == "orders"
        return self.numbers

    def __init__(self, *owned, **more):
        settings = {"client_id": "c", "group_id": "g", "hooks": (), "log": False}
        self.member = self._member = Member(self, **{**settings, **more})
        self.member.begin_ownerships(owned, Cause.JOINED, all_=True)


def reported(one):
    seen = ControlStatus(state="ready", skipped=0, applied={})
    made = MemberReports(
        group="g", client_id="c", read_status=lambda: seen, client=one.member, skew=0
    )
    report = made.report()
    return report.quiet, report.busy


@pytest.mark.contract("G8", "G9")
def test_partition_of_returned_records_is_busy_until_the_next_call():
    one = Consumer(ZERO, ONE)
    one.member.begin_call()
    assert one.member.may_give([ZERO]) == {ZERO}
    one.member.note_given([ZERO])
    one.hold("orders")
    assert reported(one) == ({"orders": ((1, 1),)}, {"orders": ((0, 0),)})
    one.member.begin_call()
    assert reported(one) == ({"orders": ((0, 1),)}, {})


def test_last_report_does_not_list_busy_partitions():
    """A report is valid for a minute, so ``pause --wait`` would fail after a member left."""
    one = Consumer(ZERO)
    one.member.note_given([ZERO])
    one.member.end_control()
    assert reported(one) == ({}, {})


@pytest.mark.contract("G8", "G9")
def test_single_returned_record_counts_as_busy_and_a_held_record_is_not_returned():
    one = Consumer(ZERO, ONE)
    assert one.member.may_give_one(ZERO)
    assert one.member.busy() == {ZERO}
    one.hold("orders:0")
    one.member.begin_call()
    assert not one.member.may_give_one(ZERO)
    assert one.member.busy() == frozenset()
    assert one.member.may_give_one(ONE)


@pytest.mark.contract("G8", "G9")
@pytest.mark.parametrize("is_single", [False, True], ids=["several", "single"])
def test_report_never_shows_a_partition_as_quiet_while_its_records_are_returned(
    *, is_single
):
    """
    If a hold arrives during the call, it is obeyed, or the partition is reported as busy.

    1. The member is about to return records, and checks the holds.
    2. The member counts the partition as busy.
    3. A hold arrives, and the member sends a report.
    4. The member checks the holds again, and returns no records.
    """
    one = Consumer(ZERO)
    reports = []

    class Arriving(frozenset):
        def __rsub__(self, other):
            reports.append(reported(one))
            return other - frozenset(self)

        def __contains__(self, tp):
            reports.append(reported(one))
            return super().__contains__(tp)

    one.hold("orders")
    one.member.quiet = lambda: Arriving(one.member.ledger.quiet())
    if is_single:
        assert not one.member.may_give_one(ZERO)
    else:
        assert one.member.may_give([ZERO]) == frozenset()
    assert reports == [({}, {"orders": ((0, 0),)})]


def test_partition_is_busy_while_the_programs_threads_process_its_records():
    one = Consumer(ZERO)
    one.busy = lambda: [OF_THE_LIBRARY]
    one.hold(OF_THE_LIBRARY)
    assert reported(one) == ({}, {"orders": ((0, 0),)})


PASSED = {
    "reassigned": ([Cause.PASSING], [ZERO], {ZERO}),
    "reassigned after a loss": ([Cause.LOST], [ZERO], {ZERO}),
    "not reassigned": ([Cause.PASSING], [ONE], set()),
    "unsubscribed": ([Cause.UNSUBSCRIBED], [ZERO], set()),
}


@pytest.mark.parametrize(("causes", "back", "quiet"), PASSED.values(), ids=list(PASSED))
def test_pause_lasts_if_its_partition_is_reassigned_to_the_member(causes, back, quiet):
    one = Consumer(ZERO, ONE)
    one._pause([OF_THE_LIBRARY])
    for cause in causes:
        one.member.begin_ownerships((), cause, all_=True)
    one.member.begin_ownerships(back, Cause.JOINED, all_=True)
    one.member.begin_ownerships([ZERO], Cause.JOINED, all_=False)
    assert one.member.quiet() == quiet


def test_hold_outlasts_every_rebalance_until_its_owner_lifts_it():
    one = Consumer(ZERO)
    one.hold("re:ord.*", owner="db", reason="x")
    for cause in (Cause.PASSING, Cause.UNSUBSCRIBED, Cause.ASSIGNED, Cause.LOST):
        one.member.begin_ownerships((), cause, all_=True)
        one.member.begin_ownerships([ZERO], Cause.JOINED, all_=True)
        assert one.member.quiet() == {ZERO}
    assert [hold.owner for hold in one.lift("orders:0")] == ["db"]
    assert one.lift("re:ord.*", owner="db") == ()
    assert one.member.quiet() == frozenset()


@pytest.mark.contract("G9")
def test_scope_with_a_range_holds_and_lifts_each_partition():
    one = Consumer(ZERO, ONE)
    one.hold("orders:0-1", owner="db")
    assert [str(hold.scope) for hold in one.holds()] == ["orders:0", "orders:1"]
    assert one.lift("orders:0-1", owner="db") == one.holds() == ()


SUBSCRIPTIONS = {  # topics, partition numbers, and targets that match no partition
    "topics": (frozenset({"orders"}), None, ["order", "order:0"]),
    "known partitions": (
        frozenset({"orders"}),
        {0, 1, 2},
        ["order", "order:0", "orders:7"],
    ),
    "a pattern": (None, None, []),
    "assigned manually": (
        frozenset(),
        None,
        ["order", "order:0", "orders:2", "orders:7"],
    ),
}


@pytest.mark.contract("P5", "G9")
@pytest.mark.parametrize("is_early", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("topics", "numbers", "names"),
    SUBSCRIPTIONS.values(),
    ids=list(SUBSCRIPTIONS),
)
def test_hold_that_matches_no_partition_is_reported_once(
    is_early, topics, numbers, names
):
    """Another member may own the partitions that this member lacks."""
    seen = []
    one = Consumer(*([] if is_early else [ZERO]), hooks=[seen.append])
    one.topics, one.numbers = topics, numbers
    targets = ("order", "order:0", "orders", "orders:0", "orders:2", "orders:7", "@all")
    one.hold(*targets, "re:orders", owner="ops")
    has_event = any(isinstance(event, HoldCoversNothing) for event in seen)
    assert has_event == (bool(names) and not is_early)
    for owned in ([], [ZERO], [ZERO, ONE]):
        one.member.begin_ownerships(owned, Cause.JOINED, all_=True)
    found = [event for event in seen if isinstance(event, HoldCoversNothing)]
    scopes = [[str(hold.scope) for hold in event.holds] for event in found]
    assert scopes == ([names] if names else [])
    assert all(event.severity == "warning" for event in found)


@pytest.mark.contract("G9")
def test_hold_that_was_lifted_before_the_assignment_is_not_reported():
    seen = []
    one = Consumer(hooks=[seen.append])
    one.hold("order")
    one.lift("order")
    one.member.begin_ownerships([ZERO], Cause.JOINED, all_=True)
    assert not [event for event in seen if isinstance(event, HoldCoversNothing)]


@pytest.mark.contract("G9")
def test_hold_on_a_closed_consumer_is_refused():
    """Bad arguments are reported first; lifting a hold does not raise an error."""
    one = Consumer(ZERO)
    one.member.end_control()
    one.hold("orders")  # a listener may still do this in its last call
    one.member.close()
    with pytest.raises(HoldSettingError):
        one.hold("orders", for_=-1)
    with pytest.raises(MemberClosedError):
        one.hold("orders")
    assert one.lift("orders") == one.holds() == ()


def test_hold_on_a_paused_partition_is_listed_and_explained():
    one = Consumer(ZERO)
    one.hold("orders:0", reason="DB-4211", for_=600)
    one._pause([OF_THE_LIBRARY])
    assert [hold.reason for hold in one.holds()] == [None, "DB-4211"]
    assert ["DB-4211" in line for line in one.explain("orders:0")] == [False, True]


def test_new_member_identity_is_reported_once():
    one, calls = Consumer(ZERO), []
    one.member.call_after_joins(lambda: calls.append(one.member.membership()))
    for _ in range(2):
        one.member.identify("a-1", 7)
    one.member.identify("a-1", 8)
    assert calls == [("a-1", 7), ("a-1", 8)]


def test_bad_arguments_are_refused_and_change_nothing():
    one = Consumer(ZERO)
    for owner in ("", "operator:alice", "worker:queue"):
        with pytest.raises(HoldSettingError):
            one.hold("orders", owner=owner)
    with pytest.raises(HoldSettingError):
        one.hold("orders", for_=-1)
    with pytest.raises(TargetTypeError, match="explain"):
        one.explain("orders")
    with pytest.raises(HookTypeError):
        Consumer(hooks=print)
    assert one.holds() == ()


@pytest.mark.parametrize(
    ("control", "more", "refusal"),
    [
        (
            Control(client_configs={"fetch_max_wait_ms": 50}),
            {},
            "own client's settings",
        ),
        (Control(), {"group_id": None}, "group_id"),
    ],
)
def test_control_without_a_group_or_with_another_clients_settings_is_refused(
    control, more, refusal
):
    with pytest.raises(ControlSettingError, match=refusal):
        Consumer(**more).member.control_of(control, SimpleNamespace(group_id=None))
