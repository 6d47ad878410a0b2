"""
Computes checksums of record batches for the test broker, in compiled code if possible.

Unless the LGPL-licensed package ``crc32c`` is installed, kafka-python computes
checksums in Python, which takes ten times as long as all other work for a record.
"""

from typing import Any

from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import calc_crc32c

try:
    from safeconsumer._kafka.decoding import _batches
except ImportError:  # built without a compiler
    _batches = None  # type: ignore[assignment]

# The first byte after the checksum, https://kafka.apache.org/documentation/#recordbatch.
SUMMED = DefaultRecordBatch.ATTRIBUTES_OFFSET
# An older compiled library lacks the function; choose() refuses that library later.
_compiled = getattr(_batches, "crc32c", None)


def crc32c(data: Any, at: int) -> int:  # noqa: ANN401 - any buffer
    """Return the CRC-32C of all bytes from index ``at`` on."""
    if _compiled is None:
        return int(calc_crc32c(memoryview(data)[at:]))
    return int(_compiled(data, at))
