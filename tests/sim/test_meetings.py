"""Two calls meet: the second call runs at every possible point within the first."""

import itertools

import pytest
from kafka.consumer.subscription_state import SubscriptionState, TopicPartitionState

from safeconsumer import SafeConsumer
from safeconsumer._kafka.pausing.fetcher import PauseSafeFetcher
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer._kafka.pausing.undelivered import OwnedPartitionState
from safeconsumer.events.dispatch import Outbox
from safeconsumer.holds.plain import NamedPartitions
from safeconsumer.holds.table import Table
from tests.sim.lab import play
from tests.sim.meetings import COMING, HOLDS, READS, Meeting
from tests.sim.playing import simulated

STEP = 29
"""
Seed 0 covers every 232nd point of a pair; each nightly seed covers every 29th.
"""

MEETINGS = {}
for of_a, of_b in ((READS, COMING), (HOLDS, HOLDS)):
    for a in of_a:
        for b in of_b:
            for mode in of_b[b].modes:
                MEETINGS.setdefault((a, mode), []).append(b)


def meeting(lab, a):
    return Meeting(lab, "iterate" if a == "step" else "poll")


def every_place(it, pair, first=0, step=1):
    """Run the second call of a pair at each point in the first, from number ``first`` on."""
    a, b, mode = pair
    for at in itertools.count(first, step):
        try:
            if not it.meet({**READS, **HOLDS}[a], COMING[b], at, mode):
                break
        except BaseException as error:
            error.add_note(f"{a} x {b} ({mode}) at {at}: {it.places.place}")
            raise


@pytest.mark.contract("P1", "P3", "P8", "P10", "P12", "P14")
@pytest.mark.parametrize(("a", "mode"), MEETINGS)
@simulated(seeds=1, nightly=1 + STEP)
def test_call_at_any_point_in_another_call_keeps_every_promise(lab, a, mode):
    """P12: held partitions are quiet, and all other records arrive once."""
    it = meeting(lab, a)
    for number, b in enumerate(MEETINGS[a, mode]):
        if lab.world.seed:
            every_place(it, (a, b, mode), lab.world.seed - 1, STEP)
        else:  # each pair starts at a different point
            every_place(it, (a, b, mode), 13 * number, 8 * STEP)


# ------------------------------------------------------------ planted


def a_commit_gets_ahead_of_delivery(patch):
    upstream = SubscriptionState.all_consumed_offsets
    patch.setattr(LedgerSubscription, "all_consumed_offsets", upstream)


def records_to_put_back_outlive_a_seek(patch):
    patch.setattr(OwnedPartitionState, "seek", TopicPartitionState.seek)


def gates_wait_for_the_poll(patch):
    patch.setattr(Table, "after_lifting", lambda table, *_, **__: table)


def any_thread_delivers_the_next_event(patch):
    def deliver(self):
        delivered = False
        while self.waiting:
            event = self.waiting.popleft()
            delivered = True
            self._dispatcher.dispatch(event)
        return delivered

    patch.setattr(Outbox, "deliver", deliver)


def a_poll_lacks_its_final_check(patch):
    patch.setattr(PauseSafeFetcher, "put_back_quiet", lambda _, records: records)


def a_pause_takes_upstreams_lock(patch):
    pause = SafeConsumer.pause

    def locking(consumer, *targets, **how):
        with consumer._subscription._lock:
            pause(consumer, *targets, **how)

    patch.setattr(SafeConsumer, "pause", locking)


def whole_pauses_are_plain(patch):
    patch.setattr(NamedPartitions, "whole", lambda *_, **__: [])


PLANTED = {
    a_commit_gets_ahead_of_delivery: ("poll", "pause, commit", "thread", "P8"),
    records_to_put_back_outlive_a_seek: ("poll", "pause, seek", "thread", "P8"),
    gates_wait_for_the_poll: ("poll that gains", "resume both", "thread", "P10"),
    any_thread_delivers_the_next_event: ("pause", "pause, resume", "thread", "P14"),
    a_poll_lacks_its_final_check: ("poll", "pause", "thread", "P1"),
    a_pause_takes_upstreams_lock: ("poll", "pause", "handler", "P12"),
    whole_pauses_are_plain: ("poll that gains", "pause(*assignment())", "thread", "P3"),
}


@pytest.mark.nightly
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found_as_a_breach_of_its_promise(plant, monkeypatch):
    *pair, promise = PLANTED[plant]
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=promise):
        play(lambda lab: every_place(meeting(lab, pair[0]), pair))
