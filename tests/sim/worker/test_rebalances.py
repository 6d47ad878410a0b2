"""W4, W6, W12: the group changes under workers; nothing is lost, or passed over, or stuck."""

import itertools

import pytest
from kafka import KafkaProducer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

from safeconsumer import Commit, Drain, Limits, Pump, Retry, RetryLater, events
from safeconsumer.errors import RecordFailedError
from tests.sim.playing import simulated
from tests.sim.test_asked_positions import NOT_LEADER_OR_FOLLOWER
from tests.sim.worker.working import (
    UNAVAILABLE,
    Handler,
    Working,
    committed,
    consumer,
    expel,
    filled,
    put,
)

ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
in_both_ways = pytest.mark.parametrize("protocol", list(ASSIGNORS))
ONCE = Retry(attempts=1)
OFTEN = Commit(every=0.2)


def how(protocol="eager", **more):
    """Return a consumer's settings: it hears of a rebalance soon."""
    strategy = {"partition_assignment_strategy": [ASSIGNORS[protocol]]}
    return {**strategy, "heartbeat_interval_ms": 200, "max_poll_records": 10, **more}


def settled(lab, *runs):
    """Wait until the workers share all partitions of the topic."""
    total = len(lab.partitions("t"))

    def is_so():
        owned = [run.consumer.assignment() for run in runs]
        return all(owned) and sum(map(len, owned)) == total == len(set().union(*owned))

    lab.until(is_so, what="they share the topic")


def times(handler):
    """Count the calls that ended, for each record."""
    found = {}
    for one in handler.calls:
        if one.ended is not None:
            place = (one.partition, one.offset)
            found[place] = found.get(place, 0) + 1
    return found


@pytest.mark.contract("W4", "W6", "W9")
@in_both_ways
@simulated(seeds=1)
def test_members_come_and_go_while_one_is_full(lab, protocol):
    """W6: nothing leaked, lost or stuck; repeated only what ran at a revocation."""
    filled(lab, 4, *["slow"] * 60)
    handler = Handler(lab, slow=0.1)
    options = {
        "settings": how(protocol),
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
    assert sum(seen.values()) - 240 <= 4 * 4  # concurrency, at each revocation
    assert lab.running() == []


@pytest.mark.contract("W6")
@simulated(seeds=1)
def test_an_eager_join_waits_for_running_handlers(lab):
    """W6: with handlers quicker than the drain nothing is done twice."""
    filled(lab, 4, *["slow"] * 20)
    handler = Handler(lab, slow=0.5)
    first = Working(lab, handler, settings=how())
    first.done(8)
    second = Working(lab, handler, name="b", settings=how())
    lab.until(lambda: committed(lab) == [20] * 4)
    assert first.stop().done + second.stop().done == 80
    assert set(times(handler).values()) == {1}
    drained = [
        one for one in first.told(events.WorkDrained) if one.reason == "rebalance"
    ]
    assert drained
    assert all(one.running == 0 and one.seconds < 1 for one in drained)


@pytest.mark.contract("W6")
@simulated(seeds=1)
def test_a_drain_ends_at_its_deadline(lab):
    """W6: the join is not kept waiting by a handler that hangs; what it does comes again."""
    one, other = lab.topic("t", 2)
    put(lab, one, "hangs", *[""] * 4)
    put(lab, other, *[""] * 5)
    hangs = [8.0]
    handler = Handler(lab, hangs=lambda *_: hangs.pop() if hangs else None)
    first = Working(lab, handler, settings=how(), drain=Drain(revoke=2.0, shutdown=1.0))
    first.done(5)
    second = Working(lab, handler, name="b", settings=how())
    at = lab.now
    settled(lab, first, second)
    assert 2.0 <= lab.now - at < 3.0
    (drained,) = first.told(events.WorkDrained)
    assert (drained.running, drained.reason) == (1, "rebalance")
    lab.until(lambda: committed(lab) == [5, 5])
    first.stop()
    second.stop()


@pytest.mark.contract("W6")
@simulated(seeds=1)
def test_a_drain_that_ends_with_the_membership_is_reported(lab):
    """W6: as any other one, with its seconds."""
    filled(lab, 2, "slow", "")
    drain = Drain(revoke=30.0)
    run = Working(lab, Handler(lab, slow=60), settings=how(), drain=drain)
    lab.until(lambda: run.worker.stats().running == 2)
    Working(lab, Handler(lab), name="b", settings=how())
    lab.until(lambda: run.worker._engine.departures.deadline)
    lab.sleep(2)
    expel(lab)
    (drained,) = lab.until(lambda: run.told(events.WorkDrained))
    assert (drained.running, drained.reason) == (2, "rebalance")
    assert drained.seconds >= 2
    run.worker.stop(drain=False)


@pytest.mark.contract("W2", "W6")
@simulated(seeds=1)
def test_a_worker_goes_on_after_a_drain_that_lost_its_membership(lab):
    """W2: what the drain had stopped begins again with the next assignment."""
    first, second = filled(lab, 2, "slow", "", "", "")
    drain = Drain(revoke=30.0)
    run = Working(lab, Handler(lab, slow=20), settings=how(), drain=drain)
    lab.until(lambda: run.worker.stats().running == 2)
    other = Working(lab, Handler(lab), name="b", settings=how())
    lab.until(lambda: run.worker._engine.departures.deadline)
    expel(lab)
    lab.until(lambda: run.worker._engine.departures.deadline is None)
    other.stop()
    for tp in (first, second):
        put(lab, tp, *["x"] * 3)
    lab.until(lambda: committed(lab) == [7, 7])
    run.stop()


@pytest.mark.contract("W6")
@simulated(seeds=1)
def test_a_cooperative_revocation_waits_a_second(lab):
    """W6: the group has assigned already; who gets the partition does not wait longer."""
    filled(lab, 2, "slow", "", "")
    run = Working(
        lab,
        Handler(lab, slow=60),
        settings=how("cooperative"),
        drain=Drain(revoke=30.0),
    )
    lab.until(lambda: run.worker.stats().running == 2)
    other = Working(lab, Handler(lab), name="b", settings=how("cooperative"))
    (drained,) = lab.until(lambda: run.told(events.WorkDrained))
    assert (drained.reason, drained.seconds < 2) == ("revoked", True)
    for one in (run, other):
        one.worker.stop(drain=False)


@pytest.mark.contract("W6")
@simulated(seeds=1)
def test_a_join_that_is_wanted_no_more_ends_the_drain(lab):
    """W6: work goes on if what asked for a join, as metadata that flicker, is over."""
    filled(lab, 1, "slow", *[""] * 5)
    run = Working(lab, Handler(lab, slow=5), settings=how())
    lab.until(lambda: run.worker.stats().running)
    coordinator = run.consumer._coordinator
    coordinator.request_rejoin()
    lab.until(lambda: run.worker._engine.departures.deadline)
    coordinator.rejoin_needed = False
    generation = lab.generation()
    run.done(6)
    assert (lab.generation(), run.consumer.holds()) == (generation, ())
    run.stop()


@pytest.mark.contract("W4")
@pytest.mark.parametrize("goes_on", [False, True])
@simulated(seeds=1)
def test_what_left_without_its_commit_is_not_committed(lab, *, goes_on):
    """W4: the commit at the rebalance was refused; the next that succeeds is the last."""
    (tp,) = filled(lab, 1, "")
    run = Working(lab, Handler(lab), settings=how(), commit=Commit(every=60.0))
    run.done(1)
    refused = lab.cluster.fail("OffsetCommit", error=UNAVAILABLE, origin="w")
    second = Working(lab, Handler(lab), name="b", settings=how())
    second.owns(1)
    refused.end()
    if goes_on:
        second.stop()
        run.owns(1)
        put(lab, tp, "")
        run.done(2)
    assert run.stop().committed is goes_on


@pytest.mark.contract("W4", "W6")
@pytest.mark.parametrize("order", ["partition", "unordered"])
@simulated(seeds=1)
def test_what_is_done_after_a_loss_is_not_committed(lab, order):
    """W6: dropped without a commit; it is handled again by whoever owns it next."""
    filled(lab, 2, *["slow"] * 10)
    handler = Handler(lab, slow=lambda *_: 5.0 if lab.now < 4 else 0.0)
    run = Working(lab, handler, order=order, commit=OFTEN, settings=how())
    lab.until(lambda: handler.calls)
    expel(lab)
    lab.until(lambda: run.told(events.WorkDropped))
    (dropped,) = {one.reason for one in run.told(events.WorkDropped)}
    assert dropped == "lost"
    lab.sleep(2)
    assert committed(lab) == [0, 0]
    lab.until(lambda: committed(lab) == [10, 10])
    run.stop()
    assert {*times(handler)} == set(itertools.product(range(2), range(10)))


@pytest.mark.contract("W4", "W5")
@pytest.mark.parametrize("fate", ["kill", "lose", "freeze"])
@simulated(seeds=1)
def test_a_member_that_dies_or_stands_still_loses_nothing(lab, fate):
    """W4, W5: kill -9, a machine's end, SIGSTOP: the next does the rest, and keeps it."""
    filled(lab, 2, *["slow"] * 20)
    handler = Handler(lab, slow=0.2)
    first = Working(lab, handler, commit=OFTEN, settings=how(session_timeout_ms=6000))
    first.done(4)
    getattr(lab, fate)(first.process)
    before = len(handler.calls)
    second = Working(lab, handler, name="b", commit=OFTEN, settings=how())
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
@simulated(seeds=1)
def test_marks_of_transactions_are_no_lag(lab, isolation):
    """W4: they are passed once what stands before them is done, and never earlier."""
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
    run = Working(lab, handler, commit=OFTEN, settings=how(isolation_level=isolation))
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
    run.stop()


# An ownership always has a committed floor


@pytest.mark.contract("W12")
@in_both_ways
@simulated(seeds=1)
def test_an_idle_ownership_is_committed(lab, protocol):
    """W12: before any record has come, so that even a kill passes nothing over."""
    one, other, *_ = lab.topic("t", 3)
    put(lab, one, *[""] * 4)
    put(lab, other, *[""] * 2)
    latest = how(protocol, auto_offset_reset="latest", session_timeout_ms=6000)
    first = Working(lab, Handler(lab), settings=latest)
    lab.until(lambda: committed(lab) == [4, 2, 0])
    started = first.told(events.PartitionStarted)
    found = {(one.partition, one.offset, one.is_committed) for one in started}
    assert found == {("t:0", 4, False), ("t:1", 2, False), ("t:2", 0, False)}
    lab.kill(first.process)
    for tp in lab.partitions("t"):
        put(lab, tp, "", "")
    handler = Handler(lab)
    second = Working(lab, handler, name="b", settings=latest)
    second.done(6)
    assert [handler.offsets(n) for n in range(3)] == [[4, 5], [2, 3], [0, 1]]
    assert {one.is_committed for one in second.told(events.PartitionStarted)} == {True}
    second.stop()


@pytest.mark.contract("W12")
@simulated(seeds=1)
def test_a_first_record_that_stops_the_worker_is_not_passed_over(lab):
    """W12: the next worker gets it, and what came with it."""
    filled(lab, 2, "before")
    latest = how(auto_offset_reset="latest")
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
@simulated(seeds=1)
def test_nothing_is_passed_over_when_a_member_joins(lab, protocol):
    """W12: of what was queued, and of partitions whose first record comes meanwhile."""
    filled(lab, 4, "before")
    latest = how(protocol, auto_offset_reset="latest")
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
@simulated(seeds=1)
def test_an_added_partition_begins_at_its_start(lab, by):
    """W12: ``latest`` passes over nothing that was written before a worker noticed it."""
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
@simulated(seeds=1)
def test_a_floor_that_is_out_of_range_is_none(lab):
    """W12: what the position was reset to is committed before a handler begins."""
    (tp,) = lab.topic("t", 1, records=3)
    asking = consumer(lab)
    asking.assign([tp])
    asking.commit({tp: OffsetAndMetadata(1000, "", -1)})
    asking.close(autocommit=False)
    floors = []
    handler = Handler(lab, waits=lambda *_: floors.append(lab.committed(tp)))
    latest = how(auto_offset_reset="latest")
    run = Working(lab, handler, settings=latest, commit=Commit(every=60.0))
    lab.until(lambda: lab.committed(tp) == 3)
    put(lab, tp, "waits", "")
    run.done(2)
    last = run.told(events.PartitionStarted)[-1]
    assert (last.offset, last.is_committed, last.is_reset) == (3, False, True)
    run.stop()
    assert (floors, committed(lab)) == ([3], [5])


@pytest.mark.contract("W12")
@simulated(seeds=1)
def test_what_was_deleted_before_it_was_read_makes_a_new_floor(lab):
    """W4, W12: what came before is done first; then it begins at what is left."""
    (tp,) = filled(lab, 1, "slow", "")
    run = Working(lab, Handler(lab, slow=4), settings=how(), commit=OFTEN)
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


def cut_back(lab, **does):
    """Start at 5 of 10 records; the last two are in a batch of their own."""
    (tp,) = filled(lab, 1, *[""] * 5)
    put(lab, tp, "slow", "", "")
    put(lab, tp, "", "")
    asking = consumer(lab)
    asking.assign([tp])
    asking.commit({tp: OffsetAndMetadata(5, "", -1)})
    asking.close(autocommit=False)
    handler = Handler(lab, **does)
    latest = how(auto_offset_reset="latest")
    return handler, Working(lab, handler, settings=latest, commit=OFTEN)


def elect_without_the_last_two(lab):
    """As an unclean election does: the broker that leads now never had them."""
    log = lab.cluster.log("t", 0)
    log.batches = log.batches[:-1]
    log._end = 8
    lab.cluster.fetches.look_again()


@pytest.mark.contract("W4", "W12")
@pytest.mark.parametrize("start", [0, 7])
@simulated(seeds=1)
def test_of_a_log_that_was_cut_back_what_is_left_is_done(lab, start):
    """W4, W12: the reset is behind records that wait; those that are there come again."""
    handler, run = cut_back(lab, slow=4)
    lab.until(lambda: run.worker.stats().running)
    elect_without_the_last_two(lab)
    lab.cluster.delete_before("t", 0, start)
    lab.until(lambda: committed(lab) == [8])
    put(lab, *lab.partitions("t"), "")
    lab.until(lambda: committed(lab) == [9])
    first = max(5, start)
    assert {*handler.offsets(0)} - {5} == {*range(first, 9)} - {5}
    assert (handler.offsets(0)[0], run.worker.stats().gone) == (5, first - 5)
    begun = [one.offset for one in run.told(events.PartitionStarted)]
    assert min(begun) == 5
    run.stop()


@pytest.mark.contract("W12")
@simulated(seeds=1)
def test_where_all_was_done_a_log_that_was_cut_back_begins_at_its_end(lab):
    """W12: nothing comes again, and what is written from there on is not passed over."""
    handler, run = cut_back(lab)
    lab.until(lambda: committed(lab) == [10])
    elect_without_the_last_two(lab)
    lab.until(lambda: committed(lab) == [8])
    put(lab, *lab.partitions("t"), "")
    lab.until(lambda: committed(lab) == [9])
    assert handler.offsets(0) == [5, 6, 7, 8, 9, 8]
    run.stop()


@pytest.mark.contract("W12", "P16")
@simulated(seeds=1)
def test_a_floor_that_was_deleted_passes_over_nothing(lab):
    """W12, P16: under ``latest`` too it goes on at what is left, held or not; counted."""
    (tp,) = lab.topic("t", 1, records=10)
    asking = consumer(lab)
    asking.assign([tp])
    asking.commit({tp: OffsetAndMetadata(1, "", -1)})
    asking.close(autocommit=False)
    lab.cluster.delete_before("t", 0, 7)
    handler = Handler(lab)
    run = Working(lab, handler, settings=how(auto_offset_reset="latest"), commit=OFTEN)
    run.done(3)
    assert handler.offsets(0) == [7, 8, 9]
    report = run.stop()
    assert (report.done, report.gone, committed(lab)) == (3, 6, [10])


@pytest.mark.contract("W12", "W9")
@pytest.mark.parametrize("kind", ["worker", "pump"])
@simulated(seeds=1)
def test_nothing_is_handed_out_before_its_floor_is_acknowledged(lab, kind):
    """W12: while the broker refuses, it is held, visibly, and not well; then all comes."""
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
    run = Working(lab, handler, commit=Commit(timeout=0.5), limits=Limits(age=2.0))
    lab.sleep(4)
    assert handler.calls == []
    assert {hold.owner for hold in run.consumer.holds()} == {"worker:floor"}
    assert "worker:floor" in run.worker.stats().paused
    assert run.worker.stats().commits_failed > 1
    assert run.worker.stats().commits_failing > 2
    health = run.worker.healthy()
    assert health.is_alive
    assert health.reasons[0].startswith("no commit has succeeded for ")
    assert run.told(events.CommitRejected)
    refuses.end()
    run.done(10)
    assert run.worker.healthy()
    run.stop()


@pytest.mark.contract("W12")
@simulated(seeds=1)
def test_a_floor_that_is_there_is_not_committed_again(lab):
    """One commit in a life in which the first member committed everything."""
    lab.topic("t", 1, records=3)
    for name, commits in (("a", 2), ("b", 1)):
        run = Working(lab, Handler(lab), name=name, commit=Commit(every=60.0))
        run.done(3)
        run.stop()
        assert run.worker.stats().commits == commits
        lab.append(lab.partitions("t")[0], 3)
    assert committed(lab) == [6]


@simulated(seeds=1)
def test_a_partition_that_was_there_begins_at_its_end(lab):
    """As ``latest`` says: of a group's first worker, and with a topic subscribed to later."""
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


@simulated(seeds=1)
def test_an_idle_worker_is_well_and_one_without_topics_is_not(lab):
    """One with a partition, one that is a member without any; and one to which none is."""
    lab.topic("t")
    runs = [Working(lab, Handler(lab), name=name, settings=how()) for name in "ab"]
    lab.until(lambda: sorted(len(one.consumer.assignment()) for one in runs) == [0, 1])
    lab.sleep(3)
    assert [bool(one.worker.healthy()) for one in runs] == [True, True]
    assert not any(one.told(events.NothingConsumed) for one in runs)
    alone = Working(lab, Handler(lab), name="c", given=consumer(lab))
    lab.until(lambda: alone.told(events.NothingConsumed))
    health = alone.worker.healthy()
    assert health.is_alive
    assert "no topic is subscribed to" in health.reasons[0]
