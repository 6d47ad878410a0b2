"""
Records that cannot be read, because a deserializer or a checksum fails.

Each poll raises, no earlier record is lost, and a seek or a pause avoids the record.
"""

import copy

import pytest
from kafka.errors import CorruptRecordError

from safeconsumer import SafeConsumer
from safeconsumer.errors import CorruptBatchError
from tests.harness.kafka.broken import Picky, PoisonError
from tests.sim.meddling import both_decoders
from tests.sim.reading import Reader, both_ways, corrupt


def poison(lab, tp):
    """Append a value that the deserializer refuses."""
    lab.append(tp, first=666)


broken = pytest.mark.parametrize(
    ("spoil", "error"),
    [
        pytest.param(poison, PoisonError, id="deserializer"),
        pytest.param(corrupt, CorruptBatchError, id="checksum"),
    ],
)


def reading(lab, spoil, how="poll", decoder="auto"):
    """Read two partitions: the first has two records, a broken record, and two more."""
    bad, good = lab.topic("t", 2, records=2)
    spoil(lab, bad)
    lab.append(bad, 2, first=3)
    settings = {"value_deserializer": Picky(), "decoder": decoder}
    reader = Reader(lab, SafeConsumer, tps=[bad, good], how=how, **settings)
    return reader, bad, good


@broken
@both_ways
@both_decoders
def test_each_poll_raises_after_the_records_before_the_broken_one_until_a_seek(
    lab, spoil, error, how, decoder
):
    """kafka-python's next poll never returns; our checksum error names the offset."""
    reader, bad, good = reading(lab, spoil, how, decoder)
    for turn in range(3):
        with pytest.raises(error) as raised:
            reader.until(lambda: False, limit=1 if how == "iterate" else 500)
        assert reader.consumer.position(bad) == 2
        assert reader.offsets(bad) == [0, 1]
        if error is CorruptBatchError:
            assert "t:0" in str(raised.value)
            assert type(raised.value.__cause__) is CorruptRecordError
            # a copy keeps both attributes
            for one in (raised.value, copy.copy(raised.value)):
                assert (one.partition, one.offset) == (bad, 2)
        lab.append(good, first=2 + turn)
    reader.consumer.seek(bad, 3)
    reader.reads(bad, [3, 4])
    reader.until(lambda: len(reader.log) == 9)
    assert reader.offsets(good) == [*range(5)]


@broken
def test_no_poll_raises_while_the_partition_is_paused(lab, spoil, error):
    reader, bad, good = reading(lab, spoil)
    reader.until(lambda: reader.offsets(bad) == [0, 1])
    reader.consumer.pause(bad)  # the next poll would raise the error
    lab.append(good, 3, first=2)
    reader.is_silent(of=[bad])
    assert reader.offsets(good) == [*range(5)]
    assert reader.consumer.quiet() == {bad}
    reader.consumer.resume(bad)
    with pytest.raises(error):
        reader.until(lambda: False)
    assert reader.consumer.position(bad) == 2


@both_decoders
def test_no_record_is_lost_once_the_deserializer_is_repaired(lab, decoder):
    reader, bad, good = reading(lab, poison, decoder=decoder)
    with pytest.raises(PoisonError):
        reader.until(lambda: False)
    reader.consumer.config["value_deserializer"].refused = b""
    reader.until(lambda: len(reader.log) == 7)
    assert reader.offsets(bad) == [*range(5)]
    assert reader.offsets(good) == [0, 1]


def test_corrupt_record_error_of_a_broker_names_partition_and_offset(lab):
    """The broker answers one fetch of the partition with ``CorruptRecordError``."""
    (p0,) = lab.topic("t", records=3)
    reader = Reader(lab, SafeConsumer, tps=[p0])
    reader.reads(p0, range(3))
    lab.cluster.fail("Fetch", error=CorruptRecordError.errno, count=1)
    with pytest.raises(CorruptBatchError, match=r"t:0 .* offset 3: ") as raised:
        reader.until(lambda: False)
    assert (raised.value.partition, raised.value.offset) == (p0, 3)
    lab.append(p0, first=3)
    reader.reads(p0, [3])


def test_seek_drops_an_error_that_is_pending_for_the_next_poll(lab):
    """The records before the broken one were returned first."""
    (p0,) = lab.topic("t", records=3)
    poison(lab, p0)
    lab.append(p0, 3, first=4)
    reader = Reader(lab, SafeConsumer, tps=[p0], value_deserializer=Picky())
    reader.reads(p0, range(3))
    reader.consumer.seek(p0, 5)
    reader.reads(p0, [5, 6])
