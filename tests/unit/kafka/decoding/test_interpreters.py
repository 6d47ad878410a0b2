"""Tests the compiled decoder in isolated interpreters, repeated loads and many threads."""

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
from tests.harness.waiting import end_of, wait_for
from tests.unit.kafka.decoding.batches import Frame, Row, written
from tests.unit.kafka.decoding.compiled import (
    ALL,
    BATCH,
    TP,
    Calling,
    Ledger,
    State,
    reader,
    steps_of,
    taken,
)

ROWS = [Row(n, b"k", b"v" * n, (("trace", b"1"),)) for n in range(5)]
DATA = written(0, ROWS, Frame(epoch=7))[0] + written(5, ROWS, Frame(codec=1))[0]

DECODING = f"""
from kafka import TopicPartition
from kafka.record import MemoryRecords
from safeconsumer._kafka.decoding.decoders import choose

chosen = choose("auto")
part = chosen.records(0, TopicPartition{tuple(TP)}, MemoryRecords({DATA!r}))
print(chosen.name, [tuple(record) for record in part.take()], flush=True)
"""
# The private module that creates interpreters has a different name since Python 3.13.
THREE_TIMES = f"""
import sys

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

run({DECODING!r})
exec({DECODING!r})
run({DECODING!r})
"""


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12),
    reason="hashlib of Python 3.12.1 breaks in an isolated interpreter",
)
def test_isolated_interpreter_decodes_the_same_records():
    """The interpreter decodes before and after another interpreter has loaded the library."""
    records = choose("python").records(0, TP, MemoryRecords(DATA)).take()
    done = ran_python("-c", THREE_TIMES)
    assert done.returncode == 0, done.stderr
    expected = f"compiled {[tuple(record) for record in records]}"
    assert done.stdout.splitlines() == [expected] * 3


def loaded():
    """Load the library a second time."""
    spec = importlib.util.spec_from_file_location("_batches", _batches.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_object_keeps_the_state_of_its_own_module_alive():
    module = loaded()
    assert module.Reader is not _batches.Reader
    gone = weakref.ref(module)
    steps = steps_of(module.Steps, Ledger(), State())
    del module
    gc.collect()
    assert [record.offset for record in steps] == [0, 1, 2]
    assert gone() is not None
    del steps
    gc.collect()
    assert gone() is None


def test_unloaded_module_does_not_leak_memory():
    """The module frees the class of its records and the names that it looks up."""

    def often():
        for _ in range(100):
            module, records = loaded(), []
            made = module.Reader(
                *(BATCH, ConsumerRecord, "orders", 3, 0, 1),
                *(None, None, None, None, None, None),
            )
            assert made.take(records, 99)
            assert len([*steps_of(module.Steps, Ledger(), State())]) == 3
        gc.collect()
        return sys.getallocatedblocks()

    often()
    counts = [often() for _ in range(4)]
    grown = [after - before for before, after in itertools.pairwise(counts)]
    assert min(grown) < 50, "one block each time would be 100"


@contextmanager
def taking_on_a_thread():
    """Call ``take`` on a thread that blocks in its deserializer; yield reader and records."""
    begun, over = threading.Event(), threading.Event()

    def wait(_topic, _headers, data):
        begun.set()
        over.wait()
        return data

    made, records = reader(BATCH, values=Calling(wait)), []
    thread = threading.Thread(target=made.take, args=(records, ALL))
    thread.start()
    try:
        wait_for(begun.is_set, "a call of take")
        yield made, records
    finally:
        over.set()
        end_of(thread)


def test_second_call_of_take_is_refused_while_the_first_is_running():
    """The first call continues."""
    with (
        taking_on_a_thread() as (made, records),
        pytest.raises(ValueError, match="already"),
    ):
        made.take([], ALL)
    assert records == taken(BATCH)[0]


def test_close_on_another_thread_stops_take_after_the_current_record():
    with taking_on_a_thread() as (made, records):
        made.close()
    assert [record.offset for record in records] == [5]


def test_many_threads_on_one_reader_get_errors_and_do_not_crash():
    """Readers and steps are meant for a single thread."""
    count = 8
    made = [reader(BATCH * 40) for _ in range(30)]
    iterations = [steps_of(_batches.Steps, Ledger(), State(), 50) for _ in range(30)]
    ready = threading.Barrier(count)
    found, errors = [], []

    def work(closes):
        ready.wait()
        try:
            for one, steps in zip(made, iterations, strict=True):
                found.extend(taken_beside_others(one, closes=closes))
                for _ in steps:
                    assert steps.position is not None
        except BaseException as error:  # noqa: BLE001 - the test checks it below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n == 3,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert {*map(repr, found)} <= {*map(repr, taken(BATCH)[0])}


def taken_beside_others(made, *, closes):
    """Take records, while other threads do the same, until no more records are left."""
    records, before = [], -1
    while before < len(records) and not (closes and len(records) > 100):
        before = len(records)
        try:
            made.take(records, 7)
        except ValueError as error:
            assert str(error) == "records are being taken already"  # noqa: PT017 - it is optional
    if closes:
        made.close()
    return records
