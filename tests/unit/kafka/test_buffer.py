"""Where a fetcher keeps its data, by itself."""

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import CompletedFetch
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.pausing.buffer import Buffer, Buffers, drop_answer
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from tests.harness.kafka.fetches import PartitionData

A, B, C = (TopicPartition("orders", number) for number in range(3))
START = OffsetAndMetadata(0, "", -1)


class Record:
    """As much of a record as is looked at."""

    leader_epoch = 4
    serialized_key_size, serialized_value_size = -1, 10

    def __init__(self, offset):
        self.offset = offset


class Batch:
    """One of upstream's: records, and an error behind them."""

    _next_inline_exception = None
    leader_epoch = 5

    def __init__(self, first, count, error=None):
        self.next_fetch_offset, self.records_read = first, 0
        self._left = [Record(offset) for offset in range(first, first + count)]
        self._error = error
        self.drained = 0

    def __bool__(self):
        return bool(self._left or self._error)

    def take(self, n):
        if self._error is not None and not self._left:
            error, self._error = self._error, None
            raise error
        taken, self._left = self._left[:n], self._left[n:]
        self.next_fetch_offset = taken[-1].offset + 1
        self._next_inline_exception = None if self._left else self._error
        return taken

    def drain(self):
        self._left, self._error = [], None
        self.drained += 1


def _answer(tp, size):
    data = PartitionData(partition_index=tp.partition, records=b"x" * size)
    return CompletedFetch(tp, 0, 12, data, None)


def _filled(first=0, count=5, error=None, size=0):
    buffer = Buffer()
    buffer.open(Batch(first, count, error), b"x" * size, 0)
    return buffer


def _offsets(records):
    return [one.offset for one in records]


# ------------------------------------------------------------ the cursor


@pytest.mark.parametrize("step", [1, 2, 3, 9])
def test_what_was_put_back_comes_before_the_rest(step):
    """In order, with the position behind each step."""
    buffer = _filled()
    assert _offsets(buffer.take(3)) == [0, 1, 2]
    buffer.follow(0, 0)
    got = []
    while buffer.is_open:
        got += _offsets(buffer.take(step))
        reached = buffer.reached(START)
        assert reached.offset == len(got)
        assert reached.leader_epoch == (4 if len(got) < 3 else 5)
    assert got == [0, 1, 2, 3, 4]


def test_it_goes_back_as_often_as_the_position_does():
    """To any record that is not delivered, in a gap too; what is before it is forgotten."""
    buffer = _filled(2)
    buffer.follow(2, 0)
    for position, expected in ((2, [2, 3, 4, 5, 6]), (4, [4, 5, 6]), (6, [6]), (7, [])):
        buffer.take(9) if buffer.is_open else None
        buffer.forget(position, 0)
        assert _offsets(buffer.taken) == expected
    assert buffer.is_empty


def test_a_position_that_is_not_in_it_leaves_nothing():
    """Delivered records do not come again; the batch does if it goes on from there."""
    buffer = _filled()
    buffer.take(3)
    buffer.forget(3, 0)
    buffer.follow(1, 0)
    assert buffer.is_empty
    buffer = _filled()
    buffer.take(3)
    buffer.follow(3, 1)  # a seek to where it stands
    assert (buffer.taken, buffer.is_open) == ([], True)
    assert _offsets(buffer.take(9)) == [3, 4]
    buffer.follow(0, 2)
    assert buffer.is_empty


def test_an_error_in_the_batch_comes_behind_the_records():
    """Then there is nothing more, but what may be put back."""
    buffer = _filled(0, 2, ValueError("broken"))
    assert _offsets(buffer.take(9)) == [0, 1]
    assert buffer.reached(START).offset == 2
    buffer.follow(0, 0)
    assert _offsets(buffer.take(9)) == [0, 1]
    with pytest.raises(ValueError, match="broken"):
        buffer.take(9)
    buffer.close_batch()
    assert not buffer.is_open
    buffer.follow(1, 0)
    assert _offsets(buffer.take(9)) == [1]


def test_a_batch_of_which_records_got_lost_is_thrown_away():
    """A signal handler raised when they were taken out of it."""
    buffer = _filled()
    buffer.batch.take(2)
    buffer.follow(0, 0)
    assert buffer.take(9) == []
    assert buffer.is_empty


def test_what_is_thrown_away_leaves_no_gap():
    """What comes behind it does not follow on what was before it."""
    buffer = _filled()
    buffer.take(5)
    buffer.close_open()
    buffer.open(Batch(5, 2), b"", 0)
    buffer.take(2)
    buffer.follow(0, 0)
    assert buffer.is_empty


# ------------------------------------------------------------ parked


@pytest.fixture
def buffers():
    """With room for 100 bytes."""
    return Buffers(100)


def test_the_oldest_is_dropped(buffers):
    """Whole partitions, until the rest has room; what is parked again is new again."""
    each = {tp: _filled(size=50) for tp in (A, B, C)}
    batches = [buffer.batch for buffer in each.values()]
    buffers.park(A, each[A])
    buffers.park(B, each[B])
    assert buffers.drop_excess() == {}
    buffers.add_answer(A, each[A], _answer(A, 1))
    assert buffers.drop_excess() == {B: 50}
    buffers.park(C, each[C])
    assert buffers.drop_excess() == {A: 51}
    assert [batch.drained for batch in batches] == [1, 1, 0]
    assert [buffer.is_empty for buffer in each.values()] == [True, True, False]
    assert list(buffers.parked) == [C]
    assert buffers.bytes_parked() == 50


def test_a_buffer_that_is_parked_again_is_new_again(buffers):
    """Though its partition was the oldest."""
    for tp, size in ((A, 50), (B, 40), (A, 50), (C, 20)):
        buffers.park(tp, _filled(size=size))
    assert buffers.drop_excess() == {B: 40}


def test_records_that_were_put_back_count_with_their_values(buffers):
    """And the whole batch as long as a record of it is to be read."""
    buffer = _filled(size=50)
    buffer.take(3)
    assert buffer.count_bytes() == 50
    buffer.follow(1, 0)
    assert buffer.count_bytes() == 70
    buffer.take(9)
    buffer.take(9)
    assert buffer.count_bytes() == 0
    buffers.park(A, buffer)
    assert buffers.bytes_parked() == 0


def test_what_flows_again_has_the_first_turns(buffers):
    """In the order in which it was parked."""
    for tp in (C, B, A):
        buffers.add_answer(tp, Buffer(), _answer(tp, 1))
    for tp in (A, B):
        buffers.park(tp, buffers.waiting[tp])
    buffers.resume({A})
    assert (list(buffers.waiting), list(buffers.parked)) == ([B, C], [A])
    buffers.resume(set())
    assert list(buffers.waiting) == [A, B, C]


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
    subscription.undelivered.put_back()
    assert subscription.delivered_position(A) == 10


def test_a_seek_ends_what_could_move_back(subscription):
    """So does a reset, and a new ownership."""
    assignment = subscription.assignment
    _drain(subscription, 5)
    subscription.seek(A, 5)
    assert not assignment[A].put_back()
    _drain(subscription, 9)
    subscription.request_offset_reset(A)
    subscription.undelivered.put_back()
    assert subscription.delivered_position(A) is None
    subscription.seek(A, 2)
    _drain(subscription, 9)
    subscription.assign_from_user([B])
    subscription.assign_from_user([A])
    assert not assignment[A].put_back()
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
