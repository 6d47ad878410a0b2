"""W3: records in a lane keep their order, whatever the order in which tasks finish."""

import random

import pytest

from safeconsumer.worker import Reject, RetryLater
from safeconsumer.worker.partition import LaneState, Order, Outcome
from tests.harness.worker.desk import TP, Desk, done_by

RECORDS = 120


class Play:
    """A random history in which records with a few keys are claimed and completed."""

    def __init__(self, seed, order):
        self.dice = random.Random(seed)  # noqa: S311 - draws have to be repeatable
        keys = self.dice.choice([1, 3, 20])
        self.desk = Desk(
            order,
            key=lambda record: record.offset * record.offset % keys,
            quantum=self.dice.choice([1, 4, 50]),
            span=self.dice.choice([5, 1000]),
            on_exhausted="skip",
        )
        self.order = order
        self.out = []
        self.ended = []
        self.came = 0

    def lane(self, record):
        """Return a record's lane; records in the same lane must not overtake each other."""
        if self.order is Order.UNORDERED:
            return record.offset
        return record.key if self.order is Order.KEY else None

    def step(self):
        desk, what = self.desk, self.dice.random()
        desk.epoch.pace = self.dice.choice([1e-6, 3e-4, 2e-3])
        if what < 0.15 and self.came < RECORDS:
            desk.admit(10)
            self.came += 10
        elif what < 0.5:
            self.claim()
        elif what < 0.93 and self.out:
            self.answer(self.out.pop(self.dice.randrange(len(self.out))))
        elif what < 0.98:
            desk.pass_time(self.dice.choice([0.1, 3.0]))
        elif what < 0.99:
            self.lose()

    def claim(self):
        task = self.desk.decisions.queue.claim()
        if task is not None:
            running = [
                self.lane(one)
                for other in self.out
                for one in other.records
                # unordered records do not wait for records of an ended ownership
                if self.order is not Order.UNORDERED or not other.epoch.is_closed
            ]
            assert not {self.lane(one) for one in task.records}.intersection(running)
            self.out.append(task)

    def answer(self, task):
        desk, count = self.desk, self.dice.randrange(len(task.records) + 1)
        given = [*task.records]
        if task.epoch.is_closed or count == len(given):
            done_by(desk.decisions, task)
            count = len(given)
        else:
            for index in range(count):
                task.finish(index)
            failed = [(count, self.dice.choice([ValueError(), RetryLater(1.0)]))]
            if self.dice.random() < 0.1:
                failed = [(count, Reject())]
            if self.dice.random() < 0.5:
                failed = []  # the call stopped after its time slice
            rest = task.indexes[count + len(failed) :]
            outcome = Outcome(
                task=task, finished=task.indexes[:count], failed=failed, left=rest
            )
            desk.decisions.complete(outcome)
        if not task.epoch.is_closed:
            self.ended += given[:count]

    def lose(self):
        mark = self.desk.kept.watermarks()[TP].offset
        self.desk.regain()
        assert mark <= self.came
        self.came, self.ended = 0, []

    def finish(self):
        for _ in range(2_000):
            if self.came < RECORDS:
                self.desk.admit(10)
                self.came += 10
            while self.out:
                done = self.out.pop(0)
                given = [*done.records]
                done_by(self.desk.decisions, done)
                self.ended += [] if done.epoch.is_closed else given
            self.desk.pass_time(1.0)
            self.claim()
            if self.came >= RECORDS and not self.desk.kept.records:
                return
        raise AssertionError(self.desk.kept.records)


@pytest.mark.contract("W3", "W4")
@pytest.mark.parametrize("order", Order)
@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 1000), marks=pytest.mark.nightly)]
)
def test_records_of_a_lane_are_handled_in_order_and_one_at_a_time(order, seeds):
    """No record is lost, whatever the order in which tasks finish."""
    for seed in seeds:
        play = Play(seed, order)
        for _ in range(300):
            play.step()
        play.finish()
        lanes = {}
        for record in play.ended:
            lanes.setdefault(play.lane(record), []).append(record.offset)
        for offsets in lanes.values():
            assert offsets == sorted(offsets), seed
        desk = play.desk
        assert len(play.ended) + desk.decisions.skipped >= RECORDS, seed
        assert not desk.epoch.lanes, seed
        assert not desk.epoch.busy, seed
        assert not desk.kept.left_behind, seed
        assert desk.epoch.main.state is LaneState.IDLE, seed
        assert desk.kept.watermarks()[TP].offset == RECORDS, seed
