"""The objects a fetcher keeps its data in, each by itself."""

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import CompletedFetch
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.pausing.buffers import (
    ParkedData,
    ReturnedRecords,
    Stamped,
    drop_answer,
)
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from tests.harness.kafka.fetches import PartitionData

A, B, C = (TopicPartition("orders", number) for number in range(3))


class Part:
    """A half-read batch, as far as parking looks."""

    def __init__(self, tp, size):
        self.topic_partition, self.data = tp, b"x" * size
        self.drained = 0

    def drain(self):
        self.drained += 1


def _answer(tp, size):
    data = PartitionData(partition_index=tp.partition, records=b"x" * size)
    return CompletedFetch(tp, 0, 12, data, None)


@pytest.fixture
def parked():
    """With room for 100 bytes."""
    return ParkedData({}, {}, 100)


def test_the_oldest_is_dropped(parked):
    """Whole partitions, until the rest has room; what is kept again is new again."""
    parts = {tp: Part(tp, 50) for tp in (A, B, C)}
    parked.keep_part(parts[A])
    parked.keep_part(parts[B])
    assert parked.drop_excess() == {}
    parked.keep_answer(_answer(A, 1))
    assert parked.drop_excess() == {B: 50}
    parked.keep_part(parts[C])
    assert parked.drop_excess() == {A: 51}
    assert [part.drained for part in parts.values()] == [1, 1, 0]
    assert (parked.parts(), parked.answers()) == ([C], [])
    assert parked.bytes_kept() == 50


def test_a_batch_that_is_kept_again_is_new_again(parked):
    """Though its partition was the oldest."""
    for tp, size in ((A, 50), (B, 40), (A, 50), (C, 20)):
        parked.keep_part(Part(tp, size))
    assert parked.drop_excess() == {B: 40}


# ------------------------------------------------------------ returned records


class Rest:
    """The rest of a batch: numbers, or an error."""

    def __init__(self, first, *records):
        self.next_fetch_offset, self.left = first, list(records)
        self.records_read = 0

    def __bool__(self):
        return bool(self.left)

    def take(self, n):
        if isinstance(self.left[0], Exception):
            raise self.left.pop(0)
        taken, self.left = self.left[:n], self.left[n:]
        self.next_fetch_offset = taken[-1].offset + 1
        return taken

    def drain(self):
        self.left = []


class Record:
    """As much of a record as is looked at."""

    leader_epoch = 4
    serialized_key_size, serialized_value_size = -1, 10

    def __init__(self, offset):
        self.offset = offset


def _returned(count, rest=None):
    records = [Record(offset) for offset in range(count)]
    position = OffsetAndMetadata(0, "", -1)
    return ReturnedRecords(A, records, position, Stamped.of(0, None), rest)


@pytest.mark.parametrize("step", [1, 2, 3, 9])
def test_returned_records_come_before_the_rest(step):
    """In order, with the position behind each step."""
    part = _returned(3, Rest(3, Record(3), Record(4)))
    got = []
    while part:
        got += [one.offset for one in part.take(step)]
        assert part.next_fetch_offset == len(got)
        assert part.leader_epoch == 4
    assert got == [0, 1, 2, 3, 4]


def test_an_error_in_the_rest_comes_behind_the_records():
    """Then there is nothing more."""
    part = _returned(2, Rest(2, ValueError("broken")))
    assert [one.offset for one in part.take(9)] == [0, 1]
    assert part
    with pytest.raises(ValueError, match="broken"):
        part.take(9)
    part.drain()
    assert not part


# ------------------------------------------------------------ undelivered


@pytest.fixture
def subscription():
    """With A at offset 0, where a drain is about to begin."""
    made = LedgerSubscription()
    made.assign_from_user([A])
    made.seek(A, 0)
    return made


def _drain(subscription, end):
    state = subscription.assignment[A]
    subscription.undelivered.note(A, state)
    state.position = OffsetAndMetadata(end, "", -1)


def test_delivered_is_what_was_there_before_a_drain(subscription):
    """However many batches it takes."""
    for end in (5, 10):
        _drain(subscription, end)
        assert subscription.delivered_position(A) == 0
        assert subscription.all_consumed_offsets()[A].offset == 0
    subscription.undelivered.are_returned = True
    assert subscription.delivered_position(A) == 10
    subscription.undelivered.recover()
    assert subscription.delivered_position(A) == 10


def test_a_seek_ends_what_could_move_back(subscription):
    """So does a reset, and a new ownership."""
    assignment = subscription.assignment
    _drain(subscription, 5)
    subscription.seek(A, 5)
    assert assignment[A].move_back() is None
    _drain(subscription, 9)
    subscription.request_offset_reset(A)
    subscription.undelivered.recover()
    assert subscription.delivered_position(A) is None
    subscription.seek(A, 2)
    _drain(subscription, 9)
    subscription.assign_from_user([B])
    subscription.assign_from_user([A])
    assert assignment[A].move_back() is None
    assert subscription.delivered_position(A) is None


class Aggregator:
    """Upstream's: it tells the sizes of an answer once all its partitions were recorded."""

    def __init__(self):
        self.recorded = []

    def record(self, tp, size, records):
        self.recorded.append((tp, size, records))


def test_an_answer_that_is_dropped_leaves_no_figure_open():
    """Upstream's figures of an answer wait for each partition that is in it."""
    aggregator = Aggregator()
    answer = _answer(A, 20)._replace(metric_aggregator=aggregator)
    assert drop_answer(answer) == (A, 0, 20)
    assert aggregator.recorded == [(A, 0, 0)]
