"""Deserializers are called by one thread at a time, as kafka-python calls them."""

import pytest
from kafka.serializer import Deserializer

from tests.sim.playing import simulated
from tests.sim.worker.working import Working, filled

pytestmark = pytest.mark.filterwarnings("ignore:.*_deserializer:DeprecationWarning")

VALUES = [str(number) for number in range(20)]


class Stateful(Deserializer):
    """
    Puts the data aside, waits, and returns what it put aside.

    Attributes:
        inside: how many threads are in it now.
        most: the most threads that were in it at a time.
    """

    def __init__(self, lab):
        self._lab = lab
        self._data = b""
        self.inside = self.most = 0

    def decode(self, data):
        self.inside += 1
        self.most = max(self.most, self.inside)
        self._data = data
        self._lab.sleep(0.01)
        self.inside -= 1
        return self._data.decode()

    def deserialize(self, _topic, _headers, data):
        return self.decode(data)

    def close(self): ...


def of_one_value(made):
    return {"value_deserializer": made}


def of_key_and_value(made):
    return {"key_deserializer": made, "value_deserializer": made}


def of_methods(made):
    return {"key_deserializer": made.decode, "value_deserializer": made.decode}


def of_functions_around(made):
    return {
        "key_deserializer": lambda data: f"{made.decode(data)}",
        "value_deserializer": lambda data: f"{made.decode(data)}",
    }


@pytest.mark.contract("W4")
@pytest.mark.parametrize(
    "given", [of_one_value, of_key_and_value, of_methods, of_functions_around]
)
@pytest.mark.parametrize("batch", [None, 5])
@simulated(seeds=1)
def test_a_deserializer_has_one_thread_of_a_worker_at_a_time(lab, given, batch):
    """So each record has its own key and value."""
    filled(lab, 4, *VALUES, keys=VALUES)
    shared = Stateful(lab)
    seen = []

    def handle(records, _context):
        seen.extend((one.key, one.value) for one in (records if batch else [records]))

    run = Working(lab, handle, settings=given(shared), order="unordered", batch=batch)
    run.done(80)
    assert shared.most == 1
    keys = VALUES if "key_deserializer" in given(shared) else map(str.encode, VALUES)
    assert sorted(seen) == sorted([*zip(keys, VALUES, strict=True)] * 4)
    run.stop()


@pytest.mark.contract("W4")
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
@simulated(seeds=1)
def test_a_deserializer_of_two_workers_has_one_thread_at_a_time(lab, executor):
    """Each gives it to its consumer as another object: a bound method is made anew."""
    filled(lab, 2, *VALUES)
    shared = Stateful(lab)
    seen = []

    def handle(record, _context):
        seen.append(record.value)

    async def wait(record, context):
        handle(record, context)

    settings = {"value_deserializer": shared.decode}
    called = wait if executor == "asyncio" else handle
    runs = [
        Working(lab, called, name=name, settings=settings, executor=executor)
        for name in ("w1", "w2")
    ]
    lab.until(lambda: sum(run.worker.stats().done for run in runs) >= 40, what="all")
    assert shared.most == 1
    assert sorted(set(seen)) == sorted(VALUES)
    for run in runs:
        run.stop()


@simulated(seeds=1)
def test_a_deserializer_that_raises_lets_the_next_record_in(lab):
    filled(lab, 2, *VALUES)
    calls = []

    def fails_at_first(data):
        calls.append(data)
        if len(calls) <= 4:
            message = "planted"
            raise ConnectionError(message)
        return data

    settings = {"value_deserializer": fails_at_first}
    run = Working(lab, lambda *_: None, settings=settings)
    run.done(40)
    assert run.stop().committed
