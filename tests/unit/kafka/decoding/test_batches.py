"""The compiled code itself: no bytes and no arguments make it read elsewhere, or leak."""

import gc
import itertools
import os
import subprocess
import sys
import threading
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.consumer.fetcher import ConsumerRecord
from kafka.record._crc32c import crc as kafkas_sum

from safeconsumer._kafka.decoding import _batches
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import Frame, Row, written

HEADER = 61
TOPIC = "orders-" + "x" * 20
HEADERS = (("trace", b"1"), ("none", None))
ROWS = [Row(n, b"k" * n, b"v" * 300 if n % 2 else None, HEADERS) for n in range(9)]
COUNT = len(ROWS)
BATCH = written(5, ROWS, Frame())[0]
SOUND = BATCH[HEADER:]
WRONG = [
    SOUND[:-1],
    SOUND + b"\0",
    b"",
    b"\xff" * 20,
    b"\x02\x80" + SOUND,
    SOUND.replace(b"trace", b"tra\xffe"),
]


def read(data, at=0, count=COUNT, **other):
    """Call it with what is usual, but for what is said."""
    usual = {
        "kind": ConsumerRecord,
        "topic": TOPIC,
        "partition": 3,
        "leader_epoch": 7,
        "offset": 100,
        "timestamp": 1_700_000_000_000,
        "append_time": None,
    }
    return _batches.read(data, at, count, *(usual | other).values())


def test_records_are_made_from_any_place_on():
    """In any numbers, which add up to all of them, and to all bytes."""
    _batches.check(SOUND, 0, COUNT)
    whole, size, end = read(SOUND)
    assert end == len(SOUND)
    assert [record.offset for record in whole] == [*range(100, 100 + COUNT)]
    for step in range(1, COUNT + 1):
        got, at, sizes = [], 0, 0
        while len(got) < COUNT:
            records, some, at = read(SOUND, at, min(step, COUNT - len(got)))
            got += records
            sizes += some
        assert (got, sizes, at) == (whole, size, end)
    assert read(SOUND, 0, 0) == ([], 0, 0)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview], ids=short)
def test_any_buffer_will_do(buffer):
    """And what came from it does not change with it."""
    data = buffer(SOUND)
    _batches.check(data, 0, COUNT)
    records, *_ = read(data)
    if buffer is bytearray:
        data[:] = bytes(len(data))
    assert records == read(SOUND)[0]
    assert all(type(record.key) in (bytes, type(None)) for record in records)


def test_a_skip_ends_before_the_first_that_is_wanted():
    """How many, their bytes, where the next one is, and the last one's offset."""
    for wanted in range(COUNT + 2):
        count, size, at, last = _batches.pass_over(SOUND, 0, COUNT, wanted)
        assert count == min(wanted, COUNT)
        assert last == count - 1
        assert read(SOUND, 0, count)[1:3] == (size, at)
    assert _batches.pass_over(SOUND, 0, 4, -5) == (0, 0, 0, -1)


def one(body):
    """Return a record of what stands in it, in hex: attributes, time, offset, key, ..."""
    inside = bytes.fromhex(body)
    return bytes([2 * len(inside)]) + inside


@pytest.mark.parametrize(
    "body",
    [
        "00 00 00 01 01 00 00",  # a byte too many
        "00 00 00 01 01",  # none for the headers
        "80 01 00 00 01 01 00",  # attributes that are no byte
        "00 ff ff ff ff ff ff ff ff ff 01 00 01 01 00",  # a time of 64 bits
        "00 80 80 80 80 80 80 80 80 80 00 00 01 01 00",  # a time of ten bytes
        "00 00 ff ff ff ff ff ff ff ff ff 01 01 01 00",  # an offset of 64 bits
        "00 00 00 03 01 00",  # a key of -2 bytes
        "00 00 00 04 61 01 00",  # a key of 2 bytes in which one is the value's
        "00 00 00 01 7e 00",  # a value longer than the record
        "00 00 00 01 01 01",  # -1 headers
        "00 00 00 01 01 04 02 61 01",  # two headers, of which one is there
        "00 00 00 01 01 02 01 01",  # a header without a name
        "00 00 00 01 01 02 02 ff 01",  # a name that is no text
        "",
    ],
    ids=short,
)
def test_a_record_that_no_producer_writes(body):
    """By itself, and with another one behind it that would do for what is missing."""
    sound = one("00 00 00 01 01 00")
    _batches.check(sound + sound, 0, 2)
    for data, count in ((one(body), 1), (one(body) + sound, 2)):
        with pytest.raises(ValueError, match="producer writes"):
            _batches.check(data, 0, count)
        with pytest.raises(ValueError, match="producer writes"):
            read(data, 0, count)


@given(data=st.binary(max_size=100), at=st.integers(0, 100))
def test_a_checksum_is_kafka_pythons(data, at):
    """By the processor's instruction and by tables, of any buffer, from any place on."""
    if at > len(data):
        with pytest.raises(ValueError, match="no such place"):
            _batches.crc32c(data, at)
        return
    sums = {_batches.crc32c(memoryview(data), at, by) for by in (0, 1)}
    assert sums == {kafkas_sum(data[at:])}


def test_the_checksum_of_much():
    """Other threads may run meanwhile; RFC 3720 has these two."""
    assert _batches.crc32c(bytes(32), 0) == 0x8A9136AA
    assert _batches.crc32c(b"\xff" * 32, 0) == 0x62A8AB43
    much = SOUND * (200_000 // len(SOUND))
    assert _batches.crc32c(much, 0) == _batches.crc32c(much, 0, 1) == kafkas_sum(much)


def test_records_that_are_cut_off():
    """Wherever the buffer ends: a sanitizer sees what is read behind it."""
    for end in range(len(SOUND)):
        with pytest.raises(ValueError, match="producer writes"):
            _batches.check(SOUND[:end], 0, COUNT)
        with pytest.raises(ValueError, match="producer writes"):
            read(SOUND[:end])
        with pytest.raises(ValueError, match="producer writes"):
            _batches.pass_over(SOUND[:end], 0, COUNT, COUNT)


@given(
    data=st.binary(max_size=60)
    | st.builds(
        lambda at, byte: SOUND[:at] + bytes([byte]) + SOUND[at + 1 :],
        st.integers(0, len(SOUND) - 1),
        st.integers(0, 255),
    ),
    at=st.integers(-2, len(SOUND) + 2),
    count=st.integers(-2, 30),
    delta=st.integers(-(2**63), 2**63 - 1),
)
def test_any_bytes_at_any_place(data, at, count, delta):
    """Either a result or a ValueError; what is checked can be read."""
    try:
        _batches.check(data, at, count)
    except ValueError:
        is_sound = False
    else:
        is_sound = True
    try:
        records, _, end = read(data, at, count)
        skipped, _, place, _ = _batches.pass_over(data, at, count, delta)
    except ValueError:
        assert not is_sound or count < 0
    else:
        assert len(records) == count
        assert skipped <= count
        assert at <= place <= end <= len(data)
        assert not is_sound or end == len(data)


class Other(tuple):
    """Makes no instance of its own."""

    __slots__ = ()

    def __new__(cls, *_):
        raise AssertionError


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (ValueError, {"at": -1}),
        (ValueError, {"at": len(SOUND) + 1}),
        (ValueError, {"count": -1}),
        (OverflowError, {"count": 2**63}),
        (OverflowError, {"offset": 2**63}),
        (TypeError, {"at": None}),
        (TypeError, {"kind": list}),
        (TypeError, {"kind": "tuple"}),
        (TypeError, {"kind": tuple}),
        (TypeError, {"kind": os.stat_result}),
        (TypeError, {"kind": time.struct_time}),
        (TypeError, {"data": "text"}),
        (TypeError, {"data": None}),
        (BufferError, {"data": memoryview(SOUND)[::2]}),
    ],
    ids=short,
)
def test_arguments_that_cannot_be(error, arguments):
    """A Python error, and nothing is read."""
    with pytest.raises(error):
        read(**({"data": SOUND} | arguments))


def test_a_record_is_of_the_type_that_was_given():
    """Made as a named tuple makes its own: by tuple, with as many fields."""
    records, *_ = read(SOUND, kind=Other)
    assert {type(record) for record in records} == {Other}
    assert {len(record) for record in records} == {len(ConsumerRecord._fields)}


def test_the_collector_does_not_know_what_was_made():
    """Nothing in a record leads back to it; there is no place for something that could."""
    records, *_ = read(SOUND)
    made = [*records, *(one.headers for one in records)]
    made += [pair for one in records for pair in one.headers]
    assert len(made) > 2 * COUNT
    assert not any(map(gc.is_tracked, made))
    assert ConsumerRecord.__dictoffset__ == ConsumerRecord.__weakrefoffset__ == 0


def test_the_time_of_the_broker_is_that_of_all():
    """And its type says so."""
    records, *_ = read(SOUND, append_time=9)
    assert {(one.timestamp, one.timestamp_type) for one in records} == {(9, 1)}


MANY = Row(0, b"k", b"v", (("h", b"1"),) * 1_500)


def collecting_often(call):
    """Have the collector start often, and call something each time that it has."""
    gc.freeze()  # what is there already
    gc.set_threshold(100)
    gc.callbacks[:] = [lambda *_: call()]


def look_at_what_the_collector_sees():
    data = bytes(written(0, [MANY], Frame())[0][HEADER:])
    seen = []

    def look():
        lists = [one for one in gc.get_objects() if type(one) in (list, tuple)]
        seen.append(sum(len([*one]) for one in lists))

    collecting_often(look)
    _batches.check(data, 0, 1)
    read(data, 0, 1)
    assert seen


def change_what_the_collector_sees():
    kept = bytes(written(0, [MANY], Frame())[0][HEADER:])
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
            (record,), *_ = read(data, 0, 1)
        except ValueError:
            continue
        assert record.key == b"k"


def test_code_that_the_collector_runs_may_look_and_change():
    """
    A list with empty places, a buffer that is written to, or a list that is emptied.

    It runs in a process of its own: Python itself shows an unfinished tuple where
    another thread stands still in ``tuple(...)``, and looking at that crashes.
    """
    both = [look_at_what_the_collector_sees, change_what_the_collector_sees]
    names = [one.__name__ for one in both]
    code = f"import {__name__} as here; [getattr(here, name)() for name in {names}]"
    asked = [sys.executable, "-c", code]
    subprocess.run(asked, check=True, timeout=60)  # noqa: S603 - our own code


def test_a_sum_that_leaves_64_bits_turns_over():
    """Callers see to it that none does; here nothing is undefined."""
    (record,), *_ = read(one("00 00 02 01 01 00"), 0, 1, offset=2**63 - 1)
    assert record.offset == -(2**63)


def test_a_name_is_text_where_python_says_so():
    """For all first bytes with what may follow them, and where they are cut off."""
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
        if text is None:
            with pytest.raises(ValueError, match="producer writes"):
                _batches.check(data, 0, 1)
        else:
            _batches.check(data, 0, 1)
            (record,), *_ = read(data, 0, 1)
            assert record.headers == [(text, None)]


def test_others_run_while_a_large_batch_is_checked():
    """A batch of a few KB may have a gigabyte of headers when it is uncompressed."""
    record = one("00 00 00 01 01 0a" + " 02 61 01" * 5)
    count = 500_000
    data = record * count
    running, done = threading.Event(), threading.Event()

    def check():
        running.set()
        _batches.check(data, 0, count)
        done.set()

    thread = threading.Thread(target=check)
    thread.start()
    assert running.wait(20)
    steps = 0
    while not done.is_set():
        steps += 1
    thread.join()
    assert steps > 100, "it had the interpreter to itself"


@pytest.mark.parametrize("data", [SOUND, *WRONG], ids=short)
def test_nothing_is_kept(data):
    """Neither of what it is given nor of what it makes, also after a fault in the middle."""
    append_time, epoch = 10**15, 10**12
    given = data, TOPIC, append_time, epoch, ConsumerRecord

    def often():
        for _ in range(50):
            for call in (_batches.check, read):
                _batches.header(BATCH, 0, 1)
                _batches.header(data, 0, 1)
                try:
                    call(data, 0, COUNT)
                    read(data, append_time=append_time, leader_epoch=epoch)
                except ValueError:
                    pass

    often()
    gc.collect()  # records of others refer to their class
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
    # Other threads keep something now and then; what is ours would be kept each time.
    assert min(grown) < 600, "an object of 16 bytes each time would be 800"
