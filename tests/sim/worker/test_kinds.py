"""W5: a record that a poll returned ends in exactly one of the kinds, counted by name."""

import pytest
from kafka import TopicPartition

from safeconsumer import Drain, Limits, Pause, Reject, Retry, RetryLater, SafeConsumer
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE
from tests.sim.worker.working import Handler, Working, expel, filled, put

REASONS = {"revoked", "lost", "moved", "stopped"}


class Counting(SafeConsumer):
    """Counts the records that its polls return."""

    polled = 0

    def poll(self, *args, **kwargs):
        found = super().poll(*args, **kwargs)
        self.polled += sum(map(len, found.values()))
        return found


class Counted:
    """A worker whose consumer's polls are counted."""

    def __init__(self, lab, handle, *, settings, **options):
        consumer = Counting("t", **lab.settings(group_id=GROUP, **settings))
        self.run = Working(lab, handle, given=consumer, **options)

    @property
    def polled(self):
        return int(self.run.consumer.polled)

    def check(self):
        """Compare, unless the loop is between a poll and its end."""
        engine, stats = self.run.worker._engine, self.run.worker.stats()
        if engine._unadmitted:
            return
        ended = stats.done + stats.dropped + stats.refetched
        assert self.polled == ended + engine.kept.records, stats
        assert stats.dropped == sum(stats.dropped_by_reason.values())
        assert stats.dropped_by_reason.keys() <= REASONS

    def check_end(self):
        report = self.run.report
        assert self.polled == report.done + report.dropped + report.refetched, report
        assert report.dropped == sum(report.dropped_by_reason.values())
        return report


def handler(lab):
    """Return a handler that takes its time, fails, or asks for something, at random."""
    rng = lab.rng

    def draw(*_):
        if rng.random() < 0.7:
            return rng.choice([0.0, 0.1, 0.5, 4.0])
        pause = Pause(0.5, rng.choice(["key", "partition", "topic"]))
        return rng.choice([ValueError(), RetryLater(0.5), Reject(), pause])

    return Handler(lab, v=draw)


def options(lab):
    rng = lab.rng
    settings = {"max_poll_records": 20}
    if rng.random() < 0.5:
        settings["partition_assignment_strategy"] = [COOPERATIVE]
    order = rng.choice(["partition", "key", "unordered"])
    return {
        "handle": handler(lab),
        "executor": rng.choice(["thread", "asyncio"]),
        "batch": None if order == "key" else rng.choice([None, 5]),
        "order": order,
        "limits": Limits(records=rng.choice([20, 40, 1000])),
        "retry": Retry(attempts=2, first=0.2),
        "dead_letter": lambda *_: None,
        "drain": Drain(revoke=1.0, shutdown=2.0),
        "settings": settings,
    }


def disturb(lab, runs, made):
    """Hold, expel, seek, or add records, at random."""
    rng = lab.rng
    consumer = rng.choice(runs).run.consumer
    match rng.choice(["expel", "hold", "seek", "put"]):
        case "expel":
            expel(lab)
        case "hold":
            consumer.pause("t:0", "t:1", owner="ops", for_=rng.uniform(0.5, 5.0))
        case "seek":
            for tp in consumer.assignment():
                consumer.seek(tp, rng.randint(0, 30))
        case "put":
            put(lab, rng.choice(made), *["v"] * 20, keys="abcdef")


@pytest.mark.contract("W5")
@simulated(seeds=2, nightly=6)
def test_the_kinds_add_up_to_what_polls_returned(lab):
    """With holds, rebalances, lost memberships, seeks and stops at random."""
    rng, made = lab.rng, filled(lab, 4, *["v"] * 60, keys="abcdef")
    how = options(lab)
    runs, ended = [Counted(lab, name="a", **how)], []
    for number in range(10):
        lab.sleep(rng.uniform(0.1, 3.0))
        if rng.random() < 0.6:
            disturb(lab, runs, made)
        elif len(runs) == 1:
            runs.append(Counted(lab, name=f"b{number}", **how))
        else:
            ended.append(runs.pop())
            ended[-1].run.stop(drain=rng.random() < 0.5)
        for one in runs:
            one.check()
    for one in runs:
        one.run.stop(drain=rng.random() < 0.5)
    for one in [*runs, *ended]:
        one.check_end()


def leaves(_run):
    """Be stopped, later."""


def is_expelled(run):
    expel(run.lab)


def seeks(run):
    run.consumer.seek(TopicPartition("t", 0), 0)


def another_joins(run):
    Working(run.lab, lambda *_: None, name="other")


@pytest.mark.contract("W5")
@pytest.mark.parametrize(
    ("reason", "end"),
    [
        ("stopped", leaves),
        ("lost", is_expelled),
        ("moved", seeks),
        ("revoked", another_joins),
    ],
)
def test_each_reason_to_drop_records_has_a_name(lab, reason, end):
    filled(lab, 2, *["v"] * 15)
    one = Counted(
        lab,
        lambda *_: lab.sleep(100),
        settings={},
        drain=Drain(revoke=0.5, shutdown=0.5),
    )
    lab.until(lambda: one.run.worker.stats().queued)
    end(one.run)
    lab.sleep(8)
    one.check()
    one.run.stop()
    report = one.check_end()
    assert report.dropped_by_reason[reason] >= 15
