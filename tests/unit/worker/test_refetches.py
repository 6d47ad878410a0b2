"""What is forgotten to make room was begun by nobody, and comes again, once and in order."""

from collections import defaultdict
from random import Random

import pytest

from safeconsumer.holds.scope import partition
from safeconsumer.worker import Commit, Limits, Reject, Retry, RetryLater
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.tasks import Outcome
from safeconsumer.worker.watermarks import Load
from tests.harness.worker import fake_client
from tests.harness.worker.fake_client import EVERY, FakeRecord
from tests.harness.worker.standing_loop import Loop

LOG = 120


class Chance(Loop):
    """A worker on four partitions of which some stand still for a while, by chance."""

    def __init__(self, seed, order, *, batch):
        self.dice = Random(seed)  # noqa: S311 - chance
        super().__init__(
            *EVERY,
            most=self.dice.choice([5, 10, 40]),
            limits=Limits(records=40, span=self.dice.choice([15, 500])),
            commit=Commit(),
            order=order,
            retry=Retry(first=5.0, attempts=3),
            on_exhausted="skip",
            quantum=self.dice.choice([1, 4]),
            is_batch=batch,
        )
        self.ended = defaultdict(list)
        self.out = []
        self.later = {}

    def step(self):
        """Let records come, be claimed, answered or held, or time pass."""
        what = self.dice.choice(
            ["turn", "turn", "claim", "answer", "answer", "answer", "hold"]
        )
        if what == "hold":
            self.hold()
        elif what == "claim":
            self.claim()
        elif what == "answer" and self.out:
            self.answer(self.out.pop(self.dice.randrange(len(self.out))))
        else:
            tp = self.dice.choice(EVERY)
            self.client.log[tp] = min(
                LOG, self.client.log[tp] + self.dice.choice([1, 60])
            )
            self.clock.now += self.dice.choice([0.0, 0.0, 0.2])
            self.schedule.turn()
            self.turn()
        assert self.engine.held.records <= 40

    def hold(self):
        """Place or lift an operator's hold of a partition."""
        scope = partition(*self.dice.choice(EVERY))
        if self.dice.random() < 0.5:
            self.client.ledger.place([scope], owner="ops")
        else:
            self.client.ledger.remove([(scope, "ops")])
        self.schedule.queue.obey()

    def claim(self):
        for task in self.schedule.queue.claim():
            for index in task.indexes:
                record = task.chunk.records[index]
                assert record is not None
                due = self.later.pop((task.epoch.tp, record.offset), 0.0)
                assert due <= self.clock.now, "asked for later, and came at once"
            self.out.append(task)

    def answer(self, task):
        tp, (first, *rest) = task.epoch.tp, task.indexes
        record = task.chunk.records[first]
        assert record is not None
        if self.dice.random() < 0.6:
            error = self.dice.choice([RetryLater(20.0), ValueError()])
            if isinstance(error, RetryLater):
                self.later[tp, record.offset] = self.clock.now + 20.0
            failed = [(first, error)]
            done = Outcome(task=task, failed=failed, left=rest)
        else:
            self.ended[tp] += [task.chunk.records[at].offset for at in task.indexes]
            done = all_done(task, 0.001)
        self.schedule.complete([done])

    def finish(self):
        """Let all go on, and handle everything."""
        self.client.ledger.remove([(partition(*tp), "ops") for tp in EVERY])
        self.schedule.queue.obey()
        self.dice.random = lambda: 1.0
        self.client.log.update(dict.fromkeys(EVERY, LOG))
        for _ in range(3_000):
            self.clock.now += 1.0
            self.schedule.turn()
            self.turn()
            self.claim()
            while self.out:
                self.answer(self.out.pop())
            if self.engine.held.done == LOG * len(EVERY):
                return


@pytest.mark.contract("W1", "W3", "W4")
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("order", list(Order))
def test_each_record_ends_once_whatever_is_forgotten(order, batch):
    """W1, W3, W4: by chance, in every order; what waits for its time keeps to it."""
    refetched = 0
    for seed in range(6):
        chance = Chance(seed, order, batch=batch)
        for _ in range(400):
            chance.step()
        chance.finish()
        skipped = chance.schedule.skipped
        for tp in EVERY:
            ended = chance.ended[tp]
            assert len(set(ended)) == len(ended)
            if order is Order.PARTITION:
                assert ended == sorted(ended)
        assert sum(map(len, chance.ended.values())) + skipped == LOG * len(EVERY), seed
        assert {
            tp: mark.offset for tp, mark in chance.engine.held.watermarks().items()
        } == (dict.fromkeys(EVERY, LOG))
        refetched += chance.engine.brakes.refetched
    assert refetched > 10


@pytest.mark.parametrize("error", [RetryLater(60.0), ValueError()])
@pytest.mark.parametrize("order", list(Order))
def test_what_was_begun_is_kept_with_all_before_it(order, error):
    """One that waits for its time, and one that has failed, whoever needs the room."""
    loop = Loop(*EVERY[:2], most=20, limits=Limits(records=20), order=order, quantum=1)
    loop.client.log[EVERY[0]] = 10
    loop.turn(3)
    epoch = loop.engine.held.epochs[EVERY[0]]
    claimed = [loop.schedule.queue.claim() for _ in range(3)]
    tasks = [task for some in claimed for task in some]
    *_, last = tasks
    failed = [(last.indexes[0], error)]
    loop.schedule.complete([Outcome(task=last, failed=failed, left=last.indexes[1:])])
    if not isinstance(error, RetryLater):
        loop.clock.now += 30
        loop.schedule.turn()  # its time has come, and it is its second attempt
    record = last.chunk.records[last.indexes[0]]
    assert record is not None
    offset = loop.engine.held.give_back(epoch, Load(), 1)
    assert offset == record.offset + 1
    assert epoch.records == loop.engine.held.records == offset
    assert epoch.progress.next_offset == offset


A, B, C, _ = EVERY


def made(**how):
    """Make a worker that owns two partitions, and has room for twenty records."""
    usual = {"limits": Limits(records=20), "commit": Commit(), "quantum": 1, "most": 20}
    return Loop(A, B, **{**usual, **how})


def hold(loop, tp):
    loop.client.ledger.place([partition(*tp)], owner="ops")
    loop.schedule.queue.obey()


def fail_first(loop, error):
    """Let the first record of each task that can be claimed fail."""
    for task in loop.schedule.queue.claim():
        first, *rest = task.indexes
        loop.schedule.complete([Outcome(task=task, failed=[(first, error)], left=rest)])


@pytest.mark.contract("W4")
def test_an_interrupt_before_the_seek_passes_over_nothing():
    """W4: as a Ctrl-C between the two, and the drain that follows; nothing is committed."""
    loop = made(order=Order.UNORDERED, is_batch=True, quantum=10)
    loop.client.log[A] = 20
    loop.turn(4)
    tasks = loop.schedule.queue.claim()
    hold(loop, A)
    loop.client.log[B] = 5
    seek = loop.client.go_back

    def interrupted(*_):
        loop.client.go_back = seek
        raise KeyboardInterrupt

    loop.client.go_back = interrupted
    with pytest.raises(KeyboardInterrupt):
        loop.turn(10)
    loop.engine.departures.stop(5.0)
    loop.turn()
    loop.schedule.complete([all_done(task, 0.001) for task in tasks])
    loop.turn(2)
    loop.engine.conclude()
    assert loop.client.committed[A] == len(tasks[0].indexes) == 10


@pytest.mark.contract("W1")
@pytest.mark.parametrize("batch", [False, True])
def test_a_blocked_batch_keeps_only_what_failed(batch):
    """W1: two partitions block, and a third one's records come."""
    how = {"on_exhausted": "block", "retry": Retry(attempts=1)}
    loop = made(is_batch=batch, quantum=20, **how)
    loop.client.rebalance(A, B, C)
    for tp, count in ((A, 9), (A, 100), (C, 5)):
        loop.client.log[tp] = count
        loop.turn(3)
        fail_first(loop, Reject("planted"))
    loop.client.log[B] = 5
    done = []
    for _ in range(100):
        loop.clock.now += 1
        loop.schedule.turn()
        loop.turn()
        done += loop.work()
    assert len(done) == 5


def test_a_position_that_was_reset_is_not_left():
    """What is held of a log that is gone cannot be fetched again."""
    loop = made()
    loop.client.log[A] = 20
    loop.turn(4)
    loop.client.reset(A, 100)
    loop.client.log[A] = 100
    loop.turn()
    hold(loop, A)
    loop.client.log[B] = 5
    loop.turn(10)
    assert loop.client.positions[A] == 100


def test_a_huge_record_is_not_fetched_for_ever(monkeypatch):
    """It is larger than its partition's share, which a blocked record keeps from moving."""

    def sized(topic, number, offset):
        size = 10_000 if offset else 10
        return FakeRecord(topic, number, offset, serialized_value_size=size)

    monkeypatch.setattr(fake_client, "FakeRecord", sized)
    limits = Limits(records=20, bytes=8000)
    how = {"on_exhausted": "block", "retry": Retry(attempts=1)}
    loop = made(most=1, limits=limits, **how)
    loop.client.log[A] = 5
    loop.turn()
    fail_first(loop, Reject("planted"))
    for _ in range(100):
        loop.schedule.turn()
        loop.turn()
    assert loop.engine.brakes.refetched <= 2


def test_no_room_is_made_for_what_an_operator_holds():
    """It has no record to work on, and wants none."""
    loop = made()
    hold(loop, B)
    for count in (9, 100):
        loop.client.log[A] = count
        loop.turn(2)
    fail_first(loop, RetryLater(1000.0))
    loop.turn(20)
    assert loop.engine.brakes.refetched == 0


def test_what_waits_for_a_handler_of_before_is_not_begun():
    """A regained partition waits for one that hangs: all of it can be fetched again."""
    loop = made(is_batch=True, quantum=20)
    loop.client.log[A] = 1
    loop.turn(2)
    assert loop.schedule.queue.claim()
    loop.client.lose()
    for count in (9, 100):
        loop.client.log[A] = count
        loop.turn(3)
        loop.schedule.turn()
    assert loop.schedule.queue.claim() == []
    epoch = loop.engine.held.epochs[A]
    assert loop.engine.held.give_back(epoch, Load(5, 10**9), 20) is not None


def test_a_partition_whose_shared_lane_is_empty_still_works():
    """Unordered, while others of its tasks are out: it does not starve."""
    loop = made(order=Order.UNORDERED)
    loop.client.log[A] = 3
    loop.turn(2)
    (one,), _, _ = (loop.schedule.queue.claim() for _ in range(3))
    loop.schedule.complete([all_done(one, 0.001)])
    assert not loop.schedule.is_starving(loop.engine.held.epochs[A])
