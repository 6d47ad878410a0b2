"""Waits that are interrupted by a signal handler do not leave a lock held."""

import itertools
import threading

import pytest

from safeconsumer import _waits
from safeconsumer._kafka.fixes.waits import InterruptibleSelector, adopt_network
from safeconsumer._kafka.network import NetworkSelector
from safeconsumer._waits import InterruptibleEvent
from tests.harness.signals import Interrupts
from tests.harness.waiting import end_of, wait_for

INSIDE = (_waits.__file__, threading.__file__)


@pytest.fixture
def net():
    """Return a running loop that uses our waits."""
    made = NetworkSelector()
    adopt_network(made)
    made.start()
    yield made
    made.close()


def on_a_thread(call):
    """Call a function on another thread, and wait until it has returned."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    end_of(thread)


def test_next_wait_works_after_an_interrupt_at_any_point_of_a_wait():
    interrupts = Interrupts(INSIDE)
    for at in itertools.count():
        event = InterruptibleEvent()
        has_come = interrupts.at(at, lambda: event.wait(0.001))  # noqa: B023 - called here
        on_a_thread(event.set)
        assert event.wait(), interrupts.place
        assert event._waits == {}, interrupts.place
        if not has_come:
            break
    assert at > 3


def test_handler_may_set_the_event_at_any_point_of_a_wait():
    """With a ``threading.Event``, the handler would deadlock with its own thread."""
    places = Interrupts(INSIDE)
    for at in itertools.count():
        event = InterruptibleEvent()
        has_come = places.reach(at, lambda: event.wait(0.02), event.set)  # noqa: B023 - called here
        assert event.is_set() is has_come
        if not has_come:
            break
    assert at > 3


def test_wait_ends_when_its_event_is_set_or_its_time_is_over():
    """A timeout above Python's maximum means no limit."""
    event = InterruptibleEvent()
    assert [event.wait(seconds) for seconds in (0, -1, 0.001)] == [False] * 3
    threads = [threading.Thread(target=event.wait, args=(1e300,)) for _ in range(3)]
    for one in threads:
        one.start()
    wait_for(lambda: len(event._waits) == 3, "three waits")
    event.set()
    for one in threads:
        end_of(one)
    assert event._waits == {}
    assert event.wait(0) is True
    event.clear()
    assert event.wait(0) is False


def test_next_call_of_the_loop_returns_after_an_interrupt_at_any_point_of_a_call(
    net,
):
    answer = InterruptibleEvent()

    async def late():
        while not answer.is_set():
            await net.sleep(0.001)
        return "late"

    interrupts = Interrupts((*INSIDE, InterruptibleSelector.run.__code__.co_filename))
    for at in itertools.count():
        answer.clear()
        other = threading.Timer(0.002, answer.set)
        other.start()
        has_come = interrupts.at(at, lambda: net.run(late))
        other.join()
        found = []
        on_a_thread(lambda: found.append(net.run(late)))  # noqa: B023 - called here
        assert found == ["late"], interrupts.place
        assert net._pending_waiters == {}, interrupts.place
        if not has_come:
            break
    assert at > 8


def test_call_of_the_loop_raises_the_error_of_its_coroutine(net):
    async def refused():
        raise LookupError

    with pytest.raises(LookupError):
        net.run(refused)


def test_closing_the_loop_ends_waiting_calls(net):
    raised = []
    has_begun = threading.Event()

    async def sleep():
        has_begun.set()
        await net.sleep(1000)

    def call():
        try:
            net.run(sleep)
        except BaseException as error:  # noqa: BLE001 - the test reads it
            raised.append(error)

    waiting = threading.Thread(target=call)
    waiting.start()
    wait_for(has_begun.is_set, "a call")
    net.close()
    end_of(waiting)
    (error,) = raised
    assert "Event loop stopped" in str(error)
