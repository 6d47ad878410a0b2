"""The compiled reader itself: no bytes, arguments or callables break it, or leak."""

import gc
import itertools
import os
import struct
import subprocess
import sys
import sysconfig
import threading
import time
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.codec import gzip_encode
from kafka.consumer.fetcher import ConsumerRecord

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.decoding.records import _header_bytes, _uncompressed
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import (
    ABORT,
    COMMIT,
    Frame,
    Row,
    marker,
    sealed,
    written,
)

HEADER = 61
TOPIC = "orders-" + "x" * 20
HEADERS = (("trace", b"1"), ("none", None))
ROWS = [Row(n, b"k" * n, b"v" * 300 if n % 2 else None, HEADERS) for n in range(9)]
COUNT = len(ROWS)
BATCH, END = written(5, ROWS, Frame(epoch=7))
SOUND = BATCH[HEADER:]
ALL = 2**31
WRONG = [
    SOUND[:-1],
    SOUND + b"\0",
    b"",
    b"\xff" * 20,
    b"\x02\x80" + SOUND,
    SOUND.replace(b"trace", b"tra\xffe"),
]


def reader(data, **other):
    """Make one with what is usual, but for what is said."""
    usual = {
        "kind": ConsumerRecord,
        "topic": TOPIC,
        "partition": 3,
        "least": 0,
        "is_summed": True,
        "is_aborted": None,
        "uncompress": _uncompressed,
        "keys": None,
        "values": None,
        "again": None,
        "header_bytes": _header_bytes,
    }
    return _batches.Reader(data, *(usual | other).values())


def taken(data, **other):
    """Take all records; return them, and the reader."""
    made, records = reader(data, **other), []
    assert made.take(records, ALL)
    return records, made


def around(records, count=COUNT, *, codec=0, append_time=None):
    """Return a batch with these bytes for its records, and a checksum that is right."""
    data = bytearray(BATCH[:HEADER] + records)
    struct.pack_into(">i", data, 57, count)
    data[22] = codec
    if append_time is not None:
        data[22] |= 0x08
        struct.pack_into(">q", data, 35, append_time)
    return bytes(sealed(data))


def one(body):
    """Return a record of what stands in it, in hex: attributes, time, offset, key, ..."""
    inside = bytes.fromhex(body)
    return bytes([2 * len(inside)]) + inside


class Calling:
    """A deserializer that calls what it was given."""

    def __init__(self, call):
        self.call = call

    def deserialize(self, topic, headers, data):
        return self.call(topic, headers, data)


def without_headers(topic, headers, data):
    """Deserialize, and take the last header away."""
    del topic, data
    headers.pop()
    return Ellipsis


# ---------------------------------------------------------------- records


def mixed():
    """Return batches of all kinds, and where each begins."""
    data, at, starts = b"", 0, []
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
        starts.append(len(data))
        if frame in (ABORT, COMMIT):
            more, at = marker(at, frame, 7)
        elif frame is None:
            more, at = written(at, [], Frame(tail=3))
        else:
            more, at = written(at, ROWS, frame)
        data += more
    return data, starts


@pytest.mark.parametrize("step", [1, 2, 7, 9, 10, 44, ALL])
def test_records_come_out_of_as_many_batches_as_are_wanted(step):
    """In any numbers they are the same records; each one moves the position."""
    data, _ = mixed()
    whole, behind = taken(data)
    assert len(whole) == 5 * COUNT
    made, records, is_over = reader(data), [], False
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
    assert (made.batch, made.leader_epoch, made.is_transactional) == (len(data), 2, 1)


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview], ids=short)
@pytest.mark.parametrize("codec", [0, 3])
def test_any_buffer_will_do(buffer, codec):
    """What came from it does not change with it."""
    frame = Frame(epoch=7, codec=codec)
    data = buffer(written(5, ROWS, frame)[0])
    records, _ = taken(data)
    if buffer is bytearray:
        data[:] = bytes(len(data))
    assert records == taken(BATCH)[0]
    assert all(type(record.key) in (bytes, type(None)) for record in records)


@pytest.mark.parametrize("least", [-(2**63), 0, 5, 6, 13, 14, 2**63 - 1], ids=short)
def test_records_below_the_wanted_offset_count_as_read(least):
    """They are not deserialized, and nothing is skipped behind the first wanted one."""
    asked = []
    data = BATCH + BATCH
    keys = Calling(lambda *given: asked.append(given))
    records, made = taken(data, least=least, keys=keys)
    skipped = 2 * COUNT if least > 13 else max(0, least - 5)
    assert len(records) == len(asked) == 2 * COUNT - skipped
    assert made.records_read == 2 * COUNT
    assert made.bytes_read == 2 * taken(BATCH)[1].bytes_read
    assert made.is_skipping == (least > 13)


def test_a_record_is_of_the_type_that_was_given():
    """Made as a named tuple makes its own: by tuple, with as many fields."""

    class Other(tuple):
        __slots__ = ()

        def __new__(cls, *_):
            raise AssertionError

    records, _ = taken(BATCH, kind=Other)
    assert {type(record) for record in records} == {Other}
    assert {len(record) for record in records} == {len(ConsumerRecord._fields)}


def test_the_time_of_the_broker_is_that_of_all():
    """Its type says so."""
    records, _ = taken(around(SOUND, append_time=9))
    assert {(one.timestamp, one.timestamp_type) for one in records} == {(9, 1)}


def test_the_collector_does_not_know_what_was_made():
    """Nothing in a record leads back to it; there is no place for something that could."""
    records, _ = taken(BATCH)
    made = [*records, *(one.headers for one in records)]
    made += [pair for one in records for pair in one.headers]
    assert len(made) > 2 * COUNT
    assert not any(map(gc.is_tracked, made))
    assert ConsumerRecord.__dictoffset__ == ConsumerRecord.__weakrefoffset__ == 0


def test_the_collector_knows_what_was_deserialized():
    """An object of a deserializer may lead back to the record, and to its headers."""
    records, _ = taken(BATCH, values=Calling(lambda *given: given))
    assert all(gc.is_tracked(one) and gc.is_tracked(one.headers) for one in records)


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
        batch = bytearray(BATCH[:HEADER] + data)
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">i", batch, 57, 1)
        records, _ = taken(bytes(batch), is_summed=False)
        assert [one.headers for one in records] == (
            [] if text is None else [[(text, None)]]
        )


# ---------------------------------------------------------------- left to another decoder


def left(data, **other):
    """Tell whether all of it is left to another decoder, and the position where it is."""
    records, made = taken(data, **other)
    return not records and (made.batch, made.next_fetch_offset) == (0, 0)


@pytest.mark.parametrize("codec", [0, 1])
@pytest.mark.parametrize("records", WRONG, ids=short)
def test_records_that_no_producer_writes_are_left(records, codec):
    """The whole batch is, compressed or not, and what stands behind it."""
    packed = _packed(records, codec)
    assert left(around(packed, codec=codec) + BATCH)
    assert not left(around(_packed(SOUND, codec), codec=codec))
    got, made = taken(BATCH + around(packed, codec=codec) + BATCH)
    assert (len(got), made.batch) == (COUNT, len(BATCH))
    assert made.next_fetch_offset == END


def _packed(records, codec):
    return records if not codec else gzip_encode(records)


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
def test_a_record_that_no_producer_writes_is_left(body):
    """By itself, and with another one behind it that would do for what is missing."""
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
        (22, b"\x20"),  # a control batch, whose first record has a key of no bytes
        (22, b"\x07"),  # a codec that there is not
    ],
    ids=short,
)
def test_a_header_that_no_broker_writes_is_left(at, number):
    """Also where checksums are not looked at."""
    forged = BATCH[:at] + number + BATCH[at + len(number) :]
    assert left(forged, is_summed=False)
    assert left(forged if at == 8 else bytes(sealed(forged)))
    assert not left(BATCH)


@pytest.mark.parametrize("codec", range(5))
def test_a_marker_that_no_broker_writes_is_left(codec):
    """Cut off, compressed, or with none; else it is passed, and the position with it."""
    batch, after = marker(8, ABORT, 7)
    records, made = taken(batch)
    assert (records, made.next_fetch_offset, made.records_read) == ([], after, 0)
    for inside in (batch[HEADER:-1], b"", b"\xff" * 12):
        assert left(bytes(sealed(batch[:HEADER] + inside)))
    none = batch[:57] + bytes(4) + batch[HEADER:]
    assert left(bytes(sealed(none)))
    packed = batch[:22] + bytes([batch[22] | codec]) + batch[23:]
    assert left(bytes(sealed(packed))) == bool(codec)


@pytest.mark.parametrize("codec", [0, 3])
def test_an_answer_that_is_cut_at_each_place(codec):
    """Whole batches are read: a sanitizer sees what is read behind them."""
    first, at = written(0, ROWS, Frame(codec=codec))
    data = first + written(at, ROWS, Frame(codec=codec, tail=3))[0]
    for end in range(len(data)):
        records, made = taken(bytes(data[:end]))
        assert len(records) == (COUNT if end >= len(first) else 0)
        assert made.behind == (at if end >= len(first) else -1)


def test_a_checksum_that_is_wrong_is_left():
    """Unless nobody wants to know it; offset and epoch are the broker's, under none."""
    for at in {*range(len(BATCH))} - {*range(16)}:
        broken = BATCH[:at] + bytes([BATCH[at] ^ 0x10]) + BATCH[at + 1 :]
        assert left(broken)
        if at in range(17, 21):
            assert taken(broken, is_summed=False)[0] == taken(BATCH)[0]


MIXED, STARTS = mixed()


@given(
    data=st.binary(max_size=100)
    | st.builds(
        lambda at, length, piece: MIXED[:at] + piece + MIXED[at + length :],
        st.integers(0, len(MIXED)),
        st.integers(0, 8),
        st.binary(max_size=9),
    ),
    step=st.integers(1, 60),
    is_summed=st.booleans(),
    least=st.integers(-(2**63), 2**63 - 1) | st.integers(0, 60),
)
def test_any_bytes(data, step, is_summed, least):
    """Records out of batches that are within these bytes, or none, and then no more."""
    made, records, counts = reader(data, is_summed=is_summed, least=least), [], []
    is_over = False
    while not is_over:
        counts.append(made.records_read)
        is_over = made.take(records, step)
        assert 0 <= made.batch <= len(data)
        assert len(counts) <= 100
    assert sorted(counts) == counts
    assert made.records_read >= len(records)
    before = (made.batch, made.next_fetch_offset, len(records))
    assert made.take(records, step)
    assert (made.batch, made.next_fetch_offset, len(records)) == before


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (OverflowError, {"least": 2**63}),
        (TypeError, {"least": None}),
        (TypeError, {"kind": list}),
        (TypeError, {"kind": "tuple"}),
        (TypeError, {"kind": tuple}),
        (TypeError, {"kind": os.stat_result}),
        (TypeError, {"kind": time.struct_time}),
        (TypeError, {"data": "text"}),
        (TypeError, {"data": None}),
        (BufferError, {"data": memoryview(BATCH)[::2]}),
    ],
    ids=short,
)
def test_arguments_that_cannot_be(error, arguments):
    """A Python error, and nothing is read."""
    records = []
    with pytest.raises(error):
        reader(**({"data": BATCH} | arguments)).take(records, ALL)
    assert records == []


@pytest.mark.parametrize(
    ("error", "arguments"),
    [
        (TypeError, (None, 1)),
        (TypeError, ((), 1)),
        (TypeError, ([], None)),
        (TypeError, ([],)),
        (OverflowError, ([], 2**63)),
    ],
    ids=short,
)
def test_calls_that_cannot_be(error, arguments):
    """A Python error; the next call reads."""
    made, records = reader(BATCH), []
    with pytest.raises(error):
        made.take(*arguments)
    assert made.take(records, ALL)
    assert len(records) == COUNT


@pytest.mark.parametrize("most", [0, -1, -(2**63)])
def test_none_are_wanted(most):
    """Nothing is opened."""
    made = reader(BATCH)
    assert not made.take([], most)
    assert (made.behind, made.leader_epoch) == (-1, -1)


@pytest.mark.parametrize("codec", [0, 3])
def test_a_buffer_that_changes_between_two_calls(codec):
    """What is shorter than it was, or no record any more, is an error, and no crash."""
    for change in (
        bytearray.clear,
        lambda data: data.__setitem__(slice(None), b"\x7f"),
    ):
        data = bytearray(written(5, ROWS, Frame(codec=codec))[0])
        made, records = reader(data), []
        assert not made.take(records, 2)
        change(data)
        with pytest.raises(ValueError, match=r"place|writes"):
            made.take(records, ALL)
        assert (len(records), made.next_fetch_offset) == (2, 7)


# ---------------------------------------------------------------- deserializers


@pytest.mark.parametrize(
    "error", [ValueError, MemoryError, KeyboardInterrupt, SystemExit]
)
@pytest.mark.parametrize("which", ["keys", "values"])
@pytest.mark.parametrize("codec", [0, 3])
def test_what_a_deserializer_raises_ends_it_before_its_record(error, which, codec):
    """Those before it are taken and counted; a next call would begin with that one."""
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


def test_one_that_wants_no_headers_is_called_again():
    """By a function that is given the error; what that raises is the error."""

    class Two:
        def deserialize(self, topic, data):
            return topic, data

    def again(deserializer, topic, data, error):
        assert "positional" in str(error)
        assert error.__traceback__ is None
        if len(records) == 3:
            raise error
        return deserializer.deserialize(topic, data)

    made, records = reader(BATCH, keys=Two(), again=again), []
    with pytest.raises(TypeError, match="positional"):
        made.take(records, ALL)
    assert [one.key for one in records] == [(TOPIC, b"k" * n) for n in range(3)]


def test_headers_are_measured_behind_their_deserializer():
    """It may have changed them, or made something of them that has no size."""

    def add(topic, headers, data):
        del topic, data
        headers.append(added)

    added = ("é", b"12")
    records, _ = taken(BATCH, keys=Calling(add), values=Calling(add))
    before = {one.serialized_header_size for one in taken(BATCH)[0]}
    assert {one.serialized_header_size - 8 for one in records} == before
    added = (1, 2)
    made, records = reader(BATCH, keys=Calling(add)), []
    with pytest.raises(AttributeError):
        made.take(records, ALL)
    assert (records, made.records_read) == ([], 0)
    others = Calling(lambda _topic, headers, _data: headers.reverse())
    assert {
        one.serialized_header_size for one in taken(BATCH, keys=others)[0]
    } == before
    emptied = Calling(lambda _topic, headers, _data: headers.clear())
    assert {one.serialized_header_size for one in taken(BATCH, keys=emptied)[0]} == {-1}


def test_a_deserializer_that_takes_records_is_refused():
    """As by upstream's generator; the call under way goes on."""

    def again(topic, headers, data):
        del topic, headers
        with pytest.raises(ValueError, match="already"):
            made.take(records, 1)
        return data

    made, records = reader(BATCH, values=Calling(again)), []
    assert made.take(records, ALL)
    assert records == taken(BATCH)[0]


@pytest.mark.parametrize("codec", [0, 3])
def test_a_deserializer_that_closes_gets_its_record(codec):
    """It comes, and nothing behind it; neither the answer nor what was in it is kept."""
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
def test_what_is_called_for_a_batch_may_close(way):
    """Nothing is taken, and nothing is left to another decoder."""

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
def test_what_is_called_may_raise(way, error):
    """It comes out; nothing is taken, and a next call begins there."""

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


def test_what_is_called_may_return_anything():
    """What is no buffer is an error; what is empty is left."""
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


def test_batches_of_aborted_transactions_are_left_out():
    """Each with a producer is asked about, markers too; the position moves past them."""
    asked = []

    def is_aborted(*given):
        asked.append(given)
        return given[2] and len(asked) < 3

    _, made = taken(MIXED, is_aborted=is_aborted)
    assert [tuple(map(int, given[2:])) for given in asked] == [(1, 0), (1, 0), (1, 1)]
    assert [given[0] for given in asked] == [7, 7, 7]
    assert made.records_read == 4 * COUNT


def test_one_batch_is_uncompressed_at_a_time():
    """When it is asked for; what one had is gone when the next is opened."""
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

# So many pairs that Python needs new tuples: it reuses freed ones, which the collector
# does not count.
MANY = Row(0, b"k", b"v", (("h", b"1"),) * 1_500)


def collecting_often(call):
    """Have the collector start often, and call something each time that it has."""
    gc.set_threshold(100)
    gc.callbacks.append(lambda *_: call())


def look_at_what_the_collector_sees():
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


def change_what_the_collector_sees():
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


# From 3.13 on there are Pythons without a global interpreter lock.
with_lock = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="free-threaded Python's collector starts between instructions only, and its "
    "threads need not wait",
)


@with_lock
@pytest.mark.parametrize(
    "does", [look_at_what_the_collector_sees, change_what_the_collector_sees], ids=short
)
def test_code_that_the_collector_runs_may_look_and_change(does):
    """
    A list with empty places, a buffer that is written to, or a list that is emptied.

    It runs in a process of its own: Python itself shows an unfinished tuple where
    another thread stands still in ``tuple(...)``, and looking at that crashes.
    """
    code = f"from {__name__} import {does.__name__} as does; does()"
    asked = [sys.executable, "-c", code]
    subprocess.run(asked, check=True, timeout=60)  # noqa: S603 - our own code


@with_lock
def test_others_run_while_a_large_batch_is_checked():
    """A batch of a few KB may have a gigabyte of headers when it is uncompressed."""
    record = one("00 00 00 01 01 0a" + " 02 61 01" * 5)
    count = 500_000
    inside = record * count + b"\0"  # a byte too many: none is made
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
    assert running.wait(20)
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
        {},
        {"values": Calling(lambda *given: given)},
        {"values": Calling(refusing)},
        {"keys": Calling(int), "again": refusing},
        {"keys": Calling(len), "again": lambda *given: given},
        {"uncompress": refusing},
        {"uncompress": lambda *_: None},
        {"uncompress": lambda *_: "text"},
        {"is_aborted": refusing},
        {"is_aborted": lambda *_: True},
        {"keys": Calling(without_headers), "header_bytes": refusing},
        {"kind": int},
    ],
    ids=[
        "none",
        "a deserializer",
        "one that raises",
        "one that raises twice",
        "one without headers",
        "uncompress raises",
        "uncompress cannot",
        "uncompress returns no buffer",
        "is_aborted raises",
        "aborted",
        "headers have no size",
        "a kind that cannot be",
    ],
)
def test_nothing_is_kept(other):
    """Neither of what it is given nor of what it makes, also after a fault in the middle."""
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
    assert min(grown) < 600, "an object of 16 bytes each time would be 1440"


@pytest.mark.parametrize(
    "other", [{}, {"values": Calling(lambda *given: given)}], ids=["none", "values"]
)
def test_a_want_of_memory_ends_it_before_its_record(other):
    """At each place where memory is asked for; a next call goes on with that record."""
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


def test_a_circle_through_a_reader_is_collected():
    """A method of the object that has it, say."""

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
