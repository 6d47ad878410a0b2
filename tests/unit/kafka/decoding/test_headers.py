"""Headers of batches that are cut off or damaged are read as by kafka-python (P15)."""

import struct
from itertools import product

import pytest

from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import (
    ABORT,
    Frame,
    Row,
    marker,
    sealed,
    written,
)
from tests.unit.kafka.decoding.compare import Aborted, Case, compared

HEADER = 61
BEFORE, AT = written(10, [Row(5, b"k", b"v")] * 3, Frame(producer=7, epoch=2))
MARKED, NEXT = marker(AT, ABORT, 7)
PACKED, END = written(NEXT, [Row(5, b"k", b"v" * 9)] * 3, Frame(codec=3, tail=2))
BEHIND, _ = written(END, [Row(5, None, b"v")] * 2, Frame(epoch=4))


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
