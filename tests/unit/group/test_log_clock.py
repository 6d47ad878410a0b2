"""The broker's time, told by records, whatever the reader's own clock says."""

import pytest

from safeconsumer.group.log_clock import LogClock

BROKER = 1_000_000.0


class Reading:
    """A reader whose wall clock is wrong, and somebody who writes."""

    def __init__(self, ahead, *, writes=True):
        self.passed = 0.0
        self.listened = 0
        self._writes = writes
        self._clock = LogClock(
            wall=lambda: BROKER + self.passed + ahead, passed=lambda: self.passed
        )

    def listen(self):
        self.listened += 1
        self.passed += 3.0
        return BROKER + self.passed if self._writes else None

    def now(self, newest):
        return self._clock.now(newest, self.listen)


def test_clocks_that_agree_wait_for_nothing():
    """The record's time is proven; what this clock is ahead by is not."""
    reading = Reading(2.0)
    assert reading.now(BROKER - 1) == BROKER - 1
    reading.passed += 10
    assert reading.now(BROKER - 1) == BROKER + 9
    assert reading.listened == 0


@pytest.mark.parametrize("ahead", [-3600.0, -20.0, 20.0, 3600.0])
def test_a_wrong_clock_is_put_right_by_one_record(ahead):
    """Waited for once; from then on time goes on by itself."""
    reading = Reading(ahead)
    assert reading.now(BROKER - 1) == BROKER + 3
    reading.passed += 40
    assert reading.now(BROKER + 3) == BROKER + 43
    assert reading.listened == 1


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_where_nobody_writes_everybody_is_silent(ahead):
    """Said without waiting a second time, until there is a newer record."""
    reading = Reading(ahead, writes=False)
    newest = BROKER - 30
    assert min(reading.now(newest) for _ in range(2)) >= BROKER
    assert reading.listened == 1
    assert reading.now(BROKER + 3) == BROKER + 3


def test_a_clock_that_begins_to_agree_is_not_asked_any_more():
    """What was heard is better than our own clock."""
    reading = Reading(20.0)
    reading.now(BROKER)
    reading.passed += 1
    assert reading.now(BROKER + 3.5) == BROKER + 3.5


def test_a_brokers_clock_that_went_back_is_believed():
    """Or everybody would be silent for an hour."""
    reading = Reading(20.0)
    reading.now(BROKER)
    reading.passed += 1
    assert reading.now(BROKER - 3600) == BROKER - 3600
    reading.passed += 1
    assert reading.now(BROKER - 3600) == BROKER - 3599
