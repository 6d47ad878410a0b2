"""Tests the evidence that the judge gives, and the memory and time that it takes."""

import gc
import sys
import tracemalloc
import weakref
from array import array

import pytest

from safeconsumer.audit.clocks import Appended, BrokerTime, Measures
from safeconsumer.audit.entries import Clock
from safeconsumer.audit.findings import Basis
from safeconsumer.audit.judge import Judge
from safeconsumer.audit.reading import covering, place_of
from safeconsumer.audit.report import UNKNOWN, rows_of, status_of
from safeconsumer.audit.results import Settings
from safeconsumer.errors import JournalError
from safeconsumer.holds import scope as scopes
from safeconsumer.journal.format import scope_text
from tests.harness.audit.fleets import FLEETS, TP
from tests.harness.audit.journals import (
    MemberJournal,
    Operator,
    check,
    control_in,
    failed,
    findings_of,
    judged,
    verdict_on,
)
from tests.harness.listing import short


@pytest.mark.parametrize(
    ("scope", "covers"),
    [
        ("orders:0", True),
        ("orders:1", False),
        ("orders", True),
        ("order", False),
        ("re:ord", False),  # a pattern must match the whole topic name
        ("re:ord.*", True),
        ("re:(?i)ORDERS", True),
        ("@all", True),
    ],
)
def test_scope_covers_the_partitions_that_the_contract_defines(scope, *, covers):
    assert covering(scope)(("orders", 0)) is covers
    assert not covers or place_of(scope) in {("orders", 0), "orders", None}


def test_partition_of_a_topic_named_re_is_not_read_as_a_pattern():
    scope = scope_text(scopes.of(("re", 0)))
    assert covering(scope)(("re", 0))
    assert not covering(scope)(("re", 1))
    assert place_of(scope) == ("re", 0)
    names = [scope_text(scopes.of(one)) for one in (("orders", 0), "re", "re:0")]
    assert names == ["orders:0", "re", "re:0"]
    member = (
        MemberJournal()
        .assigned("re:0")
        .pause(scope, assigned=["re:0"], paused=["re:0"])
    )
    assert failed([member.poll("re:0", 0, 2)]) == {"A1"}


@pytest.mark.parametrize(
    "scope", ["re:[[:alpha:]]+", "re:\\pL+", "re:(", "re:", "..", "a b", "orders:x"]
)
def test_invalid_scope_is_refused(monkeypatch, scope):
    monkeypatch.setitem(sys.modules, "re2", None)
    covering.cache_clear()
    with pytest.raises(JournalError, match=r"scope|unknown (here )?what"):
        covering(scope)


def test_late_start_after_a_missed_generation_is_judged_only_with_every_journal():
    """One journal proves A4 if its member gets the partition back in the next generation."""
    for generation, basis in ((2, Basis.ORDER), (3, Basis.OFFSETS)):
        member = MemberJournal().assigned(TP).poll(TP, 0, 5).commit(TP, 5).revoked(TP)
        member.assigned(TP, generation=generation).poll(TP, 20, 25)
        verdict = verdict_on(member)
        found = {one.basis for one in verdict.findings if one.check == "A4"}
        assert found == {basis}
    assert status_of(rows_of(verdict), is_complete=False) == UNKNOWN


def test_delivery_is_judged_by_the_poll_in_progress():
    """A delivery from a held partition that names a finished poll violates A1."""
    member = MemberJournal().assigned(TP).pause("orders")
    assert failed([member.deliver(TP, 0, 2)]) == {"A1"}
    member = MemberJournal().assigned(TP).poll(TP, 0, 2).pause("orders")
    member.deliver(TP, 2, 3, after=len(member.lines) - 1)
    verdict = verdict_on(member.deliver(TP, 3, 4, after=0))
    assert [(one.check, one.entry) for one in verdict.every] == [("A1", 5), ("A1", 6)]


@pytest.mark.parametrize("case", ["A1", "A3", "W5"])
def test_repeated_violations_are_counted_with_the_first(case):
    member = MemberJournal().then("working", order="key").assigned(TP)
    if case == "A1":
        member.pause(TP)
    for number in range(1000):
        member.poll(TP, 2 * number if case == "A3" else number, 2 * number + 1)
        if case == "W5":
            member.handle(TP, 5000)
    verdict = verdict_on(member)
    (found,) = [one for one in verdict.findings if one.check == case]
    (row,) = [one for one in rows_of(verdict) if one.check == case]
    assert row.violations == 1 + len(found.more) > 990
    last = [one for one in verdict.every if one.check == case][-1]
    assert last.evidence == f"entry {last.entry}: as in entry {found.entry}"


def test_lift_with_an_earlier_time_withdraws_the_violations_after_that_time():
    """A violation of A1 remains if the partition's other hold was in force at that time."""
    member = MemberJournal().assigned(TP).then("hold", scope=TP, owner="operator:a")
    member.then("hold", scope="orders", owner="operator:b")
    for number in range(9):
        member.poll(TP, number, number + 1)
    for owner, since, left in (("a", 1001.0, 9), ("b", 1001.4, 5), ("a", 1000.2, 5)):
        scope = TP if owner == "a" else "orders"
        member.then("lift", scope=scope, owner=f"operator:{owner}", since=since)
        verdict = verdict_on(member)
        assert len([*verdict.every]) == left, (owner, since)


def test_evidence_names_the_hold_that_remains_after_the_other_hold_is_lifted():
    member = MemberJournal().assigned(TP).then("hold", scope=TP, owner="operator:a")
    member.then("hold", scope="orders", owner="operator:b").poll(TP, 0, 1).poll(
        TP, 1, 2
    )
    member.then("lift", scope=TP, owner="operator:a", since=1000.6)
    verdict = verdict_on(member)
    assert [(one.offset, one.evidence) for one in verdict.findings] == [
        (0, "entry 4: delivered 1 while orders:0 was held by operator:a"),
        (None, "entry 5: delivered while orders was held by operator:b"),
    ]
    member = MemberJournal().assigned(TP).then("hold", scope=TP, owner="operator:a")
    member.then("hold", scope="orders", owner="operator:b").poll(TP, 0, 1)
    member.then("lift", scope=TP, owner="operator:a", since=1000.4)
    verdict = verdict_on(member)
    assert [(one.offset, one.evidence) for one in verdict.findings] == [
        (0, "entry 4: delivered 1 while orders was held by operator:b"),
    ]


def test_lift_without_a_cause_does_not_withdraw_a_violation():
    member = MemberJournal().assigned(TP).pause("orders").poll(TP, 0, 1)
    member.then("lift", scope="orders", owner="app", why="ended").poll(TP, 1, 2)
    verdict = verdict_on(member)
    assert [one.entry for one in verdict.every] == [4, 6]


def test_finding_without_a_record_has_the_time_of_its_ownership():
    member = MemberJournal().assigned(TP).poll(TP, 0, 9).commit(TP, 9).revoked(TP)
    late = MemberJournal("b", at=2000).assigned(TP, generation=2)
    late.asks(TP, 9, "a#3").then("moved", tp=TP, from_=4, next=12)
    results = check([member.journal(), late.journal()])
    assert [(one.check, one.at) for one in findings_of(results)] == [("A6", 2000.1)]


@pytest.mark.parametrize(
    ("fleet", "basis"),
    [("worked_until_the_hold_was_read", Basis.CLOCKS), ("worked_through", Basis.ORDER)],
)
def test_w10_is_judged_by_clocks_if_an_operator_held_the_group(fleet, basis):
    (verdict,) = judged(FLEETS[fleet]())
    assert verdict.bases["W10"] is basis


@pytest.mark.contract("S5")
def test_memory_does_not_grow_with_handled_records():
    """Handlers of several lanes finish in any order."""
    few, many = (kept_of(handled(count)) for count in (5000, 20_000))
    assert many < few + 20_000


def handled(count):
    member = MemberJournal().then("working", order="key").assigned(TP)
    for start in range(0, count, 1000):
        member.poll(TP, start, start + 1000)
        for offset in range(start, start + 1000, 2):
            member.begin(TP, offset + 1, None).begin(TP, offset, None)
            member.end(TP, offset + 1, offset)
    return member.journal()


def kept_of(journal):
    check([journal])  # warms up: the first check imports modules and creates decoders
    judge = Judge(Settings())
    tracemalloc.start()
    judge.read(journal)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept


def test_data_of_a_judge_is_freed_when_the_judge_is_deleted():
    judge = Judge(Settings())
    judge.read(rebalancing(3, flows=False)[0].journal())
    assert judge.results()
    ((one,),) = (found.values() for found in judge._judged.values())
    part = weakref.ref(one.part)
    del judge, one
    gc.collect()
    assert part() is None


def rebalancing(count, *, flows):
    """Let three members own a partition in turn, or one member own it repeatedly."""
    fleet = [MemberJournal(name) for name in ("abc" if flows else "a")]
    for number in range(count):
        one = fleet[number % len(fleet)].until(1000.0 + 10 * number)
        one.assigned(TP, generation=2 * number)
        if flows or not number:
            one.poll(TP, number, number + 1)
        one.commit(TP, number + 1 if flows else 1)
        one.revoked(TP, generation=2 * number + 1)
    return fleet


def lifting(count):
    """Lift a hold of a topic after a rebalance of all its partitions."""
    names = [f"orders:{number}" for number in range(count)]
    member = (
        MemberJournal().assigned(*names).then("hold", scope="orders", owner="floor")
    )
    member.revoked(*names, generation=2).assigned(*names, generation=2)
    return [member.then("lift", scope="orders", owner="floor")]


def reading(members, holds):
    """Let each member read the holds that an operator places and lifts."""
    fleet = [Operator()]
    for number in range(members):
        member = MemberJournal(f"m{number}").assigned(f"orders:{number}")
        for at in range(holds):
            member.then(
                "hold", scope="orders", owner="operator:alice", written=member.at
            )
            member.then("lift", scope="orders", owner="operator:alice")
            if not number:
                fleet[0].held(5000 + at, 5000 + at)
        fleet.append(member)
    return fleet


def holding(count):
    """Let a member own a partition repeatedly, with a group hold after each ownership."""
    operator, member = Operator(), MemberJournal()
    for number in range(count):
        start = 1000.0 + 1000 * number
        member.until(start).assigned(TP, generation=2 * number)
        member.poll(TP, number, number + 1).revoked(TP, generation=2 * number + 1)
        operator.held(start + 300, start + 600)
    return [operator, member]


def dropping(count):
    """Let a worker handle every second record, drop the others at a seek, and continue."""
    member = (
        MemberJournal().then("working", order="key").assigned(TP).poll(TP, 0, 2 * count)
    )
    member.handle(TP, *range(0, 2 * count, 2)).call("seek", offsets={TP: 2 * count})
    member.then("dropped", tp=TP, before=2 * count)
    for offset in range(2 * count, 3 * count):
        member.poll(TP, offset, offset + 1).handle(TP, offset)
    return [member]


def hanging(count):
    """Let one handler hang while the handlers of other lanes complete."""
    member = MemberJournal().then("working", order="key").assigned(TP)
    member.poll(TP, 0, 1).begin(TP, 0, "slow")
    for offset in range(1, count):
        member.poll(TP, offset, offset + 1).begin(TP, offset, f"k{offset}")
        member.end(TP, offset).commit(TP, 0)
    return [member]


def resetting(count):
    """Let an operator reset partitions whose start offsets have no other explanation."""
    names = [f"orders:{number}" for number in range(count)]
    operator, member = Operator(), MemberJournal().assigned(*names)
    for name in names:
        member.asks(name, 5).then("begins", tp=name, offset=5)
        for offset in range(9):
            operator.resets(name, offset)
    return [operator, member]


def holding_each_partition(count):
    """Let an operator place one hold per partition."""
    names = [f"orders:{number}" for number in range(count)]
    operator, member = Operator(), MemberJournal().assigned(*names)
    for name in names:
        member.poll(name, 0, 1)
        operator.held(1e6, scope=name)
    return [operator, member]


@pytest.mark.parametrize(
    ("small", "large"),
    [
        (rebalancing(50, flows=True), rebalancing(200, flows=True)),
        (rebalancing(50, flows=False), rebalancing(200, flows=False)),
        (lifting(50), lifting(200)),
        (reading(10, 20), reading(40, 20)),
        (reading(20, 10), reading(20, 40)),
        (holding(20), holding(80)),
        (dropping(50), dropping(200)),
        (hanging(100), hanging(400)),
        (resetting(50), resetting(200)),
        (holding_each_partition(50), holding_each_partition(200)),
    ],
    ids=short,
)
def test_work_of_the_judge_grows_linearly_with_the_fleet(small, large):
    assert lines_run(large) < 5 * lines_run(small)


def lines_run(fleet):
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event == "line"
        return note

    journals = [one.journal() for one in fleet]
    before = sys.gettrace()
    sys.settrace(note)
    try:
        check(journals, Settings(control=control_in(fleet)))
    finally:
        sys.settrace(before)
    return count


def test_each_record_that_starts_after_a_later_record_of_its_lane_is_a_violation():
    member = MemberJournal().then("working", order="key").assigned(TP)
    member.poll(TP, 0, 3).handle(TP, 2, 0, 1)
    verdict = verdict_on(member)
    first, second = (one for one in verdict.every if one.check == "W7")
    assert "began 0 after 2 of its lane" in first.evidence
    assert f"as in entry {first.entry}" in second.evidence


def test_offset_skipped_after_the_last_record_of_a_poll_counts_as_not_delivered():
    member = MemberJournal().assigned(TP).poll(TP, 0, 3)
    member.poll(TP, 3, 6, last=4, count=2).poll(TP, 6, 8)
    producer = MemberJournal("p", group="").then("acked", tp=TP, first=0, last=7)
    results = check([member.journal(), producer.journal()])
    texts = [one.evidence for one in findings_of(results)]
    assert texts == ["no member delivered acknowledged offsets 5 to 5"]


def test_evidence_of_a_gap_names_its_first_and_last_offset():
    member = MemberJournal().then("working", order="key").assigned(TP)
    member.poll(TP, 0, 5).handle(TP, 0, 4)
    late = MemberJournal("b").until(1010.0).assigned(TP, generation=2)
    late.poll(TP, 8, 9)
    verdict = verdict_on(member, late, is_drained=True)
    texts = [one.evidence for one in verdict.findings if one.basis is Basis.OFFSETS]
    assert texts == [
        "no member delivered offsets 5 to 7",
        "no handler completed offsets 1 to 3",
    ]


COUNT, POLL = 20_000, 500


def test_transaction_of_one_record_takes_less_than_100_bytes_of_memory():
    """Each transaction leaves an offset without a record."""
    member = MemberJournal().assigned(TP).then("transactional", tp=TP)
    for start in range(0, 2 * COUNT, 2 * POLL):
        end = start + 2 * POLL
        gaps = [[one, one + 1] for one in range(start + 1, end - 1, 2)]
        member.deliver(TP, start, end, last=end - 2, count=POLL, gaps=gaps)
    journal = member.journal()
    check([journal])  # warms up: the first check imports modules and creates decoders
    tracemalloc.start()
    (result,) = check([journal]).values()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result.unrecorded == COUNT
    assert peak / COUNT < 100, f"{peak / COUNT:.0f} bytes for each transaction"


def test_clock_between_two_measurements_has_the_bounds_of_both():
    measures = Measures()
    for at, least in ((100.0, 0.0), (200.0, 50.0), (300.0, 20.0)):
        measures.add(Clock(n=1, at=at, least=least, most=least + 1))
    moments = 50.0, 100.0, 150.0, 200.0, 250.0, 350.0
    found = [measures.around(at) for at in moments]
    assert found == [(0, 1), (0, 1), (0, 51), (0, 51), (20, 51), (20, 21)]


class Walked(array):
    """An array that counts how many of its numbers have been read by iteration."""

    walked = 0

    def __iter__(self):
        for one in super().__iter__():
            type(self).walked += 1
            yield one


@pytest.mark.parametrize("is_measured", [True, False], ids=["measured", "appended"])
def test_window_of_a_hold_is_found_without_a_scan_of_all_measurements(*, is_measured):
    measures = Measures(at=Walked("d"), lower=Walked("d"), upper=Walked("d"))
    appended = Appended(at=Walked("d"), lag=Walked("d"))
    for number in range(100):
        if is_measured:
            ahead = 5.0 - number % 7
            measures.add(Clock(n=1, at=1.0 * number, least=ahead, most=ahead + 1))
        appended.add(at=200.0 + number, written=210.0 + 2 * number)
    Walked.walked = 0
    window = BrokerTime(measures, appended).window(1000.0, 2000.0)
    assert Walked.walked == 0
    assert window == ((994.0, 2001.0) if is_measured else (891.0, 2000.0))
