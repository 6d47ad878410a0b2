"""The compiled decoder gives the same results as upstream's decoder (P15)."""

import struct
from itertools import product

import pytest
from kafka.errors import CorruptRecordError

from tests.harness.drawing import draw, examples
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
from tests.unit.kafka.decoding.compare import (
    Aborted,
    Case,
    compared,
    errors_of,
    records_of,
)
from tests.unit.kafka.decoding.strategies import answers, damaged_answers

# These tests are CPU-bound and slow on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.contract("P15")
@examples(30, 1_000)
def test_decoders_agree_on_valid_responses(most):
    """Records, their types, positions, epochs and metrics are equal after each ``take``."""

    def alike(case):
        compared(case)

    draw(most, alike, case=answers())


@pytest.mark.contract("P15")
@examples(100, 30_000)
def test_decoders_agree_on_damaged_responses(most):
    """Both decoders give the same records, or the same error."""
    found = set()

    def alike(case):
        found.update(errors_of(compared(case)))

    draw(most, alike, case=damaged_answers())
    assert CorruptRecordError in found
    assert len(found) > 2


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("producer", [0, 7])
def test_aborted_transactions_are_omitted_under_read_committed(committed, producer):
    """Records are omitted up to the transaction's marker."""
    mine = Frame(producer=producer, transactional=True, codec=4)
    data, at = b"", 0
    for batch in (mine, ABORT, mine, COMMIT, Frame(producer=producer), mine, ABORT):
        more, at = (
            written(at, [Row(value=b"v")] * 4, batch)
            if isinstance(batch, Frame)
            else marker(at, batch, producer)
        )
        data += more
    aborted = [Aborted(producer, 0), Aborted(producer, 14)]
    steps = compared(Case(data=data, committed=committed, aborted=aborted))
    read = [*range(5, 9), *range(10, 14)]
    if not committed:
        read = [*range(4), *read, *range(14, 18)]
    assert [record[3] for record in records_of(steps)] == read


@pytest.mark.parametrize("committed", [True, False])
def test_control_batch_without_a_record_is_an_error_under_read_committed(committed):
    """Compaction leaves such batches, for which upstream's decoder raises an error."""
    frame = Frame(producer=7, transactional=True, control=True)
    data, _ = written(0, [], frame)
    more, _ = written(1, [Row()], Frame())
    steps = compared(Case(data=data + more, committed=committed))
    assert errors_of(steps) == ([RuntimeError] if committed else [])


@pytest.mark.parametrize(
    ("first", "far"),
    [*product([0, 2**61, -(2**61)], [2**61, 2**62 - 1, 2**62, -(2**62), -(2**63)])],
    ids=short,
)
def test_sum_of_timestamps_may_exceed_64_bits(first, far):
    """No producer writes such a timestamp, and both decoders compute it without overflow."""
    data, _ = written(0, [Row(first), Row(first + far)], Frame())
    times = [record[4] for record in records_of(compared(Case(data=data)))]
    assert times == [first, first + far]


def test_offset_may_exceed_64_bits():
    """No producer writes such an offset, and neither decoder truncates it."""
    data, _ = written(0, [Row(5)], Frame())
    body = bytes.fromhex("00 00" + "f2ffffffffffffff9203" + "01 01 00")
    forged = bytes(sealed(data[:61] + bytes([2 * len(body)]) + body))
    ((offset, *_),) = (record[3:] for record in records_of(compared(Case(data=forged))))
    assert offset >= 2**63


# ------------------------------------------------------------ each byte

HEADER = 61
BEFORE, AT = written(10, [Row(5, b"k", b"v")] * 3, Frame(producer=7, epoch=2))
MARKED, NEXT = marker(AT, ABORT, 7)
PACKED, END = written(NEXT, [Row(5, b"k", b"v" * 9)] * 3, Frame(codec=3, tail=2))
BEHIND, _ = written(END, [Row(5, None, b"v")] * 2, Frame(epoch=4))


@pytest.mark.parametrize("committed", [True, False])
def test_truncated_response_yields_its_complete_batches(committed):
    """A broker may truncate a response at any byte because of a size limit."""
    data = BEFORE + MARKED + PACKED + BEHIND
    for end, crcs in product(range(len(data) + 1), (True, False)):
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
def test_decoders_agree_on_a_batch_with_one_damaged_byte(batch):
    """The checksum either reveals the damage or was recomputed after the damage."""
    places = [*product(range(HEADER), (0x01, 0x10, 0x80, 0xFF))]
    places += [(at, 0x10) for at in range(HEADER, len(batch))]
    for at, bits in places:
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
def test_decoders_agree_on_a_batch_with_a_wrong_length(length):
    """The length may point into the previous batch, or beyond the end of the response."""
    forged = PACKED[:8] + struct.pack(">i", length) + PACKED[12:]
    compared(Case(data=BEFORE + forged + BEHIND, fetch_offset=10))
