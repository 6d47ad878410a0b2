"""Combinations of orders, executors, batches, failures, letters, holds and rebalances."""

import asyncio
import itertools
from collections import Counter
from contextlib import suppress
from math import inf

import pytest
from kafka import TopicPartition
from kafka.errors import CommitFailedError, RebalanceInProgressError
from kafka.serializer import Deserializer

from safeconsumer import (
    BatchFailure,
    Breaker,
    Drain,
    Limits,
    Pause,
    Pump,
    Reject,
    Retry,
    RetryLater,
    SafeConsumer,
)
from safeconsumer.errors import SafeConsumerError, UnansweredBatchError
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    LOADING,
    NOT_LEADER_OR_FOLLOWER,
    UNAVAILABLE,
    Working,
    committed,
    expel,
    filled,
    put,
    put_marker,
    quick,
)

PARTITIONS, RECORDS = 4, 60
KEYS = 500  # more keys than a partition has records
# A deserializer refuses the records with these numbers: 5, 22, 39...
UNREADABLE, UNREADABLE_REST = 17, 5
# Record values are offsets, plus this number for each earlier truncation or recreation.
A_TRUNCATION = UNREADABLE * 1_000_000
NOT_COORDINATOR = 16
REASONS = {"revoked", "lost", "moved", "stopped"}


def leaves(_given):
    """Change nothing."""


class Counting(SafeConsumer):
    """
    A consumer that counts the records that its polls return.

    Attributes:
        found: the records of the last poll.
        after_poll: called with the consumer at the end of each poll.
    """

    polled, found = 0, {}

    def __init__(self, *topics, after_poll, **settings):
        super().__init__(*topics, **settings)
        self.after_poll = after_poll

    def poll(self, *args, **kwargs):
        found = super().poll(*args, **kwargs)
        self.found = found
        self.after_poll(self)
        self.polled += sum(map(len, found.values()))
        return found


def counted(lab, handle, settings, after_poll=leaves, way="topics", **options):
    """Start a worker whose polled records are counted."""
    made = counting(lab, settings, after_poll, way)
    return Working(lab, handle, given=made, **options)


def counting(lab, settings, after_poll, way):
    """Create a consumer that subscribes to the topic, or assigns it to itself."""
    settings = lab.settings(group_id=GROUP, **settings)
    made = Counting(after_poll=after_poll, **settings)
    if way == "topics":
        made.subscribe(["t"])
    elif way == "pattern":
        made.subscribe(pattern="t$")
    else:
        made.assign(lab.partitions("t"))
    return made


def check_sums(run):
    """Compare the polled records with their outcomes, unless some are not queued yet."""
    engine = run.worker._engine
    with engine.kept.lock:
        stats = run.worker.stats()
        # A record that is complete before its task returns already counts as done.
        here = engine.kept.records - engine.kept.finished()
    if run.report is None and engine._unadmitted:
        return
    ended = stats.done + stats.dropped + stats.refetched
    assert run.consumer.polled == ended + here, stats
    assert stats.dropped == sum(stats.dropped_by_reason.values())
    assert stats.dropped_by_reason.keys() == REASONS


class Book:
    """
    Keeps the outcome of each record, by partition and offset, and the broken promises.

    Attributes:
        complete: records that were handled, dead-lettered or skipped.
        running: the number of running calls, by member and record.
        holds: by member, the scopes that are held for certain, and until when.
        values: the records of the logs, by partition and offset.
        replaced: by partition, the lowest offset from which records were replaced; members
            may still commit the earlier records.
        wrong: the broken promises, each with the evidence.
    """

    def __init__(self, lab, order, keys, *, is_batch):
        self.lab, self.order, self.keys = lab, order, keys
        self.is_batch = is_batch
        self.complete = set()
        self.running = Counter()
        self.holds = {}
        self.values, self.replaced = {}, {}
        self.wrong = []

    def begin(self, who, records):
        places = places_of(records)
        scopes = {"t", *(f"t:{partition}" for partition, _ in places)}
        if any(self.holds[who].get(one, 0.0) > self.lab.now for one in scopes):
            self.break_promise("W10", who, places)
        here = {
            one for (name, one), count in self.running.items() if count and name == who
        }
        for place in self.still_there(records):
            beside = {one for one in here - {*places} if self.is_ordered(one, place)}
            before = {(place[0], offset) for offset in range(place[1])}
            left = {
                one
                for one in before - self.complete - {*places}
                if not self.may_fail_in_batch(one)
            }
            if beside or any(self.is_ordered(one, place) for one in left):
                self.break_promise("W3", who, place, beside or left)
        self.running.update((who, one) for one in places)

    def may_fail_in_batch(self, place):
        """Return whether a record is unreadable in a batch that may succeed without it."""
        return self.is_batch and place[1] % UNREADABLE == UNREADABLE_REST

    def pass_over(self, partition, offsets):
        """Mark offsets that need no handler as complete, such as those that a seek skips."""
        self.complete.update((partition, offset) for offset in offsets)

    def write(self, place, value):
        self.values[place] = value
        self.complete.discard(place)

    def replace(self, partition, offset):
        """Forget the records from an offset onwards, which are gone and may be replaced."""
        self.replaced[partition] = min(offset, self.replaced.get(partition, offset))
        gone = [one for one in self.values if one >= (partition, offset)]
        for place in [one for one in gone if one[0] == partition]:
            del self.values[place]
        self.complete = {
            one for one in self.complete if one[0] != partition or one[1] < offset
        }

    def still_there(self, records):
        """Return the partition and offset of the records that the logs still have."""
        found = zip(places_of(records), records, strict=True)
        return [at for at, one in found if self.values.get(at) == int(one.value)]

    def is_over(self, ends):
        """Return whether all records are complete."""
        missing = {place for place in self.values if place not in self.complete}
        return all(offset >= ends[partition] for partition, offset in missing)

    def end(self, who, records, done):
        self.running.subtract((who, one) for one in places_of(records))
        self.finish(done)

    def finish(self, records):
        self.complete.update(self.still_there(records))

    def is_ordered(self, one, other):
        """Return whether two records are handled one after the other."""
        is_near = one[0] == other[0] and self.order != "unordered"
        return is_near and (
            self.order == "partition" or self.keys[one[1]] == self.keys[other[1]]
        )

    def look(self):
        """Compare committed offsets with completed records."""
        for partition, end in enumerate(committed(self.lab)):
            known = min(end or 0, self.replaced.get(partition, inf))
            passed = {(partition, at) for at in range(known)} - self.complete
            if passed:
                self.break_promise("W4", partition, end, sorted(passed)[:5])

    def break_promise(self, *what):
        self.wrong.append((*what, round(self.lab.now, 3)))


class Fuzz:
    """
    Workers of a group with random options, and handlers with random outcomes.

    Attributes:
        ways: how consumers get their partitions.
    """

    ways = ("topics", "topics", "topics", "pattern", "assign")

    def __init__(self, lab):
        self.lab, self.dice = lab, lab.rng
        self.keys = [self.dice.choice("abcdef") for _ in range(KEYS)]
        lab.topic("t", PARTITIONS)
        self.is_calm, self.may_interrupt = False, True
        # The judge cannot tell which records a seek skips in a truncated log.
        self.may_seek, self.truncations = self.dice.random() < 0.5, 0
        self.way = self.dice.choice(self.ways)
        lab.cluster.creates_topics = False
        self.ending, self.interrupted = {}, set()
        self.names = map("w{}".format, itertools.count())
        self.runs = {}
        self.options = self.random_options()
        self.protocol = self.dice.choice(["eager", "cooperative"])
        self.settings = self.random_settings()
        is_batch = bool(self.options["batch"])
        order = self.options["order"]
        self.book = Book(lab, order, self.keys, is_batch=is_batch)
        self.is_sink_slow = self.dice.random() < 0.5
        # Under "latest" no record is skipped once a worker has owned its partition.
        self.is_late = self.dice.random() < 0.3
        if self.is_late:
            self.settings["auto_offset_reset"] = "latest"
            self.is_calm = True
            self.start()
            lab.until(lambda: committed(lab) == [0] * PARTITIONS)
            self.is_calm = False
        for tp in lab.partitions("t"):
            self.append(tp, RECORDS)
        if not self.is_late:
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

    def random_settings(self):
        choose = self.dice.choice
        settings = {"max_poll_records": choose([1, 3, 20, 20])}
        if choose([True, False]):
            settings["max_partition_fetch_bytes"] = choose([200, 1000])
        if choose([True, False]):
            settings["parked_max_bytes"] = choose([0, 500])
        if choose([True, False, False]):
            settings["value_deserializer"] = Numbers()
        return settings

    def append(self, tp, count):
        """Append records, and after some of them the marker of a transaction."""
        log = self.lab.cluster.log(*tp)
        while count > 0:
            some = min(count, self.dice.choice([1, 7, 20]))
            offsets = range(log.end, log.end + some)
            values = [offset + self.truncations * A_TRUNCATION for offset in offsets]
            for offset, value in zip(offsets, values, strict=True):
                self.book.write((tp.partition, offset), value)
            # A seek to the end may lead past these offsets.
            if self.lab.now < self.ending.get(tp, 0.0):
                self.book.pass_over(tp.partition, offsets)
            keys = self.keys[log.end : log.end + some]
            put(self.lab, tp, *map(str, values), keys=keys)
            count -= some
            while self.dice.random() < 0.2:
                self.book.pass_over(tp.partition, [log.end])
                put_marker(self.lab, tp)

    def start(self):
        name = next(self.names)
        self.book.holds[name] = {}
        self.runs[name] = counted(
            self.lab,
            self.handler(name),
            quick(self.protocol, **self.settings),
            self.meddle,
            self.way,
            name=name,
            concurrency=self.dice.choice([1, 4, 8]),
            drain=Drain(revoke=self.dice.choice([1.0, 10.0]), shutdown=5.0),
            on_event=self.hear,
            **self.options,
        )

    # the function that a worker calls

    def handler(self, who):
        def handle(given, _context):
            records = self.records(given)
            self.book.begin(who, records)
            seconds, error = self.fate(len(records))
            self.lab.sleep(seconds)
            self.book.end(who, records, spared(records, error))
            if error is not None:
                raise error

        async def handle_async(given, _context):
            records, done = self.records(given), []
            self.book.begin(who, records)
            seconds, error = self.fate(len(records))
            try:
                await asyncio.sleep(seconds)
                done = spared(records, error)
            finally:
                self.book.end(who, records, done)
            if error is not None:
                raise error

        return handle if self.options["executor"] == "thread" else handle_async

    def records(self, given):
        return given if self.options["batch"] else [given]

    def fate(self, count):
        """Choose how many seconds a call takes, and the error that it raises, if any."""
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
        self.book.finish([record])

    def hear(self, event):
        if getattr(event, "then", None) == "skip":
            place = int(event.partition.partition(":")[2]), event.offset
            self.book.complete.add(place)

    # disturbances

    def disturb(self):
        """Disturb the group, or one of its members."""
        acts = {
            self.add_member: 4,
            self.stop_member: 2,
            self.expel: 1,
            lambda name: self.seek(self.runs[name].consumer): 2,
            self.hold: 6,
            self.lift: 5,
            self.add_records: 2,
            self.delete_records: 1,
            self.add_partition: 1,
            self.truncate_the_log: 2,
            self.recreate: 0.7,
            self.break_broker: 2,
        }
        (act,) = self.dice.choices([*acts], [*acts.values()])
        act(self.dice.choice([*self.runs]))

    def expel(self, _name):
        if self.way != "assign":
            expel(self.lab)

    def add_member(self, _name):
        if len(self.runs) < 2 and self.way != "assign":
            self.start()

    def stop_member(self, name):
        if len(self.runs) > 1:
            run = self.runs.pop(name)
            run.worker.stop(drain=self.dice.random() < 0.7)
            run.ends()
            if run.error is None:
                check_sums(run)

    def hold(self, name):
        scope = self.dice.choice(["t", "t:0", "t:1", "t:2"])
        seconds = self.dice.choice([None, None, 0.3, 4.0])
        holds = self.book.holds[name]
        with suppress(SafeConsumerError):  # another member owns the partition
            self.runs[name].consumer.pause(scope, owner="ops", for_=seconds)
            holds[scope] = self.lab.now + (inf if seconds is None else seconds)

    def add_records(self, _name):
        self.append(
            self.dice.choice(self.lab.partitions("t")), self.dice.randint(1, 30)
        )

    def add_partition(self, _name):
        count = len(self.lab.partitions("t"))
        may_add = self.way != "assign" and not self.is_late
        if count < PARTITIONS + 2 and may_add:
            self.lab.cluster.add_partitions("t", count + 1)
            self.append(self.lab.partitions("t")[-1], RECORDS // 2)

    def delete_records(self, _name):
        """Delete the first records, as retention does."""
        tp = self.dice.choice(self.lab.partitions("t"))
        log = self.lab.cluster.log(*tp)
        start = self.dice.randint(log.start, max(log.start, log.end - 1))
        self.book.pass_over(tp.partition, range(start))
        self.lab.cluster.delete_before(*tp, start)

    def truncate_the_log(self, _name):
        """Remove the last records, as an unclean election does, and append others."""
        if self.may_seek:
            return
        tp = self.dice.choice(self.lab.partitions("t"))
        log = self.lab.cluster.log(*tp)
        end = self.dice.randint(max(log.start, log.end - 25), log.end)
        self.lab.cluster.truncate(*tp, end)
        self.begin_again([tp])

    def recreate(self, _name):
        """
        Delete the topic, and create it again once the members must have noticed.

        A commit in flight would otherwise count for the new topic (P21). Under "latest" only
        members that have consumed the old topic start at the start of the new topic.
        """
        if self.may_seek or (self.is_late and not self.have_all_joined()):
            return
        is_calm, self.is_calm = self.is_calm, True
        self.lab.cluster.faults.clear()
        count = len(self.lab.partitions("t"))
        self.lab.cluster.delete_topic("t")
        self.lab.sleep(self.dice.choice([3.0, 8.0]))
        self.begin_again(self.lab.topic("t", count))
        if self.is_late:
            # A pattern, and a member whose partitions are all held, find the new topic
            # only with the next metadata: metadata_max_age_ms is 300 s.
            self.lab.until(lambda: None not in committed(self.lab), 400)
        self.is_calm = is_calm

    def have_all_joined(self):
        return all(
            run.error is None
            and run.consumer.assignment()
            and run.consumer not in self.interrupted
            for run in self.runs.values()
        )

    def begin_again(self, tps):
        self.truncations += 1
        for tp in tps:
            self.book.replace(tp.partition, self.lab.cluster.log(*tp).end)
            self.append(tp, self.dice.choice([0, 1, 30]))

    def break_broker(self, _name):
        api, error = self.dice.choice(
            [
                ("OffsetCommit", LOADING),
                ("OffsetCommit", UNAVAILABLE),
                ("OffsetFetch", LOADING),
                ("Heartbeat", NOT_COORDINATOR),
                ("Fetch", NOT_LEADER_OR_FOLLOWER),
                ("ListOffsets", NOT_LEADER_OR_FOLLOWER),
            ]
        )
        count = self.dice.randint(1, 5)
        how = self.dice.choice(
            [{"error": error}, {"delay": 1.5}, {"is_lost": True}, {"is_cut": True}]
        )
        self.lab.cluster.fail(api, count=count, **how)

    def meddle(self, reading):
        """
        Seek during a poll, as a hook may, or raise, as a signal handler may.

        The worker has not seen the records of the poll yet.
        """
        if not self.is_calm and self.dice.random() < 0.03:
            self.seek(reading)
        is_interrupted = self.dice.random() < 0.005 and self.may_interrupt
        if not self.is_calm and is_interrupted:
            self.interrupted.add(reading)
            raise KeyboardInterrupt

    def seek(self, reading):
        """Seek some or all partitions of a member to random offsets."""
        if not self.may_seek:
            return
        way = self.dice.choice(["back", "back", "forward", "beginning", "end"])
        for tp in sorted(reading.assignment()):
            position = reading._subscription.delivered_position(tp)
            if position is None or self.dice.random() < 0.3:
                continue
            end = self.lab.cluster.log(*tp).end
            # Without a floor the worker cannot keep the records of the last poll.
            first = min([position, *(r.offset for r in reading.found.get(tp, ()))])
            if way == "back":
                target = self.dice.randint(0, position)
                if committed(self.lab)[tp.partition] is None:
                    self.book.pass_over(tp.partition, range(first, target))
                reading.seek(tp, target)
            elif way == "forward":
                target = self.dice.randint(position, max(position, end))
                self.book.pass_over(tp.partition, range(first, target))
                reading.seek(tp, target)
            elif way == "beginning":
                reading.seek_to_beginning(tp)
            else:
                self.book.pass_over(tp.partition, range(first, end))
                self.ending[tp] = self.lab.now + 20.0
                reading.seek_to_end(tp)

    def lift(self, name):
        holds = self.book.holds[name]
        while holds:
            scope, _ = holds.popitem()
            self.runs[name].consumer.resume(scope, owner="ops")

    def restart_interrupted(self):
        """Replace each worker that an interrupt has ended."""
        for name, run in [*self.runs.items()]:
            if isinstance(run.error, KeyboardInterrupt):
                del self.runs[name]
                self.start()

    def calm_down(self):
        self.is_calm = True
        for name in self.runs:
            self.lift(name)

    def is_over(self, ends):
        """Return whether all records are complete and all offsets are committed."""
        found = zip(self.lab.partitions("t"), committed(self.lab), ends, strict=True)
        return self.book.is_over(ends) and all(
            max(at or 0, self.lab.cluster.log(*tp).start) >= end
            for tp, at, end in found
        )

    def finish(self):
        """Wait until all records are complete and committed, and stop the workers."""
        ends = [self.lab.cluster.log(*tp).end for tp in self.lab.partitions("t")]
        self.lab.until(lambda: self.is_over(ends), 400, what="all is committed")
        self.book.replaced.clear()
        self.book.look()
        for run in self.runs.values():
            assert run.worker.stats().leaked == 0
            run.stop()
            check_sums(run)


class Numbers(Deserializer):
    """Reads values, except those with the number of an unreadable record."""

    def deserialize(self, _topic, _headers, data):
        if int(data) % UNREADABLE == UNREADABLE_REST:
            raise ValueError
        return data


def places_of(records):
    return [(one.partition, one.offset) for one in records]


def spared(records, error):
    """Return the records that a call has handled successfully."""
    if isinstance(error, BatchFailure):
        return [one for at, one in enumerate(records) if at not in error.errors]
    return records if error is None else []


@pytest.mark.contract("W3", "W4", "W5", "W7", "W10", "W11")
@simulated(seeds=4, nightly=500)
def test_records_are_neither_lost_nor_overtaken_nor_skipped(lab):
    """After all disturbances each record is completed and committed."""
    fuzz = Fuzz(lab)
    for _ in range(lab.rng.randint(8, 16)):
        lab.sleep(lab.rng.uniform(0.1, 6.0))
        fuzz.book.look()
        fuzz.disturb()
        fuzz.restart_interrupted()
        for run in fuzz.runs.values():
            check_sums(run)
        errors = [run.error for run in fuzz.runs.values() if run.error is not None]
        assert [one for one in errors if type(one) is not KeyboardInterrupt] == []
    fuzz.calm_down()
    lab.sleep(30.0)  # an interrupted worker ends after its drain
    fuzz.restart_interrupted()
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


class PumpFuzz(Fuzz):
    """A program that alternates between pumps and plain polls, in a group with workers."""

    ways = ("topics", "topics", "pattern")

    def __init__(self, lab):
        super().__init__(lab)
        self.book.is_batch = True
        # A pump polls in its own thread, where no signal interrupts a poll.
        self.may_interrupt = False
        self.open = []
        settings = quick(self.protocol, **self.settings)
        self.reading = counting(lab, settings, self.meddle, self.way)
        self.book.holds["pump"] = {}

    def random_options(self):
        options = super().random_options()
        if options["order"] == "key":
            options["order"] = "partition"
        return options

    def pump_options(self):
        names = ["order", "limits", "retry", "breaker", "on_exhausted", "dead_letter"]
        return {one: self.options[one] for one in names if one in self.options}

    def pump(self):
        """Take batches for some time, and leave the block in one of several ways."""
        drain = Drain(revoke=self.dice.choice([1.0, 10.0]), shutdown=2.0)
        is_last_broken = self.dice.random() < 0.3
        options = {"drain": drain, "on_event": self.hear, **self.pump_options()}
        made = Pump(self.reading, **options)
        self.may_interrupt = True
        with suppress(UnansweredBatchError, KeyboardInterrupt), made as pump:
            for _ in range(self.dice.randint(2, 25)):
                self.take(pump)
            if is_last_broken:
                raise KeyboardInterrupt
            while self.open and self.dice.random() < 0.9:
                self.answer(self.open.pop())
        self.may_interrupt = False
        self.open.clear()

    def take(self, pump):
        for batch in pump.turn():
            self.book.begin("pump", batch.records)
            self.book.end("pump", batch.records, [])
            self.open.append(batch)
        self.dice.shuffle(self.open)
        while self.open and self.dice.random() < 0.7:
            self.answer(self.open.pop())
        if self.dice.random() < 0.2:
            self.lab.sleep(self.dice.choice([0.05, 1.0, 4.0]))
        if not self.is_calm and self.dice.random() < 0.15:
            self.disturb_pump()

    def answer(self, batch):
        """Answer a batch, in one step or in two, or drop the batch without an answer."""
        records = batch.records
        error = self.error()
        if error is None and self.dice.random() < 0.7:
            self.book.finish(records)
            batch.done()
        elif error is not None and self.dice.random() < 0.5:
            batch.fail(error)
        elif self.is_calm or self.dice.random() < 0.98:
            some = [at for at in range(len(batch)) if self.dice.random() < 0.5]
            self.book.finish([records[at] for at in some])
            batch.done(some)
            batch.fail(error or ValueError())

    def disturb_pump(self):
        acts = {
            self.expel: 2,
            lambda _: self.seek(self.reading): 6,
            self.delete_records: 2,
            self.break_broker: 2,
            self.add_records: 2,
            self.add_partition: 1,
            self.truncate_the_log: 2,
            self.recreate: 1,
            self.replace_worker: 2,
        }
        (act,) = self.dice.choices([*acts], [*acts.values()])
        act("pump")

    def have_all_joined(self):
        return False  # an interrupt may have ended the pump

    def replace_worker(self, _name):
        """Stop the worker that runs beside the pump, or start one."""
        if not self.runs:
            self.start()
            return
        _, run = self.runs.popitem()
        run.worker.stop(drain=self.dice.random() < 0.7)
        run.ends()

    def read(self, *commits):
        """Poll without a pump, and commit in one of several ways."""
        for _ in range(self.dice.randint(0, 5)):
            polled = self.reading.poll(timeout_ms=300)
            for records in polled.values():
                self.book.finish(records)
        commit = self.dice.choice(commits)
        with suppress(CommitFailedError, RebalanceInProgressError):
            commit()

    def finish(self):
        for run in self.runs.values():
            run.worker.stop()
            run.ends()
        # A pump does not commit the records that the program read before the pump started.
        for _ in range(0 if "value_deserializer" in self.settings else 3):
            self.read(self.reading.commit)
        ends = [self.lab.cluster.log(*tp).end for tp in self.lab.partitions("t")]
        with Pump(self.reading, on_event=self.hear, **self.pump_options()) as pump:

            def is_committed():
                for batch in pump.turn():
                    self.book.finish(batch.records)
                    batch.done()
                return self.is_over(ends)

            self.lab.until(is_committed, 400, what="all is committed")
        self.book.replaced.clear()
        self.book.look()
        self.reading.close()


@pytest.mark.contract("W3", "W4", "W5", "W7")
@simulated(seeds=3, nightly=300)
def test_pumps_and_polls_between_them_lose_no_record(lab):
    """After all disturbances each record is completed and committed."""
    fuzz = PumpFuzz(lab)
    for _ in range(lab.rng.randint(3, 8)):
        fuzz.pump()
        fuzz.book.look()
        if "value_deserializer" not in fuzz.settings and lab.rng.random() < 0.6:
            fuzz.read(fuzz.reading.commit, fuzz.reading.commit_async)
            fuzz.book.look()
    fuzz.calm_down()
    fuzz.finish()
    assert fuzz.book.wrong == [], fuzz.options
