"""The compiled decoder gives the results of upstream's (P15)."""

import struct
from itertools import product
from random import Random

import pytest
from hypothesis import strategies as st
from kafka import codec as codecs
from kafka.errors import CorruptRecordError

from tests.harness.drawing import draw, examples
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import (
    ABORT,
    COMMIT,
    PACKERS,
    Frame,
    Row,
    legacy_sealed,
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
from tests.unit.kafka.decoding.strategies import answers

# They only compute, and take long on a machine that does much else.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.contract("P15")
@examples(30, 1_000)
def test_answers_of_brokers_are_read_alike(most):
    """Records, their types, positions, epochs and metrics are equal after every take."""

    def alike(case):
        compared(case)

    draw(most, alike, case=answers())


@pytest.mark.contract("P15")
@examples(100, 30_000)
def test_damaged_answers_are_read_alike(most):
    """Both decoders give the same records, or the same error."""

    def alike(seed):
        compared(damaged(Random(seed)))  # noqa: S311 - no secret

    draw(most, alike, seed=st.integers(0, 2**32))


def test_damaged_answers_raise_several_errors():
    """So the comparison above compares errors, too."""
    answers = [damaged(Random(seed)) for seed in range(100)]  # noqa: S311 - no secret
    found = {error for one in answers for error in errors_of(compared(one))}
    assert len(found) > 3
    assert CorruptRecordError in found


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("producer", [0, 7])
def test_aborted_transactions_are_left_out_under_read_committed(committed, producer):
    """Up to their marker."""
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
def test_a_control_batch_without_a_record_is_an_error_under_read_committed(committed):
    """Compaction leaves such batches, and upstream's decoder raises."""
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
def test_a_sum_of_times_may_have_more_than_64_bits(first, far):
    """No producer writes one; its value is that of Python's integers."""
    data, _ = written(0, [Row(first), Row(first + far)], Frame())
    times = [record[4] for record in records_of(compared(Case(data=data)))]
    assert times == [first, first + far]


def test_an_offset_may_have_65_bits():
    """No producer writes one; no number is cut to 64 bits."""
    data, _ = written(0, [Row(5)], Frame())
    body = bytes.fromhex("00 00" + "f2ffffffffffffff9203" + "01 01 00")
    forged = bytes(sealed(data[:61] + bytes([2 * len(body)]) + body))
    ((offset, *_),) = (record[3:] for record in records_of(compared(Case(data=forged))))
    assert offset >= 2**63


# ------------------------------------------------------------ each byte

BEFORE, AT = written(10, [Row(5, b"k", b"v")] * 3, Frame(producer=7, epoch=2))
MARKED, NEXT = marker(AT, ABORT, 7)
PACKED, END = written(NEXT, [Row(5, b"k", b"v" * 9)] * 3, Frame(codec=3, tail=2))
BEHIND, _ = written(END, [Row(5, None, b"v")] * 2, Frame(epoch=4))


@pytest.mark.parametrize("committed", [True, False])
def test_an_answer_that_is_cut_off_gives_its_whole_batches(committed):
    """A broker cuts an answer at its size limit, which may be at any byte."""
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
def test_a_batch_with_one_damaged_byte_is_read_alike(batch):
    """With a checksum that shows the damage, and with one that hides it."""
    places = [*product(range(_HEADER), (0x01, 0x10, 0x80, 0xFF))]
    places += [(at, 0x10) for at in range(_HEADER, len(batch))]
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
def test_a_length_that_points_elsewhere_is_read_alike(length):
    """Back into the batch before, or beyond the end of the answer."""
    forged = PACKED[:8] + struct.pack(">i", length) + PACKED[12:]
    compared(Case(data=BEFORE + forged + BEHIND, fetch_offset=10))


# ------------------------------------------------------------ damage

_HEADER, _MAGIC_AT, _LOW_ATTRIBUTES = 61, 16, 22
_LEAST = {2: _HEADER, 1: 34, 0: 26}
_ODD = (0, 1, 2, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
_LONGEST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # 2**63 - 1 as a varint
_PACK = (bytes, *PACKERS.values())

_ROWS = (
    [Row(5, b"k", b"v")],
    [Row(5, None, None), Row(-3, b"", b"", (("h", b"1"), ("n", None)), gap=2)],
    [Row(2**40, b"key", b"value" * 20, (("é", b"x" * 70),))] * 12,
    [Row(1, None, b"x" * 130)] * 40,
    [Row(7, b"a", b"b", (("", b""),) * 5), Row(2**61, gap=200)],
)


def damaged(dice):
    """Damage one batch, and put others before and behind it, or none."""
    at = dice.choice((0, 0, 3, 2**40))
    before, broken_at = _one(dice, at) if dice.random() < 0.3 else (b"", at)
    whole, behind = _one(dice, broken_at)
    after = _one(dice, behind)[0] if dice.random() < 0.3 else b""
    data = before + _damaged(dice, whole) + after
    if dice.random() < 0.1:
        data = data[: dice.randrange(len(data) + 1)]
    return Case(
        data=data,
        fetch_offset=dice.choice((at, at, at + 1, behind, behind + 3)),
        takes=dice.choice(((None,), (1,), (3, None), (2, 5))),
        check_crcs=dice.random() < 0.5,
        committed=dice.random() < 0.5,
        aborted=[Aborted(7, at)] if dice.random() < 0.5 else [],
    )


def _one(dice, at):
    if dice.random() < 0.1:
        return marker(at, dice.choice((ABORT, COMMIT)), 7)
    magic = dice.choice((2, 2, 2, 2, 1, 0))
    transactional = magic == 2 and dice.random() < 0.2
    frame = Frame(
        magic=magic,
        codec=dice.randrange(5 if magic == 2 else 4),
        producer=7 if transactional else -1,
        transactional=transactional,
        log_append=dice.random() < 0.2,
    )
    return written(at, dice.choice(_ROWS), frame)


def _damaged(dice, data):
    magic = data[_MAGIC_AT]
    if dice.random() < 0.1:  # the length is the first thing to go
        return _hit(dice, data, 0)
    if magic == 2 and dice.random() < 0.4:
        data = _inside(dice, data)
    else:
        data = _hit(dice, data, dice.choice((_MAGIC_AT, 17, 21, 40, 50, _HEADER)))
    if dice.random() < 0.15 or len(data) < _LEAST.get(magic, _HEADER):
        return data
    return bytes((sealed if magic == 2 else legacy_sealed)(data))


def _inside(dice, data):
    # records are damaged, and then compressed as they should be
    codec = data[_LOW_ATTRIBUTES] & 0x07
    unpack = (
        bytes,
        codecs.gzip_decode,
        codecs.snappy_decode,
        codecs.lz4_decode,
        codecs.zstd_decode,
    )
    records = _hit(dice, unpack[codec](data[_HEADER:]), 0)
    return data[:_HEADER] + bytes(_PACK[codec](records))


def _hit(dice, data, first):
    broken = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        if first >= len(broken):
            break
        at = dice.randrange(first, len(broken))
        match dice.randrange(7):
            case 0 | 1:
                broken[at] ^= 1 << dice.randrange(8)
            case 2:
                broken[at] = dice.choice(_ODD)
            case 3:
                del broken[at:]
            case 4:
                del broken[at : at + dice.randrange(1, 5)]
            case 5:
                broken[at:at] = dice.randbytes(dice.randrange(1, 5))
            case _:
                broken[at : at + 1] = _LONGEST[dice.randrange(10) :]
    return bytes(broken)
