"""W1, W9: what the limits of a worker hold back, what is given back, and its own holds."""

from collections import defaultdict
from random import Random

import pytest
from kafka.structs import TopicPartition

from safeconsumer import Lifetime, SafeConsumer
from safeconsumer.holds.scope import partition
from safeconsumer.holds.view import Holds
from safeconsumer.worker import Commit, Drain, Limits, Reject, Retry, RetryLater
from safeconsumer.worker.brakes import BACKPRESSURE, DRAIN, OWNERS
from safeconsumer.worker.calls import all_done
from safeconsumer.worker.client import ConsumerClient
from safeconsumer.worker.decisions import Decisions
from safeconsumer.worker.lanes import Order
from safeconsumer.worker.loop import Engine
from safeconsumer.worker.queue import Policy, Queue
from safeconsumer.worker.tasks import Outcome
from safeconsumer.worker.watermarks import Load
from tests.harness.kafka.offline import offline
from tests.harness.worker import fake_client
from tests.harness.worker.desk import KINDS, done_by
from tests.harness.worker.fake_client import EVERY, Clock, FakeClient, FakeRecord

A, B, C, _ = EVERY
LOG = 120
ROOM = Limits(records=20)


class StandingEngine(Engine):
    """An engine whose waits move the clock."""

    def _wait_idle(self, seconds):
        self._clock.now += seconds


class Loop:
    """An engine and its queue, turned by hand while time stands still."""

    def __init__(
        self, *owned, most=20, limits=ROOM, order=Order.PARTITION, quantum=1, **policy
    ):
        self.clock = Clock()
        self.client = FakeClient(self.clock, most=most)
        self.engine = StandingEngine(
            self.client,
            limits=limits,
            drain=Drain(revoke=2.0, shutdown=3.0),
            commit=Commit(),
            emit=lambda *_kind, **_fields: None,
            clock=self.clock,
        )
        self.kept, self.brakes = self.engine.kept, self.engine.brakes
        settings = {"retry": Retry(), "quantum": quantum, **policy}
        self.queue = Queue(
            self.kept, order, Policy(**settings), self.clock, self.client.ledger
        )
        self.decisions = Decisions(
            self.queue, lambda *_kind, **_fields: None, self.client.pause
        )
        self.engine.begin(self.decisions)
        self.client.rebalance(*(owned or (A, B)))

    def turn(self, times=1):
        for _ in range(times):
            self.decisions.turn()
            self.engine.turn()
            self.client.answer_all()

    def work(self):
        """Complete all that can be claimed, and return the offsets."""
        found = []
        while tasks := self.queue.claim():
            found += done_by(self.decisions, tasks)
        return found

    def hold(self, tp):
        self.client.ledger.place([partition(*tp)], owner="ops")
        self.queue.obey()

    def lift(self, *tps):
        self.client.ledger.remove([(partition(*tp), "ops") for tp in tps])
        self.queue.obey()

    def fail(self, task, error):
        """Let the first record of a task fail, and give the others back."""
        first, *rest = task.indexes
        self.decisions.complete(
            [Outcome(task=task, failed=[(first, error)], left=rest)]
        )

    def fail_all(self, error):
        """Let the first record of each task that can be claimed fail."""
        for task in self.queue.claim():
            self.fail(task, error)


# ------------------------------------------------------------ shares of the limits


def shared(limits, *, busy=4, most=10):
    """Make a worker of four partitions, of which so many have more than may be held."""
    loop = Loop(*EVERY, most=most, limits=limits, on_exhausted="block")
    loop.client.log.update(dict.fromkeys(EVERY[:busy], 1_000))
    loop.turn(3)
    return loop


def test_a_partition_uses_the_share_of_those_that_have_no_records():
    loop = shared(Limits(records=40), busy=1)
    loop.turn(20)
    assert loop.kept.records >= 20


def test_a_poll_is_no_larger_than_a_share():
    """All that comes may be of one partition."""
    loop = shared(Limits(records=40), busy=0)
    assert loop.brakes.room() == 10
    loop.client.log.update(dict.fromkeys(EVERY, 1_000))
    loop.brakes.place(is_draining=False)
    assert loop.brakes.room() == 40 // 5


@pytest.mark.parametrize("who", ["late", "application"])
def test_no_more_is_held_than_the_limit_whoever_lifts_a_full_workers_hold(who):
    """
    In the middle of a poll: a thread that saw the low mark long ago, or somebody else.

    What does not fit is polled again, and comes once.
    """
    full = shared(Limits(records=100), most=500)
    kept, client = full.kept, full.client
    full.turn(10)
    lift, late = kept.when_low, [False]
    kept.when_low = lambda: late.append(True)
    while not late[-1]:
        full.decisions.complete([all_done(task, 0.001) for task in full.queue.claim()])
        kept.tell_low()
    full.turn(40)  # it goes on by itself, until it is full again
    poll = client.poll

    def lifted(timeout, records):
        if who == "application":
            client.lift_all(BACKPRESSURE)
        elif late.pop():
            lift()
        return poll(timeout, records)

    client.poll = lifted
    for _ in range(len(late)):
        full.turn()
        assert kept.records <= 100
    client.poll, kept.when_low = poll, lift
    for _ in range(500):
        full.turn()
        full.work()
    ends = {tp: epoch.progress.next_offset for tp, epoch in kept.epochs.items()}
    assert ends == dict.fromkeys(EVERY, 1_000)
    assert kept.done == sum(ends.values())


def test_what_comes_in_a_new_ownership_was_not_held():
    """A partition's hold ends with its ownership: lost and regained within one poll, say."""
    loop = shared(Limits(records=40), busy=1)
    loop.turn(20)
    client = loop.client
    assert loop.brakes._wanted == {(BACKPRESSURE, A)}
    poll = client.poll

    def regained(timeout, records):
        client._assign(frozenset())
        client._assign(frozenset(EVERY))
        return poll(timeout, records)

    client.poll = regained
    loop.turn()
    assert client.positions[A] > 0
    assert loop.engine.leaked == 0


# ------------------------------------------------------------ records given back


class Chance(Loop):
    """A worker on four partitions of which some stand still for a while, by chance."""

    def __init__(self, seed, order, *, batch):
        self.dice = Random(seed)  # noqa: S311 - chance
        super().__init__(
            *EVERY,
            most=self.dice.choice([5, 10, 40]),
            limits=Limits(records=40, span=self.dice.choice([15, 500])),
            order=order,
            retry=Retry(first=5.0, attempts=3),
            on_exhausted="skip",
            quantum=self.dice.choice([1, 4]),
            is_batch=batch,
        )
        self.given_back = []
        self.give_back, self.kept.give_back = self.kept.give_back, self.note_given_back
        self.ended = defaultdict(list)
        self.out = []
        self.later = {}

    def step(self):
        """Let records come, be claimed, answered or held, or time pass."""
        what = self.dice.choice(
            ["turn", "turn", "claim", "answer", "answer", "answer", "hold"]
        )
        if what == "hold":
            self.hold_or_lift()
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
            self.turn()
        assert self.kept.records <= 40

    def note_given_back(self, *given):
        offset = self.give_back(*given)
        self.given_back += [] if offset is None else [offset]
        return offset

    def hold_or_lift(self):
        """Place or lift an operator's hold of a partition."""
        tp = self.dice.choice(EVERY)
        if self.dice.random() < 0.5:
            self.hold(tp)
        else:
            self.lift(tp)

    def claim(self):
        for task in self.queue.claim():
            for index in task.indexes:
                record = task.record(index)
                due = self.later.pop((task.epoch.tp, record.offset), 0.0)
                assert due <= self.clock.now, "asked for later, and came at once"
            self.out.append(task)

    def answer(self, task):
        tp, record = task.epoch.tp, task.record(0)
        if self.dice.random() < 0.6:
            error = self.dice.choice([RetryLater(20.0), ValueError()])
            if isinstance(error, RetryLater):
                self.later[tp, record.offset] = self.clock.now + 20.0
            self.fail(task, error)
        else:
            self.ended[tp] += done_by(self.decisions, [task])

    def finish(self):
        """Let all go on, and handle everything."""
        self.lift(*EVERY)
        self.dice.random = lambda: 1.0
        self.client.log.update(dict.fromkeys(EVERY, LOG))
        for _ in range(3_000):
            self.clock.now += 1.0
            self.turn()
            self.claim()
            while self.out:
                self.answer(self.out.pop())
            if self.kept.done == LOG * len(EVERY):
                return


@pytest.mark.contract("W1", "W3", "W4")
@pytest.mark.parametrize(("order", "batch"), KINDS)
def test_each_record_ends_once_whatever_is_forgotten(order, batch):
    """W1, W3, W4: by chance, in every order; what waits for its time keeps to it."""
    assert chances((3, 5), order, batch=batch) > 0


@pytest.mark.nightly
@pytest.mark.parametrize(("order", "batch"), KINDS)
def test_each_record_ends_once_by_many_chances(order, batch):
    assert chances(range(6, 30), order, batch=batch) > 0


def chances(seeds, order, *, batch):
    """Play these seeds; return how often records were given back to make room."""
    given_back = 0
    for seed in seeds:
        chance = Chance(seed, order, batch=batch)
        for _ in range(400):
            chance.step()
        chance.finish()
        skipped = chance.decisions.skipped
        for tp in EVERY:
            ended = chance.ended[tp]
            assert len(set(ended)) == len(ended)
            if order is Order.PARTITION:
                assert ended == sorted(ended)
        assert sum(map(len, chance.ended.values())) + skipped == LOG * len(EVERY), seed
        marks = chance.kept.watermarks()
        assert {tp: mark.offset for tp, mark in marks.items()} == dict.fromkeys(
            EVERY, LOG
        )
        given_back += len(chance.given_back)
    return given_back


@pytest.mark.parametrize("error", [RetryLater(60.0), ValueError()])
@pytest.mark.parametrize("order", list(Order))
def test_what_was_begun_is_kept_with_all_before_it(order, error):
    """One that waits for its time, and one that has failed, whoever needs the room."""
    loop = Loop(order=order)
    loop.client.log[A] = 10
    loop.turn(3)
    epoch = loop.kept.epochs[A]
    *_, last = [task for _ in range(3) for task in loop.queue.claim()]
    loop.fail(last, error)
    if not isinstance(error, RetryLater):
        loop.clock.now += 30
        loop.decisions.turn()  # its time has come, and it is its second attempt
    record = last.record(0)
    offset = loop.kept.give_back(epoch, Load(), 1)
    assert offset == record.offset + 1
    assert epoch.records == loop.kept.records == offset
    assert epoch.progress.next_offset == offset


@pytest.mark.contract("W4")
def test_an_interrupt_before_the_seek_passes_over_nothing():
    """W4: as a Ctrl-C between the two, and the drain that follows; nothing is committed."""
    loop = Loop(order=Order.UNORDERED, is_batch=True, quantum=10)
    loop.client.log[A] = 20
    loop.turn(4)
    tasks = loop.queue.claim()
    loop.hold(A)
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
    loop.decisions.complete([all_done(task, 0.001) for task in tasks])
    loop.turn(2)
    loop.engine.conclude()
    assert loop.client.committed[A] == len(tasks[0].indexes) == 10


@pytest.mark.contract("W1")
@pytest.mark.parametrize("batch", [False, True])
def test_a_blocked_batch_keeps_only_what_failed(batch):
    """W1: two partitions block, and a third one's records come."""
    how = {"on_exhausted": "block", "retry": Retry(attempts=1)}
    loop = Loop(is_batch=batch, quantum=20, **how)
    loop.client.rebalance(A, B, C)
    for tp, count in ((A, 9), (A, 100), (C, 5)):
        loop.client.log[tp] = count
        loop.turn(3)
        loop.fail_all(Reject("planted"))
    loop.client.log[B] = 5
    done = []
    for _ in range(100):
        loop.clock.now += 1
        loop.turn()
        done += loop.work()
    assert len(done) == 5


def test_a_position_that_was_reset_is_not_left():
    """What is held of a log that is gone cannot be fetched again."""
    loop = Loop()
    loop.client.log[A] = 20
    loop.turn(4)
    loop.client.reset(A, 100)
    loop.client.log[A] = 100
    loop.turn()
    loop.hold(A)
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
    loop = Loop(most=1, limits=limits, **how)
    loop.client.log[A] = 5
    loop.turn()
    loop.fail_all(Reject("planted"))
    for _ in range(100):
        loop.turn()
    assert loop.brakes.refetched <= 2


def test_no_room_is_made_for_what_an_operator_holds():
    """It has no record to work on, and wants none."""
    loop = Loop()
    loop.hold(B)
    for count in (9, 100):
        loop.client.log[A] = count
        loop.turn(2)
    loop.fail_all(RetryLater(1000.0))
    loop.turn(20)
    assert loop.brakes.refetched == 0


def test_what_waits_for_a_handler_of_before_is_not_begun():
    """A regained partition waits for one that hangs: all of it can be fetched again."""
    loop = Loop(is_batch=True, quantum=20)
    loop.client.log[A] = 1
    loop.turn(2)
    assert loop.queue.claim()
    loop.client.lose()
    for count in (9, 100):
        loop.client.log[A] = count
        loop.turn(3)
    assert loop.queue.claim() == []
    epoch = loop.kept.epochs[A]
    assert loop.kept.give_back(epoch, Load(5, 10**9), 20) is not None


def test_a_partition_whose_shared_lane_is_empty_still_works():
    """Unordered, while others of its tasks are out: it does not starve."""
    loop = Loop(order=Order.UNORDERED)
    loop.client.log[A] = 3
    loop.turn(2)
    (one,), _, _ = (loop.queue.claim() for _ in range(3))
    loop.decisions.complete([all_done(one, 0.001)])
    assert not loop.decisions.is_starving(loop.kept.epochs[A])


# ------------------------------------------------------------ holds of its own

TP = TopicPartition("orders", 0)


@pytest.fixture
def consumer():
    """Make one that owns a partition and has many holds of others."""
    with offline(SafeConsumer) as made:
        made.assign([TP, TopicPartition("orders", 1)])
        targets = [f"orders:{number}" for number in range(2)]
        for number in range(20):
            made.pause(*targets, owner=f"ops-{number}", lifetime=Lifetime.UNTIL_RESUMED)
        yield made


def ours(consumer):
    """Return the worker's holds: owners and scopes."""
    holds = consumer.holds()
    return {(one.owner, str(one.scope)) for one in holds if one.owner in OWNERS}


def test_a_turn_looks_at_no_hold_of_others(consumer, monkeypatch):
    """Neither at each of them, nor at any again while nothing has changed."""
    client = ConsumerClient(consumer)
    client.hold(OWNERS, {})  # it looks for what an earlier worker has left
    wanted = {(DRAIN, None): "planted", (BACKPRESSURE, TP): "planted"}

    def refuse(_state):
        raise AssertionError

    with monkeypatch.context() as patch:
        patch.setattr(Holds, "__iter__", refuse)
        client.hold(OWNERS, {})
        client.hold(OWNERS, wanted)
        client.hold(OWNERS, wanted)
    assert ours(consumer) == {(DRAIN, "@all"), (BACKPRESSURE, "orders:0")}


def test_a_hold_of_ours_that_somebody_lifted_is_placed_again(consumer):
    """W9: what stands in the ledger is asked, not remembered."""
    client = ConsumerClient(consumer)
    wanted = {(DRAIN, None): "planted"}
    for _ in range(2):
        client.hold(OWNERS, wanted)
    consumer.resume_all(owner=DRAIN)
    client.hold(OWNERS, wanted)
    assert ours(consumer) == {(DRAIN, "@all")}
    client.hold(OWNERS, {})
    assert ours(consumer) == set()
    assert len(consumer.holds()) == 40


@pytest.mark.parametrize("stands", [False, True])
def test_a_hold_that_was_interrupted_is_settled_by_the_next_turn(
    consumer, monkeypatch, *, stands
):
    """W9: whether it came to stand or not, it is placed, and it is lifted."""
    client = ConsumerClient(consumer)
    client.hold(OWNERS, {})
    place = consumer.pause_all

    def interrupted(*targets, **wish):
        if stands:
            place(*targets, **wish)
        raise KeyboardInterrupt

    for wanted in ({(DRAIN, None): "planted"}, {}):
        with monkeypatch.context() as patch:
            patch.setattr(consumer, "pause_all", interrupted)
            with pytest.raises(KeyboardInterrupt):
                client.hold(OWNERS, {(DRAIN, None): "planted"})
        client.hold(OWNERS, wanted)
        assert ours(consumer) == {(owner, "@all") for owner, _ in wanted}
        client.hold(OWNERS, {})
        assert ours(consumer) == set()
