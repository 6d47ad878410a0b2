"""What the records of the control topics tell of the past."""

from types import SimpleNamespace

import pytest

from safeconsumer.group import findings
from safeconsumer.group.facts import NO_GROUP, HoldRecord
from safeconsumer.group.history import entries
from safeconsumer.group.view import Times, View
from safeconsumer.group.wire import ControlHold, ControlKey

SKEW = 30.0


def at(seconds, hold_id, *, ttl=None, owner="alice"):
    """Return a record; one without an id is a tombstone."""
    ttl_ms = None if ttl is None else int(ttl * 1000)
    hold = None if hold_id is None else ControlHold(hold_id, "x", ttl_ms)
    key = ControlKey("g", owner, "orders")
    return HoldRecord(key=key, hold=hold, at=seconds, offset=0)


def whats(*records):
    return [one.what for one in entries(records, SKEW)]


def test_what_was_done_to_one_hold():
    several = [at(0, "1"), at(1, "1"), at(2, "2"), at(3, None), at(4, "3")]
    assert whats(*several) == ["held", "extended", "held again", "lifted", "held"]


def test_lifts_of_nothing_are_no_lifts():
    """Of nothing, of what was lifted, and of another owner's or the group's own hold."""
    others = [at(1, None, owner="bob"), at(2, None, owner="eve")]
    assert whats(at(0, "1"), *others, at(3, None), at(4, None)) == ["held", "lifted"]
    assert whats(at(0, None)) == []


def test_what_had_expired_is_neither_lifted_nor_extended():
    """Members lift what has expired a little later, and obey it until then."""
    first = at(0, "1", ttl=60)
    assert whats(first, at(91, None)) == ["held"]
    assert whats(first, at(89, None)) == ["held", "lifted"]
    assert whats(first, at(91, "1")) == ["held", "held"]
    assert whats(first, at(89, "1")) == ["held", "extended"]


def test_records_without_a_time():
    assert whats(at(None, "1", ttl=1), at(None, None)) == ["held", "lifted"]
    assert whats(at(None, "1", ttl=1), at(99, None)) == ["held", "lifted"]


def test_until_when_it_was_held_and_what_expired():
    """What was lifted or extended before its end did not expire."""
    first = at(0, "1", ttl=60)

    def ends(*records, now=None):
        return [one.ending for one in entries(records, SKEW, now)]

    end, expired = "until 1970-01-01 00:01:00Z", "expired 1970-01-01 00:01:00Z"
    assert ends(first) == ends(first, now=59) == [end]
    assert ends(first, now=61) == ends(first, at(91, None)) == [expired]
    assert ends(first, at(89, None), now=99) == [end, ""]
    assert ends(first, at(91, "2"), now=99) == [expired, "until resumed"]
    assert ends(first, at(89, "1"), now=99) == [end, "until resumed"]
    assert ends(at(None, "1", ttl=60), now=99) == ["end unknown"]


@pytest.mark.parametrize(
    ("proven", "here", "words"),
    [
        pytest.param(50, 59, "until", id="by no clock"),
        pytest.param(50, 61, "may have ended", id="by this machine's clock alone"),
        pytest.param(61, 61, "expired", id="a record proves it"),
    ],
)
def test_history_and_doctor_judge_ends_as_status_does(proven, here, words):
    """Members that lift it late by the allowed skew change nothing of that."""
    hold = at(0, "1", ttl=60)
    (entry,) = entries([hold], SKEW, proven, here)
    assert entry.ending == f"{words} 1970-01-01 00:01:00Z"
    times = Times(None, proven, here)
    board = SimpleNamespace(times=times, holds=lambda _: (hold,))
    shown = [one.what for one in findings._holds(board, "g")]
    assert (f"{words} at" in "".join(shown)) is (words != "until")
    view = View(group="g", facts=NO_GROUP, holds=(hold,), times=times)
    assert bool(view.maybe_over) is (words == "may have ended")
    assert bool(view.lasting) is (words != "expired")
