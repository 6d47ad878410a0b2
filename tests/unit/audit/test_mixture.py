"""Several groups, hosts whose clocks differ, clusters, a producer: each fault is found."""

import json
from itertools import cycle, permutations

import pytest

from safeconsumer.audit.control import Control
from safeconsumer.audit.distributed import address_of, rows_about
from safeconsumer.audit.facts import decoded
from safeconsumer.audit.findings import Address
from safeconsumer.audit.judge import Judge, needs_of, written_to
from safeconsumer.audit.results import Settings
from tests.harness.audit.fleets import BAD, GOOD, TP
from tests.harness.audit.journals import (
    MemberJournal,
    check,
    control_in,
    parsed,
    verdict_on,
)
from tests.harness.listing import short
from tests.unit.audit.test_checker import expected

# Seconds by which the clocks of three hosts are ahead of the broker's; no two differ
# by more than the allowance.
AHEAD = (1.0, 0.0, -1.0)
SKEW = 2.0
CLOCKS = [*permutations(AHEAD)]

OURS = Address("g", "orders", 0)


def shifted(told, ahead):
    """Return a journal as a host would write it whose clock is ahead."""
    lines = [json.loads(line) for line in told.lines]
    for line in lines:
        for name in ("at", "since", "until"):
            if line.get(name) is not None:
                line[name] = round(line[name] + ahead, 3)
    last = {"n": len(lines), "at": lines[-1]["at"], "e": "clock"}
    lines.append({**last, "least": -ahead, "most": -ahead})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    return parsed(f"{told.lines[0]}", text)


def others(fleet):
    """
    Return another group on the same partition that does everything right.

    A producer beside them wrote what both groups are to read: nothing before the first
    record of the fleet, where there may never have been one.
    """
    first = MemberJournal("x", group="other", at=900).assigned(TP).poll(TP, 0, 7)
    first.commit(TP, 7).revoked(TP)
    then = MemberJournal("y", group="other", at=1000.2).assigned(TP, generation=2)
    then.poll(TP, 7, 30).commit(TP, 30)
    if any('"acked"' in line for one in fleet for line in one.lines):
        return [first, then]
    told = [json.loads(line) for one in fleet for line in one.lines]
    begins = min((line["first"] for line in told if "first" in line), default=0)
    producer = MemberJournal("producer", group="", at=890)
    return [first, then, producer.then("acked", tp=TP, first=begins, last=29)]


def mixed(fleet, clocks):
    told = [*fleet, *others(fleet)]
    return [shifted(one, clocks[n % len(clocks)]) for n, one in enumerate(told)]


def found(journals, settings):
    return {
        case: {one.check for one in verdict.findings}
        for case, verdict in check(journals, settings).items()
        if case.topic == "orders" and verdict.findings
    }


MIXTURES = [
    (make, clocks, {OURS: {expected(make)}} if make in BAD else {})
    for make, clocks in zip((*BAD, *GOOD), cycle(CLOCKS), strict=False)
]


@pytest.mark.parametrize(("make", "clocks", "faults"), MIXTURES, ids=short)
def test_each_fault_is_found_in_a_mixture_and_no_other(make, clocks, faults):
    fleet = make()
    settings = Settings(clock_skew=SKEW, control=control_in(fleet))
    assert found(mixed(fleet, clocks), settings) == faults


@pytest.mark.parametrize(
    "make",
    [*BAD, *(pytest.param(make, marks=pytest.mark.nightly) for make in GOOD)],
    ids=short,
)
def test_one_case_is_judged_by_its_facts_alone(make):
    """As on Spark, where a task has the facts of one case, as text."""
    fleet = make()
    settings = Settings(clock_skew=SKEW, control=control_in(fleet))
    journals = mixed(fleet, CLOCKS[0])
    rows = [row for one in journals for row in rows_about(one, pytest.fail)]
    known = {address_of(about) for about, *_ in rows}
    results = {}
    for case, needed in needs_of(known).items():
        judge = Judge(settings)
        for about, *_, member, _, _, fact in rows:
            if (address := address_of(about)) in needed:
                judge.takes(address, member)(decoded(fact))
        results[case] = judge.result(case, is_written=case.topic in written_to(known))
    assert results == check(journals, settings)


def test_a_broken_journal_has_the_facts_of_the_entries_before():
    """On Spark as in one process."""
    told = MemberJournal().assigned(TP).poll(TP, 0, 5).commit(TP, 5)
    text = "\n".join([*told.lines, told.lines[-1].replace('"n": 4', '"n": 9'), ""])
    troubles = []
    rows = [*rows_about(parsed("by hand", text), troubles.append)]
    assert [one for one in troubles if "lines are missing" in one] == troubles != []
    assert {"owned", "delivered", "committed"} <= {kind for *_, kind, _ in rows}


def test_a_group_that_read_nothing_of_a_partition_lost_it():
    """It reads the topic; that the other group had the records is no excuse."""
    one = MemberJournal("a", group="one").assigned(TP).poll(TP, 0, 5)
    two = MemberJournal("b", group="two").assigned("orders:1").poll("orders:1", 0, 5)
    producer = MemberJournal("p", group="").then("acked", tp=TP, first=0, last=4)
    producer.then("acked", tp="orders:1", first=0, last=4)
    journals = [one.journal(), two.journal(), producer.journal()]
    assert found(journals, Settings(is_drained=True)) == {
        Address("one", "orders", 1): {"A2"},
        Address("two", "orders", 0): {"A2"},
    }


def test_members_of_no_group_do_not_stand_for_each_other():
    """Each reads for itself; what one passed over, the other does not mend."""
    one = MemberJournal("a", group="").assigned(TP, generation=-1).poll(TP, 0, 5)
    one.then("moved", tp=TP, from_=5, next=8).poll(TP, 8, 10)
    two = MemberJournal("b", group="").assigned(TP, generation=-1).poll(TP, 0, 10)
    producer = MemberJournal("p", group="").then("acked", tp=TP, first=0, last=9)
    journals = [one.journal(), two.journal(), producer.journal()]
    assert found(journals, Settings()) == {Address("", "orders", 0): {"A2"}}


def test_a_look_without_a_group_is_no_reader_of_the_whole_topic():
    """Groups are to have every partition; somebody who looked at one, that one."""
    ours = (
        MemberJournal("a")
        .assigned(TP, "orders:1")
        .poll(TP, 0, 5)
        .poll("orders:1", 0, 5)
    )
    producer = MemberJournal("p", group="").then("acked", tp=TP, first=0, last=4)
    producer.then("acked", tp="orders:1", first=0, last=4)
    look = MemberJournal("debug", group="").assigned(TP, generation=-1).poll(TP, 0, 5)
    journals = [one.journal() for one in (ours, producer, look)]
    assert found(journals, Settings(is_drained=True)) == {}


def test_a_member_that_hides_its_group_is_not_judged_by_others():
    """It names a generation, so it was in one: neither clean, nor wrong."""
    one = MemberJournal("a", group="").assigned(TP).poll(TP, 0, 20).commit(TP, 20)
    two = (
        MemberJournal("b", group="", at=2000).assigned(TP, generation=2).poll(TP, 0, 20)
    )
    verdict = verdict_on(one, two)
    assert verdict.findings == ()
    assert set(verdict.unjudged) == {"A2", "A4", "A6", "G2"}


# ------------------------------------------------------------ clocks


def test_without_generations_the_commit_says_which_ownership_was_earlier():
    one = MemberJournal("a").assigned(TP, generation=-1).poll(TP, 0, 50).commit(TP, 50)
    two = MemberJournal("b", at=2000).assigned(TP, generation=-1)
    two.asks(TP, 50, "a#3").poll(TP, 50, 60)
    journals = [one.revoked(TP, generation=-1).journal(), two.journal()]
    (result,) = check(journals).values()
    assert (result.findings, result.unjudged) == ((), {})


def test_a_wrong_clock_changes_nothing_of_where_ownerships_begin():
    one = MemberJournal("b").assigned(TP).asks(TP, None)
    one.poll(TP, 0, 10).commit(TP, 10).revoked(TP)
    two = MemberJournal("a", at=1010).assigned(TP, generation=2)
    two.asks(TP, 10, "b#4").poll(TP, 10, 20).commit(TP, 20).revoked(TP, generation=2)
    one.until(1020).assigned(TP, generation=3).asks(TP, 20, "a#4").poll(TP, 20, 30)
    one.commit(TP, 30)
    for ahead in (0.0, -1000.0, 1000.0):
        (result,) = check([one.journal(), shifted(two, ahead)]).values()
        assert (result.findings, result.unjudged) == ((), {})


# ------------------------------------------------------------ clusters


def member(name, cluster, topic, at=1000.0):
    told = MemberJournal(name, at=at)
    told.assigned(TP, topics={"orders": topic}, cluster=cluster)
    return told.poll(TP, 0, 5).commit(TP, 5)


@pytest.mark.contract("S5")
def test_journals_of_two_clusters_are_not_said_to_be_of_a_topic_made_again():
    result = verdict_on(member("a", "east", "1"), member("b", "west", "2", at=2000))
    assert result.findings == ()
    assert result.unjudged["A2"] == (
        "a was on the cluster east and b on west: judge each cluster by itself"
    )


@pytest.mark.contract("S5")
@pytest.mark.parametrize("is_working", [False, True])
def test_a_history_of_another_cluster_acquits_nobody(*, is_working):
    told = member("a", "east", "1")
    if is_working:
        told.then("working", order="key")
    result = verdict_on(told, control=Control(cluster="west"))
    said = "the holds topics are of the cluster west, and a was on east"
    checks = ("G2", "W10") if is_working else ("G2",)
    assert result.unjudged == dict.fromkeys(checks, said)


@pytest.mark.parametrize("known", [("east", "east"), (None, "east"), ("east", None)])
def test_one_cluster_or_one_that_is_not_known_is_no_reason_to_doubt(known):
    journals, history = known
    result = verdict_on(member("a", journals, "1"), control=Control(cluster=history))
    assert (result.findings, result.unjudged) == ((), {})
