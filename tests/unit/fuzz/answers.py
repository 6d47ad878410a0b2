"""Answers of brokers, which compiled code and kafka-python's must read alike."""

from kafka.serializer import Deserializer

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

_ROWS = [Row(5, b"k", b"v", (("h", b"1"), ("n", None))), Row(6, None, b"x" * 9, gap=2)]
# Where the length of a batch stands, what it does not count, and the least batch.
_LENGTH_AT, _UNCOUNTED, _LEAST = slice(8, 12), 12, 61


class _Picky(Deserializer):
    def deserialize(self, topic, headers, data):
        headers.append((topic, data))
        return data and data.decode()


def record_batches(data):
    """The same records, errors and positions, however they are taken."""
    for whole in (data, _with_checksums(data)):
        for committed, picky in ((True, None), (False, _Picky())):
            compared(
                Case(
                    data=whole,
                    takes=(1, 3, None),
                    check_crcs=committed,
                    committed=committed,
                    aborted=[Aborted(7, 0)],
                    value_deserializer=picky,
                )
            )


def _with_checksums(data):
    """Return it with a right checksum for each batch: no fuzzer guesses one."""
    found, at = b"", 0
    while at + _LEAST <= len(data):
        length = int.from_bytes(data[at:][_LENGTH_AT], "big")
        end = at + _UNCOUNTED + length
        if not at + _LEAST <= end <= len(data):
            break
        found += bytes(sealed(data[at:end]))
        at = end
    return found + data[at:]


def _several():
    data, at = b"", 0
    for frame in (Frame(), Frame(producer=7, transactional=True), Frame(codec=3)):
        more, at = written(at, _ROWS, frame)
        data += more
    return data + marker(at, ABORT, 7)[0]


SEEDS = (
    _several(),
    *(written(3, _ROWS, Frame(codec=codec, log_append=True))[0] for codec in range(5)),
    written(0, _ROWS[1:], Frame(magic=1))[0],
    written(9, [], Frame(tail=3))[0] + marker(13, COMMIT, 7)[0],
)
