"""W1: a batch waits for more records only while more can come."""

import pytest

from safeconsumer import Limits
from safeconsumer.worker.loop import BUSY_POLL
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, filled, in_both

WITHIN = 30.0


def longest_idle(lab, run, done):
    """Work until so many are done; return how long no handler ran while limits held."""
    longest, since = 0.0, lab.now

    def is_done():
        nonlocal longest, since
        stats = run.worker.stats()
        if (
            stats.running
            or not stats.queued
            or "worker:backpressure" not in stats.paused
        ):
            since = lab.now
        longest = max(longest, lab.now - since)
        return bool(stats.done >= done)

    lab.until(is_done, 600)
    return longest


def handler(lab, executor):
    """Return a handler of batches that takes a tenth of a second."""
    one = Handler(lab, v=0.1)

    def handle(records, context):
        one(records[0], context)

    async def wait(records, context):
        await one.wait(records[0], context)

    return wait if executor == "asyncio" else handle


@pytest.mark.contract("W1")
@pytest.mark.parametrize("limits", [{"records": 68}, {"bytes": 68 * 405}], ids=str)
@pytest.mark.parametrize("order", ["partition", "key", "unordered"])
@in_both
@simulated(seeds=1)
def test_no_handler_is_idle_while_limits_keep_batches_from_filling(
    lab, executor, order, limits
):
    """A share is 4 records, of which each of 4 lanes by key has one; a batch has 10."""
    filled(lab, 16, *["v"] * 15, keys="abcdefgh")
    run = Working(
        lab,
        handler(lab, executor),
        executor=executor,
        order=order,
        concurrency=4,
        batch=10,
        batch_within=WITHIN,
        limits=Limits(**limits),
        settings={"max_poll_records": 20, "max_partition_fetch_bytes": 1000},
    )
    assert longest_idle(lab, run, 16 * 11) <= 2 * BUSY_POLL
    run.stop()


@pytest.mark.contract("W1")
@in_both
@simulated(seeds=1)
def test_a_single_partition_whose_room_is_less_than_a_batch(lab, executor):
    filled(lab, 1, *["v"] * 50)
    run = Working(
        lab,
        handler(lab, executor),
        executor=executor,
        batch=50,
        batch_within=WITHIN,
        limits=Limits(records=10),
        settings={"max_poll_records": 10},
    )
    run.done(40)
    assert lab.now < WITHIN
    run.stop()


@pytest.mark.contract("W1")
@in_both
@simulated(seeds=1)
def test_records_beyond_the_span_fill_no_batch(lab, executor):
    filled(lab, 1, *["v"] * 40)
    run = Working(
        lab,
        handler(lab, executor),
        executor=executor,
        order="unordered",
        batch=50,
        batch_within=WITHIN,
        limits=Limits(span=10),
    )
    run.done(30)
    assert lab.now < WITHIN
    run.stop()


@in_both
@simulated(seeds=1)
def test_a_batch_waits_while_more_can_come(lab, executor):
    filled(lab, 2, *["v"] * 5)
    run = Working(
        lab, handler(lab, executor), executor=executor, batch=10, batch_within=WITHIN
    )
    lab.sleep(WITHIN - 2)
    assert run.worker.stats().done == 0
    run.done(10)
    assert WITHIN <= lab.now < WITHIN + 3
    run.stop()
