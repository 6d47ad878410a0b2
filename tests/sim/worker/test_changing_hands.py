"""Work that changes hands: what runs, what is queued, and where the next owner begins."""

import threading
from typing import Any

import pytest

from safeconsumer import SafeConsumer, Worker
from tests.sim.lab import GROUP, Lab
from tests.sim.playing import simulated
from tests.sim.reading import both_protocols

UNKNOWN_MEMBER_ID = 25


class Working:
    """A worker that runs in a thread of its own, and its report."""

    def __init__(self, lab: Lab, handler: Any, *topics: str, **options: Any) -> None:
        settings = options.pop("settings", {})
        self.consumer = SafeConsumer(
            *topics, **lab.settings(group_id=GROUP, **settings)
        )
        self.worker = Worker(self.consumer, handler, **options)
        self.reports: list[Any] = []
        self._thread = threading.Thread(
            target=lambda: self.reports.append(self.worker.run()), name="worker"
        )
        self._thread.start()

    def stop(self) -> Any:
        """Stop it, and return its report."""
        self.worker.stop()
        self._thread.join()
        return self.reports[0]


@pytest.mark.contract("W4", "W5", "W6")
@both_protocols
@simulated(seeds=2)
def test_a_worker_that_joins_takes_over_what_is_not_done(
    lab: Lab, assignor: type
) -> None:
    """W6: what runs is waited for, what is queued is given up; both go on, once each."""
    partitions = lab.topic("t", 4, records=5)
    handled: list[tuple[int, int]] = []

    def handle(record: Any, _: Any) -> None:
        lab.sleep(0.5)
        handled.append((record.partition, record.offset))

    settings = {"partition_assignment_strategy": [assignor]}
    options = {"settings": settings, "order": "partition", "concurrency": 2}
    first = Working(lab, handle, "t", **options)
    lab.until(lambda: handled)
    second = Working(lab, handle, "t", **options)
    lab.until(lambda: all(lab.committed(tp) == 5 for tp in partitions), 60)
    assert sorted(handled) == [(tp.partition, n) for tp in partitions for n in range(5)]
    assert first.stop().done + second.stop().done == 20


@pytest.mark.contract("W4", "W6")
@simulated(seeds=2)
def test_what_is_lost_is_given_up_and_comes_again(lab: Lab) -> None:
    """W6: nothing of it begins or is committed any more, what ran to its end included."""
    (tp,) = lab.topic("t", 1, records=4)
    handled: list[int] = []

    def handle(record: Any, _: Any) -> None:
        handled.append(record.offset)
        lab.sleep(1)

    settings = {"heartbeat_interval_ms": 200, "session_timeout_ms": 3000}
    run = Working(lab, handle, "t", order="partition", settings=settings)
    lab.until(lambda: handled)
    generation = lab.generation()
    lab.cluster.fail("Heartbeat", error=UNKNOWN_MEMBER_ID, count=1)
    lab.until(lambda: lab.generation() > generation)  # once its session is over
    assert (handled, lab.committed(tp)) == ([0], 0)
    lab.until(lambda: lab.committed(tp) == 4)
    assert handled == [0, *range(4)]
    assert run.stop().dropped == 4


@pytest.mark.contract("W12")
@simulated(seeds=2)
def test_nothing_begins_before_the_group_knows_where_from(lab: Lab) -> None:
    """W12: with ``latest`` the first commit is the floor; handlers wait for its answer."""
    (tp,) = lab.topic("t", 1, records=3)
    late = lab.cluster.fail("OffsetCommit", is_held=True)
    handled: list[int] = []
    run = Working(
        lab,
        lambda record, _: handled.append(record.offset),
        "t",
        settings={"auto_offset_reset": "latest"},
    )
    lab.until(lambda: late.kept)
    lab.append(tp)
    lab.sleep(20)
    assert (handled, lab.committed(tp)) == ([], 3)
    late.end()
    lab.until(lambda: handled == [3])
    assert run.stop().committed
