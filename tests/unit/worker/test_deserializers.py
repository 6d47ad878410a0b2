"""Tests a worker's deserializers, their locks, and batches with unreadable records."""

import asyncio
import io
import pickle
import threading

import pytest
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer.errors import DeserializationError, HandlersCannotRunError
from safeconsumer.testing import make_record
from safeconsumer.worker import BatchFailure, RetryLater, deserializing
from safeconsumer.worker.deserializing import Readers
from tests.harness.holds.forking import is_true_in_child


def readers(function):
    return Readers(None, DeserializeWrapper(function))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_reader_created_in_a_forked_child_does_not_wait_for_a_parents_thread():
    entered, leave = threading.Event(), threading.Event()

    def decode(data):
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            leave.wait()
        return data.decode()

    there = readers(decode)
    thread = threading.Thread(target=there.read, args=(make_record(b"v"),))
    thread.start()
    entered.wait()
    assert is_true_in_child(
        lambda: readers(decode).read(make_record(b"v")).value == "v"
    )
    leave.set()
    thread.join()


def test_deserializer_that_reads_another_record_does_not_deadlock():
    def decode(data):
        if data == b"outer":
            return there.read(make_record(b"inner")).value
        return data.decode()

    there = readers(decode)
    assert there.read(make_record(b"outer")).value == "inner"


def test_readers_take_their_locks_in_the_same_order_for_keys_and_values():
    one, other = DeserializeWrapper(bytes.decode), DeserializeWrapper(bytes.hex)
    assert Readers(one, other)._locks == Readers(other, one)._locks


def test_functions_of_a_module_have_separate_locks():
    """The lock is not chosen by ``__self__``, which is the module for such functions."""
    assert readers(pickle.loads)._locks != readers(pickle.dumps)._locks


def test_methods_of_one_object_share_a_lock():
    stream = io.BytesIO()
    assert readers(stream.write)._locks == readers(stream.read)._locks


def test_locks_are_freed_with_their_readers(collect):
    before = len(deserializing._LOCKS._found)
    made = readers(lambda data: data)
    assert len(deserializing._LOCKS._found) == before + 1
    del made
    collect()
    assert len(deserializing._LOCKS._found) == before


def test_readers_can_be_sent_to_another_process():
    there = pickle.loads(pickle.dumps(readers(bytes.decode)))  # noqa: S301 - our own data
    assert there.read(make_record(b"v")).value == "v"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("values", "named", "expected"),
    [
        ("1x23", {1: KeyError()}, {1: DeserializationError, 2: KeyError}),
        ("1x23", {-1: KeyError()}, IndexError),
        ("1x23", {3: KeyError()}, IndexError),
        ("1x23", None, {1: DeserializationError}),
        ("xx", {0: KeyError()}, dict.fromkeys(range(2), DeserializationError)),
        ("123", None, None),
        ("12", RetryLater, HandlersCannotRunError),
        ("1x", RetryLater, HandlersCannotRunError),
    ],
)
def test_batch_with_unreadable_records_passes_the_other_records_to_the_handler(
    values, named, expected, *, is_async
):
    """Indexes in the handler's ``BatchFailure`` are mapped to indexes of the whole batch."""

    def handle(records, _context):
        assert [one.value for one in records] == [int(v) for v in values if v != "x"]
        if isinstance(named, dict):
            raise BatchFailure(named)
        return named

    async def handle_async(records, context):
        return handle(records, context)

    readers = Readers(None, DeserializeWrapper(int))
    reading = readers.before(handle_async if is_async else handle, is_batch=True)
    raised = None
    try:
        answer = reading(map(make_record, values), None)
        if is_async:
            asyncio.run(answer)
    except (BatchFailure, HandlersCannotRunError, IndexError) as error:
        raised = error
    if isinstance(raised, BatchFailure):
        assert {at: type(one) for at, one in raised.errors.items()} == expected
    else:
        assert (raised and type(raised)) is expected
