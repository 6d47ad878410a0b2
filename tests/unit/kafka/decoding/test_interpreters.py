"""The compiled decoder in isolated interpreters, loaded many times, and on many threads."""

import gc
import importlib.util
import itertools
import sys
import threading
import weakref
from contextlib import contextmanager

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


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="hashlib of Python 3.12.1 breaks in an isolated interpreter",
)
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
    def is_fetchable(self):
        return True
class Ledger:
    queue, settled = (), frozenset()
    def quiet(self):
        return self.settled
state = State()
steps = batches.Steps(Ledger(), {{0: state}}, 0, state, state._position, records)
assert len([*steps]) == len(records) and state._position.offset == 14
"""


# The same in Python, with the names that the library asks for.
WITHOUT = LOADING.replace(
    "spec.loader.exec_module(batches)",
    f"""
import sys
for name in {sorted({*dir(_batches), *dir(_batches.Reader), *dir(_batches.Steps)})}:
    sys.intern(name)
class Reader:
    def __init__(self, *_):
        sys.intern("deserialize"), sys.intern("settle")
    def take(self, records, _):
        records.append(kind._make([13] * 13))
        return True
def steps(ledger, _, at, state, place, records):
    assert not ledger.quiet() and state.is_fetchable()
    state._position = Place(14, "", 7)
    return records
batches.Reader, batches.Steps = Reader, steps
""",
)
COUNTING = """
def kept(code):
    counts = []
    for _ in range(4):
        gc.collect()
        counts.append(sys.getallocatedblocks())
        for _ in range(10):
            run(code)
    return (counts[-1] - counts[1]) // 20
"""


def test_interpreters_that_end_keep_nothing():
    """
    Forty of them, of which twenty are counted; the decoder adds nothing to what they keep.

    Python keeps thousands of blocks for each from 3.12 on, among them all its names.
    """
    (line,) = ran(f"{COUNTING}\nprint(kept({WITHOUT!r}), kept({LOADING!r}))")
    without, kept = map(int, line.split())
    assert kept - without < 10, "a type is dozens"


def loaded():
    """Load the library anew, beside the one that is in use."""
    spec = importlib.util.spec_from_file_location("_batches", _batches.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_module_has_its_own_state():
    """It is there as long as an object of one of its classes."""
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
    """Neither the class of its records nor the names that it asks for."""

    def often():
        for _ in range(100):
            exec(LOADING, {"__name__": "loading"})  # noqa: S102 - our own code
        gc.collect()
        return sys.getallocatedblocks()

    often()
    counts = [often() for _ in range(4)]
    grown = [after - before for before, after in itertools.pairwise(counts)]
    assert min(grown) < 50, "one block each time would be 100"


@contextmanager
def taking_on_a_thread():
    """Have a thread take records, stopped in a deserializer; return reader and records."""
    begun, over = threading.Event(), threading.Event()

    def wait(_topic, _headers, data):
        begun.set()
        assert over.wait(20)
        return data

    made, records = reader(BATCH, values=Calling(wait)), []
    thread = threading.Thread(target=made.take, args=(records, ALL))
    thread.start()
    assert begun.wait(20)
    yield made, records
    over.set()
    thread.join()


def test_a_second_thread_that_takes_is_refused():
    """While a deserializer of the first one runs; that one goes on."""
    with (
        taking_on_a_thread() as (made, records),
        pytest.raises(ValueError, match="already"),
    ):
        made.take([], ALL)
    assert records == taken(BATCH)[0]


def test_a_second_thread_may_close():
    """The record that is being made comes, and nothing behind it."""
    with taking_on_a_thread() as (made, records):
        made.close()
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
