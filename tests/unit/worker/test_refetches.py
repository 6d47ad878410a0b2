"""What is forgotten to make room was begun by nobody, and comes again, once and in order."""

from collections import defaultdict
from random import Random

import pytest
from kafka.structs import TopicPartition

from safeconsumer.holds.scope import partition
from safeconsumer.worker import Commit, Limits, Retry, RetryLater
from safeconsumer.worker.handlers import all_done
from safeconsumer.worker.queue import Order, Outcome, Task
from safeconsumer.worker.watermarks import Load
from tests.harness.worker.fake_client import EVERY
from tests.harness.worker.standing_loop import Loop

LOG = 120


class Chance(Loop):
    """A worker on four partitions of which some stand still for a while, by chance."""

    def __init__(self, seed: int, order: Order, *, batch: bool) -> None:
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
        self.order = order
        self.ended: defaultdict[TopicPartition, list[int]] = defaultdict(list)
        self.out: list[Task] = []
        self.later: dict[tuple[TopicPartition, int], float] = {}

    def step(self) -> None:
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

    def hold(self) -> None:
        """Place or lift an operator's hold of a partition."""
        scope = partition(*self.dice.choice(EVERY))
        if self.dice.random() < 0.5:
            self.client.ledger.place([scope], owner="ops")
        else:
            self.client.ledger.remove([(scope, "ops")])
        self.schedule.queue.obey()

    def claim(self) -> None:
        """Take what there is for one handler."""
        for task in self.schedule.queue.claim():
            for index in task.indexes:
                record = task.chunk.records[index]
                assert record is not None
                due = self.later.pop((task.epoch.tp, record.offset), 0.0)
                assert due <= self.clock.now, "asked for later, and came at once"
            self.out.append(task)

    def answer(self, task: Task) -> None:
        """Complete a task, or have it wait."""
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
            self.ended[tp] += [task.chunk.records[at].offset for at in task.indexes]  # type: ignore[union-attr]
            done = all_done(task, 0.001)
        self.schedule.complete([done])

    def finish(self) -> None:
        """Let all go on, and handle everything."""
        self.client.ledger.remove([(partition(*tp), "ops") for tp in EVERY])
        self.schedule.queue.obey()
        self.dice = Random(0)  # noqa: S311 - chance
        self.dice.random = lambda: 1.0  # type: ignore[method-assign]  # nothing fails any more
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
def test_each_record_ends_once_whatever_is_forgotten(order: Order, batch: bool) -> None:  # noqa: FBT001
    """W1, W3, W4: by chance, in every order; what waits for its time keeps to it."""
    refetched = 0
    for seed in range(12):
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
    assert refetched > 20


@pytest.mark.parametrize("error", [RetryLater(60.0), ValueError()])
@pytest.mark.parametrize("order", list(Order))
def test_what_was_begun_is_kept_with_all_before_it(
    order: Order, error: Exception
) -> None:
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
