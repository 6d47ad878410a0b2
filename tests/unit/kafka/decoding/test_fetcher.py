"""Pausing in the middle of a batch, parked, returned and purged data, by both decoders."""

from typing import Any

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from tests.harness.kafka.fetches import answer, assigned, corrupted, offsets
from tests.harness.kafka.fixtures import Maker
from tests.unit.kafka.decoding.batches import Frame, Row, many, written

PARTITIONS = [TopicPartition("orders", number) for number in range(3)]
A, B, C = PARTITIONS


def _batches(first: int, *counts: int) -> bytes:
    data, at = b"", first
    for count in counts:
        more, at = written(at, many([Row(value=b"v" * 50)], count), Frame(codec=3))
        data += more
    return data


@pytest.fixture(params=["python", "compiled"])
def decoder(request: pytest.FixtureRequest) -> str:
    """Each test runs with both."""
    return str(request.param)


@pytest.fixture
def consumer(safe: Maker, decoder: str) -> SafeConsumer:
    """Three partitions at offset 0."""
    made = safe(decoder=decoder)
    assert made.decoder == decoder
    assigned(made, *PARTITIONS)
    return made


def test_a_pause_in_the_middle_of_a_batch(consumer: SafeConsumer) -> None:
    """The rest waits, needs no new fetch, and comes in order."""
    answer(consumer, A, 0, _batches(0, 5, 5))
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    consumer.pause(A)
    answer(consumer, B, 0, _batches(0, 2))
    assert offsets(consumer.poll(0)) == {1: [0, 1]}
    assert consumer.position(A) == 3
    consumer.resume(A)
    assert offsets(consumer.poll(0, max_records=4)) == {0: [3, 4, 5, 6]}
    assert offsets(consumer.poll(0)) == {0: [7, 8, 9]}
    assert consumer.position(A) == 10


def test_parked_answers(consumer: SafeConsumer) -> None:
    """They came while the partition was paused."""
    consumer.pause(A)
    answer(consumer, A, 0, _batches(0, 5))
    answer(consumer, B, 0, _batches(0, 2))
    assert offsets(consumer.poll(0)) == {1: [0, 1]}
    assert consumer._fetcher.parked_bytes() > 0
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [0, 1, 2, 3, 4]}
    assert consumer._fetcher.parked_bytes() == 0


def test_a_half_read_batch_beyond_the_cap(safe: Maker, decoder: str) -> None:
    """It is dropped, and the broker sends the whole compressed batch again."""
    consumer = safe(decoder=decoder, parked_max_bytes=0)
    assigned(consumer, A, B)
    answer(consumer, A, 0, _batches(0, 10))
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    consumer.pause(A)
    assert consumer.poll(0) == {}
    assert not consumer._fetcher._paused_partition_records
    consumer.resume(A)
    answer(consumer, A, 3, _batches(0, 10))
    assert offsets(consumer.poll(0)) == {0: [*range(3, 10)]}


@pytest.mark.parametrize("taken", [3, 5, 7])
def test_records_that_go_back(consumer: SafeConsumer, taken: int) -> None:
    """The final check of ``poll`` puts them in front of the rest of their batch."""
    answer(consumer, A, 0, _batches(0, 5, 5))
    fetch = consumer._fetcher.fetch_records

    def pause_late(*args: object, **more: object) -> object:
        result = fetch(*args, **more)
        consumer.pause(A)
        return result

    consumer._fetcher.fetch_records = pause_late
    assert consumer.poll(0, max_records=taken) == {}
    consumer._fetcher.fetch_records = fetch
    assert consumer.position(A) == 0
    consumer.resume(A)
    got: list[int] = []
    for _ in range(4):
        got += offsets(consumer.poll(0, max_records=4)).get(0, [])
    assert got == [*range(10)]
    assert consumer.position(A) == 10


def test_what_departs_in_the_middle_is_purged(consumer: SafeConsumer) -> None:
    """Back again it begins at its position; nothing of the old batch is left."""
    answer(consumer, A, 0, _batches(0, 5, 5))
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    part = consumer._fetcher._next_partition_records
    consumer.assign([B])
    answer(consumer, B, 0, _batches(0, 2))
    assert offsets(consumer.poll(0)) == {1: [0, 1]}
    assert not part
    assert not getattr(part, "_chunk", [])
    assigned(consumer, A)
    consumer.seek(A, 2)
    answer(consumer, A, 2, _batches(0, 5))
    assert offsets(consumer.poll(0)) == {0: [2, 3, 4]}


def test_a_seek_in_the_middle(consumer: SafeConsumer) -> None:
    """The rest of the batch is not what was asked for."""
    answer(consumer, A, 0, _batches(0, 10))
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    consumer.seek(A, 8)
    assert consumer.poll(0) == {}
    answer(consumer, A, 8, _batches(0, 10))
    assert offsets(consumer.poll(0)) == {0: [8, 9]}


def test_iteration_over_several_batches(safe: Maker, decoder: str) -> None:
    """With a pause in between, in the loop."""
    consumer = safe(decoder=decoder, consumer_timeout_ms=100)
    assigned(consumer, A)
    answer(consumer, A, 0, _batches(0, 5, 5))
    got = []
    for record in consumer:
        got.append(record.offset)
        if record.offset == 2:
            consumer.pause(A)
    assert got == [0, 1, 2]
    assert consumer.position(A) == 3
    consumer.resume(A)
    assert [record.offset for record in consumer] == [*range(3, 10)]


def test_a_damaged_batch_behind_good_ones(consumer: SafeConsumer) -> None:
    """The error comes after the records; the position stays, and a seek leads past it."""
    bad = corrupted(_batches(5, 5))
    answer(consumer, A, 0, _batches(0, 5) + bad + _batches(10, 5))
    assert offsets(consumer.poll(0)) == {0: [0, 1, 2, 3, 4]}
    with pytest.raises(Exception, match="failed crc check"):
        consumer.poll(0)
    assert consumer.position(A) == 5
    assert consumer.poll(0) == {}
    consumer.seek(A, 10)
    answer(consumer, A, 10, _batches(10, 5))
    assert offsets(consumer.poll(0)) == {0: [*range(10, 15)]}


# ---------------------------------------------------------------- memory


@pytest.fixture
def counted(safe: Maker) -> tuple[SafeConsumer, list[int], list[Any]]:
    """Make a consumer that notes the records of each opened batch, and its parts."""
    consumer = safe(decoder="compiled")
    assigned(consumer, *PARTITIONS)
    kind = consumer._fetcher.PartitionRecords
    opened: list[int] = []
    parts: list[Any] = []

    class Counting(kind):  # type: ignore[misc]  # made at run time
        def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401
            super().__init__(*args, **more)
            parts.append(self)

        def _open(self, batch: Any) -> None:  # noqa: ANN401 - upstream's class
            super()._open(batch)
            opened.append(self._left)

    consumer._fetcher.PartitionRecords = Counting
    return consumer, opened, parts


def test_one_open_batch_at_a_time(
    counted: tuple[SafeConsumer, list[int], list[Any]],
) -> None:
    """The next one is opened when it is asked for, and the one before is gone then."""
    consumer, opened, parts = counted
    answer(consumer, A, 0, _batches(0, 10, 10, 10))
    for read in range(1, 31):
        assert offsets(consumer.poll(0, max_records=1)) == {0: [read - 1]}
        (part,) = parts
        assert len(opened) == (read + 9) // 10
        assert part._left == -read % 10
    consumer.poll(0)
    assert len(parts[0]._data) == 0


def test_partitions_one_after_the_other(
    counted: tuple[SafeConsumer, list[int], list[Any]],
) -> None:
    """One batch each, and none of what is parked unread."""
    consumer, opened, parts = counted
    consumer.pause(C)
    for tp in (C, A, B):
        answer(consumer, tp, 0, _batches(0, 10, 10))
    consumer.poll(0, max_records=5)
    consumer.pause(A)
    consumer.poll(0, max_records=5)
    assert opened == [10, 10]
    assert [part._left for part in parts] == [5, 5]
    assert C in consumer._fetcher._paused_completed_fetches
