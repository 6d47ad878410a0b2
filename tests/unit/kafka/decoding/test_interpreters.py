"""The compiled decoder in isolated interpreters, loaded many times, and on many threads."""

import gc
import importlib.util
import sys
import threading
import weakref

import pytest
from kafka.consumer.fetcher import ConsumerRecord
from kafka.record import MemoryRecords

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.decoding.decoders import choose
from tests.harness.processes import ran_python
from tests.unit.kafka.decoding.batches import Frame, Row, written
from tests.unit.kafka.decoding.compare import TP
from tests.unit.kafka.decoding.test_take import ALL, BATCH, Calling, reader, taken
from tests.unit.kafka.test_steps import Ledger, State, steps_of

ROWS = [Row(n, b"k", b"v" * n, (("trace", b"1"),)) for n in range(5)]
DATA = written(0, ROWS, Frame(epoch=7))[0] + written(5, ROWS, Frame(codec=1))[0]

# Python has one module for this up to 3.12, and another from 3.13 on; they are private.
# An isolated interpreter has its own lock from 3.12 on.
INTERPRETERS = """
import gc, sys

if sys.version_info >= (3, 13):
    import _interpreters

    def run(code):
        number = _interpreters.create("isolated")
        failed = _interpreters.exec(number, code)
        _interpreters.destroy(number)
        if failed is not None:
            raise RuntimeError(failed.formatted)
else:
    import _xxsubinterpreters

    def run(code):
        number = _xxsubinterpreters.create(isolated=True)
        _xxsubinterpreters.run_string(number, code)
        _xxsubinterpreters.destroy(number)
"""


def ran(program):
    """Run a program that makes interpreters; return what all of them printed."""
    done = ran_python("-c", INTERPRETERS + program)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


DECODING = f"""
from kafka import TopicPartition
from kafka.record import MemoryRecords
from safeconsumer._kafka.decoding.decoders import choose

chosen = choose("auto")
part = chosen.records(0, TopicPartition{tuple(TP)}, MemoryRecords({DATA!r}))
print(chosen.name, [tuple(record) for record in part.take()], flush=True)
"""


def test_an_isolated_interpreter_has_the_same_records():
    """By the compiled decoder, also if another interpreter has loaded it before."""
    records = choose("python").records(0, TP, MemoryRecords(DATA)).take()
    said = ran(f"run({DECODING!r})\nexec({DECODING!r})\nrun({DECODING!r})")
    assert said == [f"compiled {[tuple(record) for record in records]}"] * 3


# The library alone: Python itself keeps some of what a package makes on import.
LOADING = f"""
import importlib.util
from collections import namedtuple

spec = importlib.util.spec_from_file_location("_batches", {_batches.__file__!r})
batches = importlib.util.module_from_spec(spec)
spec.loader.exec_module(batches)
kind = namedtuple("Record", {ConsumerRecord._fields})
records = []
made = batches.Reader(
    {BATCH!r}, kind, "orders", 3, 0, 1, None, None, None, None, None, None
)
assert made.take(records, 99) and records[-1].offset == 13
Place = namedtuple("Place", "offset metadata leader_epoch")
class State:
    paused = _pending_revocation = _awaiting_validation = False
    moves, _position = 0, Place(5, "", 7)
class Ledger:
    queue, settled = (), frozenset()
state = State()
steps = batches.Steps(Ledger(), {{0: state}}, 0, state, state._position, records)
assert len([*steps]) == len(records) and state._position.offset == 14
"""


def test_interpreters_that_end_keep_nothing():
    """Python keeps some blocks for each; the decoder adds none."""
    counting = """
def kept(code):
    counts = []
    for _ in range(4):
        gc.collect()
        counts.append(sys.getallocatedblocks())
        for _ in range(10):
            run(code)
    return counts[-1] - counts[1]
"""
    without = LOADING.partition("spec.loader")[0] + "spec.loader.exec_module"
    ((less, more),) = (
        map(int, line.split())
        for line in ran(f"{counting}\nprint(kept({without!r}), kept({LOADING!r}))")
    )
    assert more - less < 20, f"twenty interpreters kept {more} blocks, and {less} without"


def loaded():
    """Load the library anew, beside the one that is in use."""
    spec = importlib.util.spec_from_file_location("_batches", _batches.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_module_has_its_own_state():
    """It ends with the last object of the module's, and no object of another's."""
    module = loaded()
    assert module.Reader is not _batches.Reader
    gone = weakref.ref(module)
    state = State()
    steps = steps_of(module.Steps, Ledger(), state)
    del module
    gc.collect()
    assert [record.offset for record in steps] == [0, 1, 2]
    assert gone() is not None
    del steps
    gc.collect()
    assert gone() is None


def test_a_module_that_ends_keeps_nothing():
    """Three hundred times, with the class of its records and the names that it asks for."""

    def often(count):
        for _ in range(count):
            exec(LOADING, {"__name__": "loading"})  # noqa: S102 - our own code
        gc.collect()
        return sys.getallocatedblocks()

    often(50)
    grown = -often(50) + often(300)
    assert grown < 300, "one block each time would be 300"


def test_a_second_thread_that_takes_is_refused():
    """While a deserializer of the first one runs; that one goes on."""
    begun, refused = threading.Event(), threading.Event()

    def wait(_topic, _headers, data):
        begun.set()
        assert refused.wait(20)
        return data

    made, records = reader(BATCH, values=Calling(wait)), []
    thread = threading.Thread(target=made.take, args=(records, ALL))
    thread.start()
    assert begun.wait(20)
    with pytest.raises(ValueError, match="already"):
        made.take([], ALL)
    refused.set()
    thread.join()
    assert records == taken(BATCH)[0]


def test_a_second_thread_may_close():
    """The record that is being made comes, and nothing behind it."""
    begun, closed = threading.Event(), threading.Event()

    def wait(_topic, _headers, data):
        begun.set()
        assert closed.wait(20)
        return data

    made, records = reader(BATCH, values=Calling(wait)), []
    thread = threading.Thread(target=made.take, args=(records, ALL))
    thread.start()
    assert begun.wait(20)
    made.close()
    closed.set()
    thread.join()
    assert [record.offset for record in records] == [5]


def test_steps_go_on_in_another_thread():
    """An iteration may be handed over between two records."""
    state, got = State(), []
    steps = steps_of(_batches.Steps, Ledger(), state)
    for _ in range(3):
        thread = threading.Thread(target=lambda: got.append(next(steps)))
        thread.start()
        thread.join()
    assert [record.offset for record in got] == [0, 1, 2]
    assert state._position.offset == 3


def test_many_threads_break_nothing():
    """Readers and steps are for one thread; several at once get errors and no crash."""
    count = 8
    made = [reader(BATCH * 40) for _ in range(30)]
    iterations = [steps_of(_batches.Steps, Ledger(), State(), 50) for _ in range(30)]
    ready = threading.Barrier(count)
    found, errors = [], []

    def work(closes):
        ready.wait(20)
        try:
            for one, steps in zip(made, iterations, strict=True):
                found.extend(taken_beside_others(one, closes=closes))
                for _ in steps:
                    assert steps.position is not None
        except BaseException as error:  # noqa: BLE001 - it is looked at below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n == 3,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {*map(repr, found)} <= {*map(repr, taken(BATCH)[0])}


def taken_beside_others(made, *, closes):
    """Take records until there are no more, or another thread is at it."""
    records, before = [], -1
    while before < len(records) and not (closes and len(records) > 100):
        before = len(records)
        try:
            made.take(records, 7)
        except ValueError as error:
            assert str(error) == "records are being taken already"  # noqa: PT017 - it may not come
    if closes:
        made.close()
    return records
