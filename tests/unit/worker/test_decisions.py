"""Tests the worker's pure decisions on progress, marks, retries and durations."""

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.testing import make_record
from safeconsumer.worker.durations import BOUNDS, Durations
from safeconsumer.worker.progress import OVERHEAD_BYTES, Progress, Watermark, sizes_of
from safeconsumer.worker.retry import FailureRatio, Retry
from safeconsumer.worker.watermarks import Limits, Load, credit, marks
from tests.harness.chance import by_day


@frozen
class Out:
    """A fake task with the attributes that ``Progress`` reads."""

    ordinals: list[int]
    records: list[None]


SIZE = 12 + OVERHEAD_BYTES


def records(*offsets):
    figures = {"leader_epoch": 3, "serialized_header_size": None}
    made = [make_record(b"v" * 10, b"kk", offset=offset) for offset in offsets]
    return [one._replace(**figures) for one in made]


def admit(progress, *offsets, now=0.0):
    progress.admit(records(*offsets), [SIZE] * len(offsets), now)


@by_day(30)
@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=5), max_size=4),
    st.randoms(use_true_random=False),
)
def test_watermark_is_the_first_incomplete_record(gaps, draw):
    """Gaps between offsets and the order of completion do not affect the watermark."""
    progress, offset, open_ = Progress(0), 0, []
    assert progress.watermark(()) == Watermark(0)
    for poll in gaps:
        offsets = []
        for gap in poll:
            offset += gap
            offsets.append(offset)
        open_ += enumerate(offsets, progress.admitted)
        admit(progress, *offsets)
    draw.shuffle(open_)
    total, out = len(open_), []
    while open_:
        ordinal, at = open_.pop()
        (record,) = progress.records([ordinal])
        assert record.offset == at
        if draw.random() < 0.5:
            assert progress.release([ordinal]) == SIZE
        else:
            out.append(Out([ordinal], [None]))
        left = min((at for _, at in open_), default=None)
        if left is None:
            assert progress.watermark(out) == Watermark(offset + 1, 3)
        else:
            assert progress.watermark(out) == Watermark(left, 3)
        assert progress.watermark(()).offset <= progress.watermark(out).offset
        assert progress.admitted - progress.floor() >= len(open_)
    for task in out:
        progress.release(task.ordinals)
    assert (total, total) == (progress.admitted, progress.floor())


@by_day(30)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=9))
def test_record_is_found_by_its_ordinal_after_other_records_are_released(polls):
    progress = Progress(0)
    for now, (count, waiting_lanes) in enumerate(polls):
        first = progress.admitted
        admit(progress, *range(first, first + count), now=now)
        floor = progress.floor()
        ordinals = range(floor, min(progress.admitted, floor + waiting_lanes))
        assert progress.release(ordinals) == len(ordinals) * SIZE
        for ordinal in range(progress.floor(), progress.admitted):
            assert progress.record(ordinal).offset == ordinal
            assert progress.size(ordinal) == SIZE
        assert progress.came_at(first) == now


def test_records_that_were_given_back_may_be_added_again():
    progress = Progress(0)
    admit(progress, 0, 3)
    admit(progress, 5, now=1.0)
    assert progress.cut(1) == 3
    assert (progress.admitted, progress.next_offset) == (1, 3)
    admit(progress, 4, now=9.0)
    assert [progress.came_at(ordinal) for ordinal in range(2)] == [0.0, 9.0]
    assert progress.release([0]) == SIZE
    assert progress.watermark(()) == Watermark(4, 3)


def test_position_is_reached_once_all_records_before_it_are_complete():
    """Until then, the next offset and the offset to commit do not change."""
    progress = Progress(0)
    admit(progress, 0, 1)
    for ordinal in (1, 0):
        progress.reach(10, 4)
        assert (progress.next_offset, progress.watermark(())) == (2, Watermark(0, 3))
        progress.release([ordinal])
    progress.reach(10, 4)
    assert (progress.next_offset, progress.watermark(())) == (10, Watermark(10, 4))


def test_size_counts_key_value_headers_and_overhead():
    """A missing key, value or header does not add to the size."""
    assert sizes_of(records(5, 6, 7)) == [SIZE] * 3
    assert SIZE == 12 + OVERHEAD_BYTES


@by_day(30)
@given(
    st.integers(1, 100),
    st.integers(1, 10_000),
    st.integers(0, 120),
    st.integers(0, 12_000),
    st.floats(0.0, 5_000.0),
    st.integers(1, 50),
)
def test_credit_exceeds_neither_the_limit_nor_the_size_of_a_poll(  # noqa: PLR0913, PLR0917 - one argument for each value
    limit, size, kept, held_bytes, average, most
):
    """The credit is positive exactly while the worker has room for more records."""
    limits = Limits(records=limit, bytes=size)
    room = credit(limits, Load(kept, held_bytes), average, most)
    assert 0 <= room <= most
    assert kept + room <= max(limit, kept)
    assert (room > 0) == (kept < limit and held_bytes < size)


def test_polling_stops_at_the_high_mark_and_continues_at_the_low_mark():
    """The marks apply separately to the number and to the size of the records."""
    both = marks(Limits(records=10, bytes=1000))
    assert not both.is_throttled(Load(9, 999), was=False)
    assert both.is_throttled(Load(10, 0), was=False)
    assert both.is_throttled(Load(0, 1000), was=False)
    assert both.is_throttled(Load(6, 0), was=True)
    assert both.is_throttled(Load(0, 501), was=True)
    assert not both.is_throttled(Load(5, 500), was=True)


@by_day(30)
@given(st.integers(1, 40), st.floats(0.0, 0.999))
def test_retry_delays_stay_within_their_bounds(failures, draw):
    """Jitter shortens a wait by at most half."""
    retry = Retry(first=0.5, factor=2.0, most=30.0)
    full = min(30.0, 0.5 * 2.0 ** (failures - 1))
    assert full / 2 <= retry.delay(failures, draw) <= full
    assert full == Retry(jitter=False).delay(failures, draw)


def test_duration_of_a_call_is_counted_as_the_mean_per_record():
    """Each record in a call is counted with an equal share of the call's duration."""
    durations = Durations()
    durations.add(0.4, 8)
    durations.add(0.3, 1)
    durations.add(1000.0, 1)
    taken = durations.histogram()
    assert (taken.count, taken.total) == (10, 1000.7)
    counted = dict(zip((*BOUNDS, None), taken.counts, strict=True))
    assert {bound: n for bound, n in counted.items() if n} == {0.05: 8, 0.5: 1, None: 1}


def test_dead_letter_ratio_is_exceeded_only_above_the_limit():
    """The ratio has no effect while it is based on only a few records."""
    failing = FailureRatio()
    for _ in range(3):
        failing = failing.failed()
    assert failing.exceeds(0.1) is None
    many = failing.succeeded(97)
    assert many.exceeds(None) is None
    assert many.exceeds(0.03) is None
    why = many.exceeds(0.02) or ""
    assert "3 of the last 100 records failed for good" in why


def test_ratio_with_a_smaller_sample_takes_effect_sooner():
    failing = FailureRatio(sample=10).succeeded(8).failed()
    assert failing.exceeds(0.05) is None
    why = failing.failed().exceeds(0.05) or ""
    assert "2 of the last 10 records failed for good" in why


def test_six_dead_letters_without_a_success_exceed_the_ratio():
    failing = FailureRatio()
    for _ in range(5):
        failing = failing.failed()
    assert failing.exceeds(0.1) is None
    assert failing.succeeded(1).failed().exceeds(0.1) is None
    sixth = failing.failed()
    assert "each of the first 6 records failed for good" in (sixth.exceeds(0.1) or "")
    assert sixth.exceeds(None) is None
    assert sixth.exceeds(1) is None


@by_day(30)
@given(
    sample=st.integers(20, 100),
    limit=st.floats(0.15, 0.9),
    share=st.floats(0.0, 1.0),
    phase=st.floats(0.0, 1.0, exclude_max=True),
)
def test_steady_failure_rate_below_the_limit_never_exceeds_the_limit(
    sample, limit, share, phase
):
    """In any sample, evenly spread failures exceed their rate by at most two records."""
    rate = share * max(0.0, limit - 2 / sample)
    failing = FailureRatio(sample)
    for number in range(35 * sample):
        is_bad = int((number + 1) * rate + phase) > int(number * rate + phase)
        failing = failing.failed() if is_bad else failing.succeeded(1)
        assert failing.exceeds(limit) is None, (number, failing)


def test_dead_letter_ratio_forgets_old_records():
    """Twenty thousand old successes do not outweigh recent failures."""
    failing = FailureRatio().succeeded(20_000)
    letters = 0
    while failing.exceeds(0.1) is None:
        failing, letters = failing.failed().succeeded(1), letters + 1
        assert letters < 200
    assert letters > 50
