"""``with consumer.held(...)`` on a thread beside the one that polls."""

import threading

import pytest

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated


@pytest.mark.contract("P3", "P12")
@simulated(seeds=1, nightly=2)
def test_a_poll_ends_no_later_block_of_the_same_owner(lab):
    """
    P3: it meets a block that is ending, and is slow; the thread goes on to the next one.

    1. This thread ends a block, and is about to lift its hold.
    2. The poll finds the end noted, and is about to lift the hold, too.
    3. This thread lifts it, and begins a block of the same owner.
    4. The poll goes on: what it lifts now would be the second block's.
    """
    (tp,) = lab.topic("t", 1)
    consumer = SafeConsumer(**lab.settings(group_id=None))
    consumer.assign([tp])
    met, second, main = threading.Event(), threading.Event(), threading.get_ident()
    lift = consumer.resume

    def resume(*targets, owner):
        if threading.get_ident() != main:
            met.set()
            second.wait()
        elif not second.is_set():
            polling.start()
            met.wait(1)
        return lift(*targets, owner=owner)

    def poll():
        consumer.poll(0)

    polling = threading.Thread(target=poll)
    consumer.resume = resume
    with consumer.held(tp, owner="block"):
        pass
    with consumer.held(tp, owner="block"):
        second.set()
        polling.join()
        assert [hold.owner for hold in consumer.holds()] == ["block"]
    assert consumer.holds() == ()
    consumer.close()
