"""W1: partitions share what may be held, and what waits leaves room to the others."""

from collections import Counter

import pytest

from safeconsumer.holds.scope import partition
from safeconsumer.worker import Commit, Limits, Reject
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.loop import BACKPRESSURE
from safeconsumer.worker.tasks import Outcome
from tests.harness.worker.fake_client import EVERY
from tests.harness.worker.standing_loop import Loop

# The client returns whatever it has of the first partition before it looks at the next.
MOST = 10
LOG = 200


class Share(Loop):
    """A worker without handlers, on partitions that all have more than may be held."""

    def __init__(self, limits, busy=None, most=MOST):
        super().__init__(
            *EVERY,
            most=most,
            limits=limits,
            commit=Commit(),
            on_exhausted="block",
            quantum=1,
        )
        self.client.log.update(dict.fromkeys(EVERY[:busy], LOG))
        self.turns(3)

    def turns(self, count):
        for _ in range(count):
            self.schedule.turn()
            self.engine.turn()

    def records(self):
        held = self.engine.held.epochs
        return [held[tp].records if tp in held else 0 for tp in EVERY]

    def share_out(self, blocked, rounds):
        """Reject what is of these partitions, do the rest; return what was done, of which."""
        done = Counter()
        for _ in range(rounds):
            self.turns(1)
            for task in self.schedule.queue.claim():
                tp = task.epoch.tp
                if tp in blocked:
                    failed = [(task.indexes[0], Reject("planted"))]
                    outcome = Outcome(task=task, failed=failed, left=task.indexes[1:])
                else:
                    outcome = all_done(task, 0.001)
                    done[tp.partition] += len(task.indexes)
                self.schedule.complete([outcome])
        return done


def test_each_partition_gets_something_before_one_gets_all():
    """However slow the handlers are: here none ever ends."""
    share = Share(Limits(records=40))
    share.turns(20)
    assert min(share.records()) >= 5
    assert sum(share.records()) <= 40


def test_what_idle_partitions_leave_is_used():
    """One that has records takes the share of those that have none."""
    share = Share(Limits(records=40), busy=1)
    share.turns(20)
    assert share.records()[0] >= 20


def test_a_poll_is_no_larger_than_a_share():
    """All that comes may be of one partition."""
    share = Share(Limits(records=40), busy=0)
    assert share.engine.brakes.room() == MOST
    share.client.log.update(dict.fromkeys(EVERY, LOG))
    share.engine.brakes.place(is_draining=False)
    assert share.engine.brakes.room() == 40 // 5


@pytest.mark.parametrize("who", ["late", "application"])
def test_no_more_is_held_than_the_limit_whoever_lifts_a_full_workers_hold(who):
    """
    In the middle of a poll: a thread that saw the low mark long ago, or somebody else.

    What does not fit is polled again, and comes once.
    """
    full = Share(Limits(records=100), most=500)
    held, client = full.engine.held, full.client
    client.log.update(dict.fromkeys(EVERY, 1_000))
    full.turns(10)
    lift, late = held.when_low, [False]
    held.when_low = lambda: late.append(True)
    while not late[-1]:
        full.schedule.complete(
            [all_done(task, 0.001) for task in full.schedule.queue.claim()]
        )
        held.tell_low()
    full.turns(40)  # it goes on by itself, until it is full again
    poll = client.poll

    def lifted(timeout, records):
        if who == "application":
            client.lift_all(BACKPRESSURE)
        elif late.pop():
            lift()
        return poll(timeout, records)

    client.poll = lifted
    most = []
    for _ in range(len(late)):
        full.turns(1)
        most.append(held.records)
    assert max(most) <= 100
    client.poll = poll
    held.when_low = lift
    full.share_out(frozenset(), 6_000)
    ends = {tp: epoch.progress.next_offset for tp, epoch in held.epochs.items()}
    assert ends == dict.fromkeys(EVERY, 1_000)
    assert held.done == sum(ends.values())


@pytest.mark.parametrize("records", [40, 100, 1000])
def test_what_came_one_after_the_other_stops_no_other_when_it_is_held(records):
    """W10: each took a share of what was left, and keeps no more than one of all."""
    share = Share(Limits(records=records), busy=0)
    for tp in EVERY[:3]:
        share.client.log[tp] = 10 * records
        share.turns(60)
        assert 0 < sum(share.records()) <= records
    for tp in EVERY[:3]:
        share.client.ledger.place([partition(*tp)], owner="ops")
    share.schedule.queue.obey()
    share.client.log[EVERY[3]] = LOG
    assert share.share_out(frozenset(), 2000) == {3: LOG}


def test_what_comes_in_a_new_ownership_was_not_held():
    """A partition's hold ends with its ownership: lost and regained within one poll, say."""
    share = Share(Limits(records=40), busy=1)
    share.turns(20)
    engine, client = share.engine, share.client
    assert engine.brakes._wanted == {(BACKPRESSURE, EVERY[0])}
    poll = client.poll

    def regained(timeout, records):
        client._assign(frozenset())
        client._assign(frozenset(EVERY))
        return poll(timeout, records)

    client.poll = regained
    begun = len(client.delivered)
    share.turns(1)
    assert len(client.delivered) > begun
    assert engine.leaked == 0
