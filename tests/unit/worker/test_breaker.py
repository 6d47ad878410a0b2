"""When a breaker opens, for how long, and what closes it: no clock, no records."""

from typing import Any

import pytest

from safeconsumer import Breaker, WorkerSettingError
from safeconsumer.worker.breaker import Circuit

BREAKER = Breaker(on=(ConnectionError,), failures=3, first=1.0, factor=2.0, most=5.0)
RATED = Breaker(on=(OSError,), failures=4, rate=0.5, within=10.0)


def failed(circuit: Circuit, count: int, breaker: Breaker = BREAKER) -> Circuit:
    for _ in range(count):
        circuit = circuit.failed(breaker, 0.0)
    return circuit


def test_a_rate_opens_it_whatever_succeeds_in_between() -> None:
    """Once enough failed, and that is a large enough part."""
    rare = Circuit().succeeded(RATED, 5, 0.0)
    often = Circuit()
    for _ in range(3):
        rare = rare.failed(RATED, 1.0).succeeded(RATED, 1, 1.0)
        often = often.failed(RATED, 1.0).succeeded(RATED, 1, 1.0)
    assert not rare.failed(RATED, 1.0).is_open
    assert not often.is_open
    assert often.failed(RATED, 1.0).why == "4 of 7 times in 10 s"


def test_a_rate_is_that_of_its_window() -> None:
    """What is older counts no more, good or bad."""
    circuit = Circuit().succeeded(RATED, 1000, 0.0)
    for n in range(3):
        circuit = circuit.succeeded(RATED, 1, 5.0 + n).failed(RATED, 5.0 + n)
    assert not circuit.is_open
    later = circuit.succeeded(RATED, 1, 12.5).failed(RATED, 12.5)
    assert later.why == "4 of 8 times in 10 s"
    much_later = circuit.succeeded(RATED, 1, 30.0).failed(RATED, 30.0)
    assert not much_later.is_open
    assert len(much_later.recent) == 1


def test_a_window_takes_no_more_memory_with_time() -> None:
    """However many calls there are."""
    circuit = Circuit()
    for n in range(1000):
        circuit = circuit.succeeded(RATED, 1, n * 0.1)
    assert len(circuit.recent) <= 11


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"on": ()}, "tuple of at least one exception class"),
        ({"on": ConnectionError}, "tuple of exception classes"),
        ({"on": (BaseException,)}, "tuple of exception classes"),
        ({"on": (3,)}, "tuple of exception classes"),
        ({"failures": 0}, "1 or more"),
        ({"rate": 0}, "above 0"),
        ({"rate": 1.1}, "at most 1"),
        ({"rate": float("nan")}, "above 0"),
        ({"within": 0}, "above 0"),
        ({"first": 0}, "above 0"),
        ({"factor": 0.5}, "must not get shorter"),
        ({"first": 10.0, "most": 9.0}, "must not get shorter"),
        ({"most": float("inf")}, "finite"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    """By name, and before anything is started."""
    with pytest.raises(WorkerSettingError, match=said):
        Breaker(**{"on": (OSError,), **settings})
