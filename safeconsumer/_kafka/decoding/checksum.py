"""
Adds up checksums of record batches for the test broker, by compiled code where it is.

kafka-python adds them up in Python, at the price of ten times the rest of a record,
unless the package ``crc32c`` is installed, which is under the LGPL.
"""

from typing import Any

from kafka.record.default_records import DefaultRecordBatch
from kafka.record.util import calc_crc32c

try:
    from safeconsumer._kafka.decoding import _batches
except ImportError:  # there was no compiler
    _batches = None  # type: ignore[assignment]

# Behind the checksum, https://kafka.apache.org/documentation/#recordbatch.
SUMMED = DefaultRecordBatch.ATTRIBUTES_OFFSET
# A library of before this was in it is refused later, by whoever chooses a decoder.
_compiled = getattr(_batches, "crc32c", None)


def crc32c(data: Any, at: int) -> int:  # noqa: ANN401 - any buffer
    """Return the CRC-32C of all bytes from ``at`` on."""
    if _compiled is None:
        return int(calc_crc32c(memoryview(data)[at:]))
    return int(_compiled(data, at))
