"""A handler hears that its partition is being taken away: in a thread, and in a coroutine."""

import asyncio

import pytest

from safeconsumer import Drain
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, expel, filled


@simulated(seeds=3)
def test_a_coroutine_awaits_the_revocation(lab):
    """Several of one partition do; the loop is free meanwhile, and nobody polls."""
    filled(lab, 2, *["v"] * 3)
    woken = []

    async def wait(record, context):
        await asyncio.wait_for(context.revoked, 500)
        assert context.revoked.is_set()
        woken.append((record.partition, record.offset))

    run = Working(
        lab,
        wait,
        executor="asyncio",
        order="unordered",
        concurrency=6,
        drain=Drain(revoke=0.5, shutdown=1.0),
    )
    lab.until(lambda: run.worker.stats().running == 6)
    assert not woken
    expel(lab)
    lab.until(lambda: len(woken) >= 6)
    assert len(set(woken)) == 6
    run.stop()


@simulated(seeds=1)
def test_a_coroutine_that_is_late_or_cancelled_leaves_nothing(lab):
    filled(lab, 1, "v")
    found = []

    async def wait(_record, context):
        if not found:
            found.append(context.revoked)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(context.revoked, 1)
            assert not context.revoked._waiting
            await context.revoked
            await context.revoked  # set by now
            assert not context.revoked._waiting
            found.append("woken")

    run = Working(lab, wait, executor="asyncio")
    lab.sleep(5)
    expel(lab)
    lab.until(lambda: len(found) == 2)
    run.done(1)
    run.stop()


@simulated(seeds=1)
def test_a_thread_waits_for_the_revocation(lab):
    filled(lab, 1, "v")
    heard = []

    def wait(_record, context):
        if not heard:
            heard.append(context.revoked.wait(1.0))
            heard.append(context.revoked.wait(100.0))
        return 0.0

    run = Working(lab, Handler(lab, v=wait))
    lab.sleep(5)
    expel(lab)
    run.done(1)
    assert heard == [False, True]
    run.stop()
