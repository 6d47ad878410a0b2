"""Expressions that fail: told, and nothing else suffers."""

from collections.abc import Callable

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import PatternFailed
from tests.harness.holds.lab import Told
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader


class PatternError(Exception):
    """Raised by an expression."""


class Failing:
    """An expression of another library that fails to match at all."""

    pattern = "raises"

    def fullmatch(self, string: str, /) -> object | None:
        """Raise."""
        raise PatternError(string)


@simulated(seeds=1)
def test_a_pattern_that_raises_is_not_placed(lab: Lab) -> None:
    """Its error goes to whoever placed it, and nothing was applied."""
    (tp,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, tps=[tp])
    with pytest.raises(PatternError):
        reader.consumer.pause(tp, Failing())
    assert reader.consumer.holds() == ()
    reader.reads(tp, range(3))


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.explain("t:0"),
        lambda consumer: consumer.resume("t:0"),
        lambda consumer: consumer.subscribe(["t"]),
    ],
    ids=["explain", "resume", "subscribe"],
)
@simulated(seeds=1)
def test_a_pattern_that_fails_later_covers_and_is_told(
    lab: Lab, call: Callable[[SafeConsumer], object]
) -> None:
    """Strict: what cannot be asked is held; the event says why."""
    lab.topic("t", 1, records=3)
    told = Told()
    reader = Reader(lab, SafeConsumer, hooks=[told])
    reader.consumer.pause(Failing())
    assert told.of(PatternFailed) == []
    call(reader.consumer)
    reader.consumer.subscribe(["t"])
    reader.is_silent()
    assert {event.topic for event in told.of(PatternFailed)} == {"t"}
