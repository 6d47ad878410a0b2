"""What a pause does to requests, to answers on the way, and to what is buffered."""

import pytest
from attrs import evolve
from kafka import KafkaConsumer
from kafka.errors import CorruptRecordError

from safeconsumer import SafeConsumer
from tests.sim.playing import simulated
from tests.sim.reading import Reader, both_ways, known, stock_fails


@stock_fails("any answer about metadata counts as the one that is waited for")
def test_a_topic_subscribed_while_metadata_is_on_its_way_is_asked_for(lab, kind):
    """Without it, now and then a new consumer reads nothing for five minutes."""
    (p0,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, kind, group_id=None)
    lab.sleep(5)
    late = lab.cluster.fail("Metadata", is_held=True)
    reader.consumer._cluster.request_update()
    lab.until(lambda: late.kept)
    reader.consumer.subscribe([p0.topic])
    late.end()
    reader.reads(p0, range(3))


def asked_for(lab, since):
    """Return the partitions that Fetch requests named, but for the first so many."""
    some = list(lab.cluster.requests)[since:]
    return {tp for one in some if one.api == "Fetch" for tp in one.partitions}


@simulated(seeds=1, nightly=2)
def test_requests_name_the_partitions_that_flow_and_no_others(lab):
    p0, p1 = lab.topic("t", 2, records=1)
    # With sessions a request names only what has changed since the last one.
    settings = {"enable_incremental_fetch_sessions": False, "fetch_max_wait_ms": 100}
    reader = Reader(lab, SafeConsumer, tps=[p0, p1], **settings)
    reader.take(2)
    reader.consumer.pause(p0)
    lab.sleep(1)
    since = len(lab.cluster.requests)
    reader.is_silent(seconds=2)
    assert asked_for(lab, since) == {p1}


@pytest.mark.contract("P8")
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (SafeConsumer, "poll"),
        (SafeConsumer, "iterate"),
        pytest.param(
            KafkaConsumer,
            "iterate",
            marks=known("it fetches what it has: its position lags behind"),
        ),
    ],
)
@simulated(seeds=1, nightly=2)
def test_what_is_here_comes_after_the_resume_without_another_fetch(lab, kind, how):
    """P8: pauses and resumes ask for no record again, however long they last."""
    (p0,) = lab.topic("t", 1, records=200)
    asked = []
    lab.cluster.on_request = lambda _, message: asked.extend(offsets_in(message, p0))
    reader = Reader(lab, kind, tps=[p0], how=how)
    reader.take(3)
    for count in (50, 70):
        reader.consumer.pause(p0)
        reader.is_silent(seconds=20)
        reader.consumer.resume(p0)
        reader.take(count)
    reader.reads(p0, range(123, 200))
    assert set(asked) <= {0, 200}


def offsets_in(message, tp):
    if message.api != "Fetch":
        return []
    return [
        one.fetch_offset
        for topic in message.body.topics
        for one in topic.partitions
        if (topic.topic, one.partition) == tp
    ]


@both_ways
@simulated(seeds=1, nightly=2)
def test_a_corrupt_batch_of_a_paused_partition_is_told_after_the_resume(lab, how):
    """Others flow past it; the error comes when the partition flows again."""
    p0, p1 = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, tps=[p0, p1], how=how)
    reader.until(lambda: len(reader.log) == 6)
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    corrupt(lab, p0)
    late.end()
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    reader.consumer.pause(p0)
    late.end()
    lab.append(p1, 3, first=3)
    reader.reads(p1, range(3, 6))
    assert reader.consumer.position(p0) == 3
    reader.consumer.resume(p0)
    with pytest.raises(CorruptRecordError):
        reader.until(lambda: False)


@simulated(seeds=1, nightly=2)
def test_an_error_that_the_next_poll_would_raise_waits_for_the_resume(lab):
    """One poll gave the records before it; then its partition was paused."""
    p0, p1 = lab.topic("t", 2)
    reader = Reader(lab, SafeConsumer, tps=[p0, p1])
    late = lab.cluster.fail("Fetch", is_held=True)
    reader.until(lambda: late.kept)
    lab.append(p0, 5)
    corrupt(lab, p1)
    late.end()
    reader.until(lambda: len(reader.log) == 5)
    reader.consumer.pause(p1)
    reader.is_silent()
    reader.consumer.resume(p1)
    with pytest.raises(CorruptRecordError):
        reader.until(lambda: False)


def corrupt(lab, tp, records=1):
    """Put a batch into a partition whose last byte is another than was sent."""
    lab.append(tp, records)
    batches = lab.cluster.log(*tp).batches
    last = batches.pop()
    batches.append(evolve(last, data=last.data[:-1] + bytes([last.data[-1] ^ 0xFF])))
