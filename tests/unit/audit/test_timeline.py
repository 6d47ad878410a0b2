"""What a picture tells of journals, before anything is drawn."""

from collections.abc import Sequence

import pytest

from safeconsumer.audit.checker import Settings, check
from safeconsumer.audit.facts import Address, Fact
from safeconsumer.audit.holding import Placed
from safeconsumer.audit.timeline.story import Lane, Level, Timeline
from safeconsumer.audit.timeline.telling import Wanted, Watching
from safeconsumer.errors import JournalError
from tests.harness.audit import bad
from tests.harness.audit.control import Operator, control_in
from tests.harness.audit.telling import Telling
from tests.harness.listing import each

TP, OTHER = "orders:0", "orders:1"


def told_of(*fleet: Telling, wanted: Wanted | None = None) -> Timeline:
    watching = Watching(Settings(control=control_in(fleet)))
    for one in fleet:
        watching.hear(one.journal())
    return watching.told(wanted)


def only_lane(*fleet: Telling) -> Lane:
    (lane,) = told_of(*fleet).lanes
    return lane


def spans(lane: Lane) -> list[tuple[float, float]]:
    return [(round(one.start, 1), round(one.end, 1)) for one in lane.held]


@each(
    ("scope", "level"),
    [
        (TP, Level.PARTITION),
        ("orders", Level.TOPIC),
        ("re:ord.*", Level.PATTERN),
        ("@all", Level.CONSUMER),
    ],
)
def test_a_hold_has_the_level_that_was_paused(scope: str, level: Level) -> None:
    """And lasts from the return of pause to the call of resume."""
    told = Telling(at=0).assigned(TP).pause(scope).poll().resume(scope).poll()
    lane = only_lane(told)
    assert [one.level for one in lane.held] == [level]
    assert spans(lane) == [(0.3, 0.6)]


def test_a_partition_of_a_topic_that_is_called_re_is_no_pattern() -> None:
    """A journal names it as everybody does."""
    lane = only_lane(Telling().assigned("re:0").pause("re:re:0").poll())
    assert [one.level for one in lane.held] == [Level.PARTITION]


def test_what_an_operator_holds_is_a_hold_of_the_group() -> None:
    """Whether a member or the operator's own journal tells of it, it is drawn once."""
    member = Telling("a", at=0).assigned(TP)
    member.then("hold", scope="orders", owner="eve").poll()
    operator = Operator().held(0.1, 0.3, owner="eve")
    lane = only_lane(operator, member)
    assert {one.level for one in lane.held} == {Level.GROUP}
    assert len(lane.held) == 1


def test_an_operators_hold_binds_at_once_who_comes_after_it() -> None:
    """Who was there before delivers until it hears of it; nothing of that is a fault."""
    operator = Operator().held(0.1, 9.1)
    before = Telling("a", at=-1).assigned(TP).poll(TP, 0, 5)
    before.until(0.2).then("hold", scope="orders", owner="operator:alice")
    before.until(3.0).poll().revoked(TP)
    after = Telling("b", at=4).assigned(TP).poll().poll()
    assert spans(only_lane(operator, before, after)) == [(0.3, 3.3), (4.1, 4.5)]


def test_a_frozen_members_hold_does_not_shade_the_next_owners_deliveries() -> None:
    """It stands until the member hears that it lost the partition, for that member alone."""
    frozen = Telling("a", at=0).assigned(TP).pause("orders")
    frozen.at = 9.0
    after = Telling("b", at=4).assigned(TP).poll(TP, 0, 5)
    lane = only_lane(frozen.then("lost", partitions=[TP]), after)
    assert spans(lane) == [(0.3, 9.1)]
    assert [(round(a, 1), round(b, 1)) for a, b in lane.shade()] == [(0.3, 4.1)]


def test_records_are_counted_and_those_of_a_held_partition_are_wrong() -> None:
    """What is red is what the checker found, no more and no less."""
    lane = only_lane(*bad.a1())
    assert (lane.records, lane.violations) == (7, {"A1": 1})
    assert sum(run.count for run in lane.runs if run.is_wrong) == 2
    assert sum(bar.wrong for bar in lane.bars(1000.0, 0.1, 100)) == 2
    assert only_lane(*bad.held_and_let_go()).violations == {}


@each("make", bad.BAD)
def test_every_broken_promise_is_told(make: object) -> None:
    """Of whatever kind."""
    fleet = make()  # type: ignore[operator]  # a fleet's maker
    assumed = Settings(control=control_in(fleet))
    verdicts = check([one.journal() for one in fleet], assumed)
    expected = {case: one.findings for case, one in verdicts.items()}
    lanes = told_of(*fleet).lanes
    assert expected == {Address(*lane.place): tuple(lane.findings) for lane in lanes}
    assert any(expected.values())


def test_a_restarted_member_goes_on_in_its_lane() -> None:
    """Its process and what was added by chance do not name it."""
    one = Telling("m1-71-00c0ffee").assigned(TP).poll()
    two = Telling("m1-99-0badcafe", at=2000).assigned(TP).poll()
    (member,) = told_of(one, two).members
    assert (member.name, len(member.lives), len(member.points)) == ("m1", 2, 2)


def test_members_stand_as_people_count() -> None:
    """The tenth after the second, whatever else is in their names."""
    fleet = [Telling(name).assigned(TP) for name in ("m10", "m2", "9-x", "m", "m2b")]
    names = [one.name for one in told_of(*fleet).members]
    assert names == ["9-x", "m", "m2", "m2b", "m10"]


def test_a_fault_ends_when_it_is_healed() -> None:
    """Otherwise as planned."""
    said = {"kind": "freeze", "targets": ["m1"], "seconds": 9}
    nemesis = Telling("n", at=0).then("fault", id=1, **said).then("heal", id=1)
    nemesis.then("fault", id=2, **said)
    faults = told_of(nemesis, Telling(at=0).assigned(TP)).faults
    assert [round(one.end - one.start, 1) for one in faults] == [0.1, 0.0]
    later = Telling("m1", at=20).assigned(TP)
    faults = told_of(nemesis, Telling(at=0).assigned(TP), later).faults
    assert [round(one.end - one.start, 1) for one in faults] == [0.1, 9.0]


def test_lost_purged_and_parked_are_told() -> None:
    """Each at its moment, in its lane."""
    told = Telling().assigned(TP).then("parked", tp=TP, bytes=70, limit=90)
    told.then("purged", tp=TP, count=5, why="revoked").then("lost", partitions=[TP])
    lane = only_lane(told)
    assert [one.count for one in lane.parked] == [70]
    assert [(one.count, one.said) for one in lane.purged] == [(5, "revoked")]
    assert [one.is_lost for one in lane.owned] == [True]


def _names(timeline: Timeline) -> Sequence[str]:
    return [f"{topic}:{number}" for _, topic, number in _places(timeline)]


def _places(timeline: Timeline) -> Sequence[tuple[str, str, int]]:
    return [lane.place for lane in timeline.lanes]


def test_each_group_has_lanes_of_its_own() -> None:
    """Two groups read one topic; each has its own verdict, and one may be chosen."""
    one = Telling("a", group="billing").assigned(TP).poll(TP, 0, 5)
    one.pause("orders").poll(TP, 5, 7)
    two = Telling("b", group="audit").assigned(TP).poll(TP, 0, 9)
    both = told_of(one, two)
    assert _places(both) == [("audit", "orders", 0), ("billing", "orders", 0)]
    assert [lane.violations for lane in both.lanes] == [{}, {"A1": 1}]
    assert [(one.group, one.name) for one in both.members] == [
        ("audit", "b"),
        ("billing", "a"),
    ]
    only = told_of(one, two, wanted=Wanted(groups=frozenset({"audit"})))
    assert (_places(only), only.left_out) == ([("audit", "orders", 0)], 1)
    assert [one.name for one in only.members] == ["b"]


def test_it_can_be_narrowed() -> None:
    """To topics, to partitions, and in time."""
    fleet = Telling(at=0).assigned(TP, OTHER, "returns:0").poll(TP, 0, 5)
    fleet.poll(TP, 5, 9)
    assert _names(told_of(fleet)) == [TP, OTHER, "returns:0"]
    only = Wanted(topics=frozenset({"returns"}), partitions=frozenset({("orders", 1)}))
    assert _names(told_of(fleet, wanted=only)) == [OTHER, "returns:0"]
    late = told_of(fleet, wanted=Wanted(start=0.4))
    assert [lane.records for lane in late.lanes] == [4, 0, 0]
    early = told_of(fleet, wanted=Wanted(end=0.3))
    assert [lane.records for lane in early.lanes] == [5, 0, 0]


@each(
    ("wanted", "said"),
    [
        (
            Wanted(topics=frozenset({"returns"})),
            "no such partition; .* orders:0 of group g",
        ),
        (Wanted(start=60.0), "the journals last 0.3 s"),
        (Wanted(start=0.2, end=0.1), "is asked for"),
    ],
)
def test_nothing_to_draw_is_an_error(wanted: Wanted, said: str) -> None:
    """It says what there would be."""
    with pytest.raises(JournalError, match=said):
        told_of(Telling(at=0).assigned(TP).poll(TP, 0, 5), wanted=wanted)


def test_journals_without_entries() -> None:
    """There is nothing to draw."""
    with pytest.raises(JournalError, match="no entries"):
        told_of(Telling())


@pytest.mark.parametrize("at", [-1e11, 1e12])
def test_times_that_no_calendar_has(at: float) -> None:
    """An error that says so, not one of the library that draws."""
    with pytest.raises(JournalError, match="years 1900 to 9000"):
        told_of(Telling(at=at).assigned(TP).poll(TP, 0, 5))


def test_a_day_of_pauses_that_expire_is_told_in_time() -> None:
    """Each end is compared with what may still be cut, not with every hold before it."""
    compared = 0
    is_ended_by = Placed.is_ended_by

    def counted(placed: Placed, lift: Fact) -> bool:
        nonlocal compared
        compared += 1
        return is_ended_by(placed, lift)

    told = Telling(at=0).assigned(TP)
    for number in range(200):
        until = round(told.at + 0.3, 3)
        owner = "operator:eve" if number % 2 else "app"
        if number % 2:
            told.then("hold", scope=TP, owner=owner).poll()
        else:
            told.call("pause", scopes=[TP], owner=owner, until=until)
        told.at = round(until + 0.1, 3)
        why = {} if number % 2 else {"why": "expired"}
        told.then("lift", scope=TP, owner=owner, since=until, **why)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Placed, "is_ended_by", counted)
        lane = only_lane(told)
    assert len(lane.held) == 200
    assert compared < 200 * 10


def test_members_that_are_called_alike_and_live_at_one_time_have_lanes() -> None:
    """As all are whose client_id is kafka-python's; a restarted one goes on in its lane."""
    fleet = [
        Telling("kafka-python-11-0123abcd", at=0).assigned(TP).poll().revoked(TP),
        Telling("kafka-python-12-0123abce", at=0.1).assigned(OTHER).poll().poll(),
        Telling("kafka-python-13-0123abcf", at=9).assigned(TP, generation=2).poll(),
    ]
    timeline = told_of(*fleet)
    assert [one.name for one in timeline.members] == [
        "kafka-python-11",
        "kafka-python-12",
    ]
    assert [len(one.processes) for one in timeline.members] == [2, 1]
    assert len(set(timeline.letters.values())) == 2
