"""Tests pauses in a consumer without a group, whose partitions are assigned manually."""

import time
from functools import partial

from kafka.structs import TopicPartition

from safeconsumer.testing.cases.consumer import Consumer, reaches, until
from safeconsumer.testing.cases.lab import Lab
from safeconsumer.testing.cases.outcomes import expect
from safeconsumer.testing.cases.process import ClientError
from safeconsumer.testing.cases.quiet import Pause, note, pause, take

PART = "A consumer by itself"
_LONG_FETCH = 1.0


def test_buffered_records_wait_while_paused(lab: Lab) -> None:
    """
    A paused partition does not deliver any records, not even buffered ones.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    consumer, half_read, other = _half_read(lab)
    paused = pause(lab, consumer, [half_read])
    lab.beat(consumer, other)
    paused.expect_nothing()


def test_paused_with_a_fetch_in_flight(lab: Lab) -> None:
    """
    A partition that is paused while its fetch is in flight delivers nothing.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    p0, p1 = lab.topic_with(3, partitions=2)
    consumer = lab.assigned([p0, p1], fetch_wait=_LONG_FETCH)
    take(consumer, [p0, p1], 3)
    consumer.poll()  # at the log's end, so a fetch waits at the broker after this call
    paused = pause(lab, consumer, [p0])
    lab.produce(p0, 5)  # the broker answers the waiting fetch
    lab.beat(consumer, p1)
    paused.prove()


def test_paused_before_the_first_record(lab: Lab) -> None:
    """
    A partition that is paused before its first record starts there when resumed.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    p0, p1 = lab.topic_with(5, partitions=2)
    consumer = lab.assigned([p0, p1])
    paused = pause(lab, consumer, [p0])
    lab.beat(consumer, p1)
    paused.prove()


def test_resume_in_mid_batch(lab: Lab) -> None:
    """
    A partition paused in the middle of a batch continues at that record when resumed.

    kafka-python 3.0 never delivers the partition's remaining records. It puts parked
    records back only into an empty slot, and a batch that was read to its end stays in
    the slot. 2.3, aiokafka and confluent-kafka pass.
    """
    p0, p1 = lab.topic(2)
    lab.produce(p1, 300)
    consumer = lab.assigned([p0, p1])
    until([consumer], lambda: consumer.count([p1]) >= 10, "ten records", limit=10)
    paused = pause(lab, consumer, [p1])
    lab.produce(p0, 5)
    until([consumer], lambda: consumer.count([p0]) == 5, "the other partition")
    paused.expect_nothing()
    consumer.resume([p1])
    paused.expect_flows()


def test_five_of_six_resumed(lab: Lab) -> None:
    """
    If six partitions are paused after their first records, five continue when resumed.

    The case repeats the program in kafka-python's issue 2011, and resumes five
    partitions. kafka-python 3.0 never delivers the remaining records of four of the
    five, because a half-read batch stays in its only slot. 2.3, aiokafka and
    confluent-kafka pass.
    """
    tps = lab.topic_with(50, partitions=6)
    consumer = lab.assigned(tps)
    pauses: dict[TopicPartition, Pause] = {}

    def are_all_paused() -> bool:
        for tp in {one.tp for one in consumer.log} - pauses.keys():
            pauses[tp] = pause(lab, consumer, [tp], "named")
        for one in pauses.values():
            one.expect_nothing()
        return len(pauses) == len(tps)

    until([consumer], are_all_paused, "the first records of each", limit=10)
    kept, *resumed = tps
    consumer.resume(resumed)
    for tp in resumed:
        pauses[tp].expect_flows()
    lab.beat(consumer, resumed[0])
    pauses[kept].prove()


def test_pause_and_resume_around_fetches(lab: Lab) -> None:
    """
    Records are delivered in order if partitions are paused and resumed during fetches.

    kafka-python 3.0 delivers only some of the records, because its only slot stays
    occupied. 2.3, aiokafka and confluent-kafka pass.
    """
    p0, p1 = lab.topic(2)
    consumer = lab.assigned([p0, p1], fetch_wait=0.3)
    consumer.poll()
    for _ in range(5):
        some = note(lab, consumer, [p1])
        lab.produce(p1, 200)
        until([consumer], partial(consumer.count, [p1], some.since), "some", limit=3)
        paused = pause(lab, consumer, [p0, p1])  # p1: half read; p0: fetch in flight
        lab.produce(p0, 5)
        for _ in range(2):
            consumer.poll()
        paused.expect_nothing()
        consumer.resume([p0])
        note(lab, consumer, [p0]).expect_flows()
        consumer.resume([p1])
        paused.expect_flows()


def test_one_hundred_pauses_and_resumes(lab: Lab) -> None:
    """
    Records come once and in order if two partitions are paused in turn 100 times.

    The case polls 50 times, and then iterates 50 times.

    kafka-python 3.0 passes, except in runs in which it stops delivering as in the two
    cases above. 2.3, aiokafka and confluent-kafka pass.
    """
    tps = lab.topic_with(200, partitions=2)
    consumer = lab.assigned(tps)
    start = note(lab, consumer, tps)
    take(consumer, tps, 1)
    for number in range(100):
        turn = pause(lab, consumer, [tps[number % 2]])
        if number < 50:
            consumer.poll(0.01, limit=1)
        else:
            consumer.step()
        turn.expect_nothing()
        consumer.resume(turn.partitions)
    start.expect_flows()


def test_seek_while_paused(lab: Lab) -> None:
    """
    A seek while paused discards buffered records, and does not resume the partition.

    kafka-python 3.0 does not deliver any records after the resume, because its only
    slot stays occupied. 2.3, aiokafka and confluent-kafka pass.
    """
    consumer, half_read, other = _half_read(lab)
    for target in (200, 10):
        paused = pause(lab, consumer, [half_read])
        consumer.seek(half_read, target)
        paused.taken[half_read] = target
        lab.beat(consumer, other)
        paused.prove()


def test_position_while_paused(lab: Lab) -> None:
    """
    While a partition is paused, position() stays at its next record.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    consumer, half_read, other = _half_read(lab)
    pause(lab, consumer, [half_read])
    lab.beat(consumer, other)
    position = consumer.position(half_read)
    expect(position == 1, f"position {position}, 1 record was delivered")


def test_poll_does_not_spin_while_all_is_paused(lab: Lab) -> None:
    """
    A poll with everything paused waits for its whole timeout, almost without CPU time.

    kafka-python 3.0 passes, as do 2.3, aiokafka and confluent-kafka.
    """
    consumer, half_read, other = _half_read(lab)
    paused = pause(lab, consumer, [half_read, other])
    consumer.poll()  # after this poll the answers in flight have arrived
    start, cpu = time.monotonic(), consumer.cpu()
    consumer.poll(1.0)
    consumer.poll(1.0)
    waited, used = time.monotonic() - start, consumer.cpu() - cpu
    expect(waited > 1.9, f"waited {waited:.1f} of 2 s")
    expect(used < 0.2, f"{used:.1f} s of CPU in a wait of 2 s")
    paused.expect_nothing()


def test_time_limit_at_any_point_in_a_poll(lab: Lab) -> None:
    """
    Every record is delivered once even if a signal handler raises anywhere in a poll.

    Job runners use such signal handlers for their time limits.

    kafka-python 3.0 hangs, because a lock that a wait had taken stays locked. 2.3 never
    delivers some of the records that the interrupted poll had fetched, and
    confluent-kafka loses the record that it was about to return. aiokafka, whose time
    limits cancel a task, passes.
    """
    tps = lab.topic_with(1, partitions=2)
    consumer = lab.assigned(tps)
    start = note(lab, consumer, tps)
    while consumer.poll_limited():
        start.expect_flows()
        lab.produce(tps)


def test_pause_of_one_bad_partition_among_good_ones(lab: Lab) -> None:
    """
    A pause of one good and one bad target pauses the good target, or is refused.

    kafka-python 3.0 and 2.3 raise a bare KeyError, aiokafka raises an
    IllegalStateError, and all three leave the good target paused. confluent-kafka
    ignores the bad target.
    """
    p0, p1 = lab.topic_with(5, partitions=2)
    (elsewhere,) = lab.topic(1)
    consumer = lab.assigned([p0, p1])
    start = note(lab, consumer, [p0])
    try:
        consumer.pause([p0, elsewhere])
    except ClientError as error:
        flows = reaches([consumer], lambda: consumer.count([p0]) == 5, bound=3)
        halves = "" if flows else ", and the good one is paused"
        expect(error.is_own and flows, f"{error.kind}{halves}")
    else:
        lab.beat(consumer, p1)
        start.expect_nothing()


def test_paused_partition_unassigned_and_back(lab: Lab) -> None:
    """
    A paused partition that is unassigned and assigned again is still paused.

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. With safeconsumer, a plain pause ends as well, but a strict pause stays in
    force. confluent-kafka passes.
    """
    p0, p1 = lab.topic_with(5, partitions=2)
    consumer = lab.assigned([p0, p1])
    take(consumer, [p0, p1], 5)
    paused = pause(lab, consumer, [p0], "named")
    lab.produce(p0, 20)
    consumer.assign([p1])
    lab.beat(consumer, p1)
    consumer.assign([p0, p1])
    lab.beat(consumer, p1)
    paused.expect_nothing()
    paused.taken[p0] = 0  # without a group the consumer starts at the first record
    paused.prove()


def test_unassigned_and_back_with_a_fetch_in_flight(lab: Lab) -> None:
    """
    A paused partition that is unassigned during a fetch and comes back stays paused.

    The program paused the partition by name.

    kafka-python (3.0, 2.3) and aiokafka forget the pause, as documented for the Java
    client. With safeconsumer, a plain pause ends as well, but a strict pause stays in
    force. confluent-kafka passes.
    """
    p0, p1 = lab.topic_with(3, partitions=2)
    consumer = lab.assigned([p0, p1], fetch_wait=_LONG_FETCH)
    take(consumer, [p0, p1], 3)
    consumer.poll()  # at the log's end, so a fetch waits at the broker after this call
    paused = pause(lab, consumer, [p0], "named")
    consumer.assign([p1])
    lab.produce(p0, 5)  # the broker answers the waiting fetch
    lab.beat(consumer, p1)
    consumer.assign([p0, p1])
    lab.beat(consumer, p1)
    paused.expect_nothing()
    paused.taken[p0] = 0  # without a group the consumer starts at the first record
    paused.prove()


def _half_read(lab: Lab) -> tuple[Consumer, TopicPartition, TopicPartition]:
    """Return a consumer, a partition that it has read partly, and another partition."""
    tps = lab.topic_with(300, partitions=2)
    consumer = lab.assigned(tps)
    until([consumer], lambda: consumer.log, "the first record", limit=1)
    half_read = consumer.log[0].tp
    (other,) = set(tps) - {half_read}
    return consumer, half_read, other
