"""Data of quiet partitions is kept for their resume, up to a cap (P8)."""

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.events.consumer import ParkedDataDropped
from tests.harness.holds.lab import Told
from tests.harness.kafka.fetches import answer, assigned, batch, offsets
from tests.harness.kafka.fixtures import Maker

PARTITIONS = [TopicPartition("orders", number) for number in range(4)]
A, B, C, _ = PARTITIONS
BATCH = batch(0, 10, value=b"x" * 100)


@pytest.fixture
def consumer(safe: Maker) -> SafeConsumer:
    """Room for two batches and a half, everything paused."""
    made = safe(parked_max_bytes=len(BATCH) * 5 // 2)
    assigned(made, *PARTITIONS)
    made.pause(*PARTITIONS)
    return made


def _parked(consumer: SafeConsumer) -> set[TopicPartition]:
    fetcher = consumer._fetcher
    return {*fetcher._paused_completed_fetches, *fetcher._paused_partition_records}


def test_parked_data_needs_no_new_fetch(consumer: SafeConsumer) -> None:
    """KAFKA-7548."""
    answer(consumer, A, 0, BATCH)
    assert consumer.poll(0) == {}
    assert consumer._fetcher.parked_bytes() == len(BATCH)
    consumer.resume(A)
    assert offsets(consumer.poll(0)) == {0: [*range(10)]}
    assert consumer._fetcher.parked_bytes() == 0


def test_beyond_the_cap_the_oldest_is_dropped(
    consumer: SafeConsumer, told: Told
) -> None:
    """And told, once per poll; the others stay."""
    for tp in (A, B, C):
        answer(consumer, tp, 0, BATCH)
    consumer.poll(0)
    (dropped,) = told.of(ParkedDataDropped)
    assert ((A,), len(BATCH)) == (dropped.partitions, dropped.bytes)
    assert _parked(consumer) == {B, C}
    assert consumer._fetcher.parked_bytes() == 2 * len(BATCH)


def test_what_was_dropped_is_fetched_again(consumer: SafeConsumer) -> None:
    """The position never moved; nothing is lost, nothing comes twice."""
    for tp in (A, B, C):
        answer(consumer, tp, 0, BATCH)
    consumer.poll(0)
    consumer.resume(*PARTITIONS)
    assert A in consumer._fetcher._fetchable_partitions()
    answer(consumer, A, 0, BATCH)
    got = offsets(consumer.poll(0))
    assert got == {number: [*range(10)] for number in range(3)}


def test_a_half_read_batch_that_was_dropped_goes_on_where_it_was(
    consumer: SafeConsumer,
) -> None:
    """Its rest is fetched from the position."""
    consumer.resume(A)
    answer(consumer, A, 0, BATCH)
    assert offsets(consumer.poll(0, max_records=3)) == {0: [0, 1, 2]}
    consumer.pause(A)
    answer(consumer, B, 0, BATCH)
    answer(consumer, C, 0, BATCH)
    consumer.poll(0)
    assert _parked(consumer) == {B, C}
    consumer.resume(A)
    answer(consumer, A, 3, BATCH)  # a broker sends whole batches
    assert offsets(consumer.poll(0)) == {0: [*range(3, 10)]}


def test_a_partition_that_is_dropped_again_and_again_still_arrives(
    consumer: SafeConsumer,
) -> None:
    """A batch larger than the cap is never parked for long, and never lost."""
    huge = batch(0, 10, value=b"x" * len(BATCH))
    for _ in range(3):
        answer(consumer, A, 0, huge)
        assert consumer.poll(0) == {}
        assert _parked(consumer) == set()
    consumer.resume(A)
    answer(consumer, A, 0, huge)
    assert offsets(consumer.poll(0)) == {0: [*range(10)]}


def test_a_cap_of_nothing_parks_nothing(safe: Maker) -> None:
    """Memory first: everything of a paused partition is fetched again."""
    consumer = safe(parked_max_bytes=0)
    assigned(consumer, A)
    consumer.pause(A)
    answer(consumer, A, 0, BATCH)
    consumer.poll(0)
    assert consumer._fetcher.parked_bytes() == 0
    assert _parked(consumer) == set()


def test_records_that_went_back_count_as_well(safe: Maker, told: Told) -> None:
    """Those that the final check of ``poll`` put back."""
    consumer = safe(parked_max_bytes=500)
    assigned(consumer, A)
    answer(consumer, A, 0, BATCH)
    fetch = consumer._fetcher.fetch_records

    def pause_late(*args: object, **more: object) -> object:
        result = fetch(*args, **more)
        consumer.pause(A)
        return result

    consumer._fetcher.fetch_records = pause_late
    assert consumer.poll(0) == {}
    consumer._fetcher.fetch_records = fetch
    assert consumer._fetcher.parked_bytes() >= 1000
    consumer.poll(0)
    assert consumer._fetcher.parked_bytes() == 0
    assert len(told.of(ParkedDataDropped)) == 1
    assert consumer.position(A) == 0


@pytest.fixture
def cut_off(safe: Maker) -> SafeConsumer:
    """Have an iteration take two of A's ten records, yield one, and pause A."""
    made = safe(max_poll_records=2, consumer_timeout_ms=20, parked_max_bytes=500)
    assigned(made, A)
    answer(made, A, 0, BATCH)
    assert next(made).offset == 0
    made.pause(A)
    return made


def test_the_rest_behind_records_that_went_back_counts(cut_off: SafeConsumer) -> None:
    """The whole batch is in memory, and one record of it beside."""
    cut_off._safe_iteration._end()
    assert cut_off._fetcher.parked_bytes() == len(BATCH) + 100


def test_records_that_go_back_again_are_counted_once(cut_off: SafeConsumer) -> None:
    """Each time anew: the batch and what was decoded of it."""
    cut_off._fetcher.parked.max_bytes = 10**6
    assert next(cut_off, None) is None
    for _ in range(3):
        assert cut_off._fetcher.parked_bytes() == len(BATCH) + 100
        cut_off.resume(A)
        next(cut_off)
        cut_off.pause(A)
        assert next(cut_off, None) is None


def test_the_rest_behind_records_that_went_back_is_bounded(
    cut_off: SafeConsumer, told: Told
) -> None:
    """It is dropped beyond the cap, and comes again after the resume."""
    assert next(cut_off, None) is None
    (dropped,) = told.of(ParkedDataDropped)
    assert dropped.bytes == len(BATCH) + 100
    assert _parked(cut_off) == set()
    cut_off.resume(A)
    answer(cut_off, A, 1, BATCH)
    assert [record.offset for record in cut_off] == [*range(1, 10)]


def test_what_departs_is_no_longer_counted(consumer: SafeConsumer) -> None:
    """Purged data takes no room."""
    answer(consumer, A, 0, BATCH)
    consumer.poll(0)
    consumer.assign([B])
    consumer.poll(0)
    assert consumer._fetcher.parked_bytes() == 0


def test_close_empties_the_buffers(consumer: SafeConsumer) -> None:
    """Completed, half-read and parked."""
    consumer.resume(B)
    answer(consumer, B, 0, BATCH)
    consumer.poll(0, max_records=1)
    answer(consumer, A, 0, BATCH)
    consumer.poll(0, max_records=1)
    answer(consumer, C, 0, BATCH)
    fetcher = consumer._fetcher
    assert fetcher._completed_fetches
    assert fetcher._next_partition_records
    consumer.close(autocommit=False, timeout_ms=0)
    assert _parked(consumer) == set()
    assert not fetcher._completed_fetches
    assert not fetcher._next_partition_records
    assert consumer._fetcher.parked_bytes() == 0
    assert not consumer._safe_ledger.view().quiet


@pytest.mark.parametrize("size", [0, 1, 2**40])
def test_any_size_of_room_is_legal(safe: Maker, size: int) -> None:
    """Bytes from none to more than there is memory."""
    consumer = safe(parked_max_bytes=size)
    assert consumer._fetcher.parked.max_bytes == size
