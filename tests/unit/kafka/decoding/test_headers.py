"""The header of a batch: what compiled code makes of it, and what it leaves alone (P15)."""

import struct
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch

from safeconsumer._kafka.decoding import _batches
from safeconsumer._kafka.decoding.records import Header
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
from tests.unit.kafka.decoding.compare import Aborted, Case, compared

HEADER = 61
ROWS = [Row(n, b"k" * n, b"v" * 30 if n % 2 else None) for n in range(4)]
BATCH = written(5, ROWS, Frame())[0]


def header(data, at=0, *, is_summed=True):
    """Call it; a header of its own kind."""
    found = _batches.header(data, at, is_summed)
    return None if found is None else Header._make(found)


BEFORE, AT = written(10, [Row(5, b"k", b"v")] * 3, Frame(producer=7, epoch=2))
MARKED, NEXT = marker(AT, ABORT, 7)
PACKED, END = written(NEXT, [Row(5, b"k", b"v" * 9)] * 3, Frame(codec=3, tail=2))
BEHIND, _ = written(END, [Row(5, None, b"v")] * 2, Frame(epoch=4))


@pytest.mark.parametrize(
    "batch",
    [
        BATCH,
        written(2**62 - 1, ROWS, Frame(epoch=2**31 - 1, codec=3, tail=4))[0],
        written(0, ROWS, Frame(log_append=True, epoch=0, codec=4))[0],
        written(9, ROWS, Frame(producer=2**62, transactional=True))[0],
        written(9, [], Frame(producer=7, tail=3))[0],
        written(0, [Row(1 - 2**62), Row(2**62 - 1)], Frame(log_append=True))[0],
        marker(8, ABORT, 7)[0],
        marker(8, COMMIT, 7)[0],
    ],
    ids=short,
)
def test_a_header_says_what_kafka_python_reads(batch):
    """Wherever the batch stands, and whatever stands behind it."""
    theirs = DefaultRecordBatch(batch)
    append_time = theirs.max_timestamp if theirs.timestamp_type else None
    expected = Header(
        end=3 + len(batch),
        append_time=append_time,
        is_abort_marker=theirs.is_control_batch and next(theirs).abort,
        **{
            name: getattr(theirs, name)
            for name in Header._fields
            if hasattr(DefaultRecordBatch, name)
        },
    )
    for behind in (b"", b"\0" * 9):
        found = header(b"abc" + batch + behind, 3)
        assert found == expected
        assert list(map(type, found)) == list(map(type, expected))


def test_a_batch_that_is_cut_off_or_damaged_has_no_header():
    """Offset and epoch are the broker's: no checksum covers them."""
    for end in range(len(BATCH)):
        assert header(BATCH[:end], is_summed=False) is None
    for at in {*range(len(BATCH))} - {*range(8), *range(12, 16)}:
        broken = BATCH[:at] + bytes([BATCH[at] ^ 0x10]) + BATCH[at + 1 :]
        assert header(broken) is None
        if at in range(17, 21):
            assert header(broken, is_summed=False) == header(BATCH)


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
        (22, b"\x20"),  # a control batch, whose first record has a key of no bytes
    ],
    ids=short,
)
def test_a_header_that_no_broker_writes(at, number):
    """It is left to kafka-python, also where checksums are not looked at."""
    forged = BATCH[:at] + number + BATCH[at + len(number) :]
    assert header(forged, is_summed=False) is None
    whole = forged if at == 8 else bytes(sealed(forged))
    assert header(whole) is None
    assert header(BATCH) is not None


@pytest.mark.parametrize("codec", range(5), ids=short)
def test_a_marker_that_no_broker_writes(codec):
    """Cut off, compressed, or with none: kafka-python finds the error."""
    batch, _ = marker(8, ABORT, 7)
    assert header(batch) is not None
    for inside in (batch[HEADER:-1], b"", b"\xff" * 12):
        assert header(bytes(sealed(batch[:HEADER] + inside))) is None
    none = batch[:57] + bytes(4) + batch[HEADER:]
    assert header(bytes(sealed(none))) is None
    packed = batch[:22] + bytes([batch[22] | codec]) + batch[23:]
    assert (header(bytes(sealed(packed))) is None) == bool(codec)


@given(
    data=st.binary(max_size=100)
    | st.builds(
        lambda at, byte: BATCH[:at] + bytes([byte]) + BATCH[at + 1 :],
        st.integers(0, HEADER - 1),
        st.integers(0, 255),
    ),
    at=st.integers(-2, len(BATCH) + 2),
    is_summed=st.booleans(),
)
def test_a_header_of_any_bytes(data, at, is_summed):
    """None, or a batch that is within these bytes."""
    if not 0 <= at <= len(data):
        with pytest.raises(ValueError, match="no such place"):
            header(data, at, is_summed=is_summed)
        return
    found = header(data, at, is_summed=is_summed)
    assert found is None or at + HEADER <= found[0] <= len(data)


@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_that_is_cut_at_each_place(committed):
    """A broker ends it where the room ends; the position is behind the last whole one."""
    data = BEFORE + MARKED + PACKED + BEHIND
    for end in range(len(data) + 1):
        for crcs in (True, False):
            compared(
                Case(
                    data=data[:end],
                    fetch_offset=11,
                    takes=(2, None),
                    check_crcs=crcs,
                    committed=committed,
                    aborted=[Aborted(7, 10)],
                )
            )


@pytest.mark.parametrize("batch", [PACKED, MARKED, BEFORE], ids=short)
def test_a_header_that_is_damaged_at_each_place(batch):
    """Between others, with and without a checksum that says so, which may be looked at."""
    for at, bits in product(range(HEADER), (0x01, 0x10, 0x80, 0xFF)):
        broken = batch[:at] + bytes([batch[at] ^ bits]) + batch[at + 1 :]
        for whole, crcs in ((broken, True), (bytes(sealed(broken)), at % 2 == 0)):
            compared(
                Case(
                    data=BEFORE + whole + BEHIND,
                    fetch_offset=10,
                    takes=(4, None),
                    check_crcs=crcs,
                    committed=bits != 0x01,
                    aborted=[Aborted(7, 13)],
                )
            )


@pytest.mark.parametrize(
    "length",
    [0, 13, 14, 48, 49, -1, -12, -13, -40, -100, -200, 2**31 - 1, -(2**31)],
    ids=short,
)
def test_a_length_that_leads_elsewhere(length):
    """Back into what was read, or beyond the end: kafka-python takes it from the end."""
    forged = PACKED[:8] + struct.pack(">i", length) + PACKED[12:]
    compared(Case(data=BEFORE + forged + BEHIND, fetch_offset=10))
