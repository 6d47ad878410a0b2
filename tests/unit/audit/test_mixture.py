"""The judge finds each fault in a mixture of groups, producers and skewed clocks."""

import json
from itertools import cycle, permutations

import pytest

from safeconsumer.audit.distributed import address_of, rows_about
from safeconsumer.audit.facts import decoded
from safeconsumer.audit.findings import Address
from safeconsumer.audit.judge import Judge, needs_of, written_to
from safeconsumer.audit.results import Settings
from tests.harness.audit.fleets import BAD, CASES, GOOD, TP, check_of
from tests.harness.audit.journals import (
    MemberJournal,
    check,
    control_in,
    parsed,
)
from tests.harness.listing import short

# Seconds by which the clocks of three hosts are ahead of the broker's clock. No two of
# these clocks differ by more than the allowed skew.
AHEAD = (1.0, 0.0, -1.0)
SKEW = 2.0
CLOCKS = [*permutations(AHEAD)]

OURS = Address("g", "orders", 0)


def shifted(member, ahead):
    """Return the journal that a host writes if its clock is ``ahead`` seconds fast."""
    lines = [json.loads(line) for line in member.lines]
    for line in lines:
        for name in ("at", "since", "until"):
            if line.get(name) is not None:
                line[name] = round(line[name] + ahead, 3)
    last = {"n": len(lines), "at": lines[-1]["at"], "e": "clock"}
    lines.append({**last, "least": -ahead, "most": -ahead})
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    return parsed(member.lines[0], text)


def others(fleet):
    """
    Return a second group that consumes the same partition without a fault.

    A producer wrote the records that both groups read.
    The producer wrote nothing before the fleet's first record; earlier offsets may be empty.
    """
    first = MemberJournal("x", group="other", at=900).assigned(TP).poll(TP, 0, 7)
    first.commit(TP, 7).revoked(TP)
    then = MemberJournal("y", group="other", at=1000.2).assigned(TP, generation=2)
    then.poll(TP, 7, 30).commit(TP, 30)
    if any('"acked"' in line for one in fleet for line in one.lines):
        return [first, then]
    lines = [json.loads(line) for one in fleet for line in one.lines]
    begins = min((line["first"] for line in lines if "first" in line), default=0)
    producer = MemberJournal("producer", group="", at=890)
    return [first, then, producer.then("acked", tp=TP, first=begins, last=29)]


def mixed(fleet, clocks):
    members = [*fleet, *others(fleet)]
    return [shifted(one, clocks[n % len(clocks)]) for n, one in enumerate(members)]


def found(journals, settings):
    return {
        case: {one.check for one in verdict.findings}
        for case, verdict in check(journals, settings).items()
        if case.topic == "orders" and verdict.findings
    }


MIXTURES = [
    (make, clocks, {OURS: {check_of(make)}} if make in BAD else {})
    for make, clocks in zip((*BAD, *GOOD), cycle(CLOCKS), strict=False)
]


@pytest.mark.parametrize(("make", "clocks", "faults"), MIXTURES, ids=short)
def test_judge_finds_exactly_the_planted_fault_in_a_mixture(make, clocks, faults):
    fleet = make()
    settings = Settings(clock_skew=SKEW, control=control_in(fleet))
    assert found(mixed(fleet, clocks), settings) == faults


# Outside the nightly run only some fleets are judged; the others reach no new branch.
BY_DAY = (*BAD, *CASES[::4])
AT_NIGHT = [
    pytest.param(make, marks=pytest.mark.nightly)
    for make in (*GOOD, *CASES)
    if make not in BY_DAY
]


@pytest.mark.parametrize("make", [*BY_DAY, *AT_NIGHT], ids=short)
def test_case_judged_from_its_own_facts_alone_has_the_same_result(make):
    """A Spark task judges one case from its facts, which it receives as text."""
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


def test_broken_journal_yields_the_facts_before_its_broken_line():
    member = MemberJournal().assigned(TP).poll(TP, 0, 5).commit(TP, 5)
    text = "\n".join([*member.lines, member.lines[-1].replace('"n": 4', '"n": 9'), ""])
    troubles = []
    rows = [*rows_about(parsed("by hand", text), troubles.append)]
    assert [one for one in troubles if "lines are missing" in one] == troubles != []
    assert {"owned", "delivered", "committed"} <= {kind for *_, kind, _ in rows}
