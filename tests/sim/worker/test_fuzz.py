"""Orders, executors, batches, failures, letters, holds, breakers and rebalances at once."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from kafka import TopicPartition

from safeconsumer import (
    BatchFailure,
    Breaker,
    Drain,
    Limits,
    Pause,
    Reject,
    Retry,
    RetryLater,
    SafeConsumer,
)
from safeconsumer.errors import SafeConsumerError
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.worker.working import Working, committed, expel, filled, quick

PARTITIONS, RECORDS = 4, 60
END = [RECORDS] * PARTITIONS
REASONS = {"revoked", "lost", "moved", "stopped"}


def leaves(_given):
    """Change nothing."""


class Counting(SafeConsumer):
    """
    A consumer that counts the records that its polls return.

    Attributes:
        after_poll: called with the consumer at the end of each poll.
    """

    polled = 0

    def __init__(self, *topics, after_poll, **settings):
        super().__init__(*topics, **settings)
        self.after_poll = after_poll

    def poll(self, *args, **kwargs):
        found = super().poll(*args, **kwargs)
        self.polled += sum(map(len, found.values()))
        self.after_poll(self)
        return found


def counted(lab, handle, settings, after_poll=leaves, **options):
    """Start a worker whose polled records are counted."""
    settings = lab.settings(group_id=GROUP, **settings)
    made = Counting("t", after_poll=after_poll, **settings)
    return Working(lab, handle, given=made, **options)


def check_sums(run):
    """Compare the polled records with their outcomes, unless a turn is under way."""
    engine = run.worker._engine
    with engine.kept.lock:
        stats = run.worker.stats()
        # A record that is complete before its task comes back is among the done ones.
        here = engine.kept.records - engine.kept.finished()
    if run.report is None and engine._unadmitted:
        return
    ended = stats.done + stats.dropped + stats.refetched
    assert run.consumer.polled == ended + here, stats
    assert stats.dropped == sum(stats.dropped_by_reason.values())
    assert stats.dropped_by_reason.keys() == REASONS


class Book:
    """
    Notes the outcome of each record, by partition and offset, and broken promises.

    Attributes:
        complete: records that were handled, buried or skipped.
        running: how many calls a member makes for a record.
        holds: by member, the scopes that are held for sure.
        wrong: the broken promises, each with the evidence.
    """

    def __init__(self, lab, order, keys):
        self.lab, self.order, self.keys = lab, order, keys
        self.complete = set()
        self.running = Counter()
        self.holds = {}
        self.wrong = []

    def begin(self, who, places):
        if any(self.holds[who] & {"t", f"t:{partition}"} for partition, _ in places):
            self.break_promise("W10", who, places)
        here = {
            one for (name, one), count in self.running.items() if count and name == who
        }
        for place in places:
            beside = {one for one in here - {*places} if self.is_ordered(one, place)}
            before = {(place[0], offset) for offset in range(place[1])}
            left = before - self.complete - {*places}
            if beside or any(self.is_ordered(one, place) for one in left):
                self.break_promise("W3", who, place, beside or left)
        self.running.update((who, one) for one in places)

    def end(self, who, places, done):
        self.running.subtract((who, one) for one in places)
        self.complete |= set(done)

    def is_ordered(self, one, other):
        """Tell whether two records are handled one after the other."""
        is_near = one[0] == other[0] and self.order != "unordered"
        return is_near and (
            self.order == "partition" or self.keys[one[1]] == self.keys[other[1]]
        )

    def look(self):
        """Compare committed offsets with completed records."""
        for partition, end in enumerate(committed(self.lab)):
            passed = {(partition, at) for at in range(end or 0)} - self.complete
            if passed:
                self.break_promise("W4", partition, end, sorted(passed)[:5])

    def break_promise(self, *what):
        self.wrong.append((*what, round(self.lab.now, 3)))


class Fuzz:
    """Workers of a group with random options, and handlers with random outcomes."""

    def __init__(self, lab):
        self.lab, self.dice = lab, lab.rng
        keys = [self.dice.choice("abcdef") for _ in range(RECORDS)]
        filled(lab, PARTITIONS, *map(str, range(RECORDS)), keys=keys)
        self.is_calm = False
        self.names = iter("abcdefghijklmnop")
        self.runs = {}
        self.options = self.random_options()
        self.protocol = self.dice.choice(["eager", "cooperative"])
        self.book = Book(lab, self.options["order"], keys)
        self.is_sink_slow = self.dice.random() < 0.5
        self.start()

    def random_options(self):
        choose = self.dice.choice
        order = choose(["partition", "key", "unordered"])
        batch = None if order == "key" else choose([None, 5, 20])
        options = {
            "order": order,
            "executor": choose(["thread", "asyncio"]),
            "batch": batch,
            "batch_within": choose([0.0, 0.5, 3.0]) if batch else 0.0,
            "limits": Limits(records=choose([20, 40, 1000])),
            "retry": Retry(attempts=choose([1, 2, 4]), first=0.2, most=2.0),
        }
        on = Breaker(on=(ConnectionError,), failures=2, first=1.0, most=4.0)
        options["breaker"] = choose([None, on])
        if choose([True, False, False]):
            return {**options, "on_exhausted": "skip"}
        return {**options, "dead_letter": self.bury}

    def start(self):
        name = next(self.names)
        self.book.holds[name] = set()
        self.runs[name] = counted(
            self.lab,
            self.handler(name),
            quick(self.protocol, max_poll_records=20),
            self.may_seek_back,
            name=name,
            concurrency=self.dice.choice([1, 4, 8]),
            drain=Drain(revoke=self.dice.choice([1.0, 10.0]), shutdown=5.0),
            on_event=self.hear,
            **self.options,
        )

    # the function that a worker calls

    def handler(self, who):
        def handle(given, _context):
            places = self.places(given)
            self.book.begin(who, places)
            seconds, error = self.fate(len(places))
            self.lab.sleep(seconds)
            self.book.end(who, places, spared(places, error))
            if error is not None:
                raise error

        async def handle_async(given, _context):
            places, done = self.places(given), []
            self.book.begin(who, places)
            seconds, error = self.fate(len(places))
            try:
                await asyncio.sleep(seconds)
                done = spared(places, error)
            finally:
                self.book.end(who, places, done)
            if error is not None:
                raise error

        return handle if self.options["executor"] == "thread" else handle_async

    def places(self, given):
        records = given if self.options["batch"] else [given]
        return [(one.partition, one.offset) for one in records]

    def fate(self, count):
        """Return how long a call takes, and its error."""
        error = self.error()
        if error is None:
            waits = [0.0, 0.01, 0.3, 1.5] * 10 + [8.0, 14.0]
            return 0.0 if self.is_calm else self.dice.choice(waits), None
        if count > 1 and self.dice.random() < 0.6:
            errors = {at: self.error() for at in range(count)}
            errors = {at: one for at, one in errors.items() if one is not None}
            return 0.05, BatchFailure(errors) if errors else None
        return 0.05, error

    def error(self):
        choose = self.dice.choice
        if self.is_calm or self.dice.random() < 0.7:
            return None
        return choose(
            [
                ValueError("of the record"),
                OSError("of the record"),
                ConnectionError("of an outage"),
                RetryLater(choose([0.0, 0.5, 5.0])),
                Reject("for good"),
                Pause(choose([0.5, 3.0]), choose(["key", "partition", "topic", "all"])),
            ]
        )

    def bury(self, record, _failure):
        if self.is_sink_slow:
            self.lab.sleep(self.dice.choice([0.1, 2.0]))
        if not self.is_calm and self.dice.random() < 0.2:
            raise OSError
        self.book.complete.add((record.partition, record.offset))

    def hear(self, event):
        if getattr(event, "then", None) == "skip":
            place = int(event.partition.partition(":")[2]), event.offset
            self.book.complete.add(place)

    # the outcome of a record

    def disturb(self):
        """Let something happen to the group, or to one of its members."""
        what, name = self.dice.random(), self.dice.choice([*self.runs])
        run, holds = self.runs[name], self.book.holds[name]
        if what < 0.2 and len(self.runs) < 2:
            self.start()
        elif 0.2 <= what < 0.3 and len(self.runs) > 1:
            del self.runs[name]
            run.worker.stop(drain=self.dice.random() < 0.7)
            run.ends()
            check_sums(run)
        elif 0.3 <= what < 0.36:
            expel(self.lab)
        elif 0.36 <= what < 0.42:
            self.seek_back(run.consumer)
        elif 0.42 <= what < 0.75:
            scope = self.dice.choice(["t", "t:0", "t:1", "t:2"])
            with suppress(SafeConsumerError):  # another member owns its partition
                run.consumer.pause(scope, owner="ops")
                holds.add(scope)
        elif what >= 0.75:
            self.lift(name)

    def may_seek_back(self, reading):
        """Seek during a poll, as a hook may: the worker has not seen its records yet."""
        if not self.is_calm and self.dice.random() < 0.03:
            self.seek_back(reading)

    def seek_back(self, reading):
        for tp in sorted(reading.assignment()):
            position = reading._subscription.delivered_position(tp)
            if position is not None:
                reading.seek(tp, self.dice.randint(0, position))

    def lift(self, name):
        holds = self.book.holds[name]
        while holds:
            self.runs[name].consumer.resume(holds.pop(), owner="ops")

    def calm_down(self):
        self.is_calm = True
        for name in self.runs:
            self.lift(name)

    def finish(self):
        """Wait until all records are complete and committed, and stop the workers."""
        self.lab.until(lambda: committed(self.lab) == END, 400, what="all is committed")
        self.book.look()
        for run in self.runs.values():
            assert run.worker.stats().leaked == 0
            run.stop()
            check_sums(run)


def spared(places, error):
    """Return those of a call's records that are done."""
    if isinstance(error, BatchFailure):
        return [one for at, one in enumerate(places) if at not in error.errors]
    return places if error is None else []


@pytest.mark.contract("W3", "W4", "W5", "W7", "W10", "W11")
@simulated(seeds=4, nightly=500)
def test_records_are_neither_lost_nor_overtaken_nor_passed_over(lab):
    """After all disturbances each record is completed and committed."""
    fuzz = Fuzz(lab)
    for _ in range(lab.rng.randint(8, 16)):
        lab.sleep(lab.rng.uniform(0.1, 6.0))
        fuzz.book.look()
        fuzz.disturb()
        for run in fuzz.runs.values():
            check_sums(run)
        assert [run.error for run in fuzz.runs.values() if run.error] == []
    fuzz.calm_down()
    fuzz.finish()
    assert fuzz.book.wrong == [], fuzz.options


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
def test_dropped_records_are_counted_by_reason(lab, reason, end):
    filled(lab, 2, *["v"] * 15)
    drain = Drain(revoke=0.5, shutdown=0.5)
    run = counted(lab, lambda *_: lab.sleep(100), {}, drain=drain)
    lab.until(lambda: run.worker.stats().queued)
    end(run)
    lab.sleep(8)
    check_sums(run)
    report = run.stop()
    check_sums(run)
    assert report.dropped_by_reason[reason] >= 15
