"""Members on other clients: quiet partitions, records in hand, and reports of both."""

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
    """A consumer of no library, which owns partitions from the start."""

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
def test_given_records_are_busy_until_the_next_call():
    one = Consumer(ZERO, ONE)
    one.member.begin_call()
    assert one.member.may_give([ZERO]) == {ZERO}
    one.member.note_given([ZERO])
    one.hold("orders")
    assert reported(one) == ({"orders": ((1, 1),)}, {"orders": ((0, 0),)})
    one.member.begin_call()
    assert reported(one) == ({"orders": ((0, 1),)}, {})


def test_a_last_report_has_no_busy_partition():
    """It counts for a minute: ``pause --wait`` failed after each member that left."""
    one = Consumer(ZERO)
    one.member.note_given([ZERO])
    one.member.end_control()
    assert reported(one) == ({}, {})


@pytest.mark.contract("G8", "G9")
def test_single_given_record_is_busy_and_a_held_one_is_not_given():
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
def test_no_report_shows_a_partition_as_quiet_while_it_is_given(*, is_single):
    """
    A hold that arrives as records are given is obeyed, or the records are busy.

    1. The member asks whether it may return records.
    2. The partition counts as in hand.
    3. A hold arrives, and a report is made.
    4. The member checks the hold, and returns no record.
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


def test_partitions_of_the_programs_threads_are_busy():
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
        one.member.begin_ownerships((), cause, all_=True)
    one.member.begin_ownerships(back, Cause.JOINED, all_=True)
    one.member.begin_ownerships([ZERO], Cause.JOINED, all_=False)
    assert one.member.quiet() == quiet


def test_a_hold_outlasts_everything_but_its_owners_lift():
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
def test_text_with_ranges_holds_and_lifts_each_partition():
    one = Consumer(ZERO, ONE)
    one.hold("orders:0-1", owner="db")
    assert [str(hold.scope) for hold in one.holds()] == ["orders:0", "orders:1"]
    assert one.lift("orders:0-1", owner="db") == one.holds() == ()


WHAT_IT_CONSUMES = {  # topics, numbers of partitions, and the names that match nothing
    "topics": (frozenset({"orders"}), None, ["order", "order:0"]),
    "partitions too": (
        frozenset({"orders"}),
        {0, 1, 2},
        ["order", "order:0", "orders:7"],
    ),
    "a pattern": (None, None, []),
    "assigned by hand": (
        frozenset(),
        None,
        ["order", "order:0", "orders:2", "orders:7"],
    ),
}


@pytest.mark.contract("P5", "G9")
@pytest.mark.parametrize("is_early", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("topics", "numbers", "names"),
    WHAT_IT_CONSUMES.values(),
    ids=list(WHAT_IT_CONSUMES),
)
def test_hold_that_matches_nothing_is_reported_once(is_early, topics, numbers, names):
    """Before an assignment, or after one; another member may own the other partitions."""
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
    """The call checks its arguments first; a lift finds no hold, and raises no error."""
    one = Consumer(ZERO)
    one.member.end_control()
    one.hold("orders")  # in the listener's last call, for example
    one.member.close()
    with pytest.raises(HoldSettingError):
        one.hold("orders", for_=-1)
    with pytest.raises(MemberClosedError):
        one.hold("orders")
    assert one.lift("orders") == one.holds() == ()


def test_a_hold_beneath_a_pause_is_listed_and_explained():
    one = Consumer(ZERO)
    one.hold("orders:0", reason="DB-4211", for_=600)
    one._pause([OF_THE_LIBRARY])
    assert [hold.reason for hold in one.holds()] == [None, "DB-4211"]
    assert ["DB-4211" in line for line in one.explain("orders:0")] == [False, True]


def test_a_new_identity_is_reported_once():
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
def test_control_needs_a_group_and_its_own_client_s_settings(control, more, refusal):
    with pytest.raises(ControlSettingError, match=refusal):
        Consumer(**more).member.control_of(control, SimpleNamespace(group_id=None))
