"""Fetched records are kept for a resume, bounded, and purged with their ownership."""

import threading

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import FetchesPurged, ParkedDataDropped
from tests.sim.meddling import Meddled, both_decoders
from tests.sim.playing import simulated
from tests.sim.reading import Reader, Watching, both_ways, fetched_offsets


def size(lab, tp):
    return sum(len(batch.data) for batch in lab.cluster.log(*tp).batches)


def until_kept(lab, reader, **more):
    """Hold back the next fetch's response; return the fault once that fetch was sent."""
    late = lab.cluster.fail("Fetch", is_held=True, **more)
    reader.until(lambda: late.kept)
    return late


def arrives(lab, late):
    """Release a response that was held back, into the consumer's buffer."""
    late.end()
    lab.sleep(1)


# ------------------------------------------------------------ ended ownerships


def _an_answer(lab, reader):
    arrives(lab, until_kept(lab, reader))


def _half_read(_, reader):
    reader.take(3)


def _parked_half_read(_, reader):
    reader.take(4)
    reader.consumer.pause(*reader.consumer.assignment())
    reader.poll(1)


def _a_parked_answer(lab, reader):
    late = until_kept(lab, reader)
    reader.consumer.pause(*reader.consumer.assignment())
    arrives(lab, late)
    reader.poll(1)


def _on_its_way(lab, reader):
    late = until_kept(lab, reader, count=1)
    return lambda: arrives(lab, late)


SITUATIONS = {
    "response": (_an_answer, 10),
    "half read": (_half_read, 7),
    "parked, half read": (_parked_half_read, 6),
    "parked response": (_a_parked_answer, 10),
    "in flight": (_on_its_way, 10),
}


@pytest.mark.contract("P9", "P14")
@both_decoders
@pytest.mark.parametrize("name", SITUATIONS)
def test_data_of_an_ended_ownership_is_purged_with_one_event(lab, name, decoder):
    """P9, P14: the data is fetched again, and one event has the size of the purged data."""
    p0, p1 = lab.topic("t", 2)
    lab.append(p0, 10)
    reader = Watching(lab, tps=[p0], decoder=decoder)
    situation, count = SITUATIONS[name]
    after = situation(lab, reader)
    seen = len(reader.log)
    reader.consumer.assign([p1])
    reader.consumer.assign([p0, p1])
    reader.consumer.resume(p0, p1)
    if after is not None:
        after()
    reader.consumer.seek(p0, 0)
    reader.reads(p0, range(10))
    (purged,) = reader.events_of(FetchesPurged)
    assert (purged.partitions, purged.fetches) == ((p0,), 1)
    assert (purged.records, purged.bytes) == (count, size(lab, p0))
    assert seen == 10 - count


def test_purge_of_several_partitions_is_one_event_and_spares_the_others(lab):
    tps = lab.topic("t", 3, records=5)
    reader = Watching(lab, tps=tps)
    late = until_kept(lab, reader)
    reader.consumer.pause(tps[2])
    arrives(lab, late)
    reader.poll(limit=1)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.consumer.assign([tps[2]])
    assert reader.poll() == []
    (purged,) = reader.events_of(FetchesPurged)
    assert purged.partitions == tuple(tps[:2])
    assert (purged.fetches, purged.records) == (2, 9)
    reader.consumer.resume(tps[2])
    reader.reads(tps[2], range(5))  # no response arrives before these records
    late.end()


@both_ways
def test_close_reports_all_buffered_records_once(lab, how):
    """The events count half-read and parked data, and unopened responses."""
    tps = lab.topic("t", 2, records=10)
    reader = Watching(lab, tps=tps, how=how)
    reader.take(3)
    reader.consumer.pause(tps[0])
    reader.poll(limit=1)
    taken = len(reader.log)
    for _ in range(2):
        reader.consumer.close(autocommit=False)
        purged = reader.events_of(FetchesPurged)
        assert sum(one.records for one in purged) == 20 - taken
    if how == "iterate":
        assert reader.poll() == []


def test_close_reports_a_response_that_arrived_after_the_last_poll(lab):
    (tp,) = lab.topic("t", 1, records=10)
    reader = Watching(lab, tps=[tp])
    arrives(lab, until_kept(lab, reader))
    reader.consumer.close(autocommit=False)
    (purged,) = reader.events_of(FetchesPurged)
    assert (purged.fetches, purged.records) == (1, 10)


def test_close_in_the_middle_of_a_poll_reports_the_purged_records(lab):
    reader = Meddled(lab)
    reader.meddler.at(3, lambda: reader.consumer.close(autocommit=False))
    reader.until(lambda: len(reader.meddler.seen) >= 3, limit=3)
    assert sum(one.records for one in reader.events_of(FetchesPurged)) == 17


def test_error_of_an_ended_ownership_is_not_raised(lab):
    reader = Meddled(lab)
    reader.meddler.raise_at(15, ValueError)
    reader.once()
    first, second = reader.in_order
    assert reader.offsets(first) == [*range(10)]
    reader.consumer.assign([first])
    reader.is_silent()
    reader.consumer.assign([first, second])
    reader.consumer.seek(second, 0)
    reader.reads(second, range(10))


# ------------------------------------------------------------ the cap


def parking(lab, room, **settings):
    """Park ten records of each of four partitions; ``room`` is the number that fits."""
    tps = lab.topic("t", 4, records=10)
    most = int(room * size(lab, tps[0]))
    reader = Watching(lab, tps=tps, parked_max_bytes=most, **settings)
    late = until_kept(lab, reader)
    reader.consumer.pause(*tps)
    arrives(lab, late)
    assert reader.poll() == []
    return reader


@pytest.mark.contract("P8")
@pytest.mark.parametrize(("room", "left"), [(0, 0), (0.5, 0), (2.5, 2), (4, 4)])
def test_oldest_parked_data_beyond_the_cap_is_dropped_and_fetched_again(
    lab, room, left
):
    """P8: an event has the dropped size; no record is lost or delivered twice."""
    reader = parking(lab, room, enable_incremental_fetch_sessions=False)
    dropped = reader.events_of(ParkedDataDropped)
    assert len(dropped) == (left < 4)
    tps = lab.partitions("t")
    size_of_each = size(lab, tps[0])
    assert sum(one.bytes for one in dropped) == (4 - left) * size_of_each
    since = len(lab.cluster.requests)
    away = lab.cluster.fail("Fetch", is_held=True)
    reader.consumer.resume(*tps)
    reader.poll(1)
    gone = {tp for one in dropped for tp in one.partitions}
    assert {one.partition for one in reader.log} == {
        tp.partition for tp in tps if tp not in gone
    }
    away.end()
    reader.until(lambda: len(reader.log) == 40)
    assert gone <= lab.fetched_partitions(since)
    assert all(reader.offsets(tp) == [*range(10)] for tp in tps)


@both_decoders
@both_ways
def test_dropped_half_read_batch_continues_at_the_position(lab, how, decoder):
    """The broker sends the whole batch again."""
    (tp,) = lab.topic("t", 1, records=10)
    settings = {"decoder": decoder, "parked_max_bytes": 0, "max_poll_records": 5}
    reader = Watching(lab, tps=[tp], how=how, **settings)
    for turn in range(1, 4):
        reader.take(3)
        reader.consumer.pause(tp)
        reader.poll(1)
        assert len(reader.events_of(ParkedDataDropped)) == turn
        assert reader.consumer.position(tp) == 3 * turn
        reader.consumer.resume(tp)
    reader.reads(tp, [9])
    assert reader.offsets(tp) == [*range(10)]


@both_decoders
def test_records_that_the_final_check_of_a_poll_puts_back_count_as_parked(lab, decoder):
    """Records beyond the cap are dropped, and are fetched and delivered again."""
    reader = Meddled(lab, parked_max_bytes=1, decoder=decoder)
    reader.meddler.at(20, lambda: reader.consumer.pause(reader.in_order[0]))
    reader.once()
    reader.poll(1)
    (dropped,) = reader.events_of(ParkedDataDropped)
    assert dropped.partitions == (reader.in_order[0],)
    reader.consumer.resume(*reader.tps)
    reader.reads_everything()


@pytest.mark.parametrize("taken", [3, 7])
@both_decoders
def test_records_put_back_repeatedly_are_delivered_once_in_order(lab, decoder, taken):
    """The records count once against the cap."""
    asked = []
    reader = Meddled(lab, parked_max_bytes=1500, decoder=decoder)
    lab.cluster.on_request = lambda _, message: asked.extend(
        offset for tp in reader.tps for offset in fetched_offsets(message, tp)
    )
    for number in range(taken):
        reader.meddler.at(
            number * taken + taken, lambda: reader.consumer.pause(*reader.tps)
        )
    for _ in range(taken):
        reader.poll(1, limit=taken)
        reader.poll(1, limit=taken)
        reader.consumer.resume(*reader.tps)
    reader.reads_everything()
    assert reader.events_of(ParkedDataDropped) == []
    assert set(asked) == {0, 10}  # nothing was fetched twice


# ------------------------------------------------------------ a pause on another thread


@pytest.mark.contract("P8")
@simulated(seeds=1, nightly=2, preempt=0.5)
def test_pause_at_any_time_during_a_poll_discards_no_data(lab):
    """
    P8: fetched records are delivered after the resume, and are not fetched again.

    A drain checks twice whether a partition is quiet: before it takes a response, and
    afterwards. Another thread pauses at a random time, mostly during a poll.
    """
    (tp,), asked = lab.topic("t", 1), []
    # Without a session each Fetch names its offsets.
    sessions = {"enable_incremental_fetch_sessions": False}
    reader = Reader(lab, SafeConsumer, tps=[tp], **sessions)
    reader.is_silent(seconds=1)
    lab.cluster.on_request = lambda _, message: asked.extend(
        fetched_offsets(message, tp)
    )

    def pause():
        lab.sleep(lab.rng.uniform(0, 0.005))
        reader.consumer.pause(tp)

    for number in range(100):
        reader.poll(0)
        lab.append(tp)
        lab.sleep(1)  # the response has arrived
        pausing = threading.Thread(target=pause)
        pausing.start()
        reader.poll(0)
        pausing.join()
        reader.consumer.resume(tp)
        reader.reads(tp, [] if len(reader.log) > number else [number])
    fetched_twice = {one for one in asked if asked.count(one) > 1}
    assert (len(reader.log), fetched_twice) == (100, set())
