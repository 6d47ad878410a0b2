"""Tests how any client reads a holds topic to its end."""

import time

import pytest

from safeconsumer.clients import control_topics
from safeconsumer.clients.control_topics import Progress, TopicLostError
from safeconsumer.group.control_clients import RecreatedTopic


def begun(first=0, end=5, at=0):
    one = Progress("holds")
    one.at = at
    assert one.begin(one.beginning(first, end, is_other=False)) == ()
    return one


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that the test sets through ``clock.now``."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(control_topics.time, "monotonic", lambda: Clock.now)
    return Clock


@pytest.mark.parametrize(("first", "at", "begins"), [(0, 3, 3), (4, 3, 4), (0, 0, 0)])
def test_reading_starts_at_its_last_position_or_at_the_first_record(first, at, begins):
    one = begun(first, 5, at)
    assert (one.at, one.is_complete) == (begins, False)
    one.at = 5
    assert one.is_complete


@pytest.mark.parametrize(("end", "is_other"), [(2, False), (9, True)])
def test_recreated_topic_is_read_from_its_first_record(end, is_other):
    one = begun(at=3)
    beginning = one.beginning(1, end, is_other=is_other)
    assert one.begin(beginning) == (RecreatedTopic("holds", 3, end),)
    assert one.offsets == {("holds", 0): 1}


def test_recreated_topic_is_detected_again_if_the_first_attempt_to_read_fails():
    """A client may fail after the brokers have answered and before its first read."""
    one = begun(at=3)
    found = one.beginning(1, 9, is_other=True)
    assert one.beginning(1, 9, is_other=True) == found
    assert one.offsets == {("holds", 0): 3}


def test_read_that_raises_does_not_advance_the_position(clock):
    """The caller never gets the records of that read, so the next attempt must read them."""
    one = begun()
    one.note_read(clock.now, 0.5, 2)
    one.lose("is lost")
    with pytest.raises(TopicLostError):
        one.note_read(clock.now, 0.5, 4)
    assert one.beginning(0, 5, is_other=False).at == 2


def test_only_time_spent_waiting_counts_as_silence(clock):
    """A program that was suspended for an hour did not wait for a response in that time."""
    one = begun()
    for _ in range(10):
        began, clock.now = clock.now, clock.now + 3600
        one.note_read(began, 0.5, one.at)
    clock.now += 0.5
    with pytest.raises(TopicLostError, match="no answer about holds for 5 s"):
        one.note_read(clock.now - 0.5, 0.5, one.at)


def test_silence_is_over_once_the_topic_is_read_up_to_a_newly_reported_end(clock):
    one = begun()
    one.note_read(clock.now - 5, 5.0, 5)
    one.note_end(0, 6)
    with pytest.raises(TopicLostError):
        one.note_read(clock.now - 1, 1.0, 5)
    one.note_end(5, 5)
    one.note_read(clock.now - 1, 1.0, 5)


def test_end_offset_below_the_position_stops_the_reading():
    one = begun()
    one.note_end(4, 3)
    assert one.is_lost
    with pytest.raises(TopicLostError, match="holds lost its end"):
        one.note_read(time.monotonic(), 0.0, 0)
    one.begin(one.beginning(0, 5, is_other=False))
    assert not one.is_lost


def test_end_offsets_and_topic_ids_are_requested_at_intervals(clock):
    one = begun()
    asked = []
    for second in range(61):
        clock.now = 100.0 + second
        asked.append((one.is_time_to_ask(), one.is_time_to_compare()))
    assert [sum(column) for column in zip(*asked, strict=True)] == [60, 2]
