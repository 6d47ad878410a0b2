"""Scenarios of one consumer that reads: positions, pauses, retention, transactions."""

from kafka import TopicPartition
from kafka.errors import OffsetOutOfRangeError

from tests.sim.parity.stages import both
from tests.sim.reading import raised


def assigned(s, *partitions, **settings):
    """Create a consumer without a group that reads some partitions."""
    one = s.consumer(**settings)
    one.consumer.assign(partitions)
    return one


@both
def a_manual_assignment_is_read_in_order(s):
    """A consumer with a manual assignment reads each partition in order."""
    partitions = s.topic(partitions=3, records=10)
    one = assigned(s, *partitions)
    one.read(30)
    s.facts["values"] = [one.values(tp) for tp in partitions]
    s.facts["kinds"] = one.kinds()


@both
def polls_of_at_most_seven(s):
    """No poll returns more records than requested; the next polls return the rest."""
    (tp,) = s.topic(records=20)
    one = assigned(s, tp)
    sizes = []
    s.until(lambda: sum(sizes) == 20 or sizes.append(len(one.poll(limit=7))), "20")
    s.facts["sizes"] = [size for size in sizes if size]


@both
def seeks(s):
    """The consumer seeks to an offset, the beginning and the end, and continues reading."""
    (tp,) = s.topic(records=10)
    one = assigned(s, tp)
    one.consumer.seek(tp, 6)
    s.facts["from 6"] = one.read(4)
    one.consumer.seek_to_beginning(tp)
    s.facts["from the beginning"] = one.read(14)
    one.consumer.seek_to_end(tp)
    s.facts["position at the end"] = one.consumer.position(tp)
    s.append(2, tp)
    s.facts["after the end"] = one.read(16)


@both
def a_pause_of_an_unassigned_partition(s):
    """The call raises an error, and may pause the assigned partition that it names."""
    tp, other = s.topic(partitions=2, records=5)
    one = assigned(s, tp)
    one.settle()
    unknown = TopicPartition(s.name("t"), 99)
    s.facts["raised"] = raised(lambda: one.consumer.pause(tp, unknown))
    s.facts["paused"] = [quiet.partition for quiet in one.consumer.paused()]
    one.consumer.resume(tp)
    s.append(1, tp)
    one.settle()
    s.facts["values"] = one.values(tp)
    s.facts["not assigned"] = raised(lambda: one.consumer.position(other))


@both
def iteration(s):
    """A for loop yields each record once, even across a pause of the other partition."""
    tp, other = s.topic(partitions=2, records=5)
    one = assigned(s, tp, other, consumer_timeout_ms=2000)
    one.consumer.pause(other)
    for record in one.consumer:
        one.log.append(record)
        if len(one.values(tp)) == 5:
            one.consumer.resume(other)
        if len(one.log) == 10:
            break
    s.facts["values"] = [int(record.value) for record in one.log]


@both
def requests_for_offsets(s):
    """The consumer requests beginning offsets, end offsets and offsets for times."""
    partitions = s.topic(partitions=2, records=5)
    one = s.consumer()
    s.facts["beginnings"] = sorted(one.consumer.beginning_offsets(partitions).values())
    s.facts["ends"] = sorted(one.consumer.end_offsets(partitions).values())
    early = one.consumer.offsets_for_times(dict.fromkeys(partitions, 0))
    late = one.consumer.offsets_for_times(dict.fromkeys(partitions, 2**45))
    s.facts["since 1970"] = [found.offset for found in early.values()]
    s.facts["in the future"] = list(late.values())
    s.facts["partitions"] = sorted(one.consumer.partitions_for_topic(s.name("t")))
    s.facts["kinds"] = one.kinds()


# Positions out of range, and retention


def _beyond(s, reset):
    (tp,) = s.topic(records=10)
    one = assigned(s, tp, auto_offset_reset=reset)
    one.consumer.seek(tp, 1000)
    return one


@both
def beyond_the_end_to_the_earliest(s):
    """A position that is out of range is reset to the beginning."""
    s.facts["values"] = _beyond(s, "earliest").read(10)


@both
def beyond_the_end_to_the_latest(s):
    """A position that is out of range is reset to the end."""
    one = _beyond(s, "latest")
    (tp,) = one.consumer.assignment()
    state = one.consumer._subscription.assignment[tp]
    one.until(lambda: state.position and state.position.offset == 10)
    s.append(2, tp)
    s.facts["values"] = one.read(2)


@both
def beyond_the_end_to_none(s):
    """The poll raises an error with the offset that is out of range."""
    s.facts["offsets"] = _out_of_range(_beyond(s, "none"))


def _out_of_range(one):
    """Poll until the error is raised; return the offsets that the error names."""
    found = []

    def is_raised():
        try:
            one.poll()
        except OffsetOutOfRangeError as error:
            found.append(error)
        return bool(found)

    one.lab.until(is_raised, "an error")
    return sorted(found[0].args[0].values())


def _retained(s, reset, *, is_held, **settings):
    (tp,) = s.topic()
    for _ in range(20):
        s.append(1, tp)
    small = {"max_partition_fetch_bytes": 100, **settings}
    one = assigned(s, tp, auto_offset_reset=reset, **small)
    one.consumer.seek(tp, 2)
    if is_held:
        one.consumer.pause(tp)
        one.poll()
    low = s.admin().delete_records({tp: 12})[tp]
    s.facts["low watermark"] = low["low_watermark"]
    one.consumer.resume(tp)
    return one


@both
def retention_passes_a_held_position_to_the_latest(s):
    """Reading continues at the end, or with the first remaining record."""
    one = _retained(s, "latest", is_held=True)
    (tp,) = one.consumer.assignment()
    one.settle()
    s.append(2, tp)
    one.settle()
    s.facts["values"] = one.values(tp)


@both
def retention_passes_a_held_position_and_there_is_no_policy(s):
    """The poll raises an error with the offset, until a seek to the beginning."""
    one = _retained(s, "none", is_held=True)
    s.facts["offsets"] = _out_of_range(one)
    (tp,) = one.consumer.assignment()
    one.consumer.seek_to_beginning(tp)
    s.facts["values"] = one.read(8)


@both
def a_compacted_topic(s):
    """The last record of each key, even a tombstone, remains at its old offset."""
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    (tp,) = s.topic(settings=settings)
    values = [b"%d" % number for number in range(9)]
    for number, value in enumerate([*values, None]):
        key = b"k%d" % (number % 3)
        s.write([{"topic": tp.topic, "partition": 0, "key": key, "value": value}])
    found = []

    def is_compacted():
        # The active segment is never compacted, so another record closes the previous
        # segment.
        s.write([{"topic": tp.topic, "partition": 0, "key": b"last", "value": b"x"}])
        s.clean()
        found[:] = _read_once(s, tp)
        return len(found) == 3

    s.until(is_compacted, "compaction")
    s.facts["records"] = found


def _read_once(s, tp):
    one = assigned(s, tp)
    end = one.consumer.end_offsets([tp])[tp]
    found = []
    while one.consumer.position(tp) < end:
        for records in one.consumer.poll(100).values():
            found += [(r.offset, r.key, r.value) for r in records if r.key != b"last"]
    return found


# Transactions


def _transactional(s):
    producer = s.producer(transactional_id=s.name("producer"))
    producer.init_transactions()
    return producer


def _write_in_one(producer, tp, *values, end="commit_transaction"):
    producer.begin_transaction()
    for value in values:
        producer.send(tp.topic, b"%d" % value, partition=tp.partition)
    producer.flush()
    getattr(producer, end)()


@both
def committed_and_aborted_transactions(s):
    """A reader of committed records gets no aborted record; other readers get all."""
    (tp,) = s.topic()
    producer = _transactional(s)
    _write_in_one(producer, tp, 1, 2)
    _write_in_one(producer, tp, 3, 4, end="abort_transaction")
    _write_in_one(producer, tp, 5)
    producer.close()
    for level, count in (("read_committed", 3), ("read_uncommitted", 5)):
        one = assigned(s, tp, isolation_level=level)
        s.facts[level] = one.read(count)
        s.facts[f"{level}: position"] = one.consumer.position(tp)


@both
def an_open_transaction_holds_back_later_records(s):
    """A reader of committed records waits until an open transaction has ended."""
    (tp,) = s.topic()
    producer = _transactional(s)
    s.append(2, tp)
    producer.begin_transaction()
    producer.send(tp.topic, b"100", partition=0)
    producer.flush()
    s.append(2, tp)
    one = assigned(s, tp, isolation_level="read_committed")
    s.facts["before"] = one.read(2)
    s.facts["stable end"] = one.consumer.end_offsets([tp])[tp]
    other = assigned(s, tp)
    s.facts["end"] = other.consumer.end_offsets([tp])[tp]
    one.consumer.pause(tp)
    producer.commit_transaction()
    producer.close()
    s.facts["paused"] = len(one.poll())
    one.consumer.resume(tp)
    s.facts["after"] = one.read(5)


@both
def a_producer_that_was_fenced(s):
    """The second producer of a transactional id ends the first producer's transaction."""
    (tp,) = s.topic()
    first = _transactional(s)
    first.begin_transaction()
    first.send(tp.topic, b"1", partition=0)
    first.flush()
    second = _transactional(s)
    _write_in_one(second, tp, 2)
    second.close()
    s.facts["first"] = raised(first.commit_transaction)
    first.close(timeout=1)
    s.facts["values"] = assigned(s, tp, isolation_level="read_committed").read(1)
