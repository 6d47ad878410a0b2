"""The locks under which a worker's deserializers are called."""

import io
import pickle
import threading

import pytest
from kafka.consumer.fetcher import ConsumerRecord
from kafka.serializer.wrapper import DeserializeWrapper

from safeconsumer.worker import deserializing
from safeconsumer.worker.deserializing import Readers
from tests.harness.holds.forking import is_true_in_child


def record(value):
    return ConsumerRecord("orders", 3, 7, 0, 1, 0, None, value, [], None, -1, 1, -1)


def readers(function):
    return Readers(None, DeserializeWrapper(function))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_reader_made_in_forked_child_waits_for_no_thread_of_parent():
    entered, leave = threading.Event(), threading.Event()

    def decode(data):
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            leave.wait()
        return data.decode()

    there = readers(decode)
    thread = threading.Thread(target=there.read, args=(record(b"v"),))
    thread.start()
    entered.wait()
    assert is_true_in_child(lambda: readers(decode).read(record(b"v")).value == "v")
    leave.set()
    thread.join()


def test_deserializer_that_reads_another_record_does_not_wait_for_itself():
    def decode(data):
        if data == b"outer":
            return there.read(record(b"inner")).value
        return data.decode()

    there = readers(decode)
    assert there.read(record(b"outer")).value == "inner"


def test_readers_used_together_in_either_order_take_their_locks_in_one():
    one, other = DeserializeWrapper(bytes.decode), DeserializeWrapper(bytes.hex)
    assert Readers(one, other)._locks == Readers(other, one)._locks


def test_functions_of_a_module_have_a_lock_each():
    """Their ``__self__`` is the module."""
    assert readers(pickle.loads)._locks != readers(pickle.dumps)._locks


def test_methods_of_one_object_have_one_lock():
    stream = io.BytesIO()
    assert readers(stream.write)._locks == readers(stream.read)._locks


def test_locks_end_with_the_readers_that_have_them(collect):
    before = len(deserializing._LOCKS._found)
    made = readers(lambda data: data)
    assert len(deserializing._LOCKS._found) == before + 1
    del made
    collect()
    assert len(deserializing._LOCKS._found) == before


def test_readers_travel_to_another_process():
    there = pickle.loads(pickle.dumps(readers(bytes.decode)))  # noqa: S301 - ours
    assert there.read(record(b"v")).value == "v"
