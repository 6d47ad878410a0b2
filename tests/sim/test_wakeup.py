"""``wakeup()`` ends a poll that is waiting, and no other call (P19)."""

import threading

import pytest

from safeconsumer import SafeConsumer
from tests.harness.signals import handled_by, send
from tests.sim.meddling import trace
from tests.sim.playing import simulated
from tests.sim.reading import (
    AN_HOUR,
    Listener,
    Reader,
    both_protocols,
    both_ways,
    in_flight,
    parked,
)

pytestmark = pytest.mark.contract("P19")


def polling(reader, seconds=AN_HOUR):
    thread = threading.Thread(target=reader.poll, args=(seconds, 1))
    thread.start()
    return thread


def wakes(lab, waiting, reader):
    """Wake a poll, and assert that the poll ends immediately."""
    assert waiting.is_alive()
    began = lab.now
    reader.consumer.wakeup()
    waiting.join()
    assert lab.now - began < 0.05


@both_ways
@in_flight
@simulated(seeds=1, nightly=10)
def test_wakeup_ends_a_poll_that_waits_for_records(lab, how, *, in_flight):
    """P19: another thread wakes the poll; the next poll waits again and loses no record."""
    reader = parked(lab, in_flight=in_flight, how=how)
    (p0, *_) = lab.partitions("t")
    for _ in range(3):
        waiting = polling(reader)
        lab.sleep(lab.rng.random() * 5)
        wakes(lab, waiting, reader)
        assert reader.offsets(p0) == [0]
    reader.consumer.resume(p0)
    reader.reads(p0, range(1, 10))


@in_flight
@simulated(seeds=1, nightly=50)
def test_wakeup_at_any_time_during_a_poll_is_not_missed(lab, *, in_flight):
    """P19: the times are random; if the poll has ended, the next poll is woken."""
    reader = parked(lab, in_flight=in_flight)
    for _ in range(9):
        waiting = polling(reader)
        lab.sleep(lab.rng.choice([0, 1e-6, 1e-4, 2e-4, 5e-4, 1e-3]))
        began = lab.now
        reader.consumer.wakeup()
        waiting.join()
        assert lab.now - began < 0.1


@both_ways
def test_wakeup_between_polls_ends_the_next_poll(lab, how):
    (tp,) = lab.topic("t", records=3)
    reader = Reader(lab, SafeConsumer, tps=[tp], how=how)
    reader.take(1)
    reader.consumer.wakeup()
    reader.consumer.wakeup()
    assert len(reader.poll(AN_HOUR)) == 2
    began = lab.now
    reader.poll(5)
    assert 5 <= lab.now - began < 5.1
    lab.append(tp, 1)
    reader.reads(tp, [3])


@pytest.mark.parametrize("is_traced", [False, True])
def test_wakeup_at_the_time_limit_of_an_iteration_stops_only_that_iteration(
    lab, monkeypatch, *, is_traced
):
    """P19: the next iteration waits for its full time."""
    if is_traced:
        trace(monkeypatch)
    (tp,) = lab.topic("t", records=1)
    reader = Reader(lab, SafeConsumer, tps=[tp], how="iterate")
    reader.take(1)
    fetcher = reader.consumer._fetcher
    fetch_records = fetcher.fetch_records

    def late(*given, **more):
        found = fetch_records(*given, **more)
        if lab.now >= end:
            fetcher.fetch_records = fetch_records
            reader.consumer.wakeup()
        return found

    fetcher.fetch_records, end = late, lab.now + 1
    assert reader.poll(1) == []
    assert fetcher.fetch_records == fetch_records
    began = lab.now
    assert reader.poll(2) == []
    assert lab.now - began >= 2


@both_ways
def test_wakeup_in_a_signal_handler_ends_the_poll(lab, how):
    """P19: ``wakeup`` takes no lock, and is called while the poll uses the ledger."""
    reader = parked(lab, in_flight=True, how=how)
    ledger = reader.consumer._safe_ledger
    begin_call = ledger.begin_call

    def begun():
        send()
        return begin_call()

    ledger.begin_call = begun
    began = lab.now
    with handled_by(lambda *_: reader.consumer.wakeup()):
        assert reader.poll(AN_HOUR) == []
    assert lab.now - began < 0.1


@pytest.mark.contract("P19", "P11")
@both_protocols
@pytest.mark.parametrize(
    "api", ["JoinGroup", "SyncGroup", "OffsetFetch", "FindCoordinator"]
)
@simulated(seeds=1, nightly=5)
def test_wakeup_ends_a_poll_that_waits_for_its_group(lab, api, assignor):
    """P19: the request continues, and later polls use its response without a new request."""
    tps = lab.topic("t", 2, records=3)
    assigned = []
    listener = Listener(assigned.append)
    reader = Reader(lab, SafeConsumer, assignor=assignor)
    reader.consumer.subscribe(["t"], listener=listener)
    late = lab.cluster.fail(api, is_held=True)
    waiting = polling(reader)
    lab.until(lambda: late.kept)
    lab.sleep(1)
    wakes(lab, waiting, reader)
    for _ in range(3):
        waiting = polling(reader)
        lab.sleep(0.5)
        wakes(lab, waiting, reader)
    late.end()
    lab.sleep(1)
    if api != "OffsetFetch":
        assert assigned == []  # only a poll applies a join
    for tp in tps:
        reader.until(lambda tp=tp: reader.offsets(tp) == [0, 1, 2])
    assert lab.kinds().count("JoinGroup") < 4
    assert [one for one in assigned if one] == [set(tps)]


def test_wakeup_does_not_interrupt_a_listener(lab):
    tps = lab.topic("t", 2, records=3)
    done = []

    def assigned(_):
        reader.consumer.wakeup()
        lab.sleep(3)
        done.append(lab.now)

    reader = Reader(lab, SafeConsumer)
    reader.consumer.subscribe(["t"], listener=Listener(assigned))
    reader.poll(AN_HOUR)
    assert lab.now - done[0] < 0.1
    for tp in tps:
        reader.until(lambda tp=tp: reader.offsets(tp) == [0, 1, 2])


def _commit(consumer, _):
    consumer.commit()


def _position(consumer, tp):
    assert consumer.position(tp) == 0


@pytest.mark.parametrize(
    ("api", "call"),
    [("OffsetCommit", _commit), ("OffsetFetch", _position), ("ListOffsets", _position)],
)
def test_wakeup_does_not_end_any_other_call(lab, api, call):
    (tp,) = lab.topic("t", records=3)
    consumer = SafeConsumer(**lab.settings(group_id="g"))
    consumer.assign([tp])
    if call is _commit:
        consumer.seek(tp, 1)
    late = lab.cluster.fail(api, is_held=True)
    waiting = threading.Thread(target=call, args=(consumer, tp))
    waiting.start()
    lab.until(lambda: late.kept)
    consumer.wakeup()
    lab.sleep(1)
    assert waiting.is_alive()
    late.end()
    waiting.join()
    began = lab.now
    consumer.poll(AN_HOUR * 1000)
    assert lab.now - began < 0.1
    consumer.close()


@both_protocols
@simulated(seeds=1, nightly=10)
def test_program_that_is_woken_before_each_poll_joins_and_reads(lab, assignor):
    """Requests outlast their polls, and another member is not delayed."""
    tps = lab.topic("t", 2, records=10)
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor)

    def read():
        reader.consumer.wakeup()
        reader.poll(1)
        lab.sleep(0.1)
        return len(reader.log) >= 20

    lab.until(read, 60, "its records")
    settings = {"poll_ms": 100, "assignor": assignor}
    other = lab.member(SafeConsumer, "t", name="b", **settings)
    lab.until(
        lambda: read() and len(other.consumer.assignment()) == 1, 60, "a rebalance"
    )
    for tp in tps:
        lab.append(tp, 10, first=10)

    def all_is_read():
        came = {(one.partition, one.offset) for one in [*reader.log, *other.records]}
        return read() and len(came) == 40

    lab.until(all_is_read, 60, "all records")
    other.stop()


@pytest.mark.parametrize("is_woken", [True, False])
@both_protocols
def test_join_waits_for_the_commit_before_it(lab, assignor, is_woken):
    """The broker refuses the commit while it loads its groups; no record is read twice."""
    lab.topic("t", 2, records=30)
    by_itself = {"enable_auto_commit": True, "auto_commit_interval_ms": 10**8}
    reader = Reader(lab, SafeConsumer, "t", assignor=assignor, **by_itself)
    reader.until(lambda: len(reader.log) == 60)
    settings = {"poll_ms": 100, "assignor": assignor}
    other = lab.member(SafeConsumer, "t", name="b", **settings)
    loading = lab.cluster.fail("OffsetCommit", error=14)
    lab.world.call_later(3.3, loading.end)
    lab.sleep(3)
    if is_woken:
        reader.consumer.wakeup()
    reader.poll(5)
    reader.until(lambda: len(other.consumer.assignment()) == 1)
    lab.sleep(5)
    assert other.records == []
    other.stop()
