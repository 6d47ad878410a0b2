# ruff: noqa: ANN401 - upstream is untyped, and both decoders are its children
"""The compiled decoder answers as upstream's does, whatever the batches are."""

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import calc_crc32c
from kafka.serializer import Deserializer
from kafka.structs import TopicPartition

from safeconsumer._kafka.decoding.decoders import choose
from safeconsumer._kafka.decoding.sought import PythonRecords
from tests.harness.listing import each

# They only compute, and take long on a machine that does much else.
pytestmark = pytest.mark.timeout(600)

TP = TopicPartition("t", 3)
Compiled: Any = choose("compiled").records

texts = st.text(max_size=4)
blobs = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(texts, blobs), max_size=2)
times = st.integers(-(2**40), 2**40) | st.sampled_from((0, 2**62, -(2**62)))
records = st.lists(
    st.tuples(times, blobs, blobs, headers, st.integers(0, 3)), min_size=1, max_size=12
)
codecs = st.integers(0, 4)
batches = st.lists(
    st.tuples(
        st.sampled_from((2, 2, 2, 1, 0)),
        codecs,
        records,
        st.integers(0, 3),
        st.sampled_from(("plain", "plain", "transaction")),
    ),
    min_size=1,
    max_size=4,
)
takes = st.lists(st.integers(1, 9) | st.none(), min_size=1, max_size=12)


class Metrics:
    """What upstream's fetch metrics are told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def record(self, *what: Any) -> None:
        self.told.append(what)


class Upper(Deserializer):
    """Raises for some values, as a deserializer may."""

    def deserialize(
        self,
        topic: str,
        headers: Any,  # noqa: ARG002 - upstream's signature
        data: bytes | None,
    ) -> Any:
        if data is not None and data.startswith(b"\x07"):
            raise ValueError(data)
        if data is not None and data.startswith(b"\x08"):
            raise StopIteration
        return None if data is None else topic.encode() + data


def _write(drawn: list[tuple[Any, ...]]) -> bytes:
    # offsets leave gaps, as compaction does; the last one's delta is rewritten
    written, offset = b"", 0
    for magic, codec, content, tail, kind in drawn:
        if magic == 2:
            in_transaction = kind == "transaction"
            builder = DefaultRecordBatchBuilder(
                2, codec, int(in_transaction), 9 if in_transaction else -1, 0, 0, 2**20
            )
        else:
            builder = LegacyRecordBatchBuilder(magic, min(codec, 2), 2**20)
        first = offset
        for when, key, value, head, gap in content:
            offset += gap if magic == 2 else 0
            at = offset - first
            if magic == 2:
                builder.append(at, when, key, value, head)
            else:
                builder.append(at, abs(when) % 2**40, key, value)
            offset += 1
        offset += tail if magic == 2 else 0
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, first if magic == 2 else offset - 1)
        if magic == 2:
            struct.pack_into(">i", batch, 23, offset - 1 - first)
            _seal(batch)
        written += bytes(batch)
    return written


def _seal(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, calc_crc32c(memoryview(batch)[21:]))


def _play(kind: Any, data: bytes, steps: list[int | None], **options: Any) -> list[Any]:
    metrics = Metrics()
    seen: list[Any] = []
    try:
        part = kind(
            options.pop("start", 0),
            TP,
            MemoryRecords(data),
            metric_aggregator=metrics,
            **options,
        )
        for n in [*steps, None, None]:
            if not part:
                break
            taken = part.take(n)
            seen.append((taken, [type(one) for one in taken]))
            seen.append((part.next_fetch_offset, part.leader_epoch, bool(part)))
            seen.append(part.records_read)
    except Exception as error:  # noqa: BLE001 - the same one is expected of both
        seen.append((type(error), str(error)))
    else:
        part.drain()
        seen.append(metrics.told)
    return seen


def _same(data: bytes, steps: list[int | None], **options: Any) -> None:
    # Upstream deserializes what stands before the fetch offset too.
    reads_before = "value_deserializer" in options and options["start"]
    stock = PythonRecords if reads_before else Fetcher.PartitionRecords
    theirs = _play(stock, data, steps, **options)
    assert _play(Compiled, data, steps, **options) == theirs


@given(drawn=batches, steps=takes, start=st.integers(0, 30), checks=st.booleans())
@settings(max_examples=250)
def test_records_positions_and_metrics_are_the_same(
    drawn: list[tuple[Any, ...]], steps: list[int | None], start: int, *, checks: bool
) -> None:
    """Field by field, after every take; formats, codecs, gaps and tails drawn at random."""
    _same(_write(drawn), steps, start=start, check_crcs=checks)


@pytest.mark.contract("P15")
@given(drawn=batches, steps=takes, start=st.integers(0, 6))
@settings(max_examples=150)
def test_deserializers_and_their_errors_are_the_same(
    drawn: list[tuple[Any, ...]], steps: list[int | None], start: int
) -> None:
    """What stands before the error comes first, then the error."""
    _same(
        _write(drawn),
        steps,
        start=start,
        key_deserializer=Upper(),
        value_deserializer=Upper(),
    )


@given(drawn=batches, steps=takes, aborted=st.integers(0, 12))
@settings(max_examples=100)
def test_aborted_transactions_are_left_out_alike(
    drawn: list[tuple[Any, ...]], steps: list[int | None], aborted: int
) -> None:
    """Under ``read_committed``; the position goes on behind them."""

    class Aborted:
        producer_id = 9
        first_offset = aborted

    _same(
        _write(drawn),
        steps,
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=[Aborted()],
    )


@given(
    drawn=batches,
    steps=takes,
    at=st.integers(0, 400),
    bit=st.integers(0, 7),
    cut=st.integers(0, 3),
    checks=st.booleans(),
    sealed=st.booleans(),
)
@settings(max_examples=400)
def test_damaged_batches_are_damaged_alike(  # noqa: PLR0913 - the ways to damage one
    drawn: list[tuple[Any, ...]],
    steps: list[int | None],
    at: int,
    bit: int,
    cut: int,
    *,
    checks: bool,
    sealed: bool,
) -> None:
    """The same records or the same error, also where the checksum fits the damage."""
    data = bytearray(_write(drawn[:1]))
    if 17 <= at < len(data):  # lengths and formats are read by upstream alone
        data[at] ^= 1 << bit
        if sealed and data[16] == 2:
            _seal(data)
    _same(bytes(data[: len(data) - cut]), steps, check_crcs=checks)


@pytest.mark.parametrize("wanted", ["auto", "compiled"])
def test_the_compiled_decoder_is_taken_where_it_is(wanted: str) -> None:
    """And named, with the file that it comes from."""
    choice = choose(wanted)
    assert (choice.name, choice.detail) == ("compiled", "_batches.abi3.so")


@each("wanted", ["fast", "", None])
def test_another_word_is_refused(wanted: Any) -> None:
    """With the words there are."""
    with pytest.raises(ValueError, match="auto, python, compiled"):
        choose(wanted)
