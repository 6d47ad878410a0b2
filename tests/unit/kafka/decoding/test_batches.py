"""Checksums that compiled code adds up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record._crc32c import crc as kafkas_sum

from safeconsumer._kafka.decoding import _batches
from tests.unit.kafka.decoding.batches import Frame, Row, written

SOUND = written(5, [Row(value=b"v" * 300)] * 9, Frame())[0]


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
