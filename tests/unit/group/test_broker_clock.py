"""Members and operators use the broker's time, even if their own clocks differ."""

import pytest

from safeconsumer.events import HoldsExpired, HoldsPlaced
from safeconsumer.group.broker_clock import BrokerClock
from safeconsumer.group.log_clock import LogClock
from tests.harness.group.lab import SKEW, ControlLab, control_record
from tests.harness.holds.lab import A

HOUR = 3600.0


class ClockLab(ControlLab):
    """A member whose own clock shows 1.0, and a broker whose clock shows ``broker``."""

    def __init__(self, broker):
        self.broker_clock = BrokerClock(is_reporting=True)
        super().__init__(self.broker_clock)
        self.ahead = broker - self.clock.now
        self.ledger._wall = lambda: self.clock.now - 999.0
        self.assign(A)

    def report(self, took=0.0):
        """Acknowledge a report after this many seconds."""
        arrived = self.clock.now
        at = arrived - took + self.ahead
        self.broker_clock.acknowledged(at, arrived - took, arrived)
        self.ledger.deliver()

    def is_quiet_for(self, seconds):
        self.clock.now += seconds
        return self.quiet() == {A}


@pytest.mark.parametrize("ahead", [-HOUR, 0.0, HOUR])
@pytest.mark.parametrize("is_known", [False, True])
def test_hold_expires_by_the_brokers_clock(ahead, *, is_known):
    """The member reads the hold before or after it learns the broker's time."""
    lab = ClockLab(1.0 + ahead)
    if is_known:
        lab.report()
    lab.hear(control_record("orders", 0, ttl=10.0, at=1.0 + ahead))
    if not is_known:
        lab.report()
    assert lab.is_quiet_for(10.0 + SKEW - 0.1)
    assert not lab.is_quiet_for(0.2)
    lab.ledger.deliver()
    assert len(lab.log.of(HoldsPlaced)) == len(lab.log.of(HoldsExpired)) == 1


def test_no_hold_expires_before_the_brokers_time_is_known():
    lab = ClockLab(-HOUR)
    lab.hear(control_record("orders", 0, ttl=10.0, at=-HOUR))
    assert lab.is_quiet_for(HOUR)


def test_overdue_hold_expires_at_the_first_acknowledged_report():
    lab = ClockLab(1.0)
    lab.hear(control_record("orders", 0, ttl=10.0, at=-HOUR))
    lab.report()
    assert lab.quiet() == set()


@pytest.mark.parametrize(
    ("took", "step"),
    [(3.0, 0.0), (0.0, -HOUR), (0.0, HOUR)],
    ids=["a slow acknowledgement", "set back", "set forward"],
)
def test_hold_never_expires_early_if_the_brokers_clock_is_set_or_reported_late(
    took, step
):
    lab = ClockLab(1.0)
    lab.report(took)
    lab.hear(control_record("orders", 0, ttl=2 * HOUR, at=1.0))
    lab.ahead += step
    lab.report()
    assert lab.is_quiet_for(2 * HOUR - step + SKEW - 0.1)
    assert not lab.is_quiet_for(0.2)


@pytest.mark.parametrize("days", [1 / 24, 30], ids=["an hour", "a month"])
def test_hold_that_expired_because_the_brokers_clock_was_wrong_is_kept(days):
    """A member forgets an expired hold only if its own clock is past the hold's end, too."""
    lab = ClockLab(1.0 + 24 * days * HOUR)
    lab.report()
    lab.hear(control_record("orders", 0, ttl=600.0, at=1.0))
    lab.clock.now += 61.0  # members look for expired holds once a minute
    lab.hear(control_record("audit", 1, held=False))
    assert lab.quiet() == set()
    lab.ahead -= 24 * days * HOUR
    lab.report()
    assert lab.quiet() == {A}


def test_holds_that_expired_long_ago_are_forgotten_at_the_first_report():
    """A member does not know the broker's time, and keeps all holds, until that report."""
    lab = ClockLab(1.0)
    lab.hear(control_record("orders", 0, ttl=10.0, at=-3 * HOUR))
    assert len(lab.state._fold.holds()) == 1
    lab.report()
    assert lab.state._fold.holds() == ()


def test_members_clock_applies_if_the_brokers_time_is_unavailable():
    refused, unanswered = ClockLab(1.0), ClockLab(1.0)
    refused.broker_clock.failed(refused.clock.now, is_final=True)
    unanswered.broker_clock.failed(unanswered.clock.now)
    for lab in (refused, unanswered):
        lab.hear(control_record("orders", 0, ttl=10.0, at=1.0))
        assert lab.is_quiet_for(10.0 + SKEW - 0.1)
    assert not refused.is_quiet_for(60.0)
    assert unanswered.is_quiet_for(60.0)
    unanswered.broker_clock.failed(unanswered.clock.now)
    assert unanswered.quiet() == set()


# ---------------------------------------------------------------- a reader's clock

BROKER = 1_000_000.0


class Reading:
    """A reader with a wrong wall clock, and a writer."""

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


def test_reader_with_an_accurate_clock_does_not_wait_for_a_record():
    """The reader uses the record's timestamp, not its own clock."""
    reading = Reading(2.0)
    assert reading.now(BROKER - 1) == BROKER - 1
    reading.passed += 10
    assert reading.now(BROKER - 1) == BROKER + 9
    assert reading.listened == 0


@pytest.mark.parametrize("ahead", [-3600.0, -20.0, 20.0, 3600.0])
def test_one_record_corrects_a_wrong_clock(ahead):
    reading = Reading(ahead)
    assert reading.now(BROKER - 1) == BROKER + 3
    reading.passed += 40
    assert reading.now(BROKER + 3) == BROKER + 43
    assert reading.listened == 1


@pytest.mark.parametrize("ahead", [-3600.0, 0.0, 3600.0])
def test_every_member_counts_as_silent_if_no_new_record_arrives(ahead):
    """After one wait in which no record arrived, later calls do not wait again."""
    reading = Reading(ahead, writes=False)
    newest = BROKER - 30
    assert min(reading.now(newest) for _ in range(2)) >= BROKER
    assert reading.listened == 1
    assert reading.now(BROKER + 3) == BROKER + 3


def test_record_after_the_first_wait_sets_the_time():
    reading = Reading(20.0)
    reading.now(BROKER)
    reading.passed += 1
    assert reading.now(BROKER + 3.5) == BROKER + 3.5


def test_broker_clock_that_was_set_back_is_used():
    """Otherwise every member would count as silent for an hour."""
    reading = Reading(20.0)
    reading.now(BROKER)
    reading.passed += 1
    assert reading.now(BROKER - 3600) == BROKER - 3600
    reading.passed += 1
    assert reading.now(BROKER - 3600) == BROKER - 3599


@pytest.mark.parametrize("writes", [True, False], ids=["reports", "silence"])
def test_new_record_may_be_old_if_the_last_call_was_long_ago(writes):
    """Its writer may have died since; only another record shows that it still lives."""
    reading = Reading(0.0, writes=writes)
    reading.now(BROKER)
    reading.passed += 3600
    assert reading.now(BROKER + 60) == BROKER + 3603
    assert reading.listened == 1


def test_fresh_record_after_a_long_time_is_used_without_a_wait():
    reading = Reading(0.0)
    reading.now(BROKER)
    reading.passed += 3600
    assert reading.now(BROKER + 3598) == BROKER + 3598
    assert reading.listened == 0
