"""
Tests of documented claims about kafka-python's own consumer.

``tests/unit/contract/claims.toml`` has the sentence that each test proves. If a test
fails, the sentence is no longer true, and both have to change.
"""

from functools import partial

import pytest
from kafka import KafkaConsumer
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

from tests.sim.lab import GROUP
from tests.sim.meddling import Meddler
from tests.sim.reading import Listener, Reader, both_protocols, raised


@both_protocols
def test_partition_kept_through_a_rebalance_stays_paused(lab, assignor):
    tps = lab.topic("t", 2, records=3)
    settings = {"assignor": assignor}
    reader = Reader(lab, KafkaConsumer, "t", client_id="a", **settings)
    reader.until(lambda: len(reader.log) == 6, each=5)
    reader.consumer.pause(*reader.consumer.assignment())
    other = lab.member(KafkaConsumer, "t", name="b", poll_ms=5000, **settings)
    reader.until(lambda: len(reader.consumer.assignment()) == 1, each=5)
    (kept,) = reader.consumer.assignment()
    lab.append(kept, 3)
    reader.is_silent(seconds=10)
    other.stop()
    reader.until(lambda: len(reader.consumer.assignment()) == 2, each=5)
    reader.is_silent(of=[kept], seconds=10)
    assert kept in reader.consumer.paused()
    assert reader.consumer.assignment() == set(tps)


@pytest.mark.parametrize(
    ("reset", "first"), [("latest", 20), ("earliest", 12)], ids=["latest", "earliest"]
)
def test_retention_during_a_pause_triggers_the_reset_policy(lab, reset, first):
    """``latest``, the default, skips the rest of the backlog."""
    assert KafkaConsumer.DEFAULT_CONFIG["auto_offset_reset"] == "latest"
    (tp,) = lab.topic("t", 1)
    for number in range(20):
        lab.append(tp, first=number)
    reader = Reader(
        lab,
        KafkaConsumer,
        tps=[tp],
        auto_offset_reset=reset,
        max_partition_fetch_bytes=100,
    )
    reader.consumer.seek(tp, 2)
    reader.consumer.pause(tp)
    reader.poll()
    lab.cluster.delete_before(tp.topic, tp.partition, 12)
    reader.consumer.resume(tp)
    reader.poll(5)
    lab.append(tp, 2, first=20)
    reader.until(lambda: reader.consumer.position(tp) == 22)
    assert reader.offsets(tp)[0] == first


def test_commit_for_another_members_partition_rewinds_the_committed_offset(lab):
    lab.topic("t", 2, records=10)
    reader = Reader(lab, KafkaConsumer, "t", client_id="a")
    other = lab.member(KafkaConsumer, "t", name="b", poll_ms=5000)
    reader.until(lambda: lab.members() == 2 and len(reader.consumer.assignment()) == 1)
    (foreign,) = other.call(lambda consumer: consumer.assignment())
    lab.until(lambda: other.values(foreign) == [*range(10)])
    other.call(lambda consumer: consumer.commit())
    assert lab.committed(foreign) == 10
    reader.consumer.commit({foreign: OffsetAndMetadata(3, "", -1)})
    assert lab.committed(foreign) == 3


def test_blocking_call_in_a_listener_raises_a_runtime_error(lab):
    """``poll`` raises an error whose cause is the listener's own error."""
    lab.topic("t", 1, records=1)
    reader = Reader(lab, KafkaConsumer)
    errors = []

    def assigned(_):
        errors.append(raised(reader.consumer.commit))
        message = "a listener's own"
        raise ValueError(message)

    reader.consumer.subscribe(["t"], listener=Listener(assigned=assigned))
    with pytest.raises(KafkaError, match="callback throws") as caught:
        reader.until(lambda: errors)
    assert errors == ["RuntimeError"]
    assert isinstance(caught.value.__cause__, ValueError)


def test_subscribe_pattern_matches_a_prefix(lab):
    """``subscribe(pattern="ord")`` subscribes to ``orders``."""
    (tp,) = lab.topic("orders", 1)
    reader = Reader(lab, KafkaConsumer)
    reader.consumer.subscribe(pattern="ord")
    reader.owns([tp])


def test_consumer_timeout_ms_includes_the_first_join_of_an_iteration(lab):
    """The iteration stops without a record, because the join outlasts the timeout."""
    lab.topic("t", 1, records=1)
    lab.cluster.fail("JoinGroup", delay=3.0)
    consumer = KafkaConsumer(
        "t", **lab.settings(group_id=GROUP, consumer_timeout_ms=1000)
    )
    assert list(consumer) == []
    consumer.close()


def test_close_commits_the_records_of_the_last_poll(lab):
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, KafkaConsumer, "t", enable_auto_commit=True)
    reader.until(lambda: len(reader.log) == 10, each=5)
    reader.consumer.close()
    assert lab.committed(tp) == 10


def test_poll_after_next_duplicates_the_records_buffered_by_the_iterator(lab):
    """The poll fetches records again that the iterator has buffered and will yield, too."""
    (tp,) = lab.topic("t", 1, records=10)
    reader = Reader(lab, KafkaConsumer, tps=[tp], consumer_timeout_ms=1000)
    assert next(reader.consumer).offset == 0
    reader.until(lambda: len(reader.log) >= 9)
    rest = [one.offset for one in reader.consumer]
    assert reader.offsets(tp) == rest == [*range(1, 10)]


def test_fenced_static_member_keeps_polling_without_an_error(lab):
    lab.topic("t", 1, records=3)
    reader = Reader(lab, KafkaConsumer, "t", group_instance_id="static")
    reader.until(lambda: len(reader.log) == 3)
    other = lab.member(KafkaConsumer, "t", name="b", group_instance_id="static")
    reader.until(lambda: len(other.records) == 3)
    reader.poll(20)
    reader.is_silent(seconds=20)


def test_two_threads_can_poll_at_the_same_time_without_an_error(lab):
    (tp,) = lab.topic("t", 1)
    reader = Reader(lab, KafkaConsumer, tps=[tp])
    errors = []

    def poll():
        errors.append(raised(lambda: reader.consumer.poll(1000)))

    lab.start("second", poll)
    poll()
    lab.until(lambda: len(errors) == 2)
    assert errors == ["", ""]


def test_commit_future_is_done_as_soon_as_the_coordinator_is_found(lab):
    """``commit_async`` returns the future; the callback runs when the commit is done."""
    (tp,) = lab.topic("t", 1, records=1)
    reader = Reader(lab, KafkaConsumer, tps=[tp], group_id=GROUP)
    lab.cluster.fail("OffsetCommit", delay=3.0)
    called = []
    offsets = {tp: OffsetAndMetadata(1, "", -1)}
    future = reader.consumer.commit_async(offsets, lambda *given: called.append(given))
    lab.sleep(1)
    assert (future.is_done, called) == (True, [])
    reader.until(lambda: called)


def test_calls_on_a_closed_consumer_raise_illegal_state_or_runtime_error(lab):
    (tp,) = lab.topic("t", 1)
    reader = Reader(lab, KafkaConsumer, tps=[tp])
    reader.consumer.close()
    calls = [
        partial(reader.consumer.poll, 0),
        reader.consumer.commit,
        partial(reader.consumer.end_offsets, [tp]),
        reader.consumer.topics,
    ]
    assert [*map(raised, calls)] == ["IllegalStateError"] * 2 + ["RuntimeError"] * 2


def test_seek_while_a_poll_decodes_is_undone(lab):
    """Another thread seeks, and the poll then sets the position after its own records."""
    (tp,) = lab.topic("t", 1, records=10)
    meddler = Meddler()
    meddler.at(5, lambda: reader.consumer.seek(tp, 3))
    reader = Reader(lab, KafkaConsumer, tps=[tp], value_deserializer=meddler)
    reader.until(lambda: len(reader.log) >= 10)
    reader.is_silent()
    assert reader.offsets(tp) == [*range(10)]
    assert reader.consumer.position(tp) == 10


def test_commit_includes_the_records_of_a_poll_that_raised(lab):
    """The poll had consumed the other partition's records, and no call returned them."""
    tps = lab.topic("t", 2, records=10)
    meddler = Meddler()
    meddler.raise_at(15, KeyboardInterrupt)
    reader = Reader(lab, KafkaConsumer, "t", value_deserializer=meddler)
    with pytest.raises(KeyboardInterrupt):
        reader.until(lambda: False)
    reader.consumer.commit()
    assert reader.log == []
    assert 10 in map(lab.committed, tps)


def test_record_below_the_position_is_deserialized(lab):
    """A seek therefore cannot skip a record of the same batch that fails to deserialize."""
    (tp,) = lab.topic("t", 1, records=5)
    meddler = Meddler()
    meddler.raise_at(3, ValueError("a deserializer's own"))
    reader = Reader(lab, KafkaConsumer, tps=[tp], value_deserializer=meddler)
    reader.consumer.seek(tp, 3)
    with pytest.raises(ValueError, match="own"):
        reader.until(lambda: False)


def test_truncation_between_two_members_is_not_noticed(lab):
    """An unclean election replaces records 5 to 9, and the next member skips the new ones."""
    (tp,) = lab.topic("t", 1, records=10)
    first = Reader(lab, KafkaConsumer, "t")
    first.reads(tp, range(10))
    first.consumer.commit()
    first.consumer.close()
    lab.cluster.truncate(tp.topic, tp.partition, 5)
    lab.append(tp, 10, first=100)
    second = Reader(lab, KafkaConsumer, "t")
    second.reads(tp, range(10, 15))


def test_consumption_stops_at_a_broker_without_offset_for_leader_epoch(lab):
    """kafka-python repeats that request forever after the partition's leader has changed."""
    (tp,) = lab.topic("t", 1, records=3)
    del lab.cluster._handlers["OffsetForLeaderEpoch"]
    reader = Reader(lab, KafkaConsumer, "t", metadata_max_age_ms=1000)
    reader.reads(tp, range(3))
    lab.cluster.lead("t", 0, 1)
    lab.append(tp, 3)
    reader.is_silent(seconds=30)
