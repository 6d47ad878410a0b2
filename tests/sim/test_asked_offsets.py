"""A program's requests for offsets: beginnings, ends, and offsets for times."""

import math

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer import SafeConsumer
from safeconsumer.errors import TimestampError
from tests.harness.kafka.patience import patient
from tests.sim.reading import Reader, stock_fails

ASKED = {
    "beginning_offsets": lambda consumer, tps: consumer.beginning_offsets(tps),
    "end_offsets": lambda consumer, tps: consumer.end_offsets(tps),
    "offsets_for_times": lambda consumer, tps: {
        tp: found.offset
        for tp, found in consumer.offsets_for_times(dict.fromkeys(tps, 0)).items()
    },
}


def first_of_each(lab):
    """Create four topics with one partition each, and return the partitions."""
    return [lab.topic(name, 1, records=7)[0] for name in "tuvw"]


@pytest.mark.parametrize("call", ASKED)
@stock_fails("topics without metadata are left out")
def test_offsets_of_topics_without_metadata_are_requested(lab, kind, call):
    """The consumer has metadata only for the topics that it reads."""
    tps = first_of_each(lab)
    reader = Reader(lab, kind, tps=tps[:1])
    reader.take(7)
    begun = len(lab.kinds())
    try:
        found = ASKED[call](reader.consumer, tps)
    except (KeyError, AttributeError):
        found = None
    assert found == dict.fromkeys(tps, 7 if call == "end_offsets" else 0)
    assert lab.kinds(begun).count("ListOffsets") <= 3


@pytest.mark.parametrize("call", ASKED)
def test_request_for_a_missing_partition_times_out(lab, call):
    """The call repeats its request ten times a second until ``request_timeout_ms`` ends."""
    (p0, *_) = first_of_each(lab)
    lab.cluster.creates_topics = False
    reader = Reader(lab, SafeConsumer, tps=[p0], **patient(5_000))
    reader.take(7)
    begun, at = len(lab.kinds()), lab.now
    with pytest.raises(KafkaTimeoutError):
        ASKED[call](reader.consumer, [p0, TopicPartition("none", 0)])
    assert lab.now - at == pytest.approx(5.0, abs=0.2)
    kinds = lab.kinds(begun)
    assert kinds.count("Metadata") <= 55
    assert kinds.count("ListOffsets") <= 1


@pytest.mark.parametrize("error", [3, 6], ids=["unknown", "not the leader"])
def test_refused_offset_request_is_repeated_after_a_backoff(lab, error):
    """kafka-python repeats the request immediately, 1,625 times in these 5 s."""
    (p0, *_) = first_of_each(lab)
    reader = Reader(lab, SafeConsumer, tps=[p0])
    reader.take(7)
    refusing = lab.cluster.fail("ListOffsets", error=error)
    lab.world.call_later(5.0, refusing.end)
    begun = len(lab.kinds())
    assert reader.consumer.end_offsets([p0]) == {p0: 7}
    assert 10 <= lab.kinds(begun).count("ListOffsets") <= 60


@pytest.mark.parametrize("time", [math.inf, math.nan, -1, 2**63, -math.inf])
def test_invalid_timestamp_is_refused_with_its_partition(lab, time):
    """No ``OverflowError`` or ``struct.error`` is raised, and no request is sent."""
    tps = lab.topic("t", 2, records=3)
    reader = Reader(lab, SafeConsumer, tps=tps)
    reader.take(6)
    asked = {tps[0]: 0, tps[1]: time}
    begun = len(lab.kinds())
    with pytest.raises(ValueError, match="t:1") as caught:
        reader.consumer.offsets_for_times(asked)
    assert isinstance(caught.value, TimestampError)
    assert "ListOffsets" not in lab.kinds(begun)


def test_offsets_for_times_leaves_its_argument_unchanged(lab):
    """kafka-python rounds the times in its argument."""
    (p0,) = lab.topic("t", 1, records=3)
    reader = Reader(lab, SafeConsumer, tps=[p0])
    asked = {p0: 0.5}
    assert reader.consumer.offsets_for_times(asked)[p0].offset == 0
    assert asked == {p0: 0.5}


@pytest.mark.contract("P11")
@pytest.mark.parametrize("api", ["JoinGroup", "OffsetFetch"])
@stock_fails("it repeats the request with every poll that does not wait")
def test_refused_coordinator_request_is_repeated_after_a_backoff(lab, kind, api):
    """P11: the member repeats the request ten times a second, even if its polls are short."""
    lab.topic("t", 1, records=7)
    reader = Reader(lab, kind, "t")
    loading = lab.cluster.fail(api, error=14)
    until = lab.now + 5
    while lab.now < until:
        reader.consumer.poll(0)
        lab.sleep(0.01)
    assert 10 <= lab.kinds().count(api) <= 60
    loading.end()
    reader.take(7)
