"""Compressed data that is unusual or broken is read alike (P15)."""

import struct
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
import snappy
import zstandard
from kafka import codec as codecs

from safeconsumer._kafka.decoding.uncompressing import _Zstd
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import Frame, Row, sealed, written
from tests.unit.kafka.decoding.compare import Case, compared, errors_of, records_of

ROWS = [Row(5, b"k", b"value" * 10)] * 20
HEADER = 61
PLAIN = written(0, ROWS, Frame())[0][HEADER:]
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"  # a frame of user data, LZ4's and Zstd's
PACK = {
    1: codecs.gzip_encode,
    2: codecs.snappy_encode,
    3: codecs.lz4_encode,
    4: codecs.zstd_encode,
}


def _read(codec, section):
    header = written(0, ROWS, Frame())[0][:HEADER]
    data = sealed(header[:22] + bytes([codec]) + header[23:] + section)
    return len(records_of(compared(Case(data=bytes(data)))))


def _ends(good):
    for size in range(1, 13):
        yield good[:-size]
        yield good + bytes(size)
        yield good + bytes(range(1, size + 1))


@pytest.mark.parametrize("codec", PACK, ids=short)
def test_ends_that_are_missing_or_too_many(codec):
    """Libraries differ in what they forgive."""
    good = PACK[codec](PLAIN)
    assert _read(codec, good) == 20
    assert min(_read(codec, section) for section in _ends(good)) == 0


@pytest.mark.parametrize("library", ["gzip", "snappy", "lz4", "zstd"])
def test_a_codec_that_kafka_python_does_without(library, monkeypatch):
    """It says when a codec's library is missing; the records are not read all the same."""
    codec = ["", "gzip", "snappy", "lz4", "zstd"].index(library)
    good = PACK[codec](PLAIN)
    assert _read(codec, good) == 20
    monkeypatch.setattr(codecs, f"has_{library}", lambda: False)
    assert _read(codec, good) == 0


@pytest.mark.parametrize("codec", PACK, ids=short)
def test_several_streams_in_one_batch(codec):
    """Whole, torn apart, with nothing before and behind."""
    pack = PACK[codec]
    good = pack(PLAIN)
    torn = pack(PLAIN[:100]) + pack(PLAIN[100:])
    for section in (
        torn,
        good + good,
        pack(b"") + good,
        good + pack(b""),
        SKIPPABLE + good,
        good + SKIPPABLE,
        b"",
    ):
        _read(codec, section)


def test_snappy_without_and_with_a_foreign_frame():
    """Producers other than Java's write it raw, or count the version otherwise."""
    framed = codecs.snappy_encode(PLAIN)
    assert _read(2, snappy.compress(PLAIN)) == 20
    assert _read(2, framed[:8] + b"\1\0\0\0\1\0\0\0" + framed[16:]) == 20
    for broken in (framed[:16], framed[:15], b"\xff\xff\xff\xff\x0f" + framed):
        assert _read(2, broken) == 0
    empty = written(0, [], Frame(codec=2))[0]  # and behind its header a stream's
    assert errors_of(compared(Case(data=bytes(sealed(empty[:61] + framed[:16])))))


@pytest.mark.parametrize(
    "size", [0, -1, -4, -5, -20, -25, -(2**31), 2**31 - 1, 1, 30], ids=short
)
def test_snappy_whose_block_has_another_size(size):
    """Too small, or leading back; one that is too large ends with the batch."""
    framed = codecs.snappy_encode(PLAIN)
    section = framed[:16] + struct.pack(">i", size) + framed[20:]
    assert _read(2, section) == (20 if size > len(section) else 0)


def test_snappy_whose_blocks_are_counted_from_the_end():
    """A size that leads before the beginning, and from there to the end."""
    framed = codecs.snappy_encode(PLAIN)
    last = struct.pack(">i", 10_000) + snappy.compress(b"")
    size = -len(framed[:20]) - len(last)
    assert _read(2, framed[:16] + struct.pack(">i", size) + framed[20:] + last) == 0


KINDS = {
    "lz4": (
        3,
        lz4.frame.compress,
        [
            {"block_linked": True},
            {"content_checksum": True},
            {"block_checksum": True},
            {"store_size": False},
            {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
        ],
    ),
    "zstd": (
        4,
        lambda data, **options: zstandard.ZstdCompressor(**options).compress(data),
        [{"write_checksum": True}, {"write_content_size": False}, {"level": 19}],
    ),
}


@pytest.mark.parametrize(
    ("codec", "pack", "options"),
    [(codec, pack, one) for codec, pack, kinds in KINDS.values() for one in kinds],
    ids=short,
)
def test_every_kind_of_a_codec_with_every_byte_damaged(codec, pack, options):
    good = pack(PLAIN, **options)
    assert _read(codec, good) == 20
    for at in range(len(good)):
        _read(codec, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


def test_zstd_on_several_threads():
    """Each has a decompressor of its own: a mixed-up one would give errors."""
    sections = [
        codecs.zstd_encode(PLAIN * 2_000 + bytes([one]) * 1_000_000) for one in range(4)
    ]
    decode = _Zstd().decode
    expected = [codecs.zstd_decode(section) for section in sections]

    def read(number):
        return {decode(sections[number]) for _ in range(50)}

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(read, range(4))] == [{one} for one in expected]


def test_a_large_window_is_not_kept():
    """A producer chooses it: 128 MB for 1 MB on the wire."""
    options = zstandard.ZstdCompressionParameters.from_level(
        1, window_log=27, write_content_size=False
    )
    writer = zstandard.ZstdCompressor(compression_params=options).compressobj()
    data = b"".join(writer.compress(bytes(2**20)) for _ in range(40)) + writer.flush()
    decoder = _Zstd()
    usual = decoder._decompressor
    assert decoder.decode(codecs.zstd_encode(PLAIN)) == PLAIN
    assert decoder._decompressor is usual
    assert len(decoder.decode(data)) == 40 * 2**20
    assert decoder._decompressor.memory_size() < 2**20
