"""The compiled reader does not crash on any input, and leaks no memory."""

import gc
import itertools
import os
import struct
import sys
import sysconfig
import threading
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_encode
from kafka.consumer.fetcher import ConsumerRecord
from kafka.record._crc32c import crc as kafkas_sum

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.decoding.records import _uncompressed
from tests.harness.listing import short
from tests.harness.processes import ran_python
from tests.harness.waiting import wait_for
from tests.unit.kafka.decoding.batches import (
    ABORT,
    COMMIT,
    Frame,
    Row,
    marker,
    sealed,
    written,
)
from tests.unit.kafka.decoding.compiled import (
    ALL,
    BATCH,
    COUNT,
    END,
    HEADERS,
    ROWS,
    TOPIC,
    Calling,
    reader,
    taken,
)

HEADER = 61
SOUND = BATCH[HEADER:]
WRONG = [
    SOUND[:-1],
    SOUND + b"\0",
    b"",
    b"\xff" * 20,
    b"\x02\x80" + SOUND,
    SOUND.replace(b"trace", b"tra\xffe"),
]


def around(records, count=COUNT, *, codec=0):
    """Return a batch with these bytes as its records, and with a correct checksum."""
    data = bytearray(BATCH[:HEADER] + records)
    struct.pack_into(">i", data, 57, count)
    data[22] = codec
    return bytes(sealed(data))


def one(body):
    """Return a record with these contents in hex: attributes, time, offset, key, ..."""
    inside = bytes.fromhex(body)
    return bytes([2 * len(inside)]) + inside


def without_headers(topic, headers, data):
    """Deserialize to a constant, and remove the last header from the list."""
    del topic, data
    headers.pop()
    return Ellipsis


# ---------------------------------------------------------------- records


def mixed():
    """Return batches of all kinds."""
    data, at = b"", 0
    for frame in (
        Frame(epoch=1),
        Frame(codec=3, epoch=2, tail=4),
        COMMIT,
        Frame(producer=7, transactional=True),
        ABORT,
        Frame(log_append=True, codec=1),
        None,
        Frame(epoch=2),
    ):
        if frame in (ABORT, COMMIT):
            more, at = marker(at, frame, 7)
        elif frame is None:
            more, at = written(at, [], Frame(tail=3))
        else:
            more, at = written(at, ROWS, frame)
        data += more
    return data


MIXED = mixed()


@pytest.mark.parametrize("step", [1, 2, 7, 9, 10, 44, ALL])
def test_take_with_any_size_returns_the_same_records_and_moves_the_position(step):
    whole, behind = taken(MIXED)
    assert len(whole) == 5 * COUNT
    made, records, is_over = reader(MIXED), [], False
    while not is_over:
        before = len(records)
        is_over = made.take(records, step)
        assert len(records) - before <= step
        if not is_over:
            assert made.next_fetch_offset == records[-1].offset + 1
            assert made.records_read == len(records)
    assert records == whole
    for name in ("batch", "behind", "bytes_read", "leader_epoch", "next_fetch_offset"):
        assert getattr(made, name) == getattr(behind, name)
    assert (made.batch, made.leader_epoch, made.is_transactional) == (len(MIXED), 2, 1)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview], ids=short)
@pytest.mark.parametrize("codec", [0, 3])
def test_records_keep_their_content_if_the_buffer_changes(buffer, codec):
    frame = Frame(epoch=7, codec=codec)
    data = buffer(written(5, ROWS, frame)[0])
    records, _ = taken(data)
    if buffer is bytearray:
        data[:] = bytes(len(data))
    assert records == taken(BATCH)[0]
    assert all(type(record.key) in (bytes, type(None)) for record in records)


def test_garbage_collector_does_not_track_records():
    """A record has no reference that could lead back to the record."""
    records, _ = taken(BATCH)
    made = [*records, *(one.headers for one in records)]
    made += [pair for one in records for pair in one.headers]
    assert len(made) > 2 * COUNT
    assert not any(map(gc.is_tracked, made))
    assert ConsumerRecord.__dictoffset__ == ConsumerRecord.__weakrefoffset__ == 0


def test_garbage_collector_tracks_deserialized_records():
    """A deserialized value may lead back to its record, or to the headers."""
    records, _ = taken(BATCH, values=Calling(lambda *given: given))
    assert all(gc.is_tracked(one) and gc.is_tracked(one.headers) for one in records)


def test_header_name_is_valid_if_and_only_if_python_decodes_it():
    """The test tries all first bytes, with second bytes around each bound."""
    seconds = [0, 0x41, *range(0x7E, 0x83), *range(0x8E, 0x93), *range(0x9E, 0xA3)]
    seconds += [0xBE, 0xBF, 0xC0, 0xFF]
    names = [bytes(pair) for pair in itertools.product(range(256), seconds)]
    names += [
        name + tail for name in names for tail in (b"\x80", b"\xbf\x80", b"\x80A")
    ]
    for name in names:
        try:
            text = name.decode()
        except UnicodeDecodeError:
            text = None
        length = bytes([2 * len(name)]).hex()
        data = one(f"00 00 00 01 01 02 {length} {name.hex()} 01")
        batch = bytearray(BATCH[:HEADER] + data)
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">i", batch, 57, 1)
        records, _ = taken(bytes(batch), is_summed=False)
        assert [one.headers for one in records] == (
            [] if text is None else [[(text, None)]]
        )


# ---------------------------------------------------------------- left to another decoder


def left(data, **other):
    """Return whether the reader leaves a batch undecoded and keeps its position."""
    records, made = taken(data, **other)
    return not records and (made.batch, made.next_fetch_offset) == (0, 0)


@pytest.mark.parametrize(("codec", "pack"), [(0, bytes), (1, gzip_encode)], ids=short)
@pytest.mark.parametrize("records", WRONG, ids=short)
def test_batch_with_invalid_records_and_all_later_batches_are_left_undecoded(
    records, codec, pack
):
    wrong = around(pack(records), codec=codec)
    assert not left(around(pack(SOUND), codec=codec))
    got, made = taken(BATCH + wrong + BATCH)
    assert (len(got), made.batch) == (COUNT, len(BATCH))
    assert made.next_fetch_offset == END


@pytest.mark.parametrize(
    "body",
    [
        "00 00 00 01 01 00 00",  # one byte too many
        "00 00 00 01 01",  # no byte for the headers
        "80 01 00 00 01 01 00",  # attributes that exceed a byte
        "00 ff ff ff ff ff ff ff ff ff 01 00 01 01 00",  # a time of 64 bits
        "00 80 80 80 80 80 80 80 80 80 00 00 01 01 00",  # a time of ten bytes
        "00 00 ff ff ff ff ff ff ff ff ff 01 01 01 00",  # an offset of 64 bits
        "00 00 00 03 01 00",  # a key of -2 bytes
        "00 00 00 04 61 01 00",  # a key of 2 bytes, one of which is the value's length
        "00 00 00 01 7e 00",  # a value longer than the record
        "00 00 00 01 01 01",  # -1 headers
        "00 00 00 01 01 04 02 61 01",  # two headers, one of them missing
        "00 00 00 01 01 02 01 01",  # a header without a name
        "00 00 00 01 01 02 02 ff 01",  # a name that is not UTF-8
        "",
    ],
    ids=short,
)
def test_batch_with_an_invalid_record_is_left_to_another_decoder(body):
    """The invalid record is alone, or before a record with bytes that could complete it."""
    sound = one("00 00 00 01 01 00")
    assert len(taken(around(sound + sound, 2))[0]) == 2
    assert left(around(one(body), 1))
    assert left(around(one(body) + sound, 2))


@pytest.mark.parametrize(
    ("at", "number"),
    [
        (0, struct.pack(">q", -1)),
        (0, struct.pack(">q", 2**62)),
        (8, struct.pack(">i", HEADER - 12 - 1)),
        (8, struct.pack(">i", -1)),
        (8, struct.pack(">i", -(2**31))),
        (16, b"\1"),
        (16, b"\3"),
        (27, struct.pack(">q", 2**62)),
        (27, struct.pack(">q", -(2**62))),
        (35, struct.pack(">q", 2**62)),
        (57, struct.pack(">i", -1)),
        (57, struct.pack(">i", COUNT + 1)),
        (57, struct.pack(">i", COUNT - 1)),
        (22, b"\x20"),  # a control batch whose first record has an empty key
        (22, b"\x07"),  # an unknown codec
    ],
    ids=short,
)
def test_batch_with_an_invalid_header_is_left_to_another_decoder(at, number):
    """The reader rejects the header whether or not the checksum is verified."""
    forged = BATCH[:at] + number + BATCH[at + len(number) :]
    assert left(forged, is_summed=False)
    assert left(forged if at == 8 else bytes(sealed(forged)))
    assert not left(BATCH)


@pytest.mark.parametrize("codec", range(5))
def test_invalid_marker_is_left_to_another_decoder_and_a_valid_one_moves_the_position(
    codec,
):
    """The invalid markers are truncated, compressed or without a record."""
    batch, after = marker(8, ABORT, 7)
    records, made = taken(batch)
    assert (records, made.next_fetch_offset, made.records_read) == ([], after, 0)
    for inside in (batch[HEADER:-1], b"", b"\xff" * 12):
        assert left(bytes(sealed(batch[:HEADER] + inside)))
    none = batch[:57] + bytes(4) + batch[HEADER:]
    assert left(bytes(sealed(none)))
    packed = batch[:22] + bytes([batch[22] | codec]) + batch[23:]
    assert left(bytes(sealed(packed))) == bool(codec)


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "call",
    [
        lambda: reader(BATCH, least=2**63),
        lambda: reader(BATCH, least=None),
        lambda: reader(BATCH, kind=list),
        lambda: reader(BATCH, kind="tuple"),
        lambda: reader(BATCH, kind=tuple),
        lambda: reader(BATCH, kind=os.stat_result),
        lambda: reader("text").take([], 1),
        lambda: reader(None).take([], 1),
        lambda: reader(memoryview(BATCH)[::2]).take([], 1),
        lambda: reader(BATCH).take(None, 1),
        lambda: reader(BATCH).take((), 1),
        lambda: reader(BATCH).take([], None),
        lambda: reader(BATCH).take([]),
        lambda: reader(BATCH).take([], 2**63),
    ],
)
def test_wrong_argument_raises_a_python_error(call):
    with pytest.raises((TypeError, OverflowError, BufferError)):
        call()


@pytest.mark.parametrize("most", [0, -1, -(2**63)])
def test_taking_zero_records_does_not_open_a_batch(most):
    made = reader(BATCH)
    assert not made.take([], most)
    assert (made.behind, made.leader_epoch) == (-1, -1)


@pytest.mark.parametrize("codec", [0, 3])
def test_buffer_that_changes_between_two_calls_causes_an_error(codec):
    """In one case, the buffer is emptied; in the other, its records are overwritten."""
    for change in (
        bytearray.clear,
        lambda data: data.__setitem__(slice(None), b"\x7f"),
    ):
        data = bytearray(written(5, ROWS, Frame(codec=codec))[0])
        made, records = reader(data), []
        assert not made.take(records, 2)
        change(data)
        with pytest.raises(ValueError, match=r"position|writes"):
            made.take(records, ALL)
        assert (len(records), made.next_fetch_offset) == (2, 7)


# ---------------------------------------------------------------- deserializers


@pytest.mark.parametrize(
    "error", [ValueError, MemoryError, KeyboardInterrupt, SystemExit]
)
@pytest.mark.parametrize("which", ["keys", "values"])
@pytest.mark.parametrize("codec", [0, 3])
def test_deserializer_error_stops_take_before_the_failed_record(error, which, codec):
    """The preceding records are kept, and the next call starts with the failed record."""
    refused = [3]

    def refuse(topic, headers, data):
        assert (topic, headers) == (TOPIC, list(HEADERS))
        if len(records) in refused:
            raise error
        return data

    data = written(5, ROWS, Frame(codec=codec, epoch=7))[0]
    made, records = reader(data, **{which: Calling(refuse)}), []
    for _ in range(2):
        with pytest.raises(error):
            made.take(records, ALL)
        assert [one.offset for one in records] == [5, 6, 7]
        assert (made.records_read, made.next_fetch_offset) == (3, 8)
    refused.clear()
    assert made.take(records, ALL)
    assert records == taken(BATCH)[0]
    assert made.bytes_read == taken(BATCH)[1].bytes_read


def test_size_of_headers_is_measured_after_deserializing():
    """A deserializer may reorder, add, replace and remove headers."""

    def sizes(change):
        keys = Calling(lambda _topic, headers, _data: change(headers))
        return {one.serialized_header_size for one in taken(BATCH, keys=keys)[0]}

    assert sizes(len) == sizes(list.reverse) == {10}
    assert sizes(lambda headers: headers.append(("é", b"12"))) == {14}
    assert sizes(lambda headers: headers.__setitem__(0, ("é", b"12"))) == {8}
    assert sizes(list.clear) == {-1}


@pytest.mark.parametrize("codec", [0, 3])
def test_close_inside_a_deserializer_stops_take_after_the_current_record(codec):
    """The reader then keeps neither the response nor its content."""
    data = bytes(written(5, ROWS, Frame(codec=codec))[0])
    before = sys.getrefcount(data)
    made, records = reader(data, keys=Calling(lambda *_: made.close())), []
    assert not made.take(records, ALL)
    assert [one.offset for one in records] == [5]
    assert (made.next_fetch_offset, made.records_read) == (6, 1)
    assert sys.getrefcount(data) == before
    assert not made.take(records, ALL)
    made.close()


@pytest.mark.parametrize("way", ["uncompress", "is_aborted"])
def test_close_inside_a_callback_for_a_batch_stops_take(way):
    """The call returns no records, and no batch is left to another decoder."""

    def close(*given):
        made.close()
        return SOUND if len(given) == 4 and given[0] is data else None

    frame = Frame(codec=3, producer=7, transactional=True)
    data = bytes(written(5, ROWS, frame)[0])
    made, records = reader(data, **{way: close}), []
    assert not made.take(records, ALL)
    assert records == []


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("way", ["uncompress", "is_aborted", "again", "header_bytes"])
def test_error_in_a_callback_for_a_batch_stops_take_before_that_batch(way, error):
    """The next call starts with that batch."""

    class Two:
        def deserialize(self):
            raise AssertionError

    def fail(*_):
        raise error

    frame = Frame(codec=3, producer=7, transactional=True)
    data = BATCH + written(END, ROWS, frame)[0]
    keys = {"again": Two(), "header_bytes": Calling(without_headers)}.get(way)
    made, records = reader(data, keys=keys, **{way: fail}), []
    for _ in range(2):
        with pytest.raises(error):
            made.take(records, ALL)
        assert len(records) == made.records_read
        assert len(records) == (0 if keys else COUNT)
        assert made.next_fetch_offset == (END if records else 0)


def test_callback_may_return_an_invalid_value():
    """A wrong type is an error; None or an unusable buffer is left to another decoder."""
    data = written(5, ROWS, Frame(codec=3))[0]
    for wrong in ("text", 7, memoryview(SOUND)[::2]):
        made = reader(data, uncompress=lambda *_, wrong=wrong: wrong)
        with pytest.raises((TypeError, BufferError)):
            made.take([], ALL)
    for wrong in (None, b"", bytearray(9)):
        assert left(data, uncompress=lambda *_, wrong=wrong: wrong)
    (first, *_), _ = taken(
        BATCH, keys=Calling(without_headers), header_bytes=lambda _: "many"
    )
    assert (first.key, first.serialized_header_size) == (Ellipsis, "many")


def test_only_one_batch_is_uncompressed_at_a_time():
    """The reader first frees the content of the previous batch."""
    data, at = b"", 0
    for _ in range(3):
        more, at = written(at, ROWS, Frame(codec=3))
        data += more
    opened = []

    def uncompress(*given):
        assert all(sys.getrefcount(old) == 3 for old in opened), "an old one is kept"
        opened.append(bytes(_uncompressed(*given)))
        return opened[-1]

    made, records = reader(data, uncompress=uncompress), []
    for number in range(1, 3 * COUNT + 1):
        assert not made.take(records, 1)
        assert len(records) == number
        assert len(opened) == (number + COUNT - 1) // COUNT
    assert made.take(records, 1)
    assert len(opened) == 3


# ---------------------------------------------------------------- the interpreter

# Enough headers that Python must allocate new tuples: it reuses freed tuples, and the
# collector does not count reused tuples.
MANY = Row(0, b"k", b"v", (("h", b"1"),) * 1_500)


def collecting_often(call):
    """Make the garbage collector run often, and call a function at each run."""
    gc.set_threshold(100)
    gc.callbacks.append(lambda *_: call())


def look_at_all_objects():
    data = bytes(written(0, [MANY], Frame())[0])
    seen = []

    def look():
        lists = [one for one in gc.get_objects() if type(one) in (list, tuple)]
        seen.append(sum(len([*one]) for one in lists))

    collecting_often(look)
    taken(data)
    before = len(seen)
    taken(BATCH, values=Calling(lambda *_: [[] for _ in range(50)]))
    assert 0 < before < len(seen)


def change_all_objects():
    kept = bytes(written(0, [MANY], Frame())[0])
    data = bytearray(kept)

    def change():
        data[:] = b"\x7f" * len(data)
        for one in gc.get_objects():
            if type(one) is list and len(one) > 100 and one[0] == ("h", b"1"):
                one.clear()

    collecting_often(change)
    for _ in range(2):
        data[:] = kept
        try:
            records, _ = taken(data, is_summed=False)
        except ValueError:
            continue
        assert [one.key for one in records] in ([], [b"k"])


# Since 3.13, some builds of Python have no global interpreter lock.
with_lock = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="free-threaded Python's collector starts between instructions only, and its "
    "threads need not wait",
)


@with_lock
@pytest.mark.parametrize("does", [look_at_all_objects, change_all_objects], ids=short)
def test_garbage_collector_callback_may_read_and_change_lists(does):
    """
    The callback sees no list with empty slots, and may safely change a buffer or a list.

    The test runs in its own process, because reading an unfinished tuple crashes Python.
    Python itself exposes such a tuple while another thread is inside ``tuple(...)``.
    """
    code = f"from {__name__} import {does.__name__} as does; does()"
    ran_python("-c", code, check=True)


@with_lock
def test_other_threads_run_while_a_large_batch_is_checked():
    """A batch of a few KB may have a gigabyte of headers after decompression."""
    record = one("00 00 00 01 01 0a" + " 02 61 01" * 5)
    count = 500_000
    # Because of the extra byte, the reader creates no record.
    inside = record * count + b"\0"
    data = around(b"", count, codec=1)
    running, done = threading.Event(), threading.Event()

    def uncompress(*_):
        running.set()
        return inside

    def check():
        assert left(data, uncompress=uncompress)
        done.set()

    thread = threading.Thread(target=check)
    thread.start()
    wait_for(running.is_set, "a batch to be checked")
    steps = 0
    while not done.is_set():
        steps += 1
    thread.join()
    assert steps > 100, "it had the interpreter to itself"


def refusing(*_):
    raise ValueError


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({}, id="none"),
        pytest.param({"values": Calling(lambda *given: given)}, id="deserializes"),
        pytest.param({"values": Calling(refusing)}, id="raises"),
        pytest.param({"keys": Calling(int), "again": refusing}, id="raises-twice"),
        pytest.param(
            {"keys": Calling(len), "again": lambda *given: given}, id="no-headers"
        ),
        pytest.param({"uncompress": refusing}, id="uncompress-raises"),
        pytest.param({"uncompress": lambda *_: None}, id="uncompress-cannot"),
        pytest.param({"uncompress": lambda *_: "text"}, id="uncompress-no-buffer"),
        pytest.param({"is_aborted": refusing}, id="is-aborted-raises"),
        pytest.param({"is_aborted": lambda *_: True}, id="aborted"),
        pytest.param(
            {"keys": Calling(without_headers), "header_bytes": refusing},
            id="headers-have-no-size",
        ),
        pytest.param({"kind": int}, id="wrong-kind"),
    ],
)
def test_reader_does_not_leak_memory(other):
    """The reader frees arguments and objects, even after an error in ``take``."""
    more = written(END, ROWS, Frame(epoch=2**30, codec=1, producer=7))[0]
    damaged = [around(records) for records in WRONG]
    answers = [BATCH + more, more, MIXED, *(BATCH + one for one in damaged)]
    given = (*answers, TOPIC, ConsumerRecord, *other.values())

    def often():
        for _, data in itertools.product(range(10), answers):
            try:
                made = reader(data, **other)
                made.take([], 5)
                made.take([], ALL)
            except (TypeError, ValueError):
                pass

    often()
    gc.collect()  # records from earlier readers still refer to their class
    references = [sys.getrefcount(one) for one in given]
    tracemalloc.start()
    try:
        often()
        grown = []
        for _ in range(3):
            before, _ = tracemalloc.get_traced_memory()
            often()
            grown.append(tracemalloc.get_traced_memory()[0] - before)
    finally:
        tracemalloc.stop()
    gc.collect()
    assert [sys.getrefcount(one) for one in given] == references
    # Other threads may keep an object in one measurement; a leak would show in each.
    assert min(grown) < 600, "an object of 16 bytes each time would be 1440"


@pytest.mark.parametrize(
    "other", [{}, {"values": Calling(lambda *given: given)}], ids=["none", "values"]
)
def test_memory_error_stops_take_before_the_current_record(other):
    """Each allocation is made to fail in turn; the next call continues with that record."""
    memory = pytest.importorskip("_testcapi", reason="it makes allocations fail")
    whole, _ = taken(BATCH, **other)
    failed = 0
    for place in range(1, 10_000):
        made, records = reader(BATCH, **other), []
        try:
            memory.set_nomemory(place, place + 1)
            try:
                made.take(records, ALL)
            finally:
                memory.remove_mem_hooks()
        except MemoryError:
            failed += 1
            assert made.records_read == len(records)
            made.take(records, ALL)
        else:
            break
        assert records == whole
    assert failed > COUNT


def test_reference_cycle_through_a_reader_is_collected():

    class Having:
        def __init__(self):
            self.reader = reader(BATCH, is_aborted=self.is_aborted)

        def is_aborted(self):
            raise AssertionError

    gc.collect()
    made = Having()
    made.reader.take([], 1)
    assert Counter(map(type, gc.get_objects()))[Having] == 1
    del made
    gc.collect()
    assert Counter(map(type, gc.get_objects()))[Having] == 0


# ---------------------------------------------------------------- checksums


@given(data=st.binary(max_size=100), at=st.integers(0, 100))
def test_checksum_equals_kafka_pythons_checksum(data, at):
    """The processor's instruction and the tables give the same checksum at any offset."""
    if at > len(data):
        with pytest.raises(ValueError, match="no such position"):
            _batches.crc32c(data, at)
        return
    sums = {_batches.crc32c(memoryview(data), at, by) for by in (0, 1)}
    assert sums == {kafkas_sum(data[at:])}


def test_checksums_of_long_data_and_of_the_rfc_3720_examples_are_correct():
    """Other threads may run while the checksum of long data is computed."""
    assert _batches.crc32c(bytes(32), 0) == 0x8A9136AA
    assert _batches.crc32c(b"\xff" * 32, 0) == 0x62A8AB43
    much = BATCH * (200_000 // len(BATCH))
    assert _batches.crc32c(much, 0) == _batches.crc32c(much, 0, 1) == kafkas_sum(much)
