"""The trace shows the history of each partition from the judge's own state."""

import json
from itertools import pairwise

import pytest

from safeconsumer.audit.findings import Address
from safeconsumer.audit.perfetto import Collector
from safeconsumer.audit.results import Settings
from tests.harness.audit.fleets import BAD, CASES, FLEETS, GOOD
from tests.harness.audit.journals import MemberJournal, Operator, check, control_in
from tests.harness.listing import short

TP = "orders:0"


def settings_of(journals):
    return Settings(control=control_in(journals))


def collected(*fleet):
    collector = Collector(settings_of(fleet))
    for one in fleet:
        collector.read(one.journal())
    return collector


def only_lane(*fleet):
    (lane,) = collected(*fleet).lanes()
    return lane


def spans(lane):
    return [(round(one.start, 1), round(one.end, 1)) for one in lane.held]


@pytest.mark.parametrize("scope", [TP, "orders", "re:ord.*", "@all"], ids=short)
def test_hold_in_the_trace_is_named_by_its_scope_and_owner(scope):
    member = MemberJournal(at=0).assigned(TP).pause(scope).poll().resume(scope).poll()
    lane = only_lane(member)
    assert [one.name for one in lane.held] == [f"{scope} by app"]
    assert spans(lane) == [(0.3, 0.5)]


def test_operators_hold_is_drawn_once():
    member = MemberJournal("a", at=0).assigned(TP)
    member.then("hold", scope="orders", owner="operator:eve").pause("returns")
    operator = Operator().held(0.1, 0.3, owner="eve")
    lane = only_lane(operator, member)
    assert [one.name for one in lane.held] == ["orders by operator:eve"]


def test_records_of_a_held_partition_are_marked_as_wrong():
    """Only runs of records in which the judge found a violation are marked."""
    lane = only_lane(*FLEETS["a1"]())
    assert sum(run.came.count for run in lane.runs) == 7
    assert sum(run.came.count for run in lane.runs if run.is_wrong) == 2
    good = only_lane(*FLEETS["held_and_let_go"]())
    assert not any(run.is_wrong for run in good.runs)


@pytest.mark.parametrize("fleet", BAD, ids=short)
def test_trace_has_every_finding_of_the_judge(fleet):
    journals = fleet()
    results = check([one.journal() for one in journals], settings_of(journals))
    found = {case: [*one.every] for case, one in results.items()}
    collector = collected(*journals)
    assert found == {lane.case: lane.findings for lane in collector.lanes()}
    assert any(found.values())
    assert rows_of(collector.trace())


def is_certain(fleet):
    return "clock_skew" not in fleet.settings and not {"A1?", "G2?"} & {
        *fleet.text.split()
    }


# If one poll has two pauses, the slice begins at the first; the second is in force.
TWICE = "paused_again_when_it_expires"
CERTAIN = [
    pytest.param(
        one, marks=() if one in (*BAD, *GOOD, *CASES[::4]) else pytest.mark.nightly
    )
    for one in (*BAD, *GOOD, *CASES)
    if is_certain(one) and one.__name__ != TWICE
]


@pytest.mark.parametrize("fleet", CERTAIN, ids=short)
def test_trace_draws_a_hold_exactly_where_a_delivery_would_be_a_violation(fleet):
    """A poll that began before the ownership is judged by the holds at the poll's start."""
    for lane in collected(*(one.then("later") for one in fleet())).lanes():
        for held in lane.held:
            owned = [one for one in lane.owned if one.member == held.member]
            assert any(one.start <= held.start < held.end <= one.end for one in owned)
        for run in lane.runs:
            own = [one for one in lane.held if one.member == run.member]
            owned = [one for one in lane.owned if one.member == run.member]
            asked, at = run.came.asked or run.came.at, run.came.at
            if any(one.start <= asked <= at <= one.end for one in owned):
                is_drawn = any(one.start <= asked and at < one.end for one in own)
                assert is_drawn == run.is_wrong


def test_each_group_has_separate_lanes():
    one = MemberJournal("a", group="billing").assigned(TP).poll(TP, 0, 5)
    one.pause("orders").poll(TP, 5, 7)
    two = MemberJournal("b", group="audit").assigned(TP).poll(TP, 0, 9)
    lanes = collected(one, two).lanes()
    audit, billing = Address("audit", "orders", 0), Address("billing", "orders", 0)
    assert {lane.case: len(lane.findings) for lane in lanes} == {audit: 0, billing: 1}


# ------------------------------------------------------------ the trace

EVIL = '</script>"\x00\x1b\u2028'


def rows_of(text):
    """Return the slices and instants of each row, and check that a viewer can show them."""
    events = json.loads(text)["traceEvents"]
    names, rows = {}, {}
    for one in events:
        if one["ph"] == "M":
            names[one["pid"], one.get("tid")] = one["args"]["name"]
            continue
        row = names[one["pid"], None], names[one["pid"], one["tid"]]
        rows.setdefault(row, []).append(one)
        assert type(one["ts"]) is int
        assert one["ts"] >= 0
        assert one["ph"] == "i" or one["dur"] >= 1
    for several in rows.values():
        slices = sorted((one["ts"], one["ts"] + one.get("dur", 0)) for one in several)
        for (_, end), (start, _) in pairwise(slices):
            assert end <= start  # a viewer drops slices that overlap
    return {
        row: [(one["name"], one["ts"], one.get("dur")) for one in several]
        for row, several in rows.items()
    }


def test_trace_has_rows_of_owners_holds_records_and_findings():
    member = MemberJournal("a", at=0).assigned(TP).poll(TP, 0, 5).pause("orders")
    member.poll(TP, 5, 7).resume("orders").revoked(TP)
    rows = rows_of(collected(member).trace())
    assert {group for group, _ in rows} == {"group g"}
    assert [row for _, row in rows] == [
        "orders:0 owner a",
        "orders:0 held, for a: orders by app",
        "orders:0 records",
        "orders:0 findings",
    ]
    ((name, begin, length),) = rows["group g", "orders:0 owner a"]
    (held,) = rows["group g", "orders:0 held, for a: orders by app"]
    assert (name, begin) == ("a", 0)
    assert 0 < held[2] < length
    records = [one for one, _, _ in rows["group g", "orders:0 records"]]
    assert records == ["0 to 4", "5 to 6 while held"]
    assert [one for one, _, _ in rows["group g", "orders:0 findings"]] == ["A1"]


def test_lost_ownership_is_marked_as_lost():
    """Losing the membership ends the ownership and the member's own hold."""
    frozen = MemberJournal("a", at=0).assigned(TP).pause("orders")
    frozen.at = 9.0
    after = MemberJournal("b", at=4).assigned(TP).poll(TP, 0, 5)
    rows = rows_of(collected(frozen.then("lost", partitions=[TP]), after).trace())
    assert [one[0] for one in rows["group g", "orders:0 owner a"]] == ["a (lost it)"]
    assert [one[0] for one in rows["group g", "orders:0 owner b"]] == ["b"]


def test_trace_has_only_the_selected_partitions():
    member = MemberJournal(at=0).assigned(TP, "returns:0").poll(TP, 0, 5)
    text = collected(member).trace(lambda case: case.topic == "returns")
    assert {row.split()[0] for _, row in rows_of(text)} == {"returns:0"}
    assert rows_of(Collector(Settings()).trace()) == {}


def test_hostile_names_are_escaped():
    member = MemberJournal(EVIL, group=EVIL).assigned(TP).pause(TP, owner=EVIL)
    text = collected(member.poll(TP, 0, 2)).trace()
    assert text.isascii()
    assert ("group " + EVIL, f"orders:0 owner {EVIL}") in rows_of(text)
