"""A hold ends by the broker's clock, whatever the member's own is: never early."""

import pytest

from safeconsumer.events import HoldsExpired, HoldsPlaced
from safeconsumer.group.broker_clock import BrokerClock
from tests.harness.group.lab import SKEW, ControlLab, written
from tests.harness.holds.lab import A

HOUR = 3600.0


class ClockLab(ControlLab):
    """A member whose own clock says 1.0, and a broker whose clock says ``broker``."""

    def __init__(self, broker):
        self.broker_clock = BrokerClock(is_told=True)
        super().__init__(self.broker_clock)
        self.ahead = broker - self.clock.now
        self.ledger._wall = lambda: self.clock.now - 999.0
        self.assign(A)

    def report(self, took=0.0):
        """Have a report acknowledged that was so long on its way back."""
        heard = self.clock.now
        at = heard - took + self.ahead
        self.broker_clock.told(at, heard - took, heard)
        self.ledger.deliver()

    def is_quiet_for(self, seconds):
        self.clock.now += seconds
        return self.quiet() == {A}


@pytest.mark.parametrize("ahead", [-HOUR, 0.0, HOUR])
@pytest.mark.parametrize("is_known", [False, True])
def test_it_ends_by_the_brokers_clock(ahead, *, is_known):
    """Whether the hold is heard before the broker's time is known, or after it."""
    lab = ClockLab(1.0 + ahead)
    if is_known:
        lab.report()
    lab.hear(written("orders", 0, ttl=10.0, at=1.0 + ahead))
    if not is_known:
        lab.report()
    assert lab.is_quiet_for(10.0 + SKEW - 0.1)
    assert not lab.is_quiet_for(0.2)
    lab.ledger.deliver()
    assert len(lab.told.of(HoldsPlaced)) == len(lab.told.of(HoldsExpired)) == 1


def test_nothing_expires_before_the_time_is_known():
    """Its own clock is far beyond the end of the hold, and wrong."""
    lab = ClockLab(-HOUR)
    lab.hear(written("orders", 0, ttl=10.0, at=-HOUR))
    assert lab.is_quiet_for(HOUR)


def test_what_was_over_long_ago_ends_with_the_first_report():
    lab = ClockLab(1.0)
    lab.hear(written("orders", 0, ttl=10.0, at=-HOUR))
    lab.report()
    assert lab.quiet() == set()


def test_a_slow_acknowledgement_makes_it_late_and_never_early():
    """The next one, which is quicker, puts it right."""
    lab = ClockLab(1.0)
    lab.report(took=3.0)
    lab.hear(written("orders", 0, ttl=10.0, at=1.0))
    lab.report()
    assert lab.is_quiet_for(10.0 + SKEW - 0.1)
    assert not lab.is_quiet_for(0.2)


@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_a_brokers_clock_that_is_set(step):
    """It counts by what the broker says now."""
    lab = ClockLab(1.0)
    lab.report()
    lab.hear(written("orders", 0, ttl=2 * HOUR, at=1.0))
    lab.ahead += step
    lab.report()
    assert lab.is_quiet_for(2 * HOUR - step + SKEW - 0.1)
    assert not lab.is_quiet_for(0.2)


def test_what_ended_by_a_wrong_time_is_held_again():
    """A broker's clock that was an hour ahead for a moment."""
    lab = ClockLab(1.0 + HOUR)
    lab.report()
    lab.hear(written("orders", 0, ttl=10.0, at=1.0))
    assert lab.quiet() == set()
    lab.ahead -= HOUR
    lab.report()
    assert lab.quiet() == {A}


def test_where_nobody_can_tell_its_own_clock_has_to_do():
    """Refused; or not answered for as long as it waits."""
    refused, unanswered = ClockLab(1.0), ClockLab(1.0)
    refused.broker_clock.untold(refused.clock.now, is_final=True)
    unanswered.broker_clock.untold(unanswered.clock.now)
    for lab in (refused, unanswered):
        lab.hear(written("orders", 0, ttl=10.0, at=1.0))
        assert lab.is_quiet_for(10.0 + SKEW - 0.1)
    assert not refused.is_quiet_for(60.0)
    assert unanswered.is_quiet_for(60.0)
    unanswered.broker_clock.untold(unanswered.clock.now)
    assert unanswered.quiet() == set()
