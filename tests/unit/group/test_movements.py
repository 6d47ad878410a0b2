"""G10: ``status``, ``wait moved`` and ``resume`` agree on whether a reset is done."""

import pytest
from attrs import evolve
from kafka import TopicPartition

from safeconsumer.cli.waiting import is_moved
from safeconsumer.group.facts import HoldRecord
from safeconsumer.group.movements import movements, reasons, summaries
from safeconsumer.group.report_wire import (
    MOST_KEPT,
    STREAM,
    decode_report,
    encode_report,
)
from safeconsumer.group.reports import unmoved_lines
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.holds.resets import Resets
from tests.harness.group.views import ONE, ZERO, facts, report, viewed

pytestmark = pytest.mark.contract("G10")


def under_a_reset(*seen, committed=4, **known):
    """Return a view of a group with a reset of partitions 0 and 1 to offset 4."""
    hold = ControlHold("h", "x", reset=Reset((("t", 0, 4), ("t", 1, 4)), (), "4"))
    record = HoldRecord(key=ControlKey("g", "alice", "t"), hold=hold, at=1.0, offset=1)
    view = viewed(*seen)
    there = dict.fromkeys((ZERO, ONE), committed)
    known = {"holds": (record,), "facts": evolve(view.facts, committed=there), **known}
    return evolve(view, **known)


def whys(view):
    return {one.tp.partition: one.why for one in movements(view)}


OWNER = facts("a", ZERO, ONE)
BOTH = {"assigned": {"t": ((0, 1),)}, "quiet": {"t": ((0, 1),)}}


@pytest.mark.parametrize(
    ("committed", "changed", "why"),
    [
        (4, {"resets": ()}, ""),
        (5, {"resets": ()}, "a has not committed it yet"),
        (4, {"resets": ("t:0 waits: x", "t:1 waits: x")}, "at a it waits: x"),
        (4, {"resets": (), "applied": {"ops": 1}}, "a has not read the reset yet"),
        (
            5,
            {"resets": None},
            "a moves nothing: its client, settings or version forbid it",
        ),
    ],
    ids=["done", "uncommitted", "named", "unread", "cannot"],
)
def test_committed_offset_and_owners_report_show_whether_a_partition_is_moved(
    committed, changed, why
):
    one = report("a", **BOTH, **changed)
    assert whys(under_a_reset(OWNER, one, committed=committed)) == {0: why, 1: why}


def test_reason_in_a_report_about_a_topic_named_re_is_found():
    """A report writes partition 3 of the topic ``re`` as re:3, as earlier versions did."""
    tp = TopicPartition("re", 3)
    hold = ControlHold("h", "x", reset=Reset((("re", 3, 4),), (), "4"))
    record = HoldRecord(key=ControlKey("g", "alice", "re"), hold=hold, at=1.0, offset=1)
    resets = Resets(PauseLedger())
    resets.troubles = {("re", 3): "waits: x"}
    owned = {"assigned": {"re": ((3, 3),)}, "quiet": {"re": ((3, 3),)}}
    one = report("a", **owned, resets=unmoved_lines(resets, [tp]))
    (found,) = movements(evolve(viewed(facts("a", tp), one), holds=(record,)))
    assert (found.name, found.why) == ("re:re:3", "at a it waits: x")


MUTE = report("a", **BOTH, resets=None)


@pytest.mark.parametrize(
    ("seen", "why"),
    [
        ((OWNER, MUTE), "a moves nothing: its client, settings or version forbid it"),
        ((OWNER,), f"a {viewed(OWNER).present[0].verdict.sentence}"),
    ],
    ids=["mute", "plain"],
)
def test_reset_is_unknown_if_the_owner_committed_the_target_but_reports_no_resets(
    seen, why
):
    """The committed offset is the target, but the owner may not have read from there."""
    view = under_a_reset(*seen)
    known = "committed at the target, but not known to be read from there"
    there = "committed at 4, but not known to be read from there"
    found = movements(view)
    assert [one.is_moved for one in found] == [False, False]
    assert list(reasons(found)) == [f"t:0-1 are {known}: {why}"]
    assert {one.sentence() for one in found} == {f"{there}: {why}"}
    assert list(summaries(found)) == ["t  moved 0 of 2, unknown 2 by operator:alice"]
    before = movements(under_a_reset(*seen, committed=5))
    assert list(reasons(before)) == [f"t:0-1 are not moved yet: {why}"]
    assert list(summaries(before)) == ["t  moved 0 of 2 by operator:alice"]


def test_partition_missing_from_a_full_list_of_unmoved_partitions_counts_as_unmoved():
    """A report names at most 100 unmoved partitions."""
    lines = tuple(f"t:{number} waits: x" for number in range(1, 1 + MOST_KEPT))
    one = report("a", **BOTH, resets=lines)
    left = "a has so many other partitions to move that it does not name this one"
    assert whys(under_a_reset(OWNER, one)) == {0: left, 1: "at a it waits: x"}


def test_reset_does_not_wait_for_a_stream():
    """A stream's offsets are in its checkpoint, and the group's offsets belong to members."""
    stream = report("s", kind=STREAM, member_id=None, generation=None, **BOTH)
    done = under_a_reset(OWNER, report("a", **BOTH, resets=()), stream)
    assert whys(done) == {0: "", 1: ""}
    alone = under_a_reset(stream, committed=5)
    assert "run reset-offsets again" in whys(alone)[0]


def test_topic_without_readers_has_no_next_owner():
    other = TopicPartition("old", 0)
    reading = facts("a", other)
    read = report("a", assigned={"old": ((0, 0),)}, quiet={}, resets=())
    until = "until one does, or until the group has no member"
    why = f"no member of the group reads t: it is not moved {until}"
    assert whys(under_a_reset(reading, read, committed=5)) == {0: why, 1: why}


def test_member_that_cannot_carry_out_resets_is_not_a_next_owner():
    idle = {"assigned": {}, "quiet": {}, "member_id": None, "generation": None}
    mute, able = report("c", **idle), report("d", resets=(), **idle)
    why = (
        "no member owns it, and none moves it: c moves nothing: its client, settings or "
        "version forbid it"
    )
    assert whys(under_a_reset(mute, committed=5)) == {0: why, 1: why}
    later = "no member owns it; its next owner moves it first"
    both = under_a_reset(mute, able, committed=5)
    assert whys(both) == {0: later, 1: later}


def test_next_owner_moves_the_offsets_unless_the_topic_was_recreated():
    """A view lacks the topic's current id, so the topic may have been recreated."""
    hold = ControlHold("h", "x", reset=Reset((("t", 0, 4),), (("t", "id"),), "4"))
    record = HoldRecord(key=ControlKey("g", "alice", "t"), hold=hold, at=1.0, offset=1)
    text = "no member owns it; its next owner moves it first"
    found = whys(under_a_reset(committed=5, holds=(record,)))[0]
    assert found.startswith(f"{text}, unless its topic was recreated since")
    assert whys(under_a_reset(committed=5))[0].startswith(f"{text};")


def test_reasons_name_partitions_as_ranges():
    done = under_a_reset(OWNER, report("a", **BOTH, resets=()))
    assert is_moved(done, ()) == (True, "moved: t:0-1")
    why = "a has not committed it yet"
    left = movements(evolve(done, facts=evolve(done.facts, committed={})))
    assert list(reasons(left)) == [f"t:0-1 are not moved yet: {why}"]
    assert list(reasons(left[:1])) == [f"t:0 is not moved yet: {why}"]
    several = [evolve(one, why=f"{n} {one.why}") for n in range(4) for one in left]
    *_, text = reasons([*several, *(evolve(one, why=one.name) for one in left)])
    assert text == "and 1 other reason"


def test_client_without_reports_is_named_in_the_reason():
    why = whys(under_a_reset(OWNER))[0]
    assert why.startswith("a does not report")


def test_report_has_a_line_for_each_unmoved_partition():
    """A multi-line error is printed as one line."""
    ledger = PauseLedger()
    resets = Resets(ledger)
    resets.hold([("t", 0), ("t", 1), ("t", 2)])
    resets.troubles = {("t", 1): "waits: an error\nof two lines"}
    lines = unmoved_lines(resets, {ZERO, ONE})
    assert lines == ("t:0 is being moved", r"t:1 waits: an error\nof two lines")
    read = decode_report(encode_report(report("a", resets=lines)))
    assert read.resets == lines
