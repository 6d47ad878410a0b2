"""W4, P18: if a poll raises, its records are read again, even after seeks."""

from functools import partial

import pytest

from safeconsumer import Pump, SafeConsumer
from tests.sim.lab import GROUP
from tests.sim.reading import corrupt
from tests.sim.worker.working import (
    OFTEN,
    SOON,
    Handler,
    Working,
    committed,
    in_both_ways,
    put,
    quick,
    taken,
)

DONE, END = 6, 30  # the committed offset and the log end of each partition


class Scripted(SafeConsumer):
    """
    A consumer whose next poll follows a script, and then raises.

    Attributes:
        script: the steps of the next poll; None leaves polls unchanged.
    """

    script = None

    def poll(self, *args, **kwargs):
        script, self.script = self.script, None
        poll = partial(super().poll, *args, **kwargs)
        if script is None:
            return poll()
        for step in script:
            step(self, poll)
        raise ZeroDivisionError


def reads(_consumer, poll):
    poll()


def seeks(target):
    def seek(consumer, _poll):
        for tp in consumer.assignment():
            consumer.seek(tp, target)

    return seek


MOVES = {
    "back to the start": (seeks(0), 0),
    "back": (seeks(2), 2),
    "ahead": (seeks(9), 9),
    "to the beginning": (lambda consumer, _poll: consumer.seek_to_beginning(), 0),
    "to the end": (lambda consumer, _poll: consumer.seek_to_end(), END),
    "to the committed offset": (seeks(DONE), DONE),
}
SCRIPTS = {
    "before": lambda move: [move],
    "before, then read": lambda move: [move, reads],
    "before, then read twice": lambda move: [move, reads, reads],
    "between": lambda move: [reads, move, reads],
    "after": lambda move: [reads, move],
    "twice": lambda move: [seeks(9), reads, move, reads],
}
CASES = [
    pytest.param(100, False, id="100 records a poll"),
    pytest.param(3, False, id="3 records a poll", marks=pytest.mark.nightly),
    pytest.param(100, True, id="under a hold", marks=pytest.mark.nightly),
]


@pytest.mark.contract("P18", "W4", "W5")
@pytest.mark.parametrize(("most", "is_held"), CASES)
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
@pytest.mark.parametrize("move", MOVES.values(), ids=list(MOVES))
def test_reading_resumes_at_the_last_seek_target_if_the_seeking_poll_raises(
    lab, move, script, most, is_held
):
    step, expected = move
    both = lab.topic("t", 2, records=DONE)
    reading = Scripted("t", **lab.settings(group_id=GROUP, max_poll_records=most))

    def flows(*_):
        if not is_held:
            reading.resume("t", owner="ops")

    def loop():
        with Pump(reading, commit=OFTEN) as pump:
            for batch in taken(lab, pump, 2 * DONE):
                batch.done()
            lab.until(lambda: committed(lab) == [DONE, DONE])
            reading.pause("t", owner="ops")
            for tp in both:
                put(lab, tp, *["x"] * (END - DONE))
            # until the fetches that were sent before the pause are answered
            lab.sleep(1.0)
            reading.script = [flows, *script(step)]
            lab.until(pump.turn)

    with pytest.raises(ZeroDivisionError):
        loop()
    reading.resume_all("ops")
    assert first_offsets(lab, reading) == dict.fromkeys(both, expected)


def first_offsets(lab, reading):
    """Return, by partition, the offset of the first record that later polls return."""
    found = {}
    polls = [reading.poll(1000)]
    # the poll above has already resolved a seek to the end
    for tp in lab.partitions("t"):
        put(lab, tp, "last")
    while len(found) < 2 and len(polls) < 50:
        for tp, records in polls[-1].items():
            found.setdefault(tp, records[0].offset)
        polls.append(reading.poll(1000))
    return found


class Twice(SafeConsumer):
    """
    A consumer whose poll reads twice, and returns the records of both reads.

    Attributes:
        between: called once between two reads of which the first has returned records.
    """

    between = None

    def poll(self, timeout_ms=0, max_records=None, **more):
        found = super().poll(timeout_ms, max_records, **more)
        if found:
            between, self.between = self.between, None
            if between is not None:
                between()
            for tp, records in super().poll(50, max_records, **more).items():
                found.setdefault(tp, []).extend(records)
        return found


@pytest.mark.contract("W4", "W6")
@in_both_ways
@pytest.mark.parametrize("is_first", [True, False], ids=["first poll", "later poll"])
def test_records_are_read_again_if_the_second_read_of_a_poll_defers_a_join(
    lab, protocol, is_first
):
    """Another member joins between the reads; this member has work, or no floor yet."""
    both = lab.topic("t", 2)
    handler = Handler(lab, slow=3.0)
    settings = quick(protocol, client_id="w")
    given = Twice("t", **lab.settings(group_id=GROUP, **settings))
    others = []

    def joins():
        others.append(Working(lab, handler, name="b", settings=quick(protocol)))
        lab.until(given._coordinator.need_rejoin)

    given.between = joins if is_first else None
    for tp in both:
        put(lab, tp, "slow")
    run = Working(lab, handler, given=given, commit=OFTEN)
    if not is_first:
        lab.until(lambda: len(handler.calls) == 2)
        given.between = joins
    for tp in both:
        put(lab, tp, *"xxxx")
    lab.until(lambda: others)
    lab.until(lambda: committed(lab) == [5, 5])
    for one in (run, *others):
        one.stop()
    assert {*handler.offsets(0)} == {*handler.offsets(1)} == {*range(5)}


@pytest.mark.contract("W4", "W7")
def test_records_are_read_again_if_the_second_read_of_a_poll_finds_a_corrupt_batch(lab):
    bad, good = lab.topic("t", 2, records=2)
    corrupt(lab, bad, 3)
    lab.append(good, 5, first=2)
    handler = Handler(lab)
    given = Twice("t", **lab.settings(group_id=GROUP, **quick(client_id="w")))
    skips = {"retry": SOON, "on_exhausted": "skip"}
    run = Working(lab, handler, given=given, commit=OFTEN, **skips)
    lab.until(lambda: committed(lab) == [5, 7])
    run.stop()
    assert (handler.offsets(0), handler.offsets(1)) == ([0, 1], [*range(7)])
