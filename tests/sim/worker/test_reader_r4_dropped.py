"""``Report.dropped``: "records given up; they come again". Fails today."""

from typing import Any

from tests.sim.lab import Lab
from tests.sim.playing import simulated
from tests.sim.worker.working import Handler, Working, committed, filled


@simulated(seeds=1)
def test_what_counts_as_dropped_comes_again(lab: Lab) -> None:
    """A seek forward drops what waits as ``moved``; those records never come again."""
    (tp,) = filled(lab, 1, "seeks", *["v"] * 7)

    def seeks(_record: Any, _context: Any) -> None:
        run.consumer.seek_to_end(tp)

    handler = Handler(lab, seeks=seeks)
    run = Working(lab, handler)
    lab.sleep(5)
    stats = run.worker.stats()
    run.stop()
    last = Working(lab, handler, name="b")
    lab.until(lambda: committed(lab) == [8])
    last.stop()
    assert stats.dropped_by_reason["moved"] == stats.dropped > 0
    assert {*handler.offsets()} == {*range(8)}, (stats.dropped, handler.offsets())
