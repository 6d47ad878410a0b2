"""W4, W6, W12: the group changes under workers, and no record is lost."""

import asyncio
import gc
import itertools
import weakref

import pytest
from kafka import KafkaProducer
from kafka.structs import OffsetAndMetadata

from safeconsumer import (
    Drain,
    Limits,
    Pump,
    Retry,
    RetryLater,
    SafeConsumer,
    events,
)
from safeconsumer.errors import RecordFailedError
from tests.sim.lab import GROUP
from tests.sim.playing import simulated
from tests.sim.reading import Listener
from tests.sim.worker.working import (
    LOADING,
    NOT_LEADER_OR_FOLLOWER,
    OFTEN,
    RARELY,
    UNAVAILABLE,
    UNKNOWN_TOPIC,
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    in_both_ways,
    put,
    put_marker,
    quick,
    settled,
    taken,
)

ONCE = Retry(attempts=1)


def commit_at(lab, tp, offset):
    reading = consumer(lab)
    reading.assign([tp])
    reading.commit({tp: OffsetAndMetadata(offset, "", -1)})
    reading.close(autocommit=False)


def times(handler):
    """Return the number of finished calls for each record."""
    found = {}
    for one in handler.calls:
        if one.ended is not None:
            place = (one.partition, one.offset)
            found[place] = found.get(place, 0) + 1
    return found


@pytest.mark.contract("W4", "W6", "W9")
@in_both_ways
def test_rebalances_while_a_worker_is_at_its_limit_lose_no_record(lab, protocol):
    filled(lab, 4, *["slow"] * 60)
    handler = Handler(lab, slow=0.1)
    options = {
        "settings": quick(protocol),
        "limits": Limits(records=20),
        "concurrency": 4,
    }
    first = Working(lab, handler, **options)
    lab.until(lambda: first.worker.stats().paused)
    for number in range(2):
        other = Working(lab, handler, name=f"b{number}", **options)
        settled(lab, first, other)
        other.done(1)
        other.stop()
        settled(lab, first)
    lab.until(lambda: committed(lab) == [60] * 4)
    assert (first.worker.stats().leaked, first.stop().committed) == (0, True)
    seen = times(handler)
    assert {*seen} == set(itertools.product(range(4), range(60)))
    # at most ``concurrency`` records at each of four revocations
    assert sum(seen.values()) - 240 <= 4 * 4
    assert lab.running() == []


@pytest.mark.contract("W6")
def test_eager_join_waits_for_running_handlers(lab):
    filled(lab, 4, *["slow"] * 20)
    handler = Handler(lab, slow=0.5)
    first = Working(lab, handler, settings=quick())
    first.done(8)
    second = Working(lab, handler, name="b", settings=quick())
    lab.until(lambda: committed(lab) == [20] * 4)
    assert first.stop().done + second.stop().done == 80
    assert set(times(handler).values()) == {1}
    drained = [
        one for one in first.of_kind(events.WorkDrained) if one.reason == "rebalance"
    ]
    assert drained
    assert all(one.running == 0 and one.seconds < 1 for one in drained)


@pytest.mark.contract("W6")
def test_drain_ends_at_its_deadline(lab):
    one, other = lab.topic("t", 2)
    put(lab, one, "hangs", *[""] * 4)
    put(lab, other, *[""] * 5)
    hangs = [8.0]
    handler = Handler(lab, hangs=lambda *_: hangs.pop() if hangs else None)
    first = Working(
        lab, handler, settings=quick(), drain=Drain(revoke=2.0, shutdown=1.0)
    )
    first.done(5)
    second = Working(lab, handler, name="b", settings=quick())
    at = lab.now
    settled(lab, first, second)
    assert 2.0 <= lab.now - at < 3.0
    (drained,) = first.of_kind(events.WorkDrained)
    assert (drained.running, drained.reason) == (1, "rebalance")
    lab.until(lambda: committed(lab) == [5, 5])


@pytest.mark.contract("W4", "W6")
@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_lost_membership_in_a_drain_names_uncommitted_partitions(lab, protocol):
    both = filled(lab, 2, *[""] * 5, "slow", "")
    handler = Handler(lab, slow=8)
    settings, drain = quick(protocol), Drain(revoke=10.0)
    run = Working(lab, handler, settings=settings, commit=RARELY, drain=drain)
    lab.until(lambda: len(handler.calls) == 12)
    Working(lab, Handler(lab), name="b", settings=settings)
    lab.until(lambda: run.worker._engine.departures.deadline)
    expel(lab)
    lab.until(lambda: run.of_kind(events.WorkDropped))
    (drained,) = run.of_kind(events.WorkDrained)
    expected = (4, "rebalance") if protocol == "eager" else (2, "revoked")
    assert (drained.running, drained.reason) == expected
    assert drained.uncommitted == tuple(both)
    assert (drained.floorless, drained.severity) == ((), "warning")
    assert run.worker._engine.departures.deadline is None


def working_on_two_topics(lab, protocol, **settings):
    """Start a worker that subscribes by a pattern; each topic has an uncommitted record."""
    for name in ("day-0", "day-1"):
        put(lab, *lab.topic(name, 1), "")
    handler = Handler(lab)
    given = consumer(lab, **quick(protocol, auto_offset_reset="earliest", **settings))
    given.subscribe(pattern="day-.*")
    run = Working(lab, handler, given=given, commit=RARELY)
    run.done(2)
    return run, handler


@pytest.mark.contract("W1", "W6")
@in_both_ways
@simulated(seeds=1, nightly=5)
def test_deleted_topic_does_not_delay_other_topics(lab, protocol):
    """A join need not wait for the deleted topic's offsets: they can never be committed."""
    run, handler = working_on_two_topics(lab, protocol, metadata_max_age_ms=300)
    lab.cluster.delete_topic("day-1")
    (tp,) = lab.partitions("day-0")
    for _ in range(20):
        put(lab, tp, "")
        lab.sleep(1.0)
    began = [one.began for one in handler.calls if one.topic == "day-0"]
    assert max(late - early for early, late in itertools.pairwise(began)) < 3
    assert run.consumer.assignment() == {tp}
    assert run.stop().committed
    assert lab.committed(tp) == 21


@pytest.mark.contract("W1", "W6")
@in_both_ways
@simulated(seeds=1, nightly=5)
def test_deleted_topic_that_is_held_does_not_delay_a_join(lab, protocol):
    """No fetch shows the deletion, so the commit requests the ids of held topics."""
    run, _ = working_on_two_topics(lab, protocol)
    run.consumer.pause("day-1", owner="ops")
    lab.cluster.delete_topic("day-1")
    given = consumer(lab, "day-0", **quick(protocol))
    Working(lab, Handler(lab), name="b", given=given)
    began = lab.now
    lab.until(lambda: run.of_kind(events.WorkDrained))
    assert lab.now - began < 3
    (drained,) = run.of_kind(events.WorkDrained)
    assert drained.uncommitted == ()


@pytest.mark.contract("W4")
def test_commit_is_repeated_if_only_the_coordinator_lacks_the_topic(lab):
    """A coordinator that is starting may not know the topics yet."""
    filled(lab, 2, "")
    run = Working(lab, Handler(lab), settings=quick(), commit=OFTEN)
    lab.until(lambda: committed(lab) == [1, 1])
    lacking = lab.cluster.fail("OffsetCommit", error=UNKNOWN_TOPIC)
    for tp in lab.partitions("t"):
        put(lab, tp, "")
    run.done(4)
    lab.sleep(5)
    assert committed(lab) == [1, 1]
    lacking.end()
    assert run.stop().committed
    assert committed(lab) == [2, 2]


@pytest.mark.contract("W6")
def test_cooperative_revocation_waits_one_second(lab):
    filled(lab, 2, "slow", "", "")
    run = Working(
        lab,
        Handler(lab, slow=60),
        settings=quick("cooperative"),
        drain=Drain(revoke=30.0),
    )
    lab.until(lambda: run.worker.stats().running == 2)
    Working(lab, Handler(lab), name="b", settings=quick("cooperative"))
    (drained,) = lab.until(lambda: run.of_kind(events.WorkDrained))
    assert (drained.reason, drained.seconds < 2) == ("revoked", True)


@pytest.mark.contract("W6")
def test_drain_ends_if_the_requested_join_is_cancelled(lab):
    filled(lab, 1, "slow", *[""] * 5)
    run = Working(lab, Handler(lab, slow=5), settings=quick())
    lab.until(lambda: run.worker.stats().running)
    coordinator = run.consumer._coordinator
    coordinator.request_rejoin()
    lab.until(lambda: run.worker._engine.departures.deadline)
    coordinator.rejoin_needed = False
    generation = lab.generation()
    run.done(6)
    assert (lab.generation(), run.consumer.holds()) == (generation, ())


@in_both_ways
@pytest.mark.parametrize("how", ["loading", "isolated"])
@pytest.mark.parametrize("revoke", [3.0, pytest.param(30.0, marks=pytest.mark.nightly)])
def test_stop_during_a_drain_is_bounded(lab, protocol, how, revoke):
    filled(lab, 2, *["slow"] * 10)
    handler = Handler(lab, slow=0.5)
    drain = Drain(revoke=revoke, shutdown=1.0)
    first = Working(lab, handler, settings=quick(protocol), drain=drain)
    first.owns(2)
    lab.sleep(2)
    lab.cluster.fail("OffsetCommit", error=LOADING)
    Working(lab, handler, name="b", settings=quick(protocol))
    lab.sleep(1)
    if how == "isolated":
        lab.network.isolate(first.process)
    began = lab.now
    first.worker.stop()
    lab.until(lambda: first.report is not None or first.error is not None, 200.0)
    assert lab.now - began < 1.0 + 2.0 + 0.2


@pytest.mark.contract("W4")
@pytest.mark.parametrize("goes_on", [False, True])
def test_report_has_committed_false_if_a_revoked_partition_was_not_committed(
    lab, *, goes_on
):
    (tp,) = filled(lab, 1, "")
    run = Working(
        lab, Handler(lab), settings=quick(), commit=RARELY, drain=Drain(revoke=2.0)
    )
    run.done(1)
    refused = lab.cluster.fail("OffsetCommit", error=UNAVAILABLE, origin="w")
    second = Working(lab, Handler(lab), name="b", settings=quick())
    second.owns(1)
    refused.end()
    if goes_on:
        second.stop()
        run.owns(1)
        put(lab, tp, "")
        run.done(2)
    assert run.stop().committed is goes_on


@pytest.mark.contract("W4")
@pytest.mark.parametrize("what", ["nothing", "a running record", "a complete record"])
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "revoked"])
def test_uncommitted_markers_do_not_count_as_uncommitted_records(lab, what, *, is_lost):
    """The partition leaves before the commit of its last offsets, which are markers."""
    (tp,) = filled(lab, 1, "")
    commit_at(lab, tp, 1)
    put_marker(lab, tp)
    handler = Handler(lab, slow=100.0)
    run = Working(lab, handler, commit=RARELY, settings=quick())
    if what == "a running record":
        put(lab, tp, "slow")
        lab.until(lambda: handler.calls)
    elif what == "a complete record":
        put(lab, tp, "")
        lab.until(lambda: committed(lab) == [3], 100.0)
        put_marker(lab, tp)
    run.owns(1)
    lab.sleep(2)
    if is_lost:
        lab.cluster.fail("JoinGroup", error=LOADING)
        expel(lab)
    else:
        Working(lab, Handler(lab), name="a", settings=quick()).owns(1)
    lab.until(lambda: not run.consumer.assignment())
    assert run.stop(drain=False).committed
    assert not [one for one in run.of_kind(events.WorkDrained) if one.uncommitted]


@in_both_ways
@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "revoked"])
def test_worker_does_not_keep_ownerships_that_ended(lab, protocol, *, is_lost):
    """The worker may keep the last one, because a variable of an idle thread has its task."""
    lab.cluster.creates_topics = False
    handler = Handler(lab)
    given = consumer(lab, **quick(protocol, metadata_max_age_ms=500))
    given.subscribe(pattern="run-")
    Working(lab, handler, given=given, commit=OFTEN, concurrency=1)
    owned = given._subscription.assignment
    states = []
    for number in range(8):
        (tp,) = lab.topic(f"run-{number}")
        put(lab, tp, "")
        lab.until(lambda: len(handler.calls) > len(states))
        states.append(weakref.ref(owned[tp]))
        if is_lost:
            expel(lab)
        lab.cluster.delete_topic(tp.topic)
        lab.until(lambda: not owned)
    lab.sleep(2)
    gc.collect()
    assert len([one for one in states if one() is not None]) <= 1


@pytest.mark.contract("W4", "W6")
@pytest.mark.parametrize("order", ["partition", "unordered"])
def test_records_done_after_a_loss_are_not_committed(lab, order):
    filled(lab, 2, *["slow"] * 10)
    handler = Handler(lab, slow=lambda *_: 5.0 if lab.now < 4 else 0.0)
    run = Working(lab, handler, order=order, commit=OFTEN, settings=quick())
    lab.until(lambda: handler.calls)
    expel(lab)
    lab.until(lambda: run.of_kind(events.WorkDropped))
    (dropped,) = {one.reason for one in run.of_kind(events.WorkDropped)}
    assert dropped == "lost"
    lab.sleep(2)
    assert committed(lab) == [0, 0]
    lab.until(lambda: committed(lab) == [10, 10])
    run.stop()
    assert {*times(handler)} == set(itertools.product(range(2), range(10)))


@pytest.mark.contract("W4", "W5")
@pytest.mark.parametrize("fate", ["kill", "lose", "freeze"])
def test_killed_or_frozen_member_loses_no_record(lab, fate):
    filled(lab, 2, *["slow"] * 20)
    handler = Handler(lab, slow=0.2)
    first = Working(lab, handler, commit=OFTEN, settings=quick(session_timeout_ms=6000))
    first.done(4)
    getattr(lab, fate)(first.process)
    before = len(handler.calls)
    second = Working(lab, handler, name="b", commit=OFTEN, settings=quick())
    lab.until(lambda: committed(lab) == [20, 20])
    assert {*times(handler)} == set(itertools.product(range(2), range(20)))
    if fate == "freeze":
        lab.thaw(first.process)
        lab.sleep(3)
        assert committed(lab) == [20, 20]
        assert len(handler.calls) - before < 40 + 8
        first.stop()
    second.stop()
    assert committed(lab) == [20, 20]


@pytest.mark.contract("W4")
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_transaction_markers_do_not_add_to_the_lag(lab, isolation):
    (tp,) = lab.topic("t")
    writer = KafkaProducer(**lab.connection, transactional_id="t")
    writer.init_transactions()
    for values, end in ((3, "commit"), (2, "abort")):
        writer.begin_transaction()
        for number in range(values):
            writer.send("t", b"%d" % number, partition=0)
        writer.flush()
        getattr(writer, f"{end}_transaction")()
    handler = Handler(lab, **{"2": 2.0})
    run = Working(lab, handler, commit=OFTEN, settings=quick(isolation_level=isolation))
    lab.until(lambda: len(handler.calls) == 3)
    lab.sleep(1)
    assert committed(lab) == [2]
    lab.until(lambda: committed(lab) == [7], 30.0)
    lab.sleep(1)
    stats = run.worker.stats()
    assert (stats.lag, stats.commit_lag, stats.dropped) == (0, 0, 0)
    assert stats.done == (3 if isolation == "read_committed" else 5)
    lab.append(tp)
    lab.until(lambda: committed(lab) == [8], 30.0)


@pytest.mark.contract("W4")
@pytest.mark.parametrize("kind", ["worker", "pump"])
def test_marker_at_the_start_of_an_ownership_is_committed(lab, kind):
    """The earlier owner has committed the offset of the marker, and left."""
    (tp,) = filled(lab, 1, *[""] * 5)
    first = Working(lab, Handler(lab))
    first.done(5)
    first.stop()
    put_marker(lab, tp)
    assert committed(lab) == [5]
    if kind == "worker":
        run = Working(lab, Handler(lab), name="b")
        lab.until(lambda: committed(lab) == [6], 30.0)
        lab.until(lambda: run.worker.stats().commit_lag == 0)
        run.stop()
    else:
        with Pump(consumer(lab, "t"), commit=OFTEN):
            lab.until(lambda: committed(lab) == [6], 30.0)


@pytest.mark.contract("W4")
@pytest.mark.parametrize("target", [2, 9])
def test_target_of_a_seek_is_not_committed_before_a_record_is_done(lab, target):
    (tp,) = filled(lab, 1, *["slow"] * 10)
    commit_at(lab, tp, 5)
    reading = consumer(lab)
    reading.assign([tp])
    reading.seek(tp, target)
    run = Working(lab, Handler(lab, slow=5.0), given=reading, commit=OFTEN)
    lab.until(lambda: run.worker.stats().running)
    lab.sleep(2.0)
    assert committed(lab) == [5]
    lab.until(lambda: committed(lab) == [10], 100.0)


class SeeksBack(SafeConsumer):
    """
    A consumer whose first poll with records ends with a seek to the offset 5.

    For a second, a hold keeps the records from the handlers and from the next poll.
    """

    has_sought = False

    def poll(self, *args, **kwargs):
        found = super().poll(*args, **kwargs)
        if found and not self.has_sought:
            self.has_sought = True
            for tp in found:
                self.seek(tp, 5)
                self.pause(tp, owner="ops", for_=1.0)
        return found


@pytest.mark.contract("W4")
def test_seek_back_to_the_committed_offset_commits_only_handled_records(lab):
    """The poll has read from a later offset, which the listener had set."""
    (tp,) = filled(lab, 1, *[""] * 5)
    first = Working(lab, Handler(lab))
    first.done(5)
    first.stop()
    put(lab, tp, *[""] * 10, "slow")
    given = SeeksBack(**lab.settings(group_id=GROUP, **quick()))
    start = Listener(assigned=lambda tps: [given.seek(one, 15) for one in tps])
    given.subscribe(["t"], listener=start)
    handler = Handler(lab, slow=30.0)
    run = Working(lab, handler, given=given, commit=OFTEN)

    def all_but_the_slow_record_are_committed():
        done = {one.offset for one in handler.calls if one.ended is not None}
        assert done >= {*range(5, *committed(lab))}
        return committed(lab) == [15]

    lab.until(all_but_the_slow_record_are_committed)
    run.worker.stop(drain=False)
    run.ends()


@pytest.mark.contract("W4")
def test_records_polled_before_a_pump_are_committed_only_with_a_later_record(lab):
    (tp,) = filled(lab, 1, *[""] * 5)
    commit_at(lab, tp, 0)
    reading = consumer(lab, "t", max_poll_records=2)
    assert reading.poll(5000)
    with Pump(reading, commit=OFTEN) as pump:
        (batch, *_) = taken(lab, pump, 2)
        lab.sleep(2.0)
        assert committed(lab) == [0]
        batch.done()
        lab.until(lambda: committed(lab) == [4])
    reading.close()


# The start offset of each ownership is committed


@pytest.mark.contract("W12")
@in_both_ways
def test_start_offset_of_an_idle_partition_is_committed(lab, protocol):
    one, other, *_ = lab.topic("t", 3)
    put(lab, one, *[""] * 4)
    put(lab, other, *[""] * 2)
    latest = quick(protocol, auto_offset_reset="latest", session_timeout_ms=6000)
    first = Working(lab, Handler(lab), settings=latest)
    lab.until(lambda: committed(lab) == [4, 2, 0])
    started = first.of_kind(events.PartitionStarted)
    found = {(one.partition, one.offset, one.is_committed) for one in started}
    assert found == {("t:0", 4, False), ("t:1", 2, False), ("t:2", 0, False)}
    lab.kill(first.process)
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    handler = Handler(lab)
    second = Working(lab, handler, name="b", settings=latest)
    second.done(6)
    assert [handler.offsets(n) for n in range(3)] == [[4, 5], [2, 3], [0, 1]]
    assert {one.is_committed for one in second.of_kind(events.PartitionStarted)} == {
        True
    }


@pytest.mark.contract("W12")
def test_first_record_whose_failure_stops_the_worker_is_not_skipped(lab):
    filled(lab, 2, "before")
    latest = quick(auto_offset_reset="latest")
    run = Working(lab, Handler(lab, bad=ValueError), retry=ONCE, settings=latest)
    lab.until(lambda: None not in committed(lab))
    for tp in lab.partitions("t"):
        put(lab, tp, "bad", "", "")
    assert isinstance(run.ends(), RecordFailedError)
    handler = Handler(lab)
    again = Working(lab, handler, name="b", settings=latest)
    again.done(6)
    again.stop()
    assert [handler.offsets(n) for n in (0, 1)] == [[1, 2, 3]] * 2


@pytest.mark.contract("W12")
@in_both_ways
def test_joining_member_skips_no_record(lab, protocol):
    filled(lab, 4, "before")
    latest = quick(protocol, auto_offset_reset="latest")
    handler = Handler(lab, waits=lambda *_: RetryLater(0.5) if lab.now < 3 else None)
    first = Working(lab, handler, settings=latest)
    lab.until(lambda: None not in committed(lab))
    early, late = lab.partitions("t")[1:3], lab.partitions("t")[::3]
    for tp in early:
        put(lab, tp, "waits", *[""] * 8)
    lab.until(lambda: first.worker.stats().retries)
    second = Working(lab, handler, name="b", settings=latest)
    for tp in late:
        put(lab, tp, *[""] * 9)
    settled(lab, first, second)
    lab.until(lambda: committed(lab) == [10] * 4)
    first.stop()
    second.stop()
    for number in range(4):
        assert {*handler.offsets(number)} == {*range(1, 10)}


@pytest.mark.contract("W12")
@pytest.mark.parametrize("by", ["topic", "pattern"])
def test_added_partition_is_read_from_its_start(lab, by):
    (first,) = lab.topic("t", 1, records=1)
    reading = consumer(lab, auto_offset_reset="latest", metadata_max_age_ms=5_000)
    reading.subscribe(**({"pattern": "^t$"} if by == "pattern" else {"topics": ["t"]}))
    handler = Handler(lab)
    run = Working(lab, handler, given=reading)
    lab.until(lambda: committed(lab) == [1])
    lab.cluster.add_partitions("t", 3)
    put(lab, first, "old")
    for tp in lab.partitions("t")[1:]:
        put(lab, tp, "a", "b", "c")
    run.done(7)
    run.stop()
    assert committed(lab) == [2, 3, 3]
    assert [handler.offsets(n) for n in range(3)] == [[1], [0, 1, 2], [0, 1, 2]]


@pytest.mark.contract("W12")
def test_floor_out_of_range_is_committed_again(lab):
    (tp,) = lab.topic("t", 1, records=3)
    commit_at(lab, tp, 1000)
    floors = []
    handler = Handler(lab, waits=lambda *_: floors.append(lab.committed(tp)))
    latest = quick(auto_offset_reset="latest")
    run = Working(lab, handler, settings=latest, commit=RARELY)
    lab.until(lambda: lab.committed(tp) == 3)
    put(lab, tp, "waits", "")
    run.done(2)
    last = run.of_kind(events.PartitionStarted)[-1]
    assert (last.offset, last.is_committed, last.is_reset) == (3, False, True)
    run.stop()
    assert (floors, committed(lab)) == ([3], [5])


@pytest.mark.contract("W12")
def test_unread_records_that_are_deleted_lead_to_a_new_floor(lab):
    (tp,) = filled(lab, 1, "slow", "")
    run = Working(lab, Handler(lab, slow=4), settings=quick(), commit=OFTEN)
    lab.until(lambda: run.worker.stats().running)
    stuck = lab.cluster.fail("Fetch", error=NOT_LEADER_OR_FOLLOWER)
    lab.sleep(1)  # the fetch that waits at the broker ends without a record
    put(lab, tp, *[""] * 8)
    lab.cluster.delete_before("t", 0, 7)
    stuck.end()
    lab.sleep(1)
    assert committed(lab) == [0]
    lab.until(lambda: lab.committed(tp) == 10)
    assert run.worker.stats().gone == 5
    report = run.stop()
    assert (report.committed, report.done, report.gone) == (True, 5, 5)


def worker_at_offset_5(lab, **does):
    """Start at offset 5 of 10 records; the last two are in a separate batch."""
    (tp,) = filled(lab, 1, *[""] * 5)
    put(lab, tp, "slow", "", "")
    put(lab, tp, "", "")
    commit_at(lab, tp, 5)
    handler = Handler(lab, **does)
    latest = quick(auto_offset_reset="latest")
    return handler, Working(lab, handler, settings=latest, commit=OFTEN)


def elect_without_the_last_two(lab):
    """Elect a leader that never had the last two records."""
    log = lab.cluster.log("t", 0)
    log.batches = log.batches[:-1]
    log.end = 8
    lab.cluster.fetches.answer_waiting()


@pytest.mark.contract("W4", "W12")
@pytest.mark.parametrize("start", [0, 7])
def test_rest_of_a_truncated_log_is_handled(lab, start):
    handler, run = worker_at_offset_5(lab, slow=4)
    lab.until(lambda: run.worker.stats().running)
    elect_without_the_last_two(lab)
    lab.cluster.delete_before("t", 0, start)
    lab.until(lambda: committed(lab) == [8])
    put(lab, *lab.partitions("t"), "")
    lab.until(lambda: committed(lab) == [9])
    first = max(5, start)
    assert {*handler.offsets(0)} - {5} == {*range(first, 9)} - {5}
    assert (handler.offsets(0)[0], run.worker.stats().gone) == (5, first - 5)
    begun = [one.offset for one in run.of_kind(events.PartitionStarted)]
    assert min(begun) == 5


@pytest.mark.contract("W12")
def test_idle_worker_continues_at_the_end_of_a_truncated_log(lab):
    handler, _ = worker_at_offset_5(lab)
    lab.until(lambda: committed(lab) == [10])
    elect_without_the_last_two(lab)
    lab.until(lambda: committed(lab) == [8])
    put(lab, *lab.partitions("t"), "")
    lab.until(lambda: committed(lab) == [9])
    assert handler.offsets(0) == [5, 6, 7, 8, 9, 8]


@pytest.mark.contract("W12", "P16")
def test_worker_starts_at_the_first_record_after_a_deleted_floor(lab):
    (tp,) = lab.topic("t", 1, records=10)
    commit_at(lab, tp, 1)
    lab.cluster.delete_before("t", 0, 7)
    handler = Handler(lab)
    run = Working(
        lab, handler, settings=quick(auto_offset_reset="latest"), commit=OFTEN
    )
    run.done(3)
    assert handler.offsets(0) == [7, 8, 9]
    report = run.stop()
    assert (report.done, report.gone, committed(lab)) == (3, 6, [10])


@pytest.mark.contract("W12", "W9")
@pytest.mark.parametrize("kind", ["worker", "pump"])
def test_no_record_is_handed_out_before_its_floor_is_committed(lab, kind):
    lab.topic("t", 2, records=5)
    refuses = lab.cluster.fail("OffsetCommit", error=UNAVAILABLE)
    if kind == "pump":
        reading = consumer(lab, "t")
        with Pump(reading) as pump:
            end = lab.now + 3
            while lab.now < end:
                assert pump.turn() == []
            assert {hold.owner for hold in reading.holds()} == {"worker:floor"}
            refuses.end()
            lab.until(lambda: committed(lab) == [0, 0])
            lab.until(pump.turn)[0].done()
        return
    handler = Handler(lab)
    run = Working(lab, handler, limits=Limits(age=2.0))
    lab.sleep(4)
    assert handler.calls == []
    assert {hold.owner for hold in run.consumer.holds()} == {"worker:floor"}
    assert "worker:floor" in run.worker.stats().paused
    assert run.worker.stats().commits_failed > 1
    assert run.worker.stats().commits_failing > 2
    health = run.worker.healthy()
    assert health.is_alive
    assert health.reasons[0].startswith("no commit has succeeded for ")
    assert run.of_kind(events.CommitRejected)
    refuses.end()
    run.done(10)
    assert run.worker.healthy()


@pytest.mark.contract("W12")
def test_committed_floor_is_not_committed_again(lab):
    lab.topic("t", 1, records=3)
    for name, commits in (("a", 2), ("b", 1)):
        run = Working(lab, Handler(lab), name=name, commit=RARELY)
        run.done(3)
        run.stop()
        assert run.worker.stats().commits == commits
        lab.append(lab.partitions("t")[0], 3)
    assert committed(lab) == [6]


def test_existing_partition_is_read_from_its_end_under_latest(lab):
    for name in ("t", "u"):
        lab.topic(name, 2, records=1)
    reading = consumer(lab, "t", auto_offset_reset="latest")
    reading.poll(0)
    reading.subscribe(["t", "u"])
    handler = Handler(lab)
    run = Working(lab, handler, given=reading)
    lab.until(lambda: committed(lab, "t") == committed(lab, "u") == [1, 1])
    for tp in lab.partitions("u"):
        put(lab, tp, "after")
    run.done(2)
    run.stop()
    assert {one.value for one in handler.calls} == {b"after"}


def test_idle_worker_is_healthy_and_a_worker_without_topics_is_not(lab):
    lab.topic("t")
    runs = [Working(lab, Handler(lab), name=name, settings=quick()) for name in "ab"]
    lab.until(lambda: sorted(len(one.consumer.assignment()) for one in runs) == [0, 1])
    lab.sleep(3)
    assert [bool(one.worker.healthy()) for one in runs] == [True, True]
    assert not any(one.of_kind(events.NothingConsumed) for one in runs)
    alone = Working(lab, Handler(lab), name="c", given=consumer(lab))
    lab.until(lambda: alone.of_kind(events.NothingConsumed))
    health = alone.worker.healthy()
    assert health.is_alive
    assert "no topic is subscribed to" in health.reasons[0]


# A handler is notified that its partition is being revoked


@simulated(seeds=1, nightly=3)
def test_coroutine_can_await_the_revocation(lab):
    filled(lab, 2, *["v"] * 3)
    woken = []

    async def wait(record, context):
        await asyncio.wait_for(context.revoked, 500)
        assert context.revoked.is_set()
        woken.append((record.partition, record.offset))

    run = Working(
        lab,
        wait,
        executor="asyncio",
        order="unordered",
        concurrency=6,
        drain=Drain(revoke=0.5, shutdown=1.0),
    )
    lab.until(lambda: run.worker.stats().running == 6)
    assert not woken
    expel(lab)
    lab.until(lambda: len(woken) >= 6)
    assert len(set(woken)) == 6
    run.stop()


def test_cancelled_wait_for_the_revocation_leaves_no_waiter(lab):
    filled(lab, 1, "v")
    found = []

    async def wait(_record, context):
        if not found:
            found.append(context.revoked)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(context.revoked, 1)
            assert not context.revoked._waiting
            await context.revoked
            await context.revoked  # the event is set by now
            assert not context.revoked._waiting
            found.append("woken")

    run = Working(lab, wait, executor="asyncio")
    lab.sleep(5)
    expel(lab)
    lab.until(lambda: len(found) == 2)
    run.done(1)
    run.stop()


def test_thread_can_wait_for_the_revocation(lab):
    filled(lab, 1, "v")
    results = []

    def wait(_record, context):
        if not results:
            results.append(context.revoked.wait(1.0))
            results.append(context.revoked.wait(100.0))
        return 0.0

    run = Working(lab, Handler(lab, v=wait))
    lab.sleep(5)
    expel(lab)
    run.done(1)
    assert results == [False, True]
