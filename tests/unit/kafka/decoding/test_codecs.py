"""Both decoders read unusual and broken compressed data in the same way (P15)."""

import struct
from concurrent.futures import ThreadPoolExecutor

import lz4.frame
import pytest
import snappy
import zstandard
from kafka import codec as codecs

from safeconsumer._kafka.decoding.uncompressing import _Zstd
from tests.harness.listing import short
from tests.unit.kafka.decoding.batches import PACKERS, Frame, Row, sealed, written
from tests.unit.kafka.decoding.compare import Case, compared, errors_of, records_of

ROWS = [Row(5, b"k", b"value" * 10)] * 20
HEADER = 61
BATCH = written(0, ROWS, Frame())[0]
PLAIN = BATCH[HEADER:]
FRAMED = codecs.snappy_encode(PLAIN)
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"  # a skippable frame of LZ4 and Zstandard


def _read(codec, section):
    data = sealed(BATCH[:22] + bytes([codec]) + BATCH[23:HEADER] + section)
    return len(records_of(compared(Case(data=bytes(data)))))


@pytest.mark.parametrize("codec", PACKERS, ids=short)
def test_decoders_agree_on_data_with_unusual_ends_or_several_streams(codec):
    """Libraries differ in which trailing bytes and concatenated streams they accept."""
    pack = PACKERS[codec]
    good = pack(PLAIN)
    assert _read(codec, good) == 20
    ends = [good[:-size] for size in range(1, 13)]
    ends += [good + bytes(size) for size in range(1, 13)]
    ends += [good + bytes(range(1, size + 1)) for size in range(1, 13)]
    assert min(_read(codec, section) for section in ends) == 0
    for section in (
        pack(PLAIN[:100]) + pack(PLAIN[100:]),
        good + good,
        pack(b"") + good,
        good + pack(b""),
        SKIPPABLE + good,
        good + SKIPPABLE,
        b"",
    ):
        _read(codec, section)


@pytest.mark.parametrize("library", ["gzip", "snappy", "lz4", "zstd"])
def test_batch_is_not_read_without_the_library_for_its_codec(library, monkeypatch):
    """The batch is not read if kafka-python's ``has_*`` function returns False."""
    codec = ["", "gzip", "snappy", "lz4", "zstd"].index(library)
    good = PACKERS[codec](PLAIN)
    monkeypatch.setattr(codecs, f"has_{library}", lambda: False)
    assert _read(codec, good) == 0


def _block_of(size):
    return FRAMED[:16] + struct.pack(">i", size) + FRAMED[20:]


_LAST = struct.pack(">i", 10_000) + snappy.compress(b"")


@pytest.mark.parametrize(
    ("section", "count"),
    [
        pytest.param(snappy.compress(PLAIN), 20, id="raw"),
        pytest.param(
            FRAMED[:8] + b"\1\0\0\0\1\0\0\0" + FRAMED[16:], 20, id="another-version"
        ),
        pytest.param(FRAMED[:16], 0, id="no-block"),
        pytest.param(FRAMED[:15], 0, id="half-a-header"),
        pytest.param(b"\xff\xff\xff\xff\x0f" + FRAMED, 0, id="wrong-header"),
        *[
            pytest.param(_block_of(size), 0, id=f"block-of-{size}")
            for size in (0, -1, -4, -5, -20, -25, -(2**31), 1, 30)
        ],
        pytest.param(_block_of(2**31 - 1), 20, id="block-beyond-the-end"),
        pytest.param(
            _block_of(-len(FRAMED[:20]) - len(_LAST)) + _LAST,
            0,
            id="block-before-the-beginning",
        ),
    ],
)
def test_decoders_agree_on_unusual_snappy_data(section, count):
    """Producers other than Java's write raw Snappy, or another version of its framing."""
    assert _read(2, section) == count


def test_snappy_header_without_records_raises_an_error():
    empty = written(0, [], Frame(codec=2))[0]
    assert errors_of(compared(Case(data=bytes(sealed(empty[:61] + FRAMED[:16])))))


def zstd(data, **options):
    return zstandard.ZstdCompressor(**options).compress(data)


@pytest.mark.parametrize(
    ("codec", "pack", "options"),
    [
        (3, lz4.frame.compress, {"block_linked": True}),
        (3, lz4.frame.compress, {"content_checksum": True}),
        (3, lz4.frame.compress, {"block_checksum": True}),
        (3, lz4.frame.compress, {"store_size": False}),
        (3, lz4.frame.compress, {"block_size": lz4.frame.BLOCKSIZE_MAX4MB}),
        (4, zstd, {"write_checksum": True}),
        (4, zstd, {"write_content_size": False}),
        (4, zstd, {"level": 19}),
    ],
    ids=short,
)
def test_decoders_agree_on_each_variant_of_a_codec_with_any_byte_damaged(
    codec, pack, options
):
    good = pack(PLAIN, **options)
    assert _read(codec, good) == 20
    for at in range(len(good)):
        _read(codec, good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])


def test_threads_do_not_share_a_zstd_decompressor():
    sections = [
        codecs.zstd_encode(PLAIN * 2_000 + bytes([one]) * 1_000_000) for one in range(4)
    ]
    decode = _Zstd().decode
    expected = [codecs.zstd_decode(section) for section in sections]

    def read(number):
        return {decode(sections[number]) for _ in range(50)}

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(read, range(4))] == [{one} for one in expected]


def test_decompressor_does_not_keep_a_large_window():
    """The producer chooses the window, which may be 128 MB for 1 MB on the wire."""
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
