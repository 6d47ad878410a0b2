"""Tests the promises of one consumer over real sockets."""

import os
import signal
import threading
import time

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from safeconsumer import SafeConsumer
from safeconsumer.errors import NotOwnedError
from safeconsumer.events import consumer as events
from tests.harness.holds.lab import EventLog
from tests.harness.kafka.interrupted import LIMIT
from tests.harness.polling import poll_all_until, poll_until
from tests.harness.processes import ROOT, module, ran
from tests.harness.producing import numbered, produce, write
from tests.harness.signals import handled_by
from tests.harness.waiting import repeat_until

pytestmark = pytest.mark.any_broker

AN_HOUR_MS = 3_600_000


class Reading:
    """
    A member with two partitions, and the offsets that it received from each partition.

    When later records of one partition arrive, the test knows that the other partition
    delivers none.
    """

    def __init__(self, topic, producer, consumer):
        self.topic, self.consumer = topic, consumer
        self.first, self.second = (TopicPartition(topic, number) for number in (0, 1))
        self.got = {self.first: [], self.second: []}
        self._producer = producer
        produce(producer, topic, 5, 5)

    def append(self, *partitions):
        """Write one more record to each of these partitions."""
        added = numbered(self.topic, 1, 1)
        wanted = {tp.partition for tp in partitions}
        write(self._producer, [one for one in added if one["partition"] in wanted])

    def until(self, condition):
        """Poll until a condition holds."""
        poll_until(self.consumer, condition, got=self.got)

    def until_read(self, tp, count):
        """Poll until this many records of a partition have arrived."""
        self.until(lambda: len(self.got[tp]) == count)


@pytest.fixture
def reading(kafka_topic, make_consumer, make_producer):
    """Return ``reading(**configs)``, which makes and subscribes one of our consumers."""

    def made(**configs):
        topic = kafka_topic(partitions=2)
        consumer = make_consumer(SafeConsumer, topic, group=f"g-{topic}", **configs)
        return Reading(topic, make_producer(), consumer)

    return made


@pytest.mark.contract("P2", "P3")
def test_each_owner_holds_and_lifts_only_its_own_holds(reading):
    """P2: an owner lifts only its own holds; P3: the calls return the affected holds."""
    one = reading(start_paused=True)
    consumer, first, second = one.consumer, one.first, one.second
    one.until(lambda: consumer.quiet() == {first, second})
    consumer.pause(first)
    consumer.pause(first, owner="ops", reason="an import")
    assert consumer.resume_all("app")
    one.until_read(second, 5)
    assert consumer.quiet() == {first}
    (line,) = consumer.explain(first)
    assert "ops" in line
    assert "an import" in line
    (left,) = consumer.resume(first)
    assert left.owner == "ops"
    assert (consumer.paused(), consumer.quiet()) == (set(), {first})
    assert consumer.paused(owner="ops") == {first}
    one.append(second)
    one.until_read(second, 6)
    assert (one.got[first], consumer.position(first)) == ([], 0)
    assert consumer.resume(first, owner="ops") == ()
    one.until_read(first, 5)
    assert consumer.holds() == ()


@pytest.mark.contract("P16")
def test_records_deleted_during_a_hold_are_reported(reading, kafka_broker):
    """P16: even with ``latest``, reading continues at the first record that still exists."""
    reported = EventLog()
    one = reading(start_paused=True, auto_offset_reset="latest", hooks=(reported,))
    consumer, first, second = one.consumer, one.first, one.second
    one.until(lambda: consumer.quiet() == {first, second})
    consumer.seek(first, 0)
    admin = KafkaAdminClient(**kafka_broker.client_config)
    admin.delete_records({first: 3})
    admin.close()
    consumer.resume_all()
    one.until_read(first, 2)
    assert one.got[first] == [3, 4]
    gone = reported.only(events.UnreadRecordsDeleted)
    assert (gone.partition, gone.position, gone.start, gone.gone) == (first, 0, 3, 3)


@pytest.mark.contract("P16", "P20")
def test_committed_position_beyond_the_end_is_reset_to_the_truncation_offset(
    reading, make_consumer
):
    """P20: The broker compares the commit's leader epoch with its log."""
    reported = EventLog()
    one = reading(auto_offset_reset="earliest")
    one.until_read(one.first, 5)
    one.until_read(one.second, 5)
    one.consumer.commit({one.first: OffsetAndMetadata(1000, "", 0)})
    one.consumer.close()
    consumer = make_consumer(
        SafeConsumer, one.topic, group=f"g-{one.topic}", hooks=(reported,)
    )
    poll_until(consumer, lambda: reported.of(events.LogTruncated))
    moved = reported.only(events.LogTruncated)
    assert (moved.partition, moved.position, moved.offset) == (one.first, 1000, 5)
    assert reported.of(events.PositionOutOfRange) == []
    one.append(one.first)
    came = poll_until(consumer, lambda: consumer.position(one.first) == 6)
    assert came[one.first] == [5]


@pytest.mark.contract("P21")
@pytest.mark.parametrize(
    ("count", "by_hand"), [(8, True), (2, False)], ids=["longer", "shorter"]
)
def test_topic_recreated_during_a_hold_is_read_from_its_start(  # noqa: PLR0913 - four fixtures
    kafka_topic, kafka_broker, make_consumer, make_producer, count, *, by_hand
):
    """P21: during the hold the consumer requests no metadata, and commits no old position."""
    reported = EventLog()
    topic = kafka_topic(partitions=2)
    settings = {
        "group": f"g-{topic}",
        "hooks": (reported,),
        "auto_offset_reset": "latest",
    }
    consumer = make_consumer(SafeConsumer, metadata_max_age_ms=300_000, **settings)
    one = Reading(topic, make_producer(), consumer)
    tps = [one.first, one.second]
    consumer.assign(tps) if by_hand else consumer.subscribe([topic])
    one.until(lambda: consumer.assignment() == {*tps})
    consumer.seek_to_beginning(*tps)
    for tp in tps:
        one.until_read(tp, 5)
    one.consumer.pause_all()
    for _ in range(20):
        assert consumer.poll(100) == {}
    admin = KafkaAdminClient(**kafka_broker.client_config)
    admin.delete_topics([one.topic])
    _recreate(admin, one.topic)
    admin.close()
    produce(make_producer(), one.topic, count, count)
    consumer.commit()
    assert {consumer.committed(tp) for tp in tps} <= {None, 0}
    one.consumer.resume_all()
    for tp in tps:
        one.until_read(tp, 5 + count)
        assert one.got[tp][5:] == [*range(count)]
    found = {
        (m.partition, m.position, m.begins) for m in reported.of(events.TopicRecreated)
    }
    assert found == {(tp, 5, "earliest") for tp in tps}
    assert reported.of(events.LogTruncated) == []
    consumer.commit()
    assert [consumer.committed(tp) for tp in tps] == [count, count]


@pytest.mark.contract("P21")
def test_topic_recreated_during_reading_is_read_from_its_start(
    kafka_topic, kafka_broker, make_consumer, make_producer
):
    """P21: fetches return an error until the topic exists again."""
    reported = EventLog()
    topic = kafka_topic(partitions=2)
    settings = {"hooks": (reported,), "allow_auto_create_topics": False}
    consumer = make_consumer(SafeConsumer, **settings)
    one = Reading(topic, make_producer(), consumer)
    consumer.assign([one.first, one.second])
    one.until_read(one.first, 5)
    one.until_read(one.second, 5)
    admin = KafkaAdminClient(**kafka_broker.client_config)
    admin.delete_topics([one.topic])
    for _ in range(5):
        assert consumer.poll(100) == {}
    _recreate(admin, one.topic)
    admin.close()
    produce(make_producer(), one.topic, 8, 8)
    one.until(lambda: len(reported.of(events.TopicRecreated)) == 2)
    one.until_read(one.first, 13)
    one.until_read(one.second, 13)
    assert one.got[one.first][5:] == one.got[one.second][5:] == [*range(8)]


def _recreate(admin, topic):
    # A deleted topic still exists until all of its brokers know about the deletion.
    def is_made():
        try:
            admin.create_topics([NewTopic(topic, 2, 1)])
        except TopicAlreadyExistsError:
            return False
        return True

    for _ in repeat_until(is_made, f"{topic} is recreated"):
        pass


@pytest.mark.contract("P10", "P12")
def test_resume_on_another_thread_wakes_a_waiting_poll(reading):
    """P10, P12: a poll with a timeout of one hour returns the parked record immediately."""
    one = reading(max_poll_records=1)
    one.until(lambda: any(one.got.values()))
    (parked,) = (tp for tp, got in one.got.items() if got)
    other = ({one.first, one.second} - {parked}).pop()
    one.consumer.pause(parked)
    one.until_read(other, 5)
    resuming = threading.Thread(target=one.consumer.resume, args=(parked,))
    resuming.start()
    found = one.consumer.poll(AN_HOUR_MS)
    resuming.join()
    assert [record.offset for record in found[parked]] == [len(one.got[parked])]


@pytest.mark.contract("P12")
def test_pause_in_a_signal_handler_holds_the_partition(reading):
    """P12: the signal interrupts a waiting poll, and later records are not delivered."""
    reported = EventLog()
    one = reading(hooks=(reported,))
    one.until(lambda: all(len(got) == 5 for got in one.got.values()))

    def pause(_number, _frame):
        one.consumer.pause(one.first, owner="signal")

    with handled_by(pause):
        sent = threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGUSR1))
        sent.start()
        one.until(lambda: one.consumer.quiet() == {one.first})
        sent.join()
    one.append(one.first)
    one.append(one.second)
    one.until_read(one.second, 6)
    assert len(one.got[one.first]) == 5
    placed = reported.only(events.HoldsPlaced)
    assert {hold.owner for hold in placed.holds} == {"signal"}


@pytest.mark.contract("P19")
def test_wakeup_ends_the_current_or_the_next_poll(reading):
    """P19: ``wakeup()`` is called first on another thread, then in a signal handler."""
    one = reading()
    one.until(lambda: all(len(got) == 5 for got in one.got.values()))
    waking = threading.Timer(0.05, one.consumer.wakeup)
    waking.start()
    assert one.consumer.poll(AN_HOUR_MS) == {}
    waking.join()
    with handled_by(lambda *_: one.consumer.wakeup()):
        sent = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
        sent.start()
        assert one.consumer.poll(AN_HOUR_MS) == {}
        sent.join()
    one.consumer.wakeup()
    assert next(one.consumer, None) is None
    one.append(one.first)
    one.until_read(one.first, 6)


@pytest.mark.contract("P9", "P14")
def test_every_hook_receives_the_same_events_in_order(reading):
    """P14: each call emits one event, even if a hook raises; P9: each purge does, too."""

    def raising(_event):
        raise ZeroDivisionError

    reported, also = EventLog(), EventLog()
    one = reading(hooks=(reported, raising, also), max_poll_records=1)
    consumer = one.consumer
    one.until(lambda: any(one.got.values()))
    consumer.pause(one.first, one.second)
    consumer.resume(one.first, one.second)
    consumer.pause(one.first, one.second, owner="ops")
    consumer.unsubscribe()
    one.until(lambda: reported.of(events.FetchesPurged))
    assert reported.events == also.events
    assert len(reported.of(events.HoldsPlaced)) == 2
    assert len(reported.of(events.HoldsRemoved)) == 1
    joined = reported.only(events.RebalanceCompleted)
    assert set(joined.gained) == {one.first, one.second}
    assert sum(event.records for event in reported.of(events.FetchesPurged)) >= 4
    assert consumer.hook_failures == {repr(raising): len(reported.events)}


@pytest.mark.contract("P17")
def test_commit_for_a_partition_that_moved_to_another_member_is_refused(
    reading, make_consumer
):
    """P17: the new owner's progress is kept, and owned partitions can still be committed."""
    one = reading()
    one.until(lambda: all(len(got) == 5 for got in one.got.values()))
    other = make_consumer(KafkaConsumer, one.topic, group=f"g-{one.topic}")
    both = [one.consumer, other]
    poll_all_until(both, lambda: all(len(each.assignment()) == 1 for each in both))
    (left,), (kept,) = other.assignment(), one.consumer.assignment()
    other.commit({left: OffsetAndMetadata(5, "", -1)})
    late = {left: OffsetAndMetadata(2, "", -1)}
    with pytest.raises(NotOwnedError):
        one.consumer.commit(late)
    assert isinstance(one.consumer.commit_async(late).exception, NotOwnedError)
    assert other.committed(left) == 5
    one.consumer.commit({kept: OffsetAndMetadata(4, "", -1)})
    assert one.consumer.committed(kept) == 4


def _interrupted(*arguments):
    command = module("tests.harness.kafka.interrupted", *arguments)
    done = ran(*command, cwd=ROOT, timeout=20 * LIMIT)
    assert done.returncode == 0, done.stderr


@pytest.mark.contract("P18")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_polls_continue_after_a_signal_handler_raised_at_any_point_of_a_call(every):
    """P18: the call raises the handler's exception, and no record is lost or repeated."""
    _interrupted("--every", str(every))


@pytest.mark.nightly
@pytest.mark.parametrize("decoder", ["python", "compiled"])
@pytest.mark.parametrize("seed", range(100))
def test_polls_interrupted_at_random_times_lose_no_record(seed, decoder):
    """P18: no poll hangs or raises another exception, and each record is delivered once."""
    _interrupted("--seconds", "8", "--seed", str(seed), "--decoder", decoder)


@pytest.mark.contract("P22")
def test_consumer_closes_while_its_join_waits_for_another_member(
    kafka_topic, make_consumer
):
    """P22: with its next join the other member regains all partitions without waiting."""
    topic = kafka_topic(partitions=2)
    how = {
        "group": f"g-{topic}",
        "request_timeout_ms": 60_000,
        "heartbeat_interval_ms": 100,
    }
    slow = make_consumer(SafeConsumer, topic, **how)
    poll_until(slow, lambda: len(slow.assignment()) == 2)
    leaving = make_consumer(SafeConsumer, topic, **how)
    for _ in repeat_until(
        lambda: slow._coordinator.rejoin_needed, "the start of a rebalance"
    ):
        leaving.poll(10)
    assert leaving.assignment() == set()
    began = time.monotonic()
    leaving.close()
    assert time.monotonic() - began < 10  # on a busy machine; 60 s without the fix
    poll_until(slow, lambda: slow._coordinator._generation.generation_id > 1)
    assert len(slow.assignment()) == 2
