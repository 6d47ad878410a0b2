"""Deliveries are recorded so that a missing record never looks delivered."""

import gc
import tracemalloc
from types import SimpleNamespace

import pytest

from safeconsumer.journal.deliveries import Deliveries
from safeconsumer.journal.writer import JournalWriter
from tests.harness.audit.journals import check, findings_of, read


def written(folder, *calls, end=None):
    writer = JournalWriter(folder, member="reader")
    writer.write("assigned", {"partitions": ["orders:0"]})
    came = Deliveries(writer)
    for offsets in calls:
        records = [SimpleNamespace(offset=one, timestamp=None) for one in offsets]
        came.write(("orders", 0), records, {"after": 1, "asked": 0.0}, end=end)
    producer = JournalWriter(folder, member="producer")
    producer.write("acked", {"tp": "orders:0", "first": 0, "last": 9})
    found = findings_of(check([read(path) for path in folder.iterdir()]))
    return [
        [
            (one["from"], one["next"], one["count"], one["gaps"])
            for one in read(writer.path).lines
            if one.event == "deliver"
        ],
        {one.check for one in found},
    ]


@pytest.mark.parametrize(
    ("calls", "runs", "broken"),
    [
        ([[*range(10)]], [(0, 10, 10, None)], set()),
        ([[0, 1, 2, 3], [6, 7, 8, 9]], [(0, 4, 4, None), (4, 10, 4, None)], {"A2"}),
        ([[0, 1, 2, 4, 9]], [(0, 10, 5, [[3, 4], [5, 9]])], {"A2"}),
        ([[0, 1, 1, 3]], [(0, 2, 2, None), (1, 4, 2, [[2, 3]])], {"A2", "A4"}),
        ([[3, 2]], [(3, 4, 1, None), (2, 3, 1, None)], {"A4"}),
    ],
)
def test_missing_and_repeated_offsets_are_recorded(tmp_path, calls, runs, broken):
    assert written(tmp_path, *calls) == [runs, broken]


def test_offsets_before_the_next_position_do_not_count_as_delivered(tmp_path):
    """The offsets between the last record and the next position may have had records."""
    runs = [(0, 7, 5, None), (7, 10, 3, None)]
    assert written(tmp_path, [0, 1, 2, 3, 4], [7, 8, 9], end=7) == [runs, {"A2"}]


def test_only_the_last_offset_range_of_a_poll_ends_at_the_position(tmp_path):
    runs = [(0, 4, 3, [[2, 3]]), (1, 10, 1, None)]
    assert written(tmp_path, [0, 1, 3, 1], end=10) == [runs, {"A2", "A4"}]


def test_forgotten_partitions_free_their_memory(tmp_path):
    """Otherwise an endless series of topic names would fill the memory."""
    came = Deliveries(JournalWriter(tmp_path, member="reader"))
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(4_000):
            with came.seeking({f"orders-{number}:0": 5}):
                pass
            came.began()
            came.forget([(f"orders-{number}", 0)])
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000


@pytest.mark.parametrize(
    "offsets", [[5, 6], [50, 51]], ids=["before the seek", "after the seek"]
)
def test_seek_during_a_poll_makes_the_position_unknown(tmp_path, offsets):
    """The poll may have read its records before or after the seek."""
    writer = JournalWriter(tmp_path, member="reader")
    came = Deliveries(writer)
    came.begins_at(("orders", 0), 5)
    came.began()
    with came.seeking({"orders:0": 50}):
        pass
    for several, end in ((offsets, 60), ([50, 52], None), ([55], None)):
        records = [SimpleNamespace(offset=one, timestamp=None) for one in several]
        came.write(("orders", 0), records, {"after": 0, "asked": 0.0}, end=end)
        came.began()
    found = [(one["from"], one["next"]) for one in read(writer.path).lines]
    assert found == [(offsets[0], offsets[-1] + 1), (50, 53), (53, 56)]


def test_failed_seek_leaves_the_position_unchanged(tmp_path):
    came = Deliveries(JournalWriter(tmp_path, member="reader"))
    came.begins_at(("orders", 0), 5)
    with pytest.raises(KeyError), came.seeking({"orders:0": 50}):
        raise KeyError
    assert came.next == {"orders:0": 5}
