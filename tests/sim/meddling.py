"""Helpers that act during a poll, while one of its records is being deserialized."""

import gc
import threading
import weakref

import pytest
from attrs import evolve
from kafka import KafkaConsumer
from kafka.serializer import Deserializer

from safeconsumer._kafka.decoding import decoders
from safeconsumer._kafka.decoding.decoders import choose
from safeconsumer._kafka.pausing.steps import Steps
from tests.sim.reading import Watching

both_decoders = pytest.mark.parametrize("decoder", ["python", "compiled"])


@pytest.fixture(params=["C", "Python"])
def both_steps(request, monkeypatch):
    """Run a test with the iteration's steps in C, then with those in Python."""
    if request.param == "Python":
        chosen = evolve(choose("auto"), steps=Steps)
        monkeypatch.setattr(decoders, "_compiled", lambda: chosen)


def elsewhere(act):
    """Call a function on another thread, and wait until the thread has ended."""
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def trace(patch):
    """Wrap the method that returns each record of an iteration, as tracing libraries do."""
    upstream = KafkaConsumer.__next__

    def traced(self):
        return upstream(self)

    patch.setattr(KafkaConsumer, "__next__", traced)


class Meddler(Deserializer):
    """
    A deserializer that calls given functions, each at the n-th record that it sees.

    Attributes:
        seen: the values deserialized so far, as numbers.
    """

    def __init__(self):
        self.seen = []
        self._acts = {}

    def at(self, count, act):
        """Call a function on another thread when the n-th record is deserialized."""
        self._acts[count] = lambda: elsewhere(act)

    def raise_at(self, count, error):
        """Raise an error once, when the n-th record is deserialized."""

        def act():
            raise error

        self._acts[count] = act

    def deserialize(self, topic, headers, data):
        del topic, headers
        self.seen.append(int(data))
        act = self._acts.pop(len(self.seen), None)
        if act is not None:
            act()
        return data


class Value:
    """A deserialized value."""


class Making(Deserializer):
    """A deserializer that counts its values in memory, and may raise at the n-th value."""

    def __init__(self, fails_at=None):
        self.fails_at, self.made = fails_at, []

    def deserialize(self, _topic, _headers, _data):
        value = Value()
        self.made.append(weakref.ref(value))
        if len(self.made) == self.fails_at:
            raise KeyboardInterrupt
        return value

    def alive(self):
        gc.collect()
        return sum(one() is not None for one in self.made)


class Meddled(Watching):
    """
    Reads ``t-0`` and ``t-1``, which have the given number of records each.

    Attributes:
        meddler: the deserializer that acts during the polls of this reader.
        tps: the two partitions.
    """

    def __init__(self, lab, records=10, **settings):
        self.meddler = Meddler()
        self.tps = lab.topic("t", 2)
        lab.append(self.tps[0], records)
        lab.append(self.tps[1], records, first=1000)
        more = {"value_deserializer": self.meddler, **settings}
        super().__init__(lab, tps=self.tps, **more)

    @property
    def in_order(self):
        """Return both partitions in the order in which their records were deserialized."""
        is_second = self.meddler.seen[:1] >= [1000]
        return self.tps[:: -1 if is_second else 1]

    def once(self):
        """Read until records arrive, and return the records; a poll's error is raised."""
        before = len(self.log)
        self.until(lambda: len(self.log) > before)
        return self.log[before:]

    def reads_everything(self, count=20):
        """Assert that all records of both partitions arrive, once and in order."""
        self.until(lambda: len(self.log) >= count)
        self.is_silent(seconds=2)
        for tp in self.tps:
            assert self.offsets(tp) == list(range(count // 2))
