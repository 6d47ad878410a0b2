"""What a picture tells of journals, before anything is drawn."""

import pytest

from safeconsumer.audit.findings import Address
from safeconsumer.audit.results import Settings
from safeconsumer.audit.timeline.collect import Collector, Part
from safeconsumer.errors import JournalError
from tests.harness.audit import bad
from tests.harness.audit.telling import Operator, Telling, check, control_in
from tests.harness.listing import short

TP, OTHER = "orders:0", "orders:1"


def timeline_of(*fleet, part=None):
    collector = Collector(Settings(control=control_in(fleet)))
    for one in fleet:
        collector.read(one.journal())
    return collector.timeline(part)


def only_lane(*fleet):
    (lane,) = timeline_of(*fleet).lanes
    return lane


def spans(lane):
    return [(round(one.start, 1), round(one.end, 1)) for one in lane.held]


@pytest.mark.parametrize("scope", [TP, "orders", "re:ord.*", "@all"], ids=short)
def test_a_hold_has_the_scope_that_was_paused(scope):
    told = Telling(at=0).assigned(TP).pause(scope).poll().resume(scope).poll()
    lane = only_lane(told)
    assert [(one.scope, one.owner) for one in lane.held] == [(scope, "app")]
    assert spans(lane) == [(0.3, 0.5)]


def test_what_an_operator_holds_is_a_hold_of_the_group():
    member = Telling("a", at=0).assigned(TP)
    member.then("hold", scope="orders", owner="operator:eve").pause("returns")
    operator = Operator().held(0.1, 0.3, owner="eve")
    lane = only_lane(operator, member)
    assert [one.owner for one in lane.held] == ["operator:eve"]


def test_a_frozen_members_hold_does_not_shade_the_next_owners_deliveries():
    """It stands until the member hears that it lost the partition, for that member alone."""
    frozen = Telling("a", at=0).assigned(TP).pause("orders")
    frozen.at = 9.0
    after = Telling("b", at=4).assigned(TP).poll(TP, 0, 5)
    lane = only_lane(frozen.then("lost", partitions=[TP]), after)
    assert spans(lane) == [(0.3, 9.1)]
    assert [(round(a, 1), round(b, 1)) for a, b in lane.shade()] == [(0.3, 4.1)]


def test_records_are_counted_and_those_of_a_held_partition_are_wrong():
    """What is red is what the checker found, no more and no less."""
    lane = only_lane(*bad.FLEETS["a1"]())
    assert (lane.records, lane.violations) == (7, {"A1": 1})
    assert sum(run.wrong for run in lane.runs) == 2
    assert sum(bar.wrong for bar in lane.bars(1000.0, 0.1, 100)) == 2
    assert only_lane(*bad.FLEETS["held_and_let_go"]()).violations == {}


@pytest.mark.parametrize("make", bad.BAD, ids=short)
def test_every_broken_promise_is_told(make):
    fleet = make()
    assumed = Settings(control=control_in(fleet))
    verdicts = check([one.journal() for one in fleet], assumed)
    expected = {case: [*one.every] for case, one in verdicts.items()}
    lanes = timeline_of(*fleet).lanes
    assert expected == {lane.case: lane.findings for lane in lanes}
    assert any(expected.values())


def test_members_stand_in_the_order_in_which_they_came_or_of_their_names():
    began = {"m10": 3.0, "b": 5.0, "a": 5.0, "m": 1.0}
    fleet = [Telling(name, at=at).assigned(TP) for name, at in began.items()]
    names = [one.member for one in timeline_of(*fleet).members]
    assert names == ["m", "m10", "a", "b"]


def _names(timeline):
    return [f"{lane.case.topic}:{lane.case.partition}" for lane in timeline.lanes]


def test_each_group_has_lanes_of_its_own():
    one = Telling("a", group="billing").assigned(TP).poll(TP, 0, 5)
    one.pause("orders").poll(TP, 5, 7)
    two = Telling("b", group="audit").assigned(TP).poll(TP, 0, 9)
    both = timeline_of(one, two)
    cases = [lane.case for lane in both.lanes]
    assert cases == [Address("audit", "orders", 0), Address("billing", "orders", 0)]
    assert [lane.violations for lane in both.lanes] == [{}, {"A1": 1}]
    assert [one.member for one in both.members] == ["a", "b"]
    only = timeline_of(one, two, part=Part(groups=frozenset({"audit"})))
    assert ([lane.case for lane in only.lanes], only.is_whole) == (cases[:1], False)
    assert both.is_whole
    assert [one.member for one in only.members] == ["b"]


def test_a_timeline_can_be_narrowed_to_topics_partitions_and_times():
    fleet = Telling(at=0).assigned(TP, OTHER, "returns:0").poll(TP, 0, 5)
    fleet.poll(TP, 5, 9)
    assert _names(timeline_of(fleet)) == [TP, OTHER, "returns:0"]
    only = Part(partitions=frozenset({("returns", None), ("orders", 1)}))
    assert _names(timeline_of(fleet, part=only)) == [OTHER, "returns:0"]
    late = timeline_of(fleet, part=Part(start=0.4))
    assert [lane.records for lane in late.lanes] == [4, 0, 0]
    early = timeline_of(fleet, part=Part(end=0.3))
    assert [lane.records for lane in early.lanes] == [5, 0, 0]
    assert (late.is_whole, early.is_whole) == (False, False)


@pytest.mark.parametrize(("end", "is_lost"), [(None, True), (0.2, False)])
def test_what_is_lost_behind_the_end_is_not_lost_at_it(end, *, is_lost):
    """It is shown up to the end of the part, and nothing happened to it there."""
    told = Telling(at=0).assigned(TP).poll(TP, 0, 5).then("lost", partitions=[TP])
    (lane,) = timeline_of(told, part=Part(end=end)).lanes
    assert [one.is_lost for one in lane.owned] == [is_lost]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            Part(partitions=frozenset({("returns", None)})),
            "no journal names the topic returns; they name orders:0 of group g",
        ),
        (Part(start=60.0), "the journals last 0.2 s"),
        (Part(start=0.2, end=0.1), "is asked for"),
    ],
    ids=short,
)
def test_nothing_to_draw_is_an_error(part, said):
    with pytest.raises(JournalError, match=said):
        timeline_of(Telling(at=0).assigned(TP).poll(TP, 0, 5), part=part)


def test_journals_without_entries_are_an_error():
    with pytest.raises(JournalError, match="no entries"):
        timeline_of(Telling())


@pytest.mark.parametrize("at", [-1e11, 1e12])
def test_times_that_no_calendar_has_are_an_error(at):
    with pytest.raises(JournalError, match="years 1900 to 9000"):
        timeline_of(Telling(at=at).assigned(TP).poll(TP, 0, 5))
