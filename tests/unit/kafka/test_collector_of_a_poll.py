"""
Polls that make hundreds of records do not start Python's garbage collector (0088).
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.serializer import Deserializer

from safeconsumer import SafeConsumer
from safeconsumer._kafka.decoding.collector import LastPolls
from tests.harness.kafka.fetches import answer, assigned, batch, corrupted
from tests.harness.kafka.fixtures import Maker

TP = TopicPartition("orders", 0)
_BATCH = 150  # records; as 16 KiB hold of 100 bytes


class Passing(Deserializer):  # type: ignore[misc]  # upstream is untyped
    """
    Leaves the bytes, and notes whether the collector runs meanwhile.
    """

    def __init__(self) -> None:
        self.enabled: set[bool] = set()

    def deserialize(self, topic: str, headers: object, data: bytes) -> bytes:
        del topic, headers
        self.enabled.add(gc.isenabled())
        return data


def _filled(safe: Maker, polls: int, **configs: Any) -> SafeConsumer:  # noqa: ANN401 - upstream's
    consumer = safe(decoder="compiled", **configs)
    assigned(consumer, TP)
    answer(
        consumer,
        TP,
        0,
        b"".join(batch(first, _BATCH) for first in range(0, polls * 500, _BATCH)),
    )
    return consumer


@contextmanager
def _collections() -> Iterator[list[int]]:
    """
    Note the generation of each collection inside.
    """
    generations: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            generations.append(info["generation"])

    gc.collect()
    gc.callbacks.append(note)
    try:
        yield generations
    finally:
        gc.callbacks.remove(note)


def _read(consumer: SafeConsumer, polls: int) -> int:
    count = 0
    for _ in range(polls):
        for records in consumer.poll().values():
            for record in records:
                count += record.offset >= 0
    return count


def test_polls_of_500_start_no_collector(safe: Maker) -> None:
    """
    Without both measures nearly each of them does.
    """
    consumer = _filled(safe, 40)
    _read(consumer, 4)
    with _collections() as seen:
        assert _read(consumer, 36) == 36 * 500
    assert len(seen) <= 2


def test_an_iteration_starts_none(safe: Maker) -> None:
    """
    Its polls are the same.
    """
    consumer = _filled(safe, 40)
    steps = iter(consumer)
    for _ in range(2_000):
        next(steps)
    with _collections() as seen:
        for _ in range(18_000):
            next(steps)
    assert len(seen) <= 2


def test_records_that_are_kept_for_a_while_start_none(safe: Maker) -> None:
    """
    As a worker keeps them, which takes up some polls and finishes them in one go.
    """
    consumer = _filled(safe, 60)
    kept: list[object] = []

    def wave() -> None:
        for _ in range(10):
            kept.extend(consumer.poll(max_records=300).values())
        kept.clear()

    for _ in range(3):
        wave()
    with _collections() as seen:
        for _ in range(6):
            wave()
    assert len(seen) <= 2


def test_with_a_deserializer_it_runs_as_ever(safe: Maker) -> None:
    """
    It may wait, and other threads' garbage must not stay meanwhile.
    """
    passing = Passing()
    consumer = _filled(safe, 4, value_deserializer=passing)
    assert _read(consumer, 4) == 2_000
    assert passing.enabled == {True}


def test_it_is_on_after_an_error_of_the_drain(safe: Maker) -> None:
    """
    A batch that is broken on its way, and the records before it.
    """
    consumer = safe(decoder="compiled")
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 3) + corrupted(batch(3, 3)))
    assert _read(consumer, 1) == 3
    with pytest.raises(Exception, match="crc"):
        consumer.poll()
    assert gc.isenabled()


def test_it_stays_off_where_the_application_has_it_off(safe: Maker) -> None:
    """
    A program may collect at moments of its own.
    """
    consumer = _filled(safe, 2)
    gc.disable()
    try:
        assert _read(consumer, 2) == 1_000
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_poll_returned_is_the_applications() -> None:
    """
    It may empty the lists; that frees nothing at the wrong moment.
    """
    kept = LastPolls()
    records: list[object] = [bytearray(b"1")]
    first = records[0]
    before = len(gc.get_referrers(first))
    kept.turn([records], 1)
    records.clear()
    assert len(gc.get_referrers(first)) == before


def test_two_polls_are_kept_and_no_more() -> None:
    """
    A poll without records frees nothing: nothing was made.
    """
    kept = LastPolls()
    alive: list[int] = []

    kept.turn([_made([1], alive)], 1)
    kept.turn([_made([2], alive)], 1)
    kept.turn([], 0)
    assert alive == [1, 2]
    kept.turn([_made([3], alive)], 1)
    assert alive == [2, 3]
    kept.clear()
    assert not alive


def _made(numbers: Iterable[int], alive: list[int]) -> list[object]:
    """
    Make objects that note themselves for as long as they are there.
    """

    class Record:
        def __init__(self, number: int) -> None:
            self.number = number
            alive.append(number)

        def __del__(self) -> None:
            alive.remove(self.number)

    return [Record(number) for number in numbers]


def test_what_is_dropped_in_one_go_is_freed_as_others_come() -> None:
    """
    As many as came, at each turn; never those of the last two polls.
    """
    last, alive, kept = LastPolls(), [], []  # type: LastPolls, list[int], list[object]
    for at in range(0, 50, 10):
        kept.append(_made(range(at, at + 10), alive))
        last.turn([kept[-1]], 1)
    assert len(alive) == 50
    kept.clear()
    assert len(alive) == 50
    last.turn([_made(range(50, 60), alive)], 1)
    assert alive == list(range(10, 60))
    last.turn([_made(range(60, 85), alive)], 1)
    assert alive == list(range(40, 85))
    last.turn([_made(range(85, 105), alive)], 1)
    assert alive == list(range(60, 105))


@pytest.mark.parametrize(
    ("records", "size", "most"), [(2_500, 1, 10_000), (10, 512 * 1024, 40)]
)
def test_what_is_kept_is_bounded(records: int, size: int, most: int) -> None:
    """
    An application that never drops a record, for its memory is its own.
    """
    last, kept = LastPolls(), []  # type: LastPolls, list[object]
    for _ in range(10):
        kept.append([bytearray() for _ in range(records)])
        last.turn([kept[-1]], size)
    assert sum(len(some) for polled, *_ in last._polls for some in polled) == most


@pytest.mark.parametrize("size", [1024 * 1024 + 1, 2**62])
def test_a_large_poll_is_not_kept(size: int) -> None:
    """
    Neither is one of which the size is not known.
    """
    kept = LastPolls()
    records = [[bytearray(1)]]
    kept.turn(records, size)
    assert _kept(kept) == []


def test_large_polls_free_what_was_kept() -> None:
    """
    They take the places of the last two.
    """
    last, alive = LastPolls(), []  # type: LastPolls, list[int]
    last.turn([_made(range(3), alive)], 1)
    last.turn([_made(range(3, 6), alive)], 2**62)
    assert alive == [0, 1, 2]
    last.turn([_made(range(6, 9), alive)], 2**62)
    assert alive == []


def _kept(last: LastPolls) -> list[Any]:
    """
    Return what is kept of the last poll.
    """
    return last._polls[-1][0]


def test_large_records_are_freed_at_once(safe: Maker) -> None:
    """
    Values of 100 KB: a poll of 20 has more than is kept.
    """
    consumer = safe(decoder="compiled")
    assigned(consumer, TP)
    answer(consumer, TP, 0, batch(0, 40, value=b"x" * 100_000))
    assert sum(map(len, consumer.poll(max_records=20).values())) == 20
    fetcher: Any = consumer._fetcher
    assert _kept(fetcher._last_polls) == []
    assert sum(map(len, consumer.poll(max_records=5).values())) == 5
    assert sum(map(len, _kept(fetcher._last_polls))) == 5


def test_what_was_put_back_is_not_kept(safe: Maker) -> None:
    """
    Its bytes were not counted.
    """
    consumer = _filled(safe, 2)
    steps = iter(consumer)
    next(steps)
    consumer.pause(TP)
    assert consumer.poll() == {}
    consumer.resume(TP)
    assert _read(consumer, 1) == 500  # and one of the batch behind them
    fetcher: Any = consumer._fetcher
    assert _kept(fetcher._last_polls) == []


def test_a_closed_consumer_keeps_none(safe: Maker) -> None:
    """
    Somebody may hold on to it for long.
    """
    consumer = _filled(safe, 2)
    _read(consumer, 2)
    consumer.close()
    fetcher: Any = consumer._fetcher
    assert not fetcher._last_polls._polls
