"""Tests ``poll_until`` with consumers that are plain objects."""

import threading

import pytest
from kafka import KafkaConsumer

from safeconsumer.testing import PollTimeoutError, poll_until


class Counting:
    """A consumer that returns consecutive numbers and is also an iterator."""

    def __init__(self, first):
        self.polled = threading.Event()
        self._next = first

    def poll(self, _timeout_ms):
        self._next += 1
        self.polled.set()
        return {"tp": [self._next - 1]}

    def group_metadata(self):
        return f"member {self._next}"

    def assignment(self):
        return {"tp"}

    def __iter__(self):
        pytest.fail("it is polled, not iterated")


def both_polled(*consumers):
    return lambda: all(one.polled.is_set() for one in consumers)


def test_poll_until_accepts_one_consumer_and_omits_records_of_silent_consumers():
    one, silent = Counting(0), Counting(1000)
    records = poll_until(one, both_polled(one, silent), silently=silent)
    assert records == list(range(len(records)))
    assert records


def test_records_of_several_consumers_are_returned():
    one, other = Counting(0), Counting(1000)
    records = poll_until([one, other], both_polled(one, other))
    assert {0, 1000} <= set(records)


@pytest.mark.parametrize("is_over", [False, True], ids=["while waiting", "at the end"])
def test_error_of_a_poll_is_raised(*, is_over):
    class Failing(Counting):
        def poll(self, timeout_ms):
            super().poll(timeout_ms)
            raise ZeroDivisionError

    failing = Failing(0)
    with pytest.raises(ZeroDivisionError):
        poll_until(failing, lambda: is_over and failing.polled.wait())


def test_error_names_the_condition_and_the_members():
    with pytest.raises(PollTimeoutError, match=r"waited 0 s for a rest; .*'member \d"):
        poll_until(Counting(0), lambda: False, awaited="a rest", timeout=0)


@pytest.mark.parametrize("given", [None, 3, "orders", KafkaConsumer, [KafkaConsumer]])
def test_object_that_cannot_poll_is_refused(given):
    with pytest.raises(TypeError, match="polls a consumer, or a list of them, not"):
        poll_until(given, lambda: True)
    with pytest.raises(TypeError, match="polls a consumer, or a list of them, not"):
        poll_until([], lambda: True, silently=given)


def test_condition_that_is_not_callable_is_refused():
    """A value that is not a function, such as an assignment, would never change."""
    with pytest.raises(TypeError, match="the condition is a function"):
        poll_until([], set())
