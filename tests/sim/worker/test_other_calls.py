"""Other calls of a consumer that a worker or a pump has: refused by name, or harmless."""

from contextlib import suppress
from typing import Any

import pytest
from kafka.structs import OffsetAndMetadata

from safeconsumer import events
from safeconsumer.errors import ConcurrentPollError, HandlersFailError
from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, committed, filled


@pytest.mark.xfail(strict=True, reason="a commit with offsets is not refused")
@pytest.mark.parametrize("call", ["commit", "commit_async"])
@simulated(seeds=1)
def test_a_commit_by_a_handler_passes_no_record_over(lab: Lab, call: str) -> None:
    """As a handler that was ported from a loop does; then the process is killed."""
    (tp,) = filled(lab, 1, "slow", *["commits"] * 4, keys="abcde")

    def commits(record: Any, _context: Any) -> None:
        offsets = {tp: OffsetAndMetadata(record.offset + 1, "", -1)}
        with suppress(HandlersFailError):
            getattr(first.consumer, call)(offsets)

    handler = Handler(lab, slow=60.0, commits=commits)
    first = Working(lab, handler, order="key", settings={"session_timeout_ms": 6000})
    lab.until(lambda: len(handler.calls) == 5)
    lab.sleep(1)
    lab.kill(first.process)
    again = Handler(lab)
    second = Working(lab, again, name="b", order="key")
    lab.until(lambda: committed(lab) == [5])
    second.stop()
    assert again.offsets() == [0, 1, 2, 3, 4]


@pytest.mark.xfail(strict=True, reason="a poll by a hook takes records away")
@simulated(seeds=1)
def test_a_poll_by_a_hook_takes_no_record_away(lab: Lab) -> None:
    """A worker's hook runs between two of its polls, on the thread that polls."""
    filled(lab, 1, *[""] * 30)
    taken = []

    def polls(event: Any) -> None:
        if isinstance(event, events.PartitionStarted):
            with suppress(ConcurrentPollError):
                taken.append(run.consumer.poll(500))

    handler = Handler(lab)
    run = Working(lab, handler, on_event=polls, settings={"max_poll_records": 2})
    lab.until(lambda: committed(lab) == [30])
    run.stop()
    assert handler.offsets() == [*range(30)]
    assert not any(taken)
