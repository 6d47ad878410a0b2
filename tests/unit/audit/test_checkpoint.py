"""S1: the judge compares a stream's checkpoint with the holds topic."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeconsumer.audit.checkpoint import checkpoint_of, judged
from safeconsumer.audit.control import Control, Span
from safeconsumer.audit.report import status_of
from safeconsumer.errors import CheckpointError
from tests.harness.audit.checkpoints import batch, log, orders
from tests.harness.chance import by_day

VIOLATED, UNJUDGED, KEPT = "violated", "not judged", "kept"


def held(start, end=math.inf, scope="orders", group="g"):
    return Span(group=group, holder="operator:eve", scope=scope, start=start, end=end)


def rows_of(files, *spans, skew=0.0, **facts):
    control = Control(spans=spans, **{"since": 0.0, "until": math.inf, **facts})
    return judged(checkpoint_of("lake/c", files), control, "g", skew)


def verdicts(rows):
    """Return the verdict on each partition."""
    return {
        f"{row.topic}:{row.partition}": VIOLATED
        if row.violations
        else UNJUDGED
        if row.unjudged
        else KEPT
        for row in rows
    }


# A log in which Spark plans a batch with ten more records every 100 s.
STEADY = log(*((1000.0 + 100 * n, orders(10 * n)) for n in range(10)))


@pytest.mark.parametrize(
    ("span", "verdict"),
    [
        pytest.param(held(1150.0, 1450.0), VIOLATED, id="held for three batches"),
        pytest.param(held(1150.0), VIOLATED, id="held without an end"),
        pytest.param(held(1150.0, scope="re:ord.*"), VIOLATED, id="by a pattern"),
        pytest.param(held(1150.0, scope="@all"), VIOLATED, id="everything"),
        pytest.param(held(1150.0, scope="orders:0"), VIOLATED, id="the partition"),
        pytest.param(held(1150.0, scope="orders:1"), KEPT, id="another partition"),
        pytest.param(held(1150.0, group="other"), KEPT, id="another group"),
        pytest.param(held(500.0, 900.0), KEPT, id="ended before the first batch"),
        pytest.param(held(2000.0), KEPT, id="starts after the last batch"),
        pytest.param(held(1110.0, 1190.0), KEPT, id="between two batches"),
        pytest.param(held(1150.0, 1250.0), UNJUDGED, id="the plan may be older"),
        pytest.param(
            held(1080.0, 1220.0), UNJUDGED, id="plan near both ends of the hold"
        ),
        pytest.param(held(1150.0, scope="re:("), UNJUDGED, id="an invalid pattern"),
    ],
)
def test_batch_is_a_violation_only_if_planned_while_its_partition_was_held(
    span, verdict
):
    """A batch is a violation if, by both hosts' clocks, it was planned within the hold."""
    assert verdicts(rows_of(STEADY, span)) == {"orders:0": verdict}


def test_violation_names_its_batch_and_hold():
    (row,) = rows_of(STEADY, held(1150.0, 1450.0))
    assert (row.check, row.group, row.member) == ("S1", "g", "lake/c")
    assert (row.violations, row.offset, row.at) == (2, 20, 1300.0)
    assert row.evidence == (
        "batch 3 was planned at 1970-01-01 00:21:40.000Z, with the offsets 20 to 29, "
        "while operator:eve held orders from 1970-01-01 00:19:10.000Z to 1970-01-01 "
        "00:24:10.000Z"
    )
    assert "batch 2 was planned" in row.unjudged


@pytest.mark.contract("S5")
def test_stream_that_obeys_a_hold_passes():
    """The held partition does not advance during the hold, but it advances afterwards."""
    files = log(
        (1000.0, orders(10, 10)),
        (1200.0, orders(10, 20)),
        (1300.0, orders(10, 30)),
        (1500.1, orders(40, 40)),
        start=orders(0, 0),
    )
    rows = rows_of(files, held(1100.0, 1500.0, scope="orders:0"))
    assert verdicts(rows) == {"orders:0": KEPT, "orders:1": KEPT}
    assert status_of(rows, is_complete=True) == 0


def test_violation_sets_status_1_even_if_journals_are_missing():
    """A stream writes no journals, so missing journals do not affect its verdict."""
    rows = rows_of(STEADY, held(1150.0))
    assert status_of(rows, is_complete=False) == 1


@pytest.mark.parametrize(
    ("start", "verdict"),
    [
        pytest.param(orders(5), VIOLATED, id="started at a lower offset"),
        pytest.param(orders(10), KEPT, id="started at the same offset"),
        pytest.param(None, KEPT, id="unknown start"),
    ],
)
def test_first_batch_under_a_hold_is_a_violation_if_it_moves_past_the_start_offset(
    start, verdict
):
    rows = rows_of(log((5000.0, orders(10)), start=start), held(100.0))
    assert verdicts(rows) == {"orders:0": verdict}


def test_first_remaining_batch_after_deleted_batches_is_not_a_violation():
    files = log((5000.0, orders(10)), (5001.0, orders(10)), first=7, start=orders(0))
    assert verdicts(rows_of(files, held(100.0))) == {"orders:0": KEPT}


def test_new_partition_under_a_hold_is_a_violation_once_its_offset_moves_past_0():
    files = log((1000.0, orders(10)), (5000.0, orders(10, 0)), (6000.0, orders(10, 9)))
    rows = rows_of(files, held(1100.0, scope="orders:1"))
    assert verdicts(rows) == {"orders:0": KEPT, "orders:1": VIOLATED}
    assert rows[1].offset == 0
    assert rows[1].at == 6000.0


def test_batch_that_moves_an_offset_back_is_not_a_violation():
    files = log((1000.0, orders(10)), (2000.0, orders(4)))
    assert verdicts(rows_of(files, held(100.0))) == {"orders:0": KEPT}


@pytest.mark.parametrize(
    ("span", "verdict"),
    [
        pytest.param(held(900.0, 5000.0), VIOLATED, id="held throughout the gap"),
        pytest.param(held(1100.0, 1200.0), UNJUDGED, id="held during part of the gap"),
        pytest.param(held(1100.0, 5000.0), UNJUDGED, id="held from mid-gap on"),
        pytest.param(held(4000.0), KEPT, id="held after the batch"),
    ],
)
def test_batch_after_a_gap_may_have_been_planned_at_any_time_in_the_gap(span, verdict):
    """Asynchronous progress tracking omits batches, so the time of a move is not exact."""
    files = log((1000.0, orders(10)), (1100.0, orders(11)), (3000.0, orders(50)))
    files["offsets/9"] = files.pop("offsets/2")
    del files["offsets/1"]
    assert verdicts(rows_of(files, span)) == {"orders:0": verdict}


def test_fewer_batches_are_judged_if_clocks_may_differ():
    """A hold that has ended by the stream's clock may be in force by the broker's clock."""
    files = log((1000.0, orders(10)), (1500.1, orders(20)))
    span = held(1100.0, 1500.0)
    assert verdicts(rows_of(files, span)) == {"orders:0": KEPT}
    assert verdicts(rows_of(files, span, skew=1.0)) == {"orders:0": UNJUDGED}
    later = held(1150.0, 1440.0)
    assert verdicts(rows_of(STEADY, later, skew=60.0)) == {"orders:0": UNJUDGED}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param(
            {"since": 1150.0},
            "the control topics are complete since 1970-01-01 00:19:10.000Z, and "
            "batch 1 was planned at 1970-01-01 00:18:20.000Z",
            id="compacted after the first batch",
        ),
        pytest.param(
            {"until": 1850.0},
            "the history ends at 1970-01-01 00:30:50.000Z, and batch 9 was planned at "
            "1970-01-01 00:31:40.000Z",
            id="history read before the last batch",
        ),
        pytest.param(
            {"trouble": "the records of t have their writers' times"},
            "the records of t have their writers' times",
            id="timestamps set by the writers",
        ),
        pytest.param(
            {"group": "other"},
            "the given history is of the group other only",
            id="history of another group",
        ),
    ],
)
def test_stream_is_not_judged_if_its_holds_are_unknown(facts, why):
    (row,) = rows_of(STEADY, **facts)
    assert row.unjudged == f"lake/c: {why}"
    assert status_of([row], is_complete=True) == 2


def test_sources_of_one_query_are_judged_separately():
    """Two sources may read the same topic, and only Kafka sources have partitions."""
    delta = {"sourceVersion": 1, "reservoirId": "x", "index": 7}
    kinesis = {"shardId-0": {"iteratorType": "LATEST", "iteratorPosition": "49"}}
    files = log(
        (1000.0, orders(10), "-", delta, kinesis, orders(30)),
        (2000.0, orders(10), "12", delta, kinesis, orders(30)),
        (3000.0, orders(10), "13", delta, kinesis, orders(31)),
        start=orders(0),
    )
    (row,) = rows_of(files, held(1500.0))
    assert (row.violations, row.offset, row.at) == (1, 30, 3000.0)


@st.composite
def runs(draw):
    """Draw plans, each with its start and duration, and holds."""
    plans, now = [], 1000.0
    for _ in range(draw(st.integers(1, 8))):
        now += draw(st.sampled_from([0.0, 1.0, 40.0, 700.0]))
        took = draw(st.sampled_from([0.1, 5.0, 50.0, 500.0]))
        plans.append((now, took))
        now += took
    bounds = st.floats(900.0, now + 100.0)
    holds = draw(st.lists(st.tuples(bounds, bounds).map(sorted), max_size=3))
    return plans, [held(*one) for one in holds]


def log_of(plans, is_moved, ahead=0.0):
    """Return an offset log of these plans; the host's clock is ``ahead`` seconds fast."""
    end, batches = 0, []
    for began, took in plans:
        end += 10 * is_moved(began, took)
        batches.append((began + took + ahead, orders(end)))
    return log(*batches, start=orders(0))


def is_in_all(span, began, took):
    return span.start < began and began + took < span.end


@by_day(60)
@given(runs(), st.floats(-30.0, 30.0), st.sets(st.integers(0, 7)))
def test_obedient_stream_never_violates_despite_clock_errors_and_missing_batches(
    run, ahead, lacking
):
    """The stream's clock may be off by up to 30 s, and any batch may be missing."""
    plans, spans = run
    files = log_of(
        plans, lambda began, _: not any(s.start <= began < s.end for s in spans), ahead
    )
    for number in lacking:
        files.pop(f"offsets/{number}", None)
    if any(name.startswith("offsets/") for name in files):
        assert VIOLATED not in verdicts(rows_of(files, *spans)).values()


@by_day(60)
@given(runs())
def test_stream_that_ignores_holds_is_never_reported_as_clean(run):
    """A batch planned entirely while a hold was in force is a violation or is not judged."""
    plans, spans = run
    files = log_of(plans, lambda *_: True)
    if any(is_in_all(span, *plan) for span in spans for plan in plans):
        assert KEPT not in verdicts(rows_of(files, *spans)).values()


def skipping(at, to, partition=0):
    entry = {"topic": "orders", "partition": partition, "at": at, "to": to}
    return json.dumps([{**entry, "owner": "eve", "reason": "poison"}])


@pytest.mark.parametrize(
    ("skips", "verdict", "first"),
    [
        pytest.param({}, VIOLATED, 10, id="no offset skipped"),
        pytest.param({"1": skipping(10, 20)}, KEPT, None, id="all offsets skipped"),
        pytest.param({"1": skipping(10, 15)}, VIOLATED, 15, id="only the first half"),
        pytest.param({"1": skipping(5, 20)}, VIOLATED, 10, id="skip from offset 5"),
        pytest.param({"2": skipping(10, 20)}, VIOLATED, 10, id="by another batch"),
        pytest.param({"1": skipping(10, 20, 1)}, VIOLATED, 10, id="another partition"),
        pytest.param({"1": "[{"}, VIOLATED, 10, id="truncated file"),
    ],
)
def test_offsets_that_a_batch_skipped_do_not_count_as_read(skips, verdict, first):
    files = log((1000.0, orders(10)), (5000.0, orders(20)))
    files |= {f"sources/0/skips/{number}": text for number, text in skips.items()}
    (row,) = rows = rows_of(files, held(100.0, 6000.0))
    assert (verdicts(rows), row.offset) == ({"orders:0": verdict}, first)


def test_offsets_in_the_skip_file_of_a_missing_batch_do_not_count_as_read():
    files = log((1000.0, orders(10)), (2000.0, orders(20)), (5000.0, orders(20)))
    del files["offsets/1"]
    files["sources/0/skips/1"] = skipping(10, 20)
    assert verdicts(rows_of(files, held(100.0))) == {"orders:0": KEPT}


GOOD = batch(1000.0, orders(1))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        pytest.param({}, "has a batch of Kafka's records", id="no files"),
        pytest.param({"offsets/0": batch(1.0, "-")}, "Kafka's records", id="no Kafka"),
        pytest.param({"offsets/0": ""}, "offsets/0 is not in", id="empty"),
        pytest.param({"offsets/0": "v1"}, "offsets/0 is not in", id="truncated"),
        pytest.param(
            {"offsets/0": "v1\n{}\n{}"}, "batchTimestampMs", id="without a time"
        ),
        pytest.param({"offsets/0": batch(1.0)}, "is not in", id="no source"),
        pytest.param({"offsets/0": GOOD[:-2]}, "is not in", id="truncated offsets"),
        pytest.param({"offsets/0": GOOD.replace("1}", '"x"}')}, "'x'", id="a text"),
        pytest.param({"offsets/0": "v2" + GOOD[2:]}, "version 'v2'", id="version 2"),
        pytest.param(
            {"offsets/0": GOOD, "sources/0/0": "x"}, "sources/0/0", id="start"
        ),
        pytest.param({"offsets/0": GOOD, "sources/1/0": "x"}, "", id="another start"),
    ],
)
def test_folder_that_is_not_a_checkpoint_is_refused(files, message):
    """Files of sources other than Kafka are ignored."""
    if not message:
        assert checkpoint_of("lake/c", files).starts == {}
        return
    with pytest.raises(CheckpointError, match="lake/c") as caught:
        checkpoint_of("lake/c", files)
    assert message in str(caught.value)
