"""Creates compiled readers and steps, and their arguments."""

from collections import deque

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.structs import OffsetAndMetadata

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.decoding.records import _header_bytes, _uncompressed
from tests.unit.kafka.decoding.batches import Frame, Row, written

TP = TopicPartition("orders", 3)
TOPIC = "orders-" + "x" * 20
HEADERS = (("trace", b"1"), ("none", None))
ROWS = [Row(n, b"k" * n, b"v" * 300 if n % 2 else None, HEADERS) for n in range(9)]
COUNT = len(ROWS)
BATCH, END = written(5, ROWS, Frame(epoch=7))
ALL = 2**31


def reader(data, **other):
    """Return a reader with the usual arguments, except for the given arguments."""
    usual = {
        "kind": ConsumerRecord,
        "topic": TOPIC,
        "partition": 3,
        "least": 0,
        "is_summed": True,
        "is_aborted": None,
        "uncompress": _uncompressed,
        "keys": None,
        "values": None,
        "again": None,
        "header_bytes": _header_bytes,
    }
    return _batches.Reader(data, *(usual | other).values())


def taken(data, **other):
    """Read all records in ``data``, and return the records and the reader."""
    made, records = reader(data, **other), []
    assert made.take(records, ALL)
    return records, made


class Calling:
    """A deserializer that calls a function."""

    def __init__(self, call):
        self.call = call

    def deserialize(self, topic, headers, data):
        return self.call(topic, headers, data)


class Ledger:
    """A fake ledger with the one method that a step calls for each record."""

    def __init__(self):
        self.queue = deque()
        self.settled = None
        self.asked = frozenset()

    def quiet(self):
        if not self.queue and self.settled is not None:
            return self.settled
        return self.asked


class State:
    """A fake partition state with the attributes and methods that a step uses."""

    def __init__(self):
        self._position = OffsetAndMetadata(0, "", -1)
        self.moves = 0
        self.paused = self._pending_revocation = self._awaiting_validation = False
        self.was_restored = False

    def is_fetchable(self):
        held = self.paused or self._pending_revocation
        return not held and not self._awaiting_validation

    def restore_move(self):
        self.was_restored = True


def record(offset, kind=ConsumerRecord):
    return kind("orders", 3, 7, offset, 1, 0, None, b"v", [], None, -1, 1, -1)


def steps_of(kind, ledger, state, count=3):
    """Return steps over records with offsets from 0."""
    records = [record(offset) for offset in range(count)]
    return kind(ledger, {TP: state}, TP, state, state._position, records)
