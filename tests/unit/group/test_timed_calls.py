"""A question on a thread of its own is answered, whatever interrupts who waits for it."""

import itertools
import threading

from safeconsumer.group import timed_call
from safeconsumer.group.timed_call import TimedCall
from tests.harness.signals import Interrupts
from tests.harness.waiting import LIMIT


def test_at_every_place_of_the_wait_the_answer_still_comes():
    """Else its thread would wait for a lock for ever, and so would the next wait."""
    interrupts = Interrupts((timed_call.__file__, threading.__file__))
    for at in itertools.count():
        go_on = threading.Lock()
        go_on.acquire()
        asked = TimedCall(lambda: go_on.acquire(timeout=LIMIT))  # noqa: B023 - used at once
        opened = threading.Timer(0.002, go_on.release)
        opened.start()
        has_come = interrupts.at(at, lambda: asked.result(LIMIT))  # noqa: B023
        opened.join()
        again = threading.Thread(target=asked.result, args=(LIMIT,), daemon=True)
        again.start()
        again.join(LIMIT)
        assert not again.is_alive(), interrupts.place
        if not has_come:
            break
    assert at > 1
