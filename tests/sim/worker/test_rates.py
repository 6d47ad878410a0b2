"""W11: a rate by pauses, as the page has it; a pause without an error is no alarm."""

from collections import deque

import pytest

from safeconsumer import Pause, events
from tests.harness.docs.pages import ROOT, blocks
from tests.sim.playing import simulated
from tests.sim.worker.working import Working, filled, in_both, in_each_order

PAGE = ROOT / "docs" / "how-to" / "slow-handlers.md"


def rate_of_the_page(calls, seconds):
    names = {"__name__": "page"}
    (text,) = [one.code for one in blocks(PAGE) if "def take_turn" in one.code]
    exec(text, names)  # noqa: S102 - the page's own
    names["began"] = deque(maxlen=calls)
    return lambda: names["take_turn"](seconds)


@pytest.mark.contract("W11")
@in_each_order
@simulated(seeds=1)
def test_the_recipe_keeps_the_rate_and_the_worker_healthy(lab, executor, order):
    filled(lab, 4, *["v"] * 10, keys="abcdef")
    take_turn = rate_of_the_page(5, 10.0)
    times = []
    calls = 0

    def handle(_record, _context):
        nonlocal calls
        calls += 1
        take_turn()
        times.append(lab.now)

    async def wait(record, context):
        handle(record, context)

    run = Working(
        lab, wait if executor == "asyncio" else handle, executor=executor, order=order
    )
    for done in (10, 20, 30, 40):
        run.done(done)
        assert run.worker.healthy()
    assert all(b - a >= 9.99 for a, b in zip(times, times[5:], strict=False))
    assert times[-1] - times[0] < 75
    assert calls < 3 * 40
    assert run.told(events.WorkPaused)
    assert {one.severity for one in run.events} <= {"debug", "info"}
    run.stop()


@pytest.mark.contract("W11")
@in_both
@simulated(seeds=1)
def test_a_pause_is_a_warning_if_an_error_is_behind_it(lab, executor):
    filled(lab, 1, "plain", "from", "in", "none")
    seen = set()

    def handle(record, _context):
        if record.value in seen:
            return
        seen.add(record.value)
        if record.value == b"plain":
            raise Pause(1.0)
        try:
            {}["the cause"]
        except KeyError as error:
            if record.value == b"from":
                raise Pause(1.0) from error
            if record.value == b"none":
                raise Pause(1.0) from None
            raise Pause(1.0)  # noqa: B904 - the error is behind it all the same

    async def wait(record, context):
        handle(record, context)

    run = Working(lab, wait if executor == "asyncio" else handle, executor=executor)
    run.done(4)
    told = run.told(events.WorkPaused)
    assert [one.severity for one in told] == ["info", "warning", "warning", "info"]
    assert run.worker.stats().alarms["work_paused"] == 2
    run.stop()
