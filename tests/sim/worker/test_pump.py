"""A pump hands out batches to the program's loop."""

import gc
import json
import weakref

import pytest
from kafka.structs import TopicPartition

from safeconsumer import (
    BatchFailure,
    Commit,
    Drain,
    Limits,
    Pause,
    Pump,
    Reject,
    Retry,
    RetryLater,
    SafeConsumer,
    StopWorker,
    events,
)
from safeconsumer.errors import (
    DeserializationError,
    RecordFailedError,
    UnansweredBatchError,
    WorkerStateError,
)
from safeconsumer.metrics import Collector
from tests.harness.worker.journals import broken, entries
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.worker.working import (
    OFTEN,
    committed,
    consumer,
    expel,
    filled,
    in_thread,
    offsets,
    put,
    taken,
)

ORDERS = pytest.mark.parametrize("order", ["unordered", "partition"])
EXACT = Retry(attempts=3, first=1.0, factor=2.0, jitter=False)
FOUR = {"max_poll_records": 4}


def pumping(lab, records, partitions=1, **options):
    """Create a pump for a new topic, with batches of up to four records."""
    lab.topic("t", partitions, records=records)
    settings = {**FOUR, **options.pop("settings", {})}
    reading = options.pop("reading", None) or consumer(lab, "t", **settings)
    options = {"retry": EXACT, "commit": OFTEN, **options}
    return Pump(reading, **options)


def done(pump, count):
    """Finish batches immediately until this many records are done; return the offsets."""
    found = []
    while len(found) < count:
        for one in pump.turn():
            found += offsets(one)
            one.done()
    return found


def slow_letters(lab):
    """Return a list, and a sink that adds each letter to it and then takes a second."""
    letters = []

    def sink(record, _failure):
        letters.append((record.partition, record.offset))
        lab.sleep(1.0)

    return letters, sink


def nothing(lab, pump, seconds):
    """Return whether the pump hands out no batch for this many seconds."""
    end = lab.now + seconds
    found = []
    while lab.now < end - 0.3:
        found += pump.turn()
    lab.sleep(max(0.0, end - lab.now))
    return not found


@pytest.mark.contract("P20", "W4")
@ORDERS
def test_pump_hands_out_the_rest_of_a_truncated_log(lab, order):
    """Records answered before the truncation stay done, even if their batch is still open."""
    settings = {"metadata_max_age_ms": 1000, "max_poll_records": 20}
    with pumping(lab, 20, order=order, settings=settings) as pump:
        (batch,) = taken(lab, pump, 20)
        batch.done(range(19))
        lab.until(lambda: committed(lab) == [19])
        lab.cluster.truncate("t", 0, 15)
        put(lab, TopicPartition("t", 0), *["new"] * 5)
        lab.sleep(10)
        assert committed(lab) == [15]
        (again,) = taken(lab, pump, 5)
        assert offsets(again) == [15, 16, 17, 18, 19]
        again.done()
        batch.done()


@pytest.mark.contract("W1")
def test_done_records_of_an_open_batch_do_not_count_towards_limits_span(lab):
    with pumping(lab, 12, limits=Limits(span=8)) as pump:
        (one,) = taken(lab, pump, 4)
        one.done(range(3))
        found = [*taken(lab, pump, 4), *taken(lab, pump, 3)]
        assert [offsets(each) for each in found] == [[4, 5, 6, 7], [8, 9, 10]]
        for each in [one, *found]:
            each.done()


@pytest.mark.contract("W4")
@ORDERS
def test_second_answer_for_a_record_changes_nothing(lab, order):
    with pumping(lab, 4, order=order) as pump:
        (batch,) = taken(lab, pump, 4)
        assert (len(batch), batch.attempt, batch.partition) == (4, 1, ("t", 0))
        for indexes, mark in (([1, 3], 0), (0, 2), (0, 2), ([], 2), (iter(()), 2)):
            batch.done(indexes)
            lab.sleep(0.5)
            assert committed(lab) == [mark]
        assert pump.held_records >= 1
        batch.done()
        batch.fail(ValueError())
        batch.done()
        lab.sleep(0.5)
        assert (committed(lab), pump.held_records) == ([4], 0)


def test_wrong_index_or_error_is_refused(lab):
    with pumping(lab, 2) as pump:
        (batch,) = taken(lab, pump, 2)
        for indexes in ("0", [[0, 1]], [0.0], [True], object()):
            for answer in (batch.done, lambda one: batch.fail(ValueError(), one)):
                with pytest.raises(TypeError):
                    answer(indexes)
        for error in ("text", BatchFailure({0: ValueError()}), BatchFailure({})):
            with pytest.raises(TypeError):
                batch.fail(error)
        with pytest.raises(IndexError):
            batch.done(2)
        assert pump.held_records == 2
        batch.done()
    assert committed(lab) == [2]


@ORDERS
def test_retry_later_does_not_count_as_an_attempt_and_keeps_the_batch_together(
    lab, order
):
    with pumping(lab, 4, order=order) as pump:
        (batch,) = taken(lab, pump, 4)
        at = lab.now
        batch.done(0)
        batch.fail(RetryLater(3.0))
        (again,) = taken(lab, pump, 3)
        assert round(lab.now - at, 1) == 3.0
        assert (offsets(again), again.attempt) == ([1, 2, 3], 1)
        again.fail(RetryLater(1.0), 1)
        again.fail(RetryLater(1.0))
        found = done(pump, 3)
        assert sorted(found) == [1, 2, 3]
        assert order == "unordered" or found == [1, 2, 3]


@pytest.mark.contract("W7")
@ORDERS
@pytest.mark.parametrize("then", ["stop", "skip", "block", "dead letter"])
def test_final_failure_goes_to_the_policy(lab, order, then):
    letters = []
    how = {"on_exhausted": then}
    if then == "dead letter":
        how = {"dead_letter": lambda record, why: letters.append((record.offset, why))}

    def loop():
        with pumping(lab, 4, order=order, **how) as pump:
            (batch,) = taken(lab, pump, 4)
            batch.fail(Reject("planted"), 1)
            batch.done()
            lab.sleep(0.5)
            pump.turn()

    if then == "stop":
        with pytest.raises(RecordFailedError, match="offset 1 failed for good"):
            loop()
    else:
        loop()
    assert committed(lab) == [4 if then in ("skip", "dead letter") else 1]
    assert [offset for offset, _ in letters] == [1] * (then == "dead letter")


@pytest.mark.contract("W5", "W7")
def test_slow_sink_does_not_delay_batches(lab):
    letters, reported, fails = [], [], [OSError()]

    def sink(record, _failure):
        if fails:
            raise fails.pop()
        lab.sleep(8)
        letters.append(record.offset)

    options = {"dead_letter": sink, "on_event": reported.append}
    with pumping(lab, 8, order="unordered", **options) as pump:
        first, second = taken(lab, pump, 8)
        first.fail(Reject("planted"), 1)
        first.done()
        assert pump.turn() == []
        at = lab.now
        second.fail(ValueError("planted"), 0)
        second.done()
        (again,) = taken(lab, pump, 1)
        assert lab.now - at < 2
        again.done()
        lab.sleep(6)
        (slow,) = (one for one in reported if isinstance(one, events.HandlerStalled))
        assert (slow.offset, slow.is_letter, letters) == (1, True, [])
    assert (letters, committed(lab)) == ([1], [8])


def rejected(pump, seconds, lab):
    """Fail each record separately, for this many seconds."""
    end = lab.now + seconds
    while lab.now < end:
        for batch in pump.turn():
            for index in range(len(batch)):
                batch.fail(Reject("planted"), index)


@pytest.mark.contract("W6")
def test_rebalance_waits_for_at_most_one_dead_letter(lab):
    letters, sink = slow_letters(lab)
    reading = consumer(lab, "t", heartbeat_interval_ms=200, **FOUR)
    how = {"reading": reading, "dead_letter": sink, "drain": Drain(revoke=10.0)}
    with pumping(lab, 8, 2, **how) as pump:
        rejected(pump, 2.5, lab)
        other, at = lab.member(SafeConsumer, "t", poll_ms=50), lab.now
        lab.until(lambda: rejected(pump, 0.1, lab) or other.records)
        assert lab.now - at < 4

        def are_all_there():
            rejected(pump, 0.1, lab)
            theirs = {(one.partition, one.offset) for one in other.records}
            return {*letters} | theirs == {(p, n) for p in (0, 1) for n in range(8)}

        lab.until(are_all_there)


@pytest.mark.contract("W10")
def test_dead_letters_that_have_not_started_do_not_delay_a_hold(lab):
    letters, sink = slow_letters(lab)
    reading = consumer(lab, "t", **FOUR)
    with pumping(lab, 4, 2, reading=reading, dead_letter=sink) as pump:
        lab.until(lambda: rejected(pump, 0.1, lab) or len(letters) == 2)
        (held,) = (tp for tp in lab.partitions("t") if tp.partition != letters[-1][0])
        reading.pause(held, owner="ops")
        assert held not in pump._decisions.queue.kept.busy()
        begun = len(letters)
        rejected(pump, 8.0, lab)
        assert held.partition not in {partition for partition, _ in letters[begun:]}
        reading.resume(held, owner="ops")
        rejected(pump, 5.0, lab)
    assert sorted(letters) == [(p, n) for p in (0, 1) for n in range(4)]
    assert committed(lab) == [4, 4]


@ORDERS
def test_batch_dropped_without_an_answer_ends_the_pump(lab, order):
    handed = []

    def loop():
        with pumping(lab, 8, order=order) as pump:
            for batch in pump:
                handed.append(offsets(batch))
                batch.done(0)
                del batch
                gc.collect()

    with pytest.raises(UnansweredBatchError, match="t:0"):
        loop()
    assert handed[0] == [0, 1, 2, 3]
    assert committed(lab) == [1]


@ORDERS
def test_batch_left_unanswered_for_too_long_is_reported(lab, order):
    """Each call of ``done`` restarts the time limit of the batch."""
    reported = []
    options = {"order": order, "on_event": reported.append, "limits": Limits(age=10.0)}

    def named():
        found = [one for one in reported if isinstance(one, events.HandlerStalled)]
        return [(one.partition, one.offset, one.is_letter, one.stack) for one in found]

    with pumping(lab, 4, **options) as pump:
        (batch,) = taken(lab, pump, 4)
        lab.sleep(9.0)
        assert pump.healthy()
        batch.done(0)
        lab.sleep(9.0)
        assert (pump.healthy().reasons, named()) == ((), [])
        lab.sleep(3.0)
        (reason,) = pump.healthy().reasons
        assert reason.startswith(
            "t:0 offset 1: it is in a batch without an answer for "
        )
        assert pump.healthy().is_alive
        assert named() == [("t:0", 1, False, None)]
        assert (pump.stats().running, pump.stats().state) == (3, "running")
        batch.done(1)
        assert pump.healthy()
        lab.sleep(11.0)
        assert [offset for _, offset, *_ in named()] == [1, 2]
        batch.done()
        assert pump.healthy()
    assert pump.healthy().reasons == ("it has ended",)
    assert (committed(lab), pump.stats().done, len(named())) == ([4], 4, 2)


def test_collector_reads_a_pump_like_a_worker(lab):
    with pumping(lab, 4) as pump:
        found = Collector(pump)
        (batch,) = taken(lab, pump, 4)
        batch.done()
        values = {
            one.name: one.value for family in found.collect() for one in family.samples
        }
        assert values["safeconsumer_worker_done_total"] == 4
        assert values["safeconsumer_consumer_assigned_partitions"] == 1
        found.remove(pump)
        assert list(found.collect()) == []


def test_last_batch_is_given_back_after_an_exception(lab):
    began = []

    def loop():
        with pumping(lab, 8, drain=Drain(shutdown=60)) as pump:
            for batch in pump:
                began.append(lab.now)
                batch.done() if offsets(batch)[0] == 0 else batch.done(0)
                if offsets(batch)[0]:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert lab.now - began[-1] < 1
    assert committed(lab) == [5]


@pytest.mark.contract("W6")
def test_exception_waits_for_batches_of_other_threads(lab):
    def loop():
        with pumping(lab, 8, drain=Drain(shutdown=60)) as pump:
            for batch in pump:
                if offsets(batch)[0] == 4:
                    raise ZeroDivisionError
                in_thread(
                    lambda batch=batch: (batch.done(0), lab.sleep(5), batch.done())
                )

    with pytest.raises(ZeroDivisionError):
        loop()
    assert round(lab.now) == 5
    assert committed(lab) == [4]


@pytest.mark.contract("W5", "W6")
def test_exception_waits_for_the_last_batch_if_another_thread_answers_it(lab):
    """If the pump gave the batch back, the next owner would get its records again."""

    def loop():
        with pumping(lab, 4, drain=Drain(shutdown=60)) as pump:
            for batch in pump:
                in_thread(
                    lambda batch=batch: (batch.done(0), lab.sleep(5), batch.done())
                )
                lab.sleep(1)
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        loop()
    assert round(lab.now) == 5
    assert committed(lab) == [4]


@pytest.mark.contract("W8")
def test_exit_of_the_with_block_is_bounded(lab):
    reading = consumer(lab, "t", **FOUR)
    with pumping(lab, 8, reading=reading, drain=Drain(shutdown=3.0)) as pump:
        (batch,) = taken(lab, pump, 4)[:1]
        batch.done([0, 1, 3])
        at = lab.now
    assert round(lab.now - at, 1) == 3.0
    assert batch.is_revoked
    batch.done()
    assert committed(lab) == [2]
    assert not reading.holds()
    records = [one for some in reading.poll(5000).values() for one in some]
    assert records[0].offset == 2
    for use in (pump.turn, pump.__enter__, lambda: next(iter(pump))):
        with pytest.raises(WorkerStateError):
            use()


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("target", [1, 30])
def test_seek_in_the_with_block_is_kept_at_its_end(lab, target, held):
    reading = consumer(lab, "t", **FOUR)
    (tp,) = lab.topic("t", 1, records=4)
    with Pump(reading, commit=OFTEN) as pump:
        (batch,) = taken(lab, pump, 4)
        batch.done()
        lab.until(lambda: committed(lab) == [4])
        put(lab, tp, *["x"] * 40)
        reading.pause(tp, owner="ops")
        reading.seek(tp, target)
        if not held:
            pump.stop()
            reading.resume(tp, owner="ops")
    assert reading.position(tp) == target


@pytest.mark.parametrize("target", [1, 30])
def test_seek_in_a_with_block_is_kept_if_a_poll_raises(lab, target):
    reading = consumer(lab, "t", **FOUR)
    (tp,) = lab.topic("t", 1, records=4)

    def poll(**_):
        reading.seek(tp, target)
        message = "planted"
        raise ZeroDivisionError(message)

    def loop():
        with Pump(reading, commit=OFTEN) as pump:
            (batch,) = taken(lab, pump, 4)
            batch.done()
            lab.until(lambda: committed(lab) == [4])
            reading.poll = poll
            taken(lab, pump, 1)

    with pytest.raises(ZeroDivisionError):
        loop()
    assert reading.position(tp) == target


@pytest.mark.contract("W5")
@pytest.mark.parametrize("target", [1, 3, 30])
def test_seek_in_the_with_block_skips_no_unfinished_record(lab, target):
    reading = consumer(lab, "t", **FOUR)
    (tp,) = lab.topic("t", 1, records=4)
    with Pump(reading, drain=Drain(shutdown=1.0), commit=OFTEN) as pump:
        (batch,) = taken(lab, pump, 4)
        batch.done([0, 1])
        reading.pause(tp, owner="ops")
        reading.seek(tp, target)
    assert reading.position(tp) == min(target, 2)


@pytest.mark.contract("W5")
@pytest.mark.parametrize("breaks", [False, True])
def test_consumer_continues_at_the_last_commit(lab, *, breaks):
    reading = consumer(lab, "t", **FOUR)
    (tp,) = lab.topic("t", 1, records=3)

    def commit(*_, **__):
        message = "planted"
        raise ZeroDivisionError(message)

    def loop():
        with Pump(reading, drain=Drain(shutdown=5.0), commit=Commit(every=60)) as pump:
            (batch,) = taken(lab, pump, 3)
            in_thread(lambda: (lab.sleep(1), batch.done([0, 1])))
            if breaks:
                reading.commit = reading.commit_async = commit

    if breaks:
        with pytest.raises(ZeroDivisionError):
            loop()
    else:
        loop()
    assert not reading.holds()
    assert committed(lab) == [0 if breaks else 2]
    assert reading.position(tp) == 2


@pytest.mark.contract("W2")
def test_slow_loop_is_not_evicted(lab):
    seen = []
    more = {"max_poll_interval_ms": 3_000, "session_timeout_ms": 6_000}
    with pumping(lab, 8, settings=more, drain=Drain(revoke=0.3)) as pump:
        for batch in pump:
            generation = lab.generation()
            lab.sleep(7)
            assert (lab.members(), lab.generation()) == (1, generation)
            seen += offsets(batch)
            batch.done()
            if len(seen) == 8:
                pump.stop()
    assert (seen, committed(lab)) == ([*range(8)], [8])


@pytest.mark.contract("W6")
@simulated(seeds=2)
def test_rebalance_waits_for_answers_and_loses_no_record(lab):
    quick = {"heartbeat_interval_ms": 200}
    drain = Drain(revoke=5.0, shutdown=0.0)
    how = {"drain": drain, "settings": quick, "limits": Limits(records=12)}
    with pumping(lab, 12, 2, **how) as pump:
        out, seen = taken(lab, pump, 4), []
        generation = lab.generation()
        other = lab.member(SafeConsumer, "t", poll_ms=50)
        lab.sleep(2)
        assert (lab.generation(), pump.turn()) == (generation, [])
        for one in out:
            one.done()
        seen += [(one.partition.partition, n) for one in out for n in offsets(one)]

        def look():
            for one in pump.turn():
                seen.extend((one.partition.partition, n) for n in offsets(one))
                one.done()
            return len(seen) + len(other.records) >= 24

        lab.until(look)
        theirs = [(one.partition, one.offset) for one in other.records]
        assert sorted(seen + theirs) == [(p, n) for p in (0, 1) for n in range(12)]
        assert len({p for p, _ in theirs}) == 1


@pytest.mark.contract("W4", "G8")
def test_lost_membership_commits_nothing(lab):
    with pumping(lab, 2, drain=Drain(shutdown=0.2)) as pump:
        (batch,) = taken(lab, pump, 2)
        expel(lab)
        lab.until(lambda: batch.is_revoked)
        (again,) = taken(lab, pump, 2)
        batch.done()
        batch.fail(ValueError())
        assert offsets(again) == [0, 1]
        lab.sleep(0.5)
        assert committed(lab) == [0]
        again.done(0)
        again.fail(RetryLater(60.0))
    assert committed(lab) == [1]


def test_record_that_cannot_be_deserialized_fails_alone(lab):
    """The indexes of a batch count only its readable records."""
    (tp,) = filled(lab, 1, '{"k": 1}', "{bad", '{"k": 2}', "away", '{"k": 3}')
    away = [ConnectionError("planted")]

    def read(data):
        if data == b"away":
            if away:
                raise away.pop()
            return {"k": 4}
        return json.loads(data)

    letters = []
    with pytest.warns(DeprecationWarning, match="value_deserializer"):
        reading = consumer(lab, "t", value_deserializer=read)
    pump = Pump(
        reading,
        retry=EXACT,
        dead_letter=lambda record, failure: letters.append((record, failure)),
    )
    with pump:
        (batch,) = taken(lab, pump, 3)
        assert [one.value["k"] for one in batch.records] == [1, 2, 3]
        batch.done(2)
        batch.done([0, 1])
        (again,) = taken(lab, pump, 1)
        assert (again.records[0].value, again.attempt) == ({"k": 4}, 2)
        again.done()
    ((record, failure),) = letters
    assert (record.value, failure.attempts) == (b"{bad", 1)
    assert isinstance(failure.error, DeserializationError)
    assert committed(lab) == [5]
    put(lab, tp, '{"k": 5}')
    (found,) = (one for some in reading.poll(5000).values() for one in some)
    assert found.value == {"k": 5}  # now the consumer itself returns the record


def test_error_of_a_poll_ends_the_pump(lab):
    reading = consumer(lab, "t", **FOUR)
    pump = pumping(lab, 4, reading=reading)
    poll, raising = reading.poll, [ZeroDivisionError()]

    def break_once(**how):
        if raising:
            raise raising.pop()
        return poll(**how)

    with pump:
        (batch,) = taken(lab, pump, 4)
        reading.poll = break_once
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                lab.until(pump.turn)
        in_thread(lambda: (lab.sleep(3), batch.done()))
    assert committed(lab) == [4]
    assert not reading.holds()


class RaisingOnce(SafeConsumer):
    """
    A consumer whose next poll with records raises, if ``sought`` is not None.

    Attributes:
        sought: the offsets to which that poll seeks before it reads, by partition.
    """

    sought = None

    def poll(self, *args, **kwargs):
        sought = self.sought
        for tp, offset in (sought or {}).items():
            self.seek(tp, offset)
        polled = super().poll(*args, **kwargs)
        if polled and sought is not None:
            self.sought = None
            raise ZeroDivisionError
        return polled

    def next_offset(self):
        polled = self.poll(5000)
        return next(one.offset for some in polled.values() for one in some)


@pytest.mark.contract("W4", "W5")
@pytest.mark.parametrize("read", [0, 1])
def test_records_of_a_first_poll_that_raises_are_read_again(lab, read):
    """The program may have read some records before it passes the consumer to the pump."""
    lab.topic("t", 1, records=3)
    reading = RaisingOnce("t", **lab.settings(group_id=GROUP, max_poll_records=1))
    if read:
        assert reading.next_offset() == 0
    reading.sought = {}
    with pytest.raises(ZeroDivisionError), Pump(reading, commit=OFTEN) as pump:
        lab.until(pump.turn)
    assert reading.next_offset() == read


@pytest.mark.contract("P18", "W5")
@pytest.mark.parametrize("target", [0, 2, 9])
def test_records_after_a_seek_are_read_again_if_their_poll_raises(lab, target):
    (tp,) = lab.topic("t", 1, records=4)
    reading = RaisingOnce("t", **lab.settings(group_id=GROUP, max_poll_records=1))

    def loop():
        with Pump(reading, commit=OFTEN) as pump:
            for batch in taken(lab, pump, 4):
                batch.done()
            lab.until(lambda: committed(lab) == [4])
            reading.pause(tp, owner="ops")
            put(lab, tp, *["x"] * 8)
            reading.sought = {tp: target}
            lab.sleep(1.0)  # the poll that had started earlier ends
            reading.resume(tp, owner="ops")
            lab.until(pump.turn)

    with pytest.raises(ZeroDivisionError):
        loop()
    assert reading.next_offset() == target


def test_block_whose_worker_cannot_start_raises_the_reason(lab):
    pump = pumping(lab, 1)

    def run():
        raise WorkerStateError

    pump._worker.run = run
    with pytest.raises(WorkerStateError), pump:
        pass


@pytest.mark.parametrize("how", ["iterating", "turning"])
@pytest.mark.parametrize("who", ["stop", "StopWorker"])
def test_stop_ends_the_loop(lab, how, who):
    with pumping(lab, 40, drain=Drain(shutdown=1)) as pump:
        (batch,) = taken(lab, pump, 4)[:1]
        in_thread(pump.stop) if who == "stop" else batch.fail(StopWorker())
        lab.sleep(0.5)
        batch.done()
        assert pump.is_stopping
        assert (list(pump) if how == "iterating" else pump.turn()) == []
    assert committed(lab) == [4 if who == "stop" else 0]


class Answers:
    """Answers batches at random, and judges the next batches."""

    def __init__(self, lab, pump, order):
        self.lab, self.pump, self.order = lab, pump, order
        self.out = []
        self.ended = set()

    def take(self):
        is_held = any(hold.owner == "x" for hold in self.pump.consumer.holds())
        for batch in self.pump.turn():
            assert not is_held, "handed out under a hold"
            new = {self.name(batch, n) for n in range(len(batch))}
            before = {self.name(one, n) for one, left in self.out for n in left}
            assert not before & new, "handed out twice"
            assert not self.ended & new, "handed out though it has ended"
            if self.order == "partition":
                partition, first = min(new)
                assert partition not in {p for p, _ in before}, "beside another one"
                assert {(partition, n) for n in range(first)} <= self.ended, "overtaken"
            self.out.append((batch, set(range(len(batch)))))

    def answer(self, dice):
        """Answer some records of a batch."""
        batch, left = self.out[dice.randrange(len(self.out))]
        chosen = sorted(left)
        if dice.random() < 0.7:
            chosen = dice.sample(chosen, dice.randint(1, len(chosen)))
        how = dice.choice(["done", "done", "fail", "later", "reject", "pause"])
        errors = {
            "fail": ValueError(),
            "later": RetryLater(dice.uniform(0, 2)),
            "reject": Reject("no"),
            "pause": Pause(dice.uniform(0, 2), dice.choice(["topic", "key"])),
        }
        if how == "done":
            batch.done(chosen)
        else:
            batch.fail(errors[how], chosen)
        if how in ("done", "reject") or (how == "fail" and batch.attempt == 3):
            self.ended |= {self.name(batch, n) for n in chosen}
        left -= set(chosen)
        self.out = [(one, some) for one, some in self.out if some]

    def judge(self):
        """W4: no offset past an incomplete record is committed."""
        for number, mark in enumerate(committed(self.lab)):
            ends = {n for p, n in self.ended if p == number}
            assert set(range(mark or 0)) <= ends

    @staticmethod
    def name(batch, index):
        return batch.partition.partition, batch.records[index].offset


@pytest.mark.contract("W3", "W4", "W5")
@ORDERS
@simulated(seeds=3, nightly=40)
def test_each_record_is_completed_once_with_random_answers(lab, tmp_path, order):
    dice = lab.rng
    reading = consumer(lab, "t", journal=tmp_path, **FOUR)
    how = {"order": order, "on_exhausted": "skip", "reading": reading}
    with pumping(lab, 30, 2, **how) as pump:
        answers = Answers(lab, pump, order)
        for _ in range(60):
            step = dice.choice(["take", "wait", "hold", *["answer"] * 4])
            if step == "wait":
                lab.sleep(dice.uniform(0, 1))
            elif step == "hold":
                (reading.pause_all if dice.random() < 0.3 else reading.resume_all)(
                    owner="x"
                )
            elif step == "answer" and answers.out:
                answers.answer(dice)
            else:
                answers.take()
            answers.judge()
        reading.resume_all(owner="x")
        while len(answers.ended) < 60:
            for batch, left in answers.out:
                batch.done(left)
                answers.ended |= {answers.name(batch, n) for n in left}
            answers.out = []
            answers.take()
    assert committed(lab) == [30, 30]
    assert lab.members(GROUP) == 1
    assert entries(tmp_path, "working", "handle") == []
    assert broken(tmp_path) == set()


def refuse_first(record):
    if record.offset == 0:
        message = "planted"
        raise Reject(message)


@ORDERS
def test_waiting_dead_letter_does_not_keep_its_batch_in_memory(lab, order):
    """The function that received the batch reports the error, and returns."""
    batches = []

    def process(batch):
        batches.append(weakref.ref(batch))
        for at, record in enumerate(batch):
            try:
                refuse_first(record)
            except Reject as error:
                batch.fail(error, at)
            else:
                batch.done(at)

    def sink(_record, _failure):
        message = "planted"
        raise OSError(message)

    options = {"retry": EXACT, "dead_letter": sink, "drain": Drain(shutdown=0.0)}
    with pumping(lab, 4, order=order, **options) as pump:
        while not batches:
            for batch in pump.turn():
                process(batch)
        del batch
        lab.sleep(0.5)
        gc.collect()
        assert [ref() for ref in batches] == [None]
        assert pump.held_records == 1


def test_ended_pump_does_not_reference_a_frame_of_its_program(lab):
    class Mine:
        pass

    kept = []

    def play():
        mine = Mine()
        kept.append(weakref.ref(mine))
        with pumping(lab, 1, dead_letter=lambda *_: None) as pump:
            (batch,) = taken(lab, pump, 1)
            try:
                refuse_first(batch.records[0])
            except Reject as error:
                batch.fail(error)
            while pump.held_records:
                pump.turn()
        return pump

    pump = play()
    assert not pump.held_records
    assert kept[0]() is None
