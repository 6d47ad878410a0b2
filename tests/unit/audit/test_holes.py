"""Offsets of which no member had a record: with a reason, in a missing journal, or lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.audit.report import CLEAN, UNKNOWN, VIOLATED, rows_of, status_of
from safeconsumer.audit.spans import Spans, between, merged, uncovered
from tests.harness.audit.fleets import TP
from tests.harness.audit.journals import MemberJournal, verdict_on
from tests.harness.chance import by_day

KEPT_WHOLE = frozenset({"orders"})


def jumped():
    """Have a client jump over seven offsets between two polls."""
    told = MemberJournal().assigned(TP).poll(TP, 0, 20)
    return told.poll(TP, 20, 30, first=27, count=3).commit(TP, 30)


def left_out():
    """Have seven offsets lie in the middle of what one poll returned."""
    return MemberJournal().assigned(TP).poll(TP, 0, 30, count=23, gaps=[[20, 27]])


def moved_over():
    """Have a commit pass over seven offsets, as over markers."""
    told = MemberJournal().assigned(TP).poll(TP, 0, 20)
    told.then("moved", tp=TP, from_=20, next=27)
    return told.commit(TP, 27)


@pytest.mark.contract("S5")
@pytest.mark.parametrize("told", [jumped(), left_out(), moved_over()])
def test_a_hole_in_a_topic_that_is_not_compacted_is_not_judged(told):
    result = verdict_on(told, uncompacted=KEPT_WHOLE)
    assert result.findings == ()
    assert result.unjudged["A2"].startswith("offsets 20 to 26 had no record")
    assert "--against-topic" in result.unjudged["A2"]
    assert status_of(rows_of(result), is_complete=True) == UNKNOWN


@pytest.mark.contract("S5")
def test_a_hole_in_any_other_topic_is_counted_and_no_reason_to_doubt():
    result = verdict_on(jumped())
    (row,) = (one.as_dict() for one in rows_of(result) if one.check == "A2")
    assert (row["unrecorded"], row["unjudged"]) == (7, "")
    assert status_of(rows_of(result), is_complete=True) == CLEAN


def transaction():
    """Have the client read a batch of a transaction."""
    return [jumped().then("transactional", tp=TP)]


def acknowledged():
    """Have a producer say what was written."""
    producer = MemberJournal("producer", group="").then(
        "acked", tp=TP, first=0, last=19
    )
    return [jumped(), producer.then("acked", tp=TP, first=27, last=29)]


def in_the_topic():
    """Have the topic been read."""
    topic = MemberJournal("the topic", group="").then("kept", tp=TP, first=0)
    topic.then("acked", tp=TP, first=0, last=19)
    return [jumped(), topic.then("acked", tp=TP, first=27, last=29)]


def of_another_member():
    """Have the next owner get what the first one passed over, from an earlier commit."""
    first = jumped().revoked(TP)
    return [
        first,
        MemberJournal("b", at=2000).assigned(TP, generation=2).poll(TP, 20, 30),
    ]


def sought_past():
    """Have the program seek past them."""
    told = MemberJournal().assigned(TP).poll(TP, 0, 20).call("seek", offsets={TP: 27})
    return [told.poll(TP, 27, 30).commit(TP, 30)]


@pytest.mark.parametrize(
    "make",
    [transaction, acknowledged, in_the_topic, of_another_member, sought_past],
    ids=lambda make: make.__name__,
)
def test_a_hole_with_a_reason_is_clean(make):
    result = verdict_on(*make(), uncompacted=KEPT_WHOLE)
    assert "A2" not in {one.check for one in result.findings}
    assert "A2" not in result.unjudged


def test_a_hole_that_the_topic_has_deleted_since_is_not_judged():
    topic = MemberJournal("the topic", group="").then("kept", tp=TP, first=29)
    result = verdict_on(jumped(), topic, uncompacted=KEPT_WHOLE)
    assert result.unjudged["A2"].endswith("the topic has deleted them since")
    assert result.unrecorded == 7


def test_what_a_member_without_a_group_lacks_no_other_one_had_for_it():
    """Each must have delivered all by itself."""
    lines = jumped().lines
    told, other = MemberJournal("a", group=""), MemberJournal("b", group="")
    told.lines[1:] = [line.replace('"generation": 1, ', "") for line in lines[1:]]
    other.assigned(TP, generation=-1).poll(TP, 0, 30)
    assert verdict_on(told, other).unrecorded == 7


def test_a_loss_that_was_found_stays_one_beside_a_hole():
    told = jumped().revoked(TP).assigned(TP, generation=3).poll(TP, 40, 50)
    result = verdict_on(told, uncompacted=KEPT_WHOLE)
    assert "A2" in {one.check for one in result.findings}
    assert "A2" in result.unjudged


def fleet():
    """Have three members own a partition by turns, and commit what each got."""
    several = []
    for number, name in enumerate("abc"):
        told = MemberJournal(name, at=1000.0 * (number + 1))
        told.assigned(TP, generation=2 * number + 1)
        note = f"{chr(ord(name) - 1)}#4" if number else ""
        told.asks(TP, 10 * number if number else None, note)
        told.poll(TP, 10 * number, 10 * number + 10).commit(TP, 10 * number + 10)
        several.append(told.revoked(TP, generation=2 * number + 2))
    return several


def status(*several):
    result = verdict_on(*several)
    return status_of(rows_of(result), is_complete=True)


@pytest.mark.contract("S5")
def test_a_journal_that_is_gone_is_missing_and_no_violation():
    """A2, A4: the member that it is of delivered and committed what lies between."""
    first, _, last = fleet()
    assert status(first, last) == UNKNOWN


def test_what_nobody_delivered_is_a_violation_with_every_journal_there():
    """The twin: the next owner skips what its predecessor did not commit."""
    first, second, last = fleet()
    assert status(first, second, last) == 0
    passed = (
        MemberJournal("c", at=3000.0).assigned(TP, generation=5).asks(TP, 20, "b#4")
    )
    passed.poll(TP, 25, 30)
    assert status(first, second, passed) == VIOLATED


stretches = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda x: (x[0], sum(x)))
)


def offsets(spans):
    return {one for start, end in spans for one in range(start, end)}


@by_day(40)
@given(stretches)
def test_merged_covers_the_same_without_touching(spans):
    found = merged(spans)
    assert offsets(found) == offsets(spans)
    edges = [edge for span in found for edge in span]
    assert edges == sorted(set(edges))


@by_day(40)
@given(stretches, stretches)
def test_uncovered_is_the_difference(ours, theirs):
    found = list(uncovered(merged(ours), merged(theirs)))
    assert offsets(found) == offsets(ours) - offsets(theirs)
    assert found == sorted(found)


@by_day(40)
@given(stretches, st.integers(0, 70), st.integers(0, 70))
def test_between_is_what_lies_there(spans, bottom, top):
    found = between(merged(spans), bottom, top)
    assert offsets(found) == {one for one in offsets(spans) if bottom <= one < top}


def test_offsets_have_64_bits():
    spans = Spans()
    spans.add(2**63 - 3, 2**63 - 1)
    assert list(uncovered(spans, Spans())) == [(2**63 - 3, 2**63 - 1)]
