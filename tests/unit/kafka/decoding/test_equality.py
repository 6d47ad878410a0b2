"""The compiled decoder answers as upstream's does (P15)."""

from itertools import product
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.errors import CorruptRecordError

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
from tests.unit.kafka.decoding.damage import case as damaged
from tests.unit.kafka.decoding.strategies import answers

# They only compute, and take long on a machine that does much else.
pytestmark = pytest.mark.timeout(600)

SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


@pytest.mark.contract("P15")
@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(case=answers())
def test_whatever_a_broker_may_answer(case):
    """Records, their types, positions, epochs, metrics: the same after every take."""
    compared(case)


@pytest.mark.nightly
@settings(max_examples=1_000, deadline=None, suppress_health_check=SLOW)
@given(case=answers())
def test_whatever_else_it_may_answer(case):
    """The same, and more of it."""
    compared(case)


@pytest.mark.contract("P15")
@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_damaged_answers_are_read_alike(seed):
    """The same records or the same error; no crash, and no hang."""
    compared(damaged(Random(seed)))  # noqa: S311 - no secret


@pytest.mark.nightly
@settings(max_examples=30_000, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_many_damaged_answers_are_read_alike(seed):
    """The same, and more of it."""
    compared(damaged(Random(seed)))  # noqa: S311 - no secret


def test_damage_is_of_every_kind():
    """The comparison above compares errors, too, and not sound answers only."""
    answers = [damaged(Random(seed)) for seed in range(300)]  # noqa: S311 - no secret
    found = {error for one in answers for error in errors_of(compared(one))}
    assert len(found) > 3
    assert CorruptRecordError in found


def _offsets(case):
    return [record[3] for record in records_of(compared(case))]


@pytest.mark.parametrize("codec", range(5), ids=short)
def test_every_codec_from_the_middle(codec):
    """A broker sends the whole batch; what stands below the fetch offset is skipped."""
    rows = [Row(5, b"k", b"v" * 50, (("h", b"1"), ("n", None)))] * 100
    first, after = written(10, rows, Frame(codec=codec))
    second, _ = written(after, rows, Frame(codec=codec))
    for at in (60, 110, 160, 210):  # in the first, and behind it
        case = Case(data=first + second, fetch_offset=at, takes=(7,))
        assert _offsets(case) == [*range(at, 210)]


@pytest.mark.parametrize(("magic", "codec"), [*product([0, 1], range(4))], ids=short)
def test_old_formats_before_and_behind_new_ones(magic, codec):
    """Also in one answer: no record is lost, and an epoch stays where it was."""
    frame = Frame(magic=magic, codec=codec)
    data, at = b"", 0
    for next_one in (frame, frame, Frame(epoch=4), frame, frame, Frame(epoch=5)):
        more, at = written(at, [Row(value=b"v")] * 5, next_one)
        data += more
    steps = compared(Case(data=data, takes=(3,), fetch_offset=2))
    got = records_of(steps)
    assert [record[3] for record in got] == [*range(2, 30)]
    assert [record[2] for record in got] == [-1] * 8 + [4] * 15 + [5] * 5


@pytest.mark.parametrize(
    ("committed", "producer"), [*product([True, False], [0, 7])], ids=short
)
def test_aborted_transactions(committed, producer):
    """Left out under ``read_committed`` until their marker, and only there."""
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
    case = Case(data=data, committed=committed, aborted=aborted)
    last = [] if committed else [*range(14, 18)]
    start = [] if committed else [*range(4)]
    assert _offsets(case) == [*start, *range(5, 9), *range(10, 14), *last]


@pytest.mark.parametrize("committed", [True, False])
def test_a_control_batch_without_a_record(committed):
    """Compaction leaves such; upstream stumbles over it under ``read_committed``."""
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
def test_a_forged_time_adds_up(first, far):
    """A sum beyond 64 bits, which no producer writes, is as large as in Python."""
    data, _ = written(0, [Row(first), Row(first + far)], Frame())
    times = [record[4] for record in records_of(compared(Case(data=data)))]
    assert times == [first, first + far]


def test_a_forged_offset_of_65_bits():
    """Found by damaged answers: no number is cut to 64 bits."""
    data, _ = written(0, [Row(5)], Frame())
    body = bytes.fromhex("00 00" + "f2ffffffffffffff9203" + "01 01 00")
    forged = bytes(sealed(data[:61] + bytes([2 * len(body)]) + body))
    ((offset, *_),) = (record[3:] for record in records_of(compared(Case(data=forged))))
    assert offset >= 2**63
