"""Python's garbage collector has no work with records of the compiled decoder."""

import gc
import sys
from contextlib import contextmanager

import pytest
from kafka import TopicPartition
from kafka.serializer import Deserializer

from tests.harness.kafka.fetches import answer, assigned, batch

TP = TopicPartition("orders", 0)
_BATCH = 150  # records; as 16 KiB hold of 100 bytes


class Wrapping(Deserializer):
    """Makes objects that may lead back to what has them."""

    def deserialize(self, topic, headers, data):
        del topic, headers
        return [data]


def _filled(safe, records, **configs):
    consumer = safe(decoder="compiled", **configs)
    assigned(consumer, TP)
    answer(
        consumer,
        TP,
        0,
        b"".join(batch(first, _BATCH) for first in range(0, records, _BATCH)),
    )
    return consumer


@contextmanager
def _looked_at():
    """Note how many objects the collector has to look at, each time that it starts."""
    counts = []

    def note(phase, info):
        if phase == "start":
            generations = range(info["generation"] + 1)
            counts.append(sum(len(gc.get_objects(one)) for one in generations))

    gc.collect()
    gc.freeze()  # everything that is there already
    gc.callbacks.append(note)
    try:
        yield counts
    finally:
        gc.callbacks.remove(note)
        gc.unfreeze()


def _poll(consumer, most):
    return [one for each in consumer.poll(max_records=most).values() for one in each]


READS = {
    "polls of 500": lambda consumer: _poll(consumer, 500),
    "polls of 3,000": lambda consumer: _poll(consumer, 3_000),
    "steps": lambda consumer: [next(consumer)],
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_the_collector_looks_at_no_record(safe, read):
    """It starts, and finds what else was made, however many records are kept."""
    consumer = _filled(safe, 9_000)
    kept, calls = [], 0
    with _looked_at() as counts:
        while len(kept) < 9_000:
            kept += read(consumer)
            calls += 1
    most = 9_000 // gc.get_threshold()[0]
    if sys.version_info >= (3, 12):  # it starts between two instructions only
        most = min(most, calls - 1)
    assert len(counts) > most
    assert max(counts) < 1_000


def test_what_is_deserialized_is_looked_at_as_ever(safe):
    """A value of the application's may lead back to its record, or to its headers."""
    consumer = _filled(safe, 450, value_deserializer=Wrapping())
    (records,) = consumer.poll(max_records=450).values()
    assert all(map(gc.is_tracked, records))
    assert all(gc.is_tracked(one.headers) for one in records)


def test_no_poll_switches_the_collector_off(safe, monkeypatch):
    """The switch is the whole process's, and the application's."""
    consumer = _filled(safe, 1_500)
    switched = []
    for name in ("enable", "disable", "collect", "freeze"):
        monkeypatch.setattr(gc, name, lambda name=name: switched.append(name))
    for _ in range(3):
        assert sum(map(len, consumer.poll(max_records=500).values())) == 500
    assert switched == []
