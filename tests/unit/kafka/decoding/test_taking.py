"""Taking records that ends early, by an error, Ctrl-C or a drain."""

import sys

import pytest
from kafka.record import MemoryRecords
from kafka.serializer import Deserializer

from safeconsumer._kafka.decoding.decoders import choose
from tests.unit.kafka.decoding.batches import COMMIT, Frame, Row, marker, written
from tests.unit.kafka.decoding.compare import TP


class Raising(Deserializer):
    """Leaves the bytes, and raises when it is told to."""

    def __init__(self, error=None):
        self.error = error

    def deserialize(self, topic, headers, data):
        del topic, headers
        if self.error is not None:
            raise self.error
        return data


def _part(deserializer):
    data, _ = written(0, [Row(value=b"v")] * 3, Frame())
    return choose("compiled").records(
        0, TP, MemoryRecords(data), value_deserializer=deserializer
    )


def test_nothing_more_comes_after_ctrl_c():
    """As from upstream's generator: what was taken and lost is fetched again."""
    raising = Raising()
    part = _part(raising)
    assert len(part.take(1)) == 1
    raising.error = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        part.take()
    raising.error = None
    assert part.take() == []
    assert part.next_fetch_offset == 1


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
def test_an_answer_is_not_kept_by_what_has_read_it(codec):
    """After a drain nothing stays."""
    data = bytes(written(0, [Row(value=b"v")] * 3, Frame(codec=codec))[0])
    before = sys.getrefcount(data)
    part = choose("compiled").records(0, TP, MemoryRecords(data))
    part.take(1)
    part.drain()
    assert sys.getrefcount(data) == before
    assert part.take() == []


def test_a_stop_iteration_of_a_deserializer_shows_where_it_comes_from(caplog):
    """In the log and in the error, as with kafka-python."""
    stop = StopIteration("next() of mine")
    with pytest.raises(RuntimeError) as caught:
        _part(Raising(stop)).take()
    assert caught.value.__context__ is stop
    (logged,) = caplog.records
    assert (logged.name, logged.exc_info[1]) == ("kafka.consumer.fetcher", stop)


def test_a_deserializer_that_has_the_rest_thrown_away():
    """It closes the consumer, say: the record comes, and nothing after it."""

    class Closing(Deserializer):
        def deserialize(self, topic, headers, data):
            del topic, headers
            part.drain()
            return data

    part = _part(Closing())
    assert [record.offset for record in part.take()] == [0]
    assert part.take() == []
    assert part.next_fetch_offset == 1


@pytest.mark.parametrize("decoder", ["python", "compiled"])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_a_part_knows_whether_a_batch_was_of_a_transaction(
    decoder, *, is_transactional
):
    """Once it was read, for a journal; a marker alone is enough."""
    first, at = written(0, [Row(value=b"v")] * 3, Frame())
    frame = Frame(producer=7, transactional=is_transactional)
    data = first + written(at, [Row(value=b"v")] * 3, frame)[0]
    for deserializer in (None, Raising()):
        part = choose(decoder).records(
            0, TP, MemoryRecords(data), value_deserializer=deserializer
        )
        part.take(3)
        assert not part.is_transactional
        part.take(3)
        assert part.is_transactional is is_transactional
    part = choose(decoder).records(0, TP, MemoryRecords(marker(0, COMMIT, 7)[0]))
    part.take(1)
    assert part.is_transactional
