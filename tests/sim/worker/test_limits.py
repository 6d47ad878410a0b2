"""W1: memory is bounded, and an active partition does not wait for any other."""

import threading
from itertools import pairwise

import pytest
from kafka import TopicPartition

from safeconsumer import Limits, Reject, Retry, RetryLater, SafeConsumer, events
from safeconsumer.errors import JournalError
from safeconsumer.journal.writer import JournalWriter
from safeconsumer.worker.loop import BUSY_POLL
from tests.harness.worker.journals import broken, entries
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import COOPERATIVE
from tests.sim.worker.working import (
    Handler,
    Working,
    committed,
    consumer,
    filled,
    in_both,
    planted_once,
    put,
)

BACKPRESSURE = "worker:backpressure"
STICKY = {"partition_assignment_strategy": [COOPERATIVE]}
SMALL = {"max_poll_records": 10, "fetch_max_wait_ms": 5000}
TWENTY = {"max_poll_records": 20}


def test_idle_threads_start_waiting_records_without_delay(lab):
    keys = [f"k{number}" for number in range(8)]
    filled(lab, 1, *["slow"] * 8, keys=keys)
    handler = Handler(lab, slow=2.0)
    run = Working(lab, handler, concurrency=8, order="key")
    run.done(8)
    began = [call.began for call in handler.calls]
    assert max(began) - min(began) < 0.2


@pytest.mark.contract("W1", "W9")
@in_both
def test_kept_records_are_bounded_and_the_hold_is_named(lab, executor):
    lab.topic("t", 2, records=200)
    handler = Handler(lab, **{"0": 5})
    limits = Limits(records=40)
    run = Working(lab, handler, executor=executor, limits=limits, settings=SMALL)
    stats, consumer = run.worker.stats, run.consumer
    lab.until(lambda: BACKPRESSURE in stats().paused)
    most = 0
    consumer.pause("t", owner="ops", reason="a test")
    for _ in range(20):
        lab.sleep(0.05)
        most = max(most, stats().queued + stats().running)
    assert 20 <= most <= 40
    assert {hold.owner for hold in consumer.holds()} == {"ops", BACKPRESSURE}
    assert any(BACKPRESSURE in line for line in consumer.explain("t:0"))
    lab.sleep(6)
    # W10: the hold of ``ops`` prevents the start of other records.
    assert (stats().running, stats().done) == (0, 2)
    assert "ops" in {hold.owner for hold in consumer.holds()}
    consumer.resume("t", owner="ops")
    run.done(400)
    lab.until(lambda: not consumer.holds())
    assert (stats().leaked, stats().paused) == (0, ())
    assert run.stop().done == 400


@pytest.mark.contract("W1")
def test_kept_bytes_are_bounded(lab):
    filled(lab, 3, "stands", *["x" * 1000] * 100)
    more = {**SMALL, "max_partition_fetch_bytes": 10_000}
    handler = Handler(lab, stands=3)
    run = Working(lab, handler, limits=Limits(bytes=30_000), settings=more)
    run.owns(3)
    most = 0
    while not run.worker.stats().done:
        most = max(most, run.worker.stats().bytes)
        lab.sleep(0.05)
    assert 10_000 < most <= 30_000
    run.done(303)
    assert run.worker.stats().leaked == 0


@pytest.mark.contract("W1")
def test_unordered_records_within_limits_span_of_a_hanging_record_are_handled(lab):
    filled(lab, 1, "hangs", *[""] * 59)
    limits = Limits(records=20, span=25)
    run = Working(
        lab, Handler(lab, hangs=3), order="unordered", limits=limits, settings=SMALL
    )
    run.done(24)
    lab.sleep(1)
    stats = run.worker.stats()
    assert (stats.done, stats.running, stats.queued) == (24, 1, 15)
    run.done(60)


@pytest.mark.contract("W1")
@pytest.mark.parametrize("order", ["partition", "key", "unordered"])
def test_slow_partition_does_not_delay_other_partitions(lab, order):
    slow, *others = lab.topic("t", 4)
    put(lab, slow, *["stands"] * 100)
    for tp in others:
        put(lab, tp, *[""] * 100)
    run = Working(
        lab,
        Handler(lab, stands=100),
        limits=Limits(records=40),
        settings=SMALL,
        order=order,
        concurrency=4 if order == "partition" else 200,
    )
    run.done(300)
    stats = run.worker.stats()
    assert stats.done == 300
    assert stats.queued + stats.running <= 40


@pytest.mark.parametrize("how", ["paused", "blocked", "later"])
def test_stalled_partition_with_a_full_queue_does_not_delay_other_partitions(lab, how):
    one, other = lab.topic("t", 2)
    put(lab, one, "stops", *[""] * 200)
    stops = {"paused": 1.0, "blocked": ValueError, "later": RetryLater(3600)}
    run = Working(
        lab,
        Handler(lab, stops=stops[how]),
        limits=Limits(records=40),
        settings=SMALL,
        retry=Retry(attempts=1),
        on_exhausted="block",
    )
    lab.until(lambda: BACKPRESSURE in run.worker.stats().paused)
    if how == "paused":
        run.consumer.pause(one)
        lab.sleep(1)
    done = run.worker.stats().done
    put(lab, other, *[""] * 20)
    run.done(done + 20)
    assert run.worker.stats().queued <= 40


@pytest.mark.contract("W1")
def test_active_partition_does_not_wait_for_blocked_partitions(lab):
    *blocked, last = lab.topic("t", 12)
    run = stopping(lab, limit=1000)
    run.owns(12)
    for tp in blocked:
        put(lab, tp, "stops", *[""] * 1000)
        lab.sleep(1)
    put(lab, last, "flows")
    lab.sleep(5)
    assert run.worker.stats().done == 1


@pytest.mark.contract("W1")
def test_active_topic_does_not_wait_for_a_blocked_topic(lab):
    stops = lab.topic("t", 40)
    (last,) = lab.topic("b")
    run = stopping(lab, "t", "b", limit=2000, polls=500)
    run.owns(41)
    for tp in stops:
        put(lab, tp, "stops", *[""] * 500)
    lab.sleep(3)
    put(lab, last, "flows", "flows", "flows")
    lab.sleep(5)
    assert run.worker.stats().done == 3


@pytest.mark.contract("W1")
def test_new_partition_does_not_wait_for_a_blocked_partition(lab):
    both = set(lab.topic("t", 2))
    idle = lab.member(SafeConsumer, "t", **STICKY)
    idle.owns(2)
    run = stopping(lab, limit=1000)
    run.owns(1)
    (mine,) = run.consumer.assignment()
    put(lab, mine, "stops", *[""] * 2000)
    lab.until(lambda: run.worker.stats().queued > 900)
    idle.stop()
    run.owns(2)
    (other,) = both - {mine}
    put(lab, other, "flows")
    lab.sleep(5)
    assert run.worker.stats().done == 1


def stopping(lab, *topics, limit, polls=100):
    """Start a worker whose handler postpones records with the value ``stops`` by an hour."""
    return Working(
        lab,
        Handler(lab, stops=RetryLater(3600)),
        *topics,
        settings={"max_poll_records": polls, **STICKY},
        limits=Limits(records=limit),
    )


@pytest.mark.contract("W1")
def test_partitions_take_turns_with_order_key(lab):
    one, other = lab.topic("t", 2)
    keys = [str(number) for number in range(300)]
    put(lab, one, *["slow"] * 300, keys=keys)
    handler = Handler(lab, slow=0.05)
    run = Working(lab, handler, order="key", concurrency=2)
    run.done(10)
    put(lab, other, "mine", keys="k")
    began = lab.now
    lab.until(lambda: handler.times("mine"))
    assert lab.now - began < 1


# Partitions share the limit; records of a stalled partition make way for others


@pytest.mark.contract("W1")
@pytest.mark.parametrize(("busy", "share"), [(1, 20), (4, 8)])
def test_partitions_that_have_records_share_the_limit(lab, busy, share):
    """The limit is divided by the number of these partitions plus one."""
    made = lab.topic("t", 4)
    for tp in made[:busy]:
        put(lab, tp, *["stands"] * 100)
    handler, limits = Handler(lab, stands=1000), Limits(records=40)
    run = Working(lab, handler, limits=limits, settings=SMALL)
    lab.sleep(3)
    epochs = run.worker._engine.kept.epochs
    held = [epochs[tp].records for tp in made]
    assert share <= max(held) < 2 * share
    assert sum(held) <= 40


@pytest.mark.contract("W1", "W9")
@in_both
@simulated(seeds=1, nightly=2)
def test_lifted_backpressure_does_not_exceed_the_limit(lab, tmp_path, executor):
    """Records that do not fit are fetched again, once."""
    filled(lab, 2, *["slow"] * 25, keys="abcd")
    handler, limits = Handler(lab, slow=0.3), Limits(records=20)
    how = {"executor": executor, "order": "key", "limits": limits}
    settings = {**SMALL, "journal": tmp_path}
    run = Working(lab, handler, settings=settings, **how)
    poll, held = run.consumer.poll, run.worker._engine.kept

    def lifted(**how):
        assert held.records <= 20
        run.consumer.resume_all(owner=BACKPRESSURE)
        return poll(**how)

    run.consumer.poll = lifted
    run.done(50)
    assert run.stop().refetched > 0
    assert [sorted(handler.offsets(n)) for n in (0, 1)] == [[*range(25)]] * 2
    assert [one for one in entries(tmp_path, "call") if one["op"] == "seek"]
    assert broken(tmp_path) == set()


@pytest.mark.contract("W4", "W5")
@in_both
@pytest.mark.parametrize("place", [0, 5, 9])
@simulated(seeds=1, nightly=2)
def test_seek_back_among_records_beyond_the_limit_skips_no_record(
    lab, tmp_path, executor, place
):
    """The records before the target were polled, and no handler has received them."""
    (tp,) = filled(lab, 1, *["slow"] * 50)
    handler, limits = Handler(lab, slow=0.3), Limits(records=20)
    settings = {**SMALL, "journal": tmp_path}
    run = Working(lab, handler, executor=executor, limits=limits, settings=settings)
    poll, held = run.consumer.poll, run.worker._engine.kept

    def sought(**how):
        run.consumer.resume_all(owner=BACKPRESSURE)
        polled = poll(**how)
        if polled and held.records >= 15:
            run.consumer.poll = poll
            run.consumer.seek(tp, polled[tp][place].offset)
        return polled

    run.consumer.poll = sought
    lab.until(lambda: committed(lab) == [50])
    assert {*handler.offsets()} == {*range(50)}
    assert run.stop().refetched > 0
    assert broken(tmp_path) == set()


@pytest.mark.contract("W4", "W5")
@in_both
def test_seek_past_records_beyond_the_limit_skips_no_polled_record(lab, executor):
    (tp,) = filled(lab, 1, *["slow"] * 60)
    handler, limits = Handler(lab, slow=0.3), Limits(records=20)
    run = Working(lab, handler, executor=executor, limits=limits, settings=SMALL)
    poll, held, last = run.consumer.poll, run.worker._engine.kept, []

    def sought(**how):
        run.consumer.resume_all(owner=BACKPRESSURE)
        polled = poll(**how)
        if polled and held.records >= 15:
            run.consumer.poll = poll
            last.append(polled[tp][-1].offset)
            run.consumer.seek(tp, 55)
        return polled

    run.consumer.poll = sought
    lab.until(lambda: committed(lab) == [60])
    run.stop()
    assert {*handler.offsets()} == {*range(last[0] + 1), *range(55, 60)}


@pytest.mark.contract("W4", "W5")
@in_both
@pytest.mark.parametrize("method", ["seek_to_end", "seek_to_beginning"])
def test_records_polled_before_a_seek_in_a_hook_are_handled(
    lab, tmp_path, executor, method
):
    """The seek comes after a poll has returned, before the worker queues its records."""
    (tp,) = filled(lab, 1, *[""] * 50)
    handler, settings = Handler(lab), {**SMALL, "journal": tmp_path}
    run = Working(lab, handler, executor=executor, settings=settings)
    poll, last = run.consumer.poll, []

    def sought(**how):
        polled = poll(**how)
        if polled and polled[tp][0].offset >= 20:
            run.consumer.poll = poll
            last.append(polled[tp][-1].offset)
            getattr(run.consumer, method)(tp)
        return polled

    run.consumer.poll = sought
    lab.until(lambda: committed(lab) == [50])
    run.stop()
    end = 50 if method == "seek_to_beginning" else last[0] + 1
    assert {*handler.offsets()} == {*range(end)}
    assert broken(tmp_path) == set()


@pytest.mark.contract("W9")
def test_hold_of_an_earlier_ownership_is_not_counted_as_a_leak(lab):
    tps = lab.topic("t", 2)
    put(lab, tps[0], *["stands"] * 100)
    reading = consumer(lab, **SMALL)
    reading.assign(tps)
    limits = Limits(records=40)
    run = Working(lab, Handler(lab, stands=1000), given=reading, limits=limits)
    lab.until(lambda: BACKPRESSURE in run.worker.stats().paused)
    lab.sleep(1)
    poll, before = reading.poll, run.worker.stats().queued

    def regained(**how):
        reading.poll = poll
        reading.assign(tps[1:])
        reading.assign(tps)
        return poll(**{**how, "timeout_ms": 10_000})

    reading.poll = regained
    lab.until(lambda: run.worker.stats().dropped)
    assert before == 19
    assert run.worker.stats().leaked == 0


@pytest.mark.contract("W1")
@pytest.mark.parametrize("batch", [None, 20])
def test_blocked_partition_keeps_only_its_failed_records(lab, batch):
    one, other, third = lab.topic("t", 3)
    run = Working(
        lab,
        Handler(lab, stops=Reject("planted")),
        batch=batch,
        limits=Limits(records=20),
        settings=SMALL,
        on_exhausted="block",
    )
    run.owns(3)
    for tp, values in ((one, ["stops"] * 9), (one, [""] * 91), (other, ["stops"] * 5)):
        put(lab, tp, *values)
        lab.sleep(3)
    put(lab, third, *[""] * 5)
    lab.until(lambda: lab.committed(third) == 5)


@pytest.mark.contract("W1")
@pytest.mark.parametrize("target", [0, 150])
def test_going_back_to_refetch_records_does_not_undo_a_seek_by_the_program(lab, target):
    one, *others, last = lab.topic("t", 4)
    put(lab, one, "slow", *["b"] * 199)
    handler = Handler(lab, slow=1.0, stops=RetryLater(3600))
    limits = Limits(records=40)
    run = Working(lab, handler, concurrency=4, limits=limits, settings=SMALL)
    lab.until(lambda: handler.times("slow"))
    run.consumer.pause(one, owner="ops")
    lab.until(lambda: not run.worker.stats().running)
    polled = run.consumer.position(one)
    run.consumer.seek(one, target)
    for tp in (*others, last):
        put(lab, tp, "stops", *["x"] * 100)
        lab.sleep(2)
    assert run.consumer.position(one) == target
    run.consumer.resume(one, owner="ops")
    lab.until(lambda: lab.committed(one) == 200)
    expected = [*range(polled), *range(target, 200)]
    assert polled < 100
    assert expected == handler.offsets()


@pytest.mark.parametrize("target", [0, 150])
def test_seek_during_a_poll_beyond_the_limit_is_kept(lab, target):
    (tp,) = filled(lab, 1, *["slow"] * 200)
    handler, limits = Handler(lab, slow=0.3), Limits(records=20)
    run = Working(lab, handler, limits=limits, settings=SMALL)
    lab.until(lambda: BACKPRESSURE in run.worker.stats().paused)
    poll = run.consumer.poll

    def lifted(**how):
        run.consumer.resume_all(owner=BACKPRESSURE)
        polled = poll(**{**how, "max_records": 20})
        if polled:
            run.consumer.poll = poll
            run.consumer.seek(tp, target)
        return polled

    run.consumer.poll = lifted
    lab.until(lambda: lab.committed(tp) == 200)
    offsets = handler.offsets()
    steps = [(a, b) for a, b in pairwise(offsets) if b != a + 1]
    assert [to for _, to in steps] == [target]


@pytest.mark.contract("W4")
def test_interrupt_while_going_back_to_refetch_records_skips_no_record(lab):
    one, other = lab.topic("t", 2)
    put(lab, one, *["slow"] * 40)
    options = {"batch": 10, "order": "unordered", "concurrency": 1}
    limits = Limits(records=20)
    run = Working(
        lab, Handler(lab, slow=0.5), limits=limits, settings=TWENTY, **options
    )
    lab.until(lambda: run.worker.stats().running == 10)
    back = run.consumer._safe_go_back
    run.consumer._safe_go_back = planted_once(back, KeyboardInterrupt())
    run.consumer.pause(one, owner="ops")
    put(lab, other, "")
    assert isinstance(run.ends(), KeyboardInterrupt)
    assert lab.committed(one) == 10


@pytest.mark.contract("W1")
def test_record_larger_than_its_share_is_not_fetched_forever(lab):
    one, _ = lab.topic("t", 2)
    put(lab, one, "stops", *["x" * 10_000] * 4)
    small = {**SMALL, "max_poll_records": 1, "max_partition_fetch_bytes": 1000}
    run = Working(
        lab,
        Handler(lab, stops=Reject("planted")),
        limits=Limits(records=20, bytes=8000),
        settings=small,
        on_exhausted="block",
    )
    lab.sleep(4)
    assert 1 <= run.worker.stats().refetched <= 2


@pytest.mark.contract("W1")
@pytest.mark.parametrize("why", ["the other is held", "its log is gone"])
def test_records_are_not_refetched_needlessly(lab, why):
    """A held partition needs no space, and a lost log cannot be fetched again."""
    one, other = lab.topic("t", 2)
    put(lab, one, "stops", *[""] * 19)
    run = stopping(lab, limit=20, polls=20)
    lab.until(lambda: BACKPRESSURE in run.worker.stats().paused)
    if why == "the other is held":
        run.consumer.pause(other, owner="ops")
    else:
        run.worker._engine.kept.epochs[one].has_lost_floor = True
    put(lab, other, *[""] * 9)
    lab.sleep(3)
    assert run.worker.stats().refetched == 0


@pytest.mark.contract("W9")
def test_hold_seconds_are_counted_by_owner(lab):
    filled(lab, 1, *["slow"] * 11)
    handler = Handler(lab, slow=lambda *_: 3.0 if len(handler.calls) == 1 else 0.0)
    reading, limits = consumer(lab, "t", **SMALL), Limits(records=10)
    poll = reading.poll
    reading.poll = lambda **how: lab.sleep(4) or poll(**how)
    run = Working(lab, handler, given=reading, limits=limits)
    run.done(11)
    seconds = run.worker.stats().pause_seconds
    taken = {owner: round(one, 1) for owner, one in seconds.items() if one}
    assert taken == {BACKPRESSURE: 3.0}


def test_lift_that_cannot_be_journaled_does_not_end_a_thread(lab, tmp_path):
    lab.topic("t", 1, records=200)
    writer = JournalWriter(tmp_path, group=GROUP)
    writing, polling, refused = writer.write, set(), []

    def full(event, fields):
        me = threading.get_ident()
        if fields.get("op") == "poll":
            polling.add(me)
        is_lift = event == "call" and fields.get("owner") == BACKPRESSURE
        if is_lift and fields["op"] == "resume" and me not in polling and not refused:
            refused.append(me)
            message = "is the disk full?"
            raise JournalError(message)
        writing(event, fields)

    writer.write = full
    more = {**SMALL, "journal": writer}
    handler = Handler(lab, **{"0": 1})
    run = Working(lab, handler, concurrency=1, limits=Limits(records=40), settings=more)
    run.done(200)
    assert refused
    assert run.stop().done == 200


@in_both
def test_handler_that_hangs_is_reported_while_the_loop_is_alive(lab, executor):
    (tp,) = lab.topic("t")
    handler = Handler(lab, hangs=60)
    run = Working(lab, handler, executor=executor, limits=Limits(age=3.0))
    lab.until(run.worker.healthy)
    put(lab, tp, "hangs")
    lab.until(lambda: handler.calls)
    lab.sleep(2.8)
    assert run.worker.healthy()
    lab.sleep(0.3)
    health = run.worker.healthy()
    assert health.is_alive
    assert "t:0 offset 0" in str(health.reasons)
    lab.sleep(2)
    (reported,) = run.of_kind(events.HandlerStalled)
    assert (reported.partition, reported.offset) == ("t:0", 0)
    assert 3.0 <= reported.seconds < 4.0


def test_each_late_handler_is_reported_at_its_own_record(lab):
    _, second = filled(lab, 2, "slow")
    handler = Handler(lab, slow=9.0)
    reported = []

    def hook(event):
        if isinstance(event, events.HandlerStalled):
            reported.append((event.partition, event.offset))
            lab.sleep(3)

    run = Working(lab, handler, on_event=hook, limits=Limits(age=8.0), concurrency=2)
    lab.until(lambda: len(handler.calls) == 2)
    put(lab, second, *[""] * 5, "slow", *[""] * 30)
    run.done(38)
    assert reported == [("t:0", 0), ("t:1", 6)]
    assert run.stop().committed


@pytest.mark.contract("W1")
def test_full_worker_without_progress_is_unhealthy(lab):
    """A worker under an operator's hold is healthy."""
    (tp,) = lab.topic("t")
    put(lab, tp, "stops", *[""] * 100)
    handler = Handler(lab, stops=RetryLater(3600))
    run = Working(lab, handler, limits=Limits(records=40, age=3.0), settings=SMALL)
    lab.until(lambda: BACKPRESSURE in run.worker.stats().paused)
    lab.sleep(2)
    assert run.worker.healthy()
    lab.sleep(2)
    (reason,) = run.worker.healthy().reasons
    assert "all room is taken" in reason
    run.consumer.pause("t", owner="ops")
    lab.sleep(1)
    assert run.worker.healthy()


@pytest.mark.contract("G8")
def test_unknown_lag_is_none(lab):
    lab.topic("t", 1, records=100)
    run = Working(lab, Handler(lab), settings={"start_paused": True})
    run.owns(1)
    lab.sleep(2)
    assert run.worker.stats().lag is None
    run.consumer.resume_all()
    run.done(100)
    assert run.worker.stats().lag == 0


@pytest.mark.contract("G8")
@pytest.mark.parametrize(
    "hold",
    [
        lambda consumer: consumer.pause("t:0", owner="ops"),
        lambda consumer: consumer.pause(TopicPartition("t", 0)),
        lambda consumer: consumer.pause_all(),
    ],
    ids=["an owner's", "plain", "of everything"],
)
def test_lag_of_a_held_partition_is_unknown(lab, hold):
    (tp,) = lab.topic("t", 1, records=10)
    run = Working(lab, Handler(lab))
    run.done(10)
    lab.sleep(1)
    assert run.worker.stats().lag == 0
    hold(run.consumer)
    lab.append(tp, 200)
    lab.sleep(10)
    assert run.worker.stats().lag is None
    run.consumer.resume_all("ops")
    run.consumer.resume_all()
    run.done(210)
    assert run.worker.stats().lag == 0


@pytest.mark.contract("G8")
def test_lag_is_known_during_backpressure(lab):
    filled(lab, 1, *["slow"] * 40)
    run = Working(
        lab, Handler(lab, slow=5.0), limits=Limits(records=10), settings=SMALL
    )
    lab.until(lambda: BACKPRESSURE in run.worker.stats().paused)
    lag = run.worker.stats().lag
    assert lag is not None
    assert 10 <= lag <= 40


# A batch waits for more records only while more records can come


WITHIN = 10.0


def longest_idle(lab, run, done):
    """Wait for ``done`` records; return the longest idle time caused by backpressure."""
    longest, since = 0.0, lab.now

    def is_done():
        nonlocal longest, since
        stats = run.worker.stats()
        if (
            stats.running
            or not stats.queued
            or "worker:backpressure" not in stats.paused
        ):
            since = lab.now
        longest = max(longest, lab.now - since)
        return bool(stats.done >= done)

    lab.until(is_done, 600)
    return longest


@pytest.mark.contract("W1")
@pytest.mark.parametrize("limits", [{"records": 68}, {"bytes": 68 * 405}], ids=str)
@pytest.mark.parametrize("order", ["partition", "unordered"])
@in_both
def test_no_handler_is_idle_while_limits_keep_batches_from_filling(
    lab, executor, order, limits
):
    """A partition's share is 4 records, and a batch has 10 records."""
    filled(lab, 16, *["v"] * 15, keys="abcdefgh")
    run = Working(
        lab,
        Handler(lab, v=0.1),
        executor=executor,
        order=order,
        concurrency=4,
        batch=10,
        batch_within=WITHIN,
        limits=Limits(**limits),
        settings={"max_poll_records": 20, "max_partition_fetch_bytes": 1000},
    )
    assert longest_idle(lab, run, 16 * 11) <= 2 * BUSY_POLL
    run.stop()


@pytest.mark.contract("W1")
@in_both
@pytest.mark.parametrize("limit", ["records", "span"])
def test_batch_does_not_wait_for_records_beyond_a_limit(lab, executor, limit):
    filled(lab, 1, *["v"] * 50)
    run = Working(
        lab,
        Handler(lab, v=0.1),
        executor=executor,
        order="unordered",
        batch=50,
        batch_within=WITHIN,
        limits=Limits(**{limit: 10}),
        settings={"max_poll_records": 10},
    )
    run.done(40)
    assert lab.now < WITHIN
    run.stop()


@in_both
def test_batch_waits_while_more_records_can_come(lab, executor):
    filled(lab, 2, *["v"] * 5)
    run = Working(
        lab, Handler(lab, v=0.1), executor=executor, batch=10, batch_within=WITHIN
    )
    lab.sleep(WITHIN - 2)
    assert run.worker.stats().done == 0
    run.done(10)
    assert WITHIN <= lab.now < WITHIN + 3
    run.stop()
