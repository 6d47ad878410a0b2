"""
The short cut to the sum of record sizes gives what adding them one by one gives.
"""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.util import decode_varint, encode_varint

from safeconsumer._kafka.decoding.record_sizes import record_bytes

_SIZES = (0, 1, 62, 63, 64, 65, 127, 128, 8191, 8192)


def _section(sizes: list[int], fill: random.Random) -> bytes:
    written = bytearray()
    for size in sizes:
        encode_varint(size, written.append)
        written += fill.randbytes(size)
    return bytes(written)


def _naive(section: bytes, count: int) -> int:
    total = at = 0
    for _ in range(count):
        size, at = decode_varint(section, at)
        at += size
        total += size
    return total


runs = st.tuples(st.integers(0, 200) | st.sampled_from(_SIZES), st.integers(1, 40))


@given(drawn=st.lists(runs, max_size=12), part=st.floats(0, 1), fill=st.randoms())
def test_as_by_a_naive_loop(
    drawn: list[tuple[int, int]], part: float, fill: random.Random
) -> None:
    """
    Runs of equal and of different sizes, of which any number is added up.
    """
    sizes = [size for size, count in drawn for _ in range(count)]
    count = round(len(sizes) * part)
    section = _section(sizes, random.Random(fill.random()))  # noqa: S311 - no secret
    assert record_bytes(section, count) == _naive(section, count)
    assert record_bytes(b"head" + section + bytes(32), count, 4) == sum(sizes[:count])
    assert _naive(section, count) == sum(sizes[:count])


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("other", [0, 1, 63, 64, 8192])
def test_one_that_differs_in_a_long_run(size: int, other: int) -> None:
    """
    In every place of the run; what the records hold looks like lengths.
    """
    for at in (0, 1, 7, 8, 9, 150, 299):
        sizes = [size] * 300
        sizes[at] = other
        section = b"".join(_prefix(one) + _prefix(size)[:1] * one for one in sizes)
        for count in (at, at + 1, 300):
            got = record_bytes(section, count)
            assert got == sum(sizes[:count])


def _prefix(size: int) -> bytes:
    written = bytearray()
    encode_varint(size, written.append)
    return bytes(written)
