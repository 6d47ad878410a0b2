"""Members measure the broker's clock: no wrong clock convicts, none acquits."""

from array import array

import pytest

from safeconsumer.audit.clocks import Appended, BrokerTime, Measures
from safeconsumer.audit.entries import Clock


def test_between_two_measures_either_may_hold():
    measures = Measures()
    for at, least in ((100.0, 0.0), (200.0, 50.0), (300.0, 20.0)):
        measures.add(Clock(n=1, at=at, least=least, most=least + 1))
    moments = 50.0, 100.0, 150.0, 200.0, 250.0, 350.0
    found = [measures.around(at) for at in moments]
    assert found == [(0, 1), (0, 1), (0, 51), (0, 51), (20, 51), (20, 21)]


class Walked(array):
    """Counts how many of its numbers were walked over."""

    walked = 0

    def __iter__(self):
        for one in super().__iter__():
            type(self).walked += 1
            yield one


@pytest.mark.parametrize("is_measured", [True, False], ids=["measured", "appended"])
def test_the_window_of_a_hold_is_found_without_a_walk_over_what_was_measured(
    *, is_measured
):
    measures = Measures(at=Walked("d"), least=Walked("d"), most=Walked("d"))
    appended = Appended(at=Walked("d"), lag=Walked("d"))
    for number in range(100):
        if is_measured:
            ahead = 5.0 - number % 7
            measures.add(Clock(n=1, at=1.0 * number, least=ahead, most=ahead + 1))
        appended.add(at=200.0 + number, written=210.0 + 2 * number)
    Walked.walked = 0
    window = BrokerTime(measures, appended).window(1000.0, 2000.0)
    assert Walked.walked == 0
    assert window == ((994.0, 2001.0) if is_measured else (891.0, 2000.0))
