"""Tests the history of holds, made from the records of the holds topic."""

from types import SimpleNamespace

import pytest
from attrs import evolve

from safeconsumer.group import findings
from safeconsumer.group.facts import NO_GROUP, HoldRecord
from safeconsumer.group.history import EntryStream, entries
from safeconsumer.group.view import Times, View
from safeconsumer.group.wire import ControlHold, ControlKey, Reset
from tests.harness.listing import short


def skew(group):
    return {"g": 30.0}[group]


def at(seconds, hold_id, *, ttl=None, owner="alice"):
    """Return the record of a hold, or a tombstone if ``hold_id`` is None."""
    ttl_ms = None if ttl is None else int(ttl * 1000)
    hold = None if hold_id is None else ControlHold(hold_id, "x", ttl_ms)
    key = ControlKey("g", owner, "orders")
    return HoldRecord(key=key, hold=hold, at=seconds, offset=0)


def whats(*records):
    return [one.what for one in entries(records, skew)]


def test_history_has_an_entry_for_each_change_of_a_hold():
    several = [at(0, "1"), at(1, "1"), at(2, "2"), at(3, None), at(4, "3")]
    assert whats(*several) == ["held", "extended", "held again", "lifted", "held"]


def test_reset_is_an_entry_with_its_partitions_and_target():
    first = Reset((("t", 0, 3),), asked="3")
    later = Reset((*first.to, ("t", 1, 0), ("u", 0, 0)), asked="earliest")
    moves = [None, first, later]
    several = [
        evolve(one, hold=evolve(one.hold, reset=reset))
        for one, reset in zip(
            [at(0, "1", ttl=60), at(1, "1"), at(2, "1")], moves, strict=True
        )
    ]
    found = entries([*several, at(3, "1", ttl=60)], skew)
    assert [one.what for one in found] == ["held", "reset", "reset", "extended"]
    assert [one.ending for one in found[1:3]] == [
        "t:0 to 3, until resumed",
        "t:1 u:0 to earliest, until resumed",
    ]
    assert found[3].ending == "until 1970-01-01 00:01:03Z"


def test_entry_of_a_second_reset_shows_only_its_own_target():
    first = Reset((("t", 0, 3),), asked="-2")
    texts = (("t", 0, "-2"), ("t", 1, "4"))
    later = Reset((*first.to, ("t", 1, 4)), texts=texts)
    found = entries(
        [
            evolve(one, hold=evolve(one.hold, reset=reset))
            for one, reset in zip([at(0, "1"), at(1, "1")], [first, later], strict=True)
        ],
        skew,
    )
    assert found[1].ending == "t:1 to 4, until resumed"


def test_lift_without_a_hold_does_not_add_an_entry():
    """A second lift, or a lift by another owner, does not add an entry to the history."""
    others = [at(1, None, owner="bob"), at(2, None, owner="eve")]
    assert whats(at(0, "1"), *others, at(3, None), at(4, None)) == ["held", "lifted"]
    assert whats(at(0, None)) == []


def test_expired_hold_can_be_neither_lifted_nor_extended():
    """Members obey the hold beyond its end for the allowed clock skew."""
    first = at(0, "1", ttl=60)
    assert whats(first, at(91, None)) == ["held"]
    assert whats(first, at(89, None)) == ["held", "lifted"]
    assert whats(first, at(91, "1")) == ["held", "held"]
    assert whats(first, at(89, "1")) == ["held", "extended"]


def test_hold_without_a_timestamp_does_not_expire():
    assert whats(at(None, "1", ttl=1), at(None, None)) == ["held", "lifted"]
    assert whats(at(None, "1", ttl=1), at(99, None)) == ["held", "lifted"]


@pytest.mark.parametrize("most", range(5))
def test_limit_returns_only_the_latest_entries(most):
    several = [at(0, "1", ttl=60), at(1, "1"), at(3, None), at(4, None), at(5, "2")]
    found = entries(several, skew)
    assert len(found) == 4
    assert entries(several, skew, limit=most) == found[4 - most :]


def test_entry_shows_when_its_hold_ends_or_ended():
    """A hold that was lifted or extended before its end did not expire."""
    first = at(0, "1", ttl=60)

    def ends(*records, now=None):
        return [one.ending for one in entries(records, skew, now)]

    end, expired = "until 1970-01-01 00:01:00Z", "expired 1970-01-01 00:01:00Z"
    assert ends(first) == ends(first, now=59) == [end]
    assert ends(first, now=61) == ends(first, at(91, None)) == [expired]
    assert ends(first, at(89, None), now=99) == [end, ""]
    assert ends(first, at(91, "2"), now=99) == [expired, "until resumed"]
    assert ends(first, at(89, "1"), now=99) == [end, "until resumed"]
    assert ends(at(None, "1", ttl=60), now=99) == ["end unknown"]


def test_entry_stream_returns_each_entry_once():
    """The stream also has an entry for each expiry, although an expiry is not a record."""
    stream, first = EntryStream(skew), at(0, "1", ttl=60)

    def stepped(*records, proven=None, here=None):
        found = stream.of(records, proven, here)
        return [(one.what, one.at) for one in found]

    assert stepped(first) == [("held", 0)]
    assert stepped(proven=59) == []
    assert stepped(here=61) == [("may have ended", 60)]
    assert stepped(first, here=62) == []  # the reader starts over
    assert stepped(proven=61) == []
    assert stepped(proven=91) == [("expired", 60)]
    lifted = evolve(at(95, None), offset=1)
    again = evolve(at(100, "2", ttl=1), offset=2)
    assert stepped(lifted, again, proven=100) == [("held", 100)]
    gone = evolve(at(100.5, None), offset=3)
    assert stepped(gone, proven=120) == [("lifted", 100.5)]


@pytest.mark.parametrize(
    ("later", "what"), [(None, "lifted"), ("1", "extended")], ids=["lifted", "extended"]
)
def test_hold_that_is_changed_within_the_skew_after_its_end_has_not_expired(
    later, what
):
    stream, first = EntryStream(skew), at(0, "1", ttl=60)
    changed = evolve(at(80, later, ttl=60), offset=1)
    (held,) = stream.of([first], 70)
    assert (held.what, held.ending) == ("held", "until 1970-01-01 00:01:00Z")
    assert [one.what for one in stream.of([changed], 80)] == [what]


@pytest.mark.parametrize(
    ("since", "whats"),
    [
        (None, ["held", "expired", "held"]),
        (30, ["expired", "held"]),
        (70, ["held"]),
    ],
    ids=short,
)
def test_history_stream_starts_at_the_given_time(since, whats):
    several = [at(0, "1", ttl=60), evolve(at(None, "2", owner="bob"), offset=1)]
    found = EntryStream(skew, since).of(several, 91.0)
    assert [one.what for one in found] == whats


@pytest.mark.parametrize(
    ("proven", "here", "words"),
    [
        pytest.param(50, 59, "until", id="ended by no clock"),
        pytest.param(50, 61, "may have ended", id="ended by the local clock only"),
        pytest.param(61, 61, "expired", id="ended, as a record proves"),
    ],
)
def test_history_and_doctor_agree_with_status_on_whether_a_hold_has_ended(
    proven, here, words
):
    hold = at(0, "1", ttl=60)
    (entry,) = entries([hold], skew, proven, here)
    assert entry.ending == f"{words} 1970-01-01 00:01:00Z"
    times = Times(None, proven, here)
    board = SimpleNamespace(times=times, holds=lambda _: (hold,))
    shown = [one.what for one in findings._holds(board, "g")]
    assert (f"{words} at" in "".join(shown)) is (words != "until")
    view = View(group="g", facts=NO_GROUP, holds=(hold,), times=times)
    assert bool(view.maybe_ended) is (words == "may have ended")
    assert bool(view.lasting) is (words != "expired")
