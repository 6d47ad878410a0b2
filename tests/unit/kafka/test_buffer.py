"""Tests an ownership's buffer, parked buffers, and positions of undelivered records."""

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import CompletedFetch
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.pausing.buffer import Buffer, Buffers, drop_answer
from safeconsumer._kafka.pausing.subscription import LedgerSubscription
from safeconsumer.testing import make_record
from tests.harness.kafka.fetches import PartitionData

A, B, C = (TopicPartition("orders", number) for number in range(3))
START = OffsetAndMetadata(0, "", -1)


class Batch:
    """A fake of upstream's open batch: some records, and perhaps an error after them."""

    _next_inline_exception = None
    leader_epoch = 5

    def __init__(self, first, count, error=None):
        self.next_fetch_offset, self.records_read = first, 0
        made = [make_record(b"v" * 10, offset=first + at) for at in range(count)]
        self._left = [one._replace(leader_epoch=4) for one in made]
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
def test_records_put_back_are_taken_before_the_remaining_records(step):
    """The records stay in order, and the position after each take is correct."""
    buffer = _filled()
    assert _offsets(buffer.take(3)) == [0, 1, 2]
    buffer.move_cursor(0, 0)
    got = []
    while buffer.is_open:
        got += _offsets(buffer.take(step))
        reached = buffer.reached(START)
        assert reached.offset == len(got)
        assert reached.leader_epoch == (4 if len(got) < 3 else 5)
    assert got == [0, 1, 2, 3, 4]


def test_forget_keeps_the_records_at_and_after_the_position():
    """The position may be in a gap between two records."""
    buffer = _filled(2)
    buffer.move_cursor(2, 0)
    for position, expected in ((2, [2, 3, 4, 5, 6]), (4, [4, 5, 6]), (6, [6]), (7, [])):
        buffer.take(9) if buffer.is_open else None
        buffer.forget(position, 0)
        assert _offsets(buffer.taken) == expected
    assert buffer.is_empty


def test_seek_to_a_position_outside_the_buffer_empties_the_buffer():
    """A seek to the current position drops only the delivered records."""
    buffer = _filled()
    buffer.take(3)
    buffer.forget(3, 0)
    buffer.move_cursor(1, 0)
    assert buffer.is_empty
    buffer = _filled()
    buffer.take(3)
    buffer.move_cursor(3, 1)  # a seek to the current position
    assert (buffer.taken, buffer.is_open) == ([], True)
    assert _offsets(buffer.take(9)) == [3, 4]
    buffer.move_cursor(0, 2)
    assert buffer.is_empty


def test_error_in_the_batch_is_raised_after_its_records():
    """After the error, the buffer returns only records that were put back."""
    buffer = _filled(0, 2, ValueError("broken"))
    assert _offsets(buffer.take(9)) == [0, 1]
    assert buffer.reached(START).offset == 2
    buffer.move_cursor(0, 0)
    assert _offsets(buffer.take(9)) == [0, 1]
    with pytest.raises(ValueError, match="broken"):
        buffer.take(9)
    buffer.close_batch()
    assert not buffer.is_open
    buffer.move_cursor(1, 0)
    assert _offsets(buffer.take(9)) == [1]


def test_batch_is_dropped_if_some_of_its_records_were_lost():
    """A signal handler raised an error while the poll took records out of the batch."""
    buffer = _filled()
    buffer.batch.take(2)
    buffer.move_cursor(0, 0)
    assert buffer.take(9) == []
    assert buffer.is_empty


def test_records_after_a_dropped_batch_do_not_count_as_its_continuation():
    buffer = _filled()
    buffer.take(5)
    buffer.close_open()
    buffer.open(Batch(5, 2), b"", 0)
    buffer.take(2)
    buffer.move_cursor(0, 0)
    assert buffer.is_empty


# ------------------------------------------------------------ parked


@pytest.fixture
def buffers():
    """Return buffers with room for 100 parked bytes."""
    return Buffers(100)


def test_oldest_parked_buffers_are_dropped_completely(buffers):
    """A buffer becomes the newest if it receives a response or is parked again."""
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
    for tp, size in ((A, 40), (C, 50), (B, 20)):
        buffers.park(tp, _filled(size=size))
    assert buffers.drop_excess() == {A: 40}


def test_records_put_back_are_counted_by_the_size_of_their_values(buffers):
    """The bytes of a response count in full until all its records have been read."""
    buffer = _filled(size=50)
    buffer.take(3)
    assert buffer.count_bytes() == 50
    buffer.move_cursor(1, 0)
    assert buffer.count_bytes() == 70
    buffer.take(9)
    buffer.take(9)
    assert buffer.count_bytes() == 0
    buffers.park(A, buffer)
    assert buffers.bytes_parked() == 0


def test_resumed_buffers_are_read_first_in_the_order_in_which_they_were_parked(buffers):
    for tp in (C, B, A):
        buffers.add_answer(tp, Buffer(), _answer(tp, 1))
    for tp in (A, B):
        buffers.park(tp, buffers.waiting[tp])
    buffers.resume({A})
    assert (list(buffers.waiting), list(buffers.parked)) == ([B, C], [A])
    buffers.resume(set())
    assert list(buffers.waiting) == [A, B, C]


def test_dropped_response_is_recorded_as_empty_in_upstreams_metrics():
    """Upstream's metrics wait for a value for each partition of a response."""
    recorded = []

    class Aggregator:
        def record(self, *figures):
            recorded.append(figures)

    answer = _answer(A, 20)._replace(metric_aggregator=Aggregator())
    assert drop_answer(answer) == (A, 0, 20)
    assert recorded == [(A, 0, 0)]


# ------------------------------------------------------------ undelivered


@pytest.fixture
def subscription():
    """Return a subscription with A at offset 0."""
    made = LedgerSubscription()
    made.assign_from_user([A])
    made.seek(A, 0)
    return made


def _drain(subscription, end):
    state = subscription.assignment[A]
    subscription.undelivered.note(A, state)
    state.position = OffsetAndMetadata(end, "", -1)


def test_delivered_position_does_not_move_until_the_poll_returns(subscription):
    for end in (5, 10):
        _drain(subscription, end)
        assert subscription.delivered_position(A) == 0
        assert subscription.all_consumed_offsets()[A].offset == 0
    subscription.undelivered.are_returned = True
    assert subscription.delivered_position(A) == 10
    subscription.undelivered.put_back()
    assert subscription.delivered_position(A) == 10


def test_no_record_is_put_back_after_a_seek_a_reset_or_a_new_ownership(subscription):
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
