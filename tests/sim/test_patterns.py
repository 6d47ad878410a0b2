"""Expressions that are slow, or that fail: told, and nothing else suffers."""

import re
import time
from collections.abc import Callable

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import PatternFailed, PatternIsSlow
from tests.harness.holds.lab import Told
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.reading import Reader


class Slow:
    """An expression that takes its time, as a nested repetition does."""

    pattern = "(x+)+y|t"
    asked = 0

    def fullmatch(self, string: str, /) -> object | None:
        """Match the topic."""
        self.asked += 1
        time.sleep(0.12)
        return re.fullmatch("t", string)


@pytest.mark.parametrize("when", ["assigned", "before", "strict"])
@simulated(seeds=1)
def test_a_slow_pattern_is_reported_once_per_name(lab: Lab, when: str) -> None:
    """By name; then its answer is remembered, and no look-up pays for it."""
    tps = lab.topic("t", 1, records=3)
    told, pattern = Told(), Slow()
    settings = {"hooks": [told], "strict_pause": when == "strict"}
    reader = Reader(lab, SafeConsumer, tps=() if when == "before" else tps, **settings)
    reader.consumer.pause(pattern)
    if when == "before":
        assert told.of(PatternIsSlow) == []
        reader.consumer.assign(tps)
    reader.is_silent()
    (slow,) = told.of(PatternIsSlow)
    assert (slow.pattern, slow.topic) == ("re:(x+)+y|t", "t")
    assert 0.12 <= slow.seconds < 0.13
    assert reader.consumer.paused() == set(tps)
    assert pattern.asked == 1
    reader.consumer.resume(pattern)
    reader.reads(tps[0], range(3))


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
