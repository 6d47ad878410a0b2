"""Workers whose group changes under them: nothing lost, nothing stuck, little repeated."""

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

from safeconsumer import events
from safeconsumer.events import worker as worker_events
from safeconsumer.worker import Drain, Limits
from tests.broker.worker.handlers import Recording
from tests.harness.processes import Process, module
from tests.harness.waiting import LIMIT, wait_for
from tests.harness.worker.lab import Lab, Running

pytestmark = pytest.mark.any_broker

ASSIGNORS = {"eager": RangePartitionAssignor, "cooperative": CooperativeStickyAssignor}
# Small, so that a handful of slow records throttles.
TIGHT = Limits(records=20, low=0.5)
TIGHT_POLL: dict[str, Any] = {"max_poll_records": 10}


@pytest.fixture(params=list(ASSIGNORS))
def assignor(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Configure each protocol in turn."""
    return {"partition_assignment_strategy": [ASSIGNORS[request.param]]}


class Seen:
    """What handlers did, by record, whichever worker it was."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self.times: dict[tuple[int, int], int] = {}

    def __call__(self, record: Any, context: Any) -> None:  # noqa: ANN401
        context.revoked.wait(self.seconds)
        at = (record.partition, record.offset)
        with self._lock:
            self.times[at] = self.times.get(at, 0) + 1

    def repeated(self) -> int:
        """Count what was done more than once."""
        return sum(count - 1 for count in self.times.values())


def every(partitions: int, count: int) -> set[tuple[int, int]]:
    """Name all records of a topic."""
    return set(itertools.product(range(partitions), range(count)))


def start(lab: Lab, handle: Any, assignor: Any, **settings: Any) -> Running:  # noqa: ANN401
    """Run one member with tight limits."""
    config = {**TIGHT_POLL, **assignor, **settings.pop("config", {})}
    heard: list[Any] = []
    consumer = lab.consumer(hooks=(heard.append,), **config)
    settings = {"limits": TIGHT, "concurrency": 4, **settings}
    running = lab.run(handle, consumer, **settings)
    running.heard = heard  # type: ignore[attr-defined]  # for the test's own eyes
    return running


def joins(running: Running) -> int:
    """Count completed rebalances of a member."""
    heard = running.heard  # type: ignore[attr-defined]  # see above
    return sum(isinstance(one, events.RebalanceCompleted) for one in heard)


def test_rebalances_while_throttled(
    lab: Lab, assignor: dict[str, Any], pytestconfig: pytest.Config
) -> None:
    """Members come and go while one is full: 0 leaked, 0 lost, 0 stuck."""
    lab.new_topic(partitions=4)
    rounds = pytestconfig.getoption("--worker-rounds")
    count = 60
    lab.produce({number: ["v"] * count for number in range(4)})
    seen = Seen(0.03)
    first = start(lab, seen, assignor)
    wait_for(lambda: first.worker.stats().paused, "the first to be throttled")
    for _ in range(rounds):
        before = joins(first)
        other = start(lab, seen, assignor)
        wait_for(lambda before=before: joins(first) > before, "a join")
        lab.produce({number: ["v"] * 10 for number in range(4)})
        count += 10
        other.wait_done(1)
        after = joins(first)
        other.end()
        wait_for(lambda after=after: joins(first) > after, "another join")
    wait_for(lambda: every(4, count) <= seen.times.keys(), "every record")
    report = first.end()
    assert first.worker.stats().leaked == 0
    assert report.committed
    assert dict.fromkeys(range(4), count) == lab.committed()
    assert seen.repeated() <= 4 * 2 * rounds  # concurrency per revoke


class Blocking:
    """A handler that does not return until it may, and notes who runs beside whom."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.starts: list[int] = []
        self.overlaps: list[int] = []
        self._running: set[int] = set()

    def __call__(self, record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.partition in self._running:
            self.overlaps.append(record.partition)
        self._running.add(record.partition)
        self.starts.append(record.partition)
        self.go_on.wait(LIMIT)
        self._running.discard(record.partition)


def _waits_for_earlier(running: Running) -> bool:
    epochs = tuple(running.worker._engine.held.epochs.values())
    lanes = [lane for epoch in epochs for lane in tuple(epoch.earlier.values())]
    return any(lane is not None for lane in lanes)


@pytest.mark.parametrize("order", ["partition", "key"])
def test_a_regained_partition_waits_for_the_handler_left_behind(
    lab: Lab, assignor: dict[str, Any], order: str, request: pytest.FixtureRequest
) -> None:
    """W3: in a rolling restart, once the drain has given up on it."""
    lab.new_topic(partitions=2)
    lab.produce({number: ["v"] for number in range(2)})
    handle = Blocking()
    request.addfinalizer(handle.go_on.set)
    first = start(lab, handle, assignor, order=order, drain=Drain(revoke=0.1))
    wait_for(lambda: len(handle.starts) == 2, "both handlers")
    before = joins(first)
    second = start(lab, handle, assignor, config={"start_paused": True})
    wait_for(lambda: joins(first) > before and joins(second), "a join")
    second.end()
    wait_for(lambda: handle.overlaps or _waits_for_earlier(first), "the partition back")
    assert len(handle.starts) == 2
    handle.go_on.set()
    first.wait_done(2)
    assert handle.overlaps == []
    assert first.end().committed
    assert lab.committed() == {0: 1, 1: 1}


def test_an_eager_join_waits_for_running_handlers(lab: Lab) -> None:
    """W6: with handlers quicker than the drain nothing is done twice."""
    lab.new_topic(partitions=4)
    count = 200
    lab.produce({number: ["v"] * count for number in range(4)})
    seen = Seen(0.05)
    eager = {"partition_assignment_strategy": [RangePartitionAssignor]}
    first = start(lab, seen, eager)
    first.wait_done(8)
    second = start(lab, seen, eager)
    second.wait_done(8)
    seen.seconds = 0.0
    wait_for(lambda: every(4, count) <= seen.times.keys(), "every record")
    first.end()
    second.end()
    assert seen.repeated() == 0
    drained = [e for e in first.events if type(e) is worker_events.WorkDrained]
    assert "rebalance" in {event.reason for event in drained}
    assert all(event.running == 0 for event in drained)
    assert dict.fromkeys(range(4), count) == lab.committed()


def test_a_drain_ends_at_its_deadline(lab: Lab) -> None:
    """W6: the join is not kept waiting by a handler that hangs; what stays goes on."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["v"] * 5, 1: ["v"] * 5})
    hangs = threading.Event()
    done: list[tuple[int, int]] = []

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.partition == 0 and record.offset == 0:
            hangs.wait(30)
        done.append((record.partition, record.offset))

    eager = {"partition_assignment_strategy": [RangePartitionAssignor]}
    first = start(lab, handle, eager, drain=Drain(revoke=0.5, shutdown=1.0))
    first.wait_done(5)
    second = start(lab, handle, eager)
    wait_for(lambda: joins(second), "the other to join")
    wait_for(
        lambda: any(
            isinstance(e, worker_events.WorkDrained) and e.running == 1
            for e in first.events
        ),
        "the drain to give up",
    )
    hangs.set()
    wait_for(lambda: every(2, 5) <= set(done), "every record")


def test_a_record_of_a_poll_that_ran_the_rebalance_is_kept(
    lab: Lab, assignor: dict[str, Any]
) -> None:
    """
    The scenario in which arroyo 2.48 lost a record: paused, and the rebalance comes.

    The member is throttled throughout, others come and go, and in the end each record
    was handled and the committed offsets are the ends.
    """
    lab.new_topic(partitions=2)
    count = 20
    lab.produce({0: ["v"] * count, 1: ["v"] * count})
    seen = Seen(0.02)
    first = start(lab, seen, assignor, limits=Limits(records=10, low=0.0))
    wait_for(lambda: first.worker.stats().paused, "the first to be throttled")
    other = start(lab, seen, assignor, limits=Limits(records=10, low=0.0))
    wait_for(lambda: joins(other), "the other to join")
    other.end()
    wait_for(lambda: every(2, count) <= seen.times.keys(), "every record")
    first.end()
    assert dict.fromkeys(range(2), count) == lab.committed()


@pytest.mark.contract("W2")
def test_a_handler_slower_than_max_poll_interval_evicts_nobody(lab: Lab) -> None:
    """W2: ten times as slow, the member keeps its generation and the loop polls on."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    begun, never = threading.Event(), threading.Event()

    def handle(_record: Any, _context: Any) -> None:  # noqa: ANN401
        begun.set()
        assert never.wait(60)

    config = {"max_poll_interval_ms": 1_500, "session_timeout_ms": 6000}
    running = start(lab, handle, {}, config=config, drain=Drain(revoke=0.2))
    assert begun.wait(LIMIT)
    before = joins(running)
    engine, since = running.worker._engine, time.monotonic()
    wait_for(lambda: engine.polled_at > since + 15, "the loop to poll on", 60)
    assert joins(running) == before
    never.set()
    running.wait_done(1)
    assert joins(running) == before
    assert running.worker.stats().poll_gap < 1.5
    running.end()
    assert lab.committed() == {0: 1}


def test_lost_membership_drops_without_a_commit(lab: Lab) -> None:
    """W6: what was done before counts, what is done after the loss is not committed."""
    lab.new_topic(partitions=2)
    count = 100
    lab.produce({0: ["v"] * count, 1: ["v"] * count})
    seen = Seen(0.05)
    running = start(lab, seen, {}, config={"session_timeout_ms": 2000})
    running.wait_done(4)
    # As if the broker had answered a heartbeat with UNKNOWN_MEMBER_ID.
    running.worker._client._consumer._coordinator.reset_generation()
    wait_for(
        lambda: any(
            isinstance(e, worker_events.WorkDropped) and e.reason == "lost"
            for e in running.events
        ),
        "the loss to be noticed",
    )
    seen.seconds = 0.0
    wait_for(lambda: every(2, count) <= seen.times.keys(), "every record")
    wait_for(lambda: not running.worker.stats().queued, "the queue to be empty")
    running.end()
    assert dict.fromkeys(range(2), count) == lab.committed()


@contextmanager
def member(lab: Lab, folder: Path) -> Iterator[Process]:
    """Run a member in a process of its own, which has done something."""
    told = {
        "topic": lab.topic,
        "group": lab.group,
        "folder": str(folder),
        "config": {**lab.broker.client_config, **lab.broker.group_config, **TIGHT_POLL},
    }
    with Process(module("tests.broker.worker.member", json.dumps(told))) as process:
        assert process.take(60) == "ready"
        yield process


def finish_here(lab: Lab, folder: Path, count: int, ends: Callable[[], object]) -> None:
    """Take over what a member left, and check that nothing is missing."""
    running = lab.run(Recording(folder), concurrency=4)
    ends()
    wait_for(
        lambda: (
            {
                (p, o)
                for p, offsets in Recording(folder).offsets().items()
                for o in offsets
            }
            >= every(2, count)
        ),
        "every record",
    )
    wait_for(lambda: not running.worker.stats().queued, "the queue to be empty")
    running.end()
    assert dict.fromkeys(range(2), count) == lab.committed()


def test_a_killed_member_loses_nothing(lab: Lab, tmp_path: Path) -> None:
    """W4, W5: kill -9 in the middle of the work; the next member does the rest."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["sleep=0.02"] * 60, 1: ["sleep=0.02"] * 60})
    with member(lab, tmp_path) as process:
        finish_here(lab, tmp_path, 60, process.kill)


def test_a_frozen_member_loses_nothing(
    lab: Lab, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """SIGSTOP for longer than the session: thawed, it drops what it held, uncommitted."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["sleep=0.02"] * 60, 1: ["sleep=0.02"] * 60})
    with member(lab, tmp_path) as process:
        process.freeze()
        began = time.monotonic()
        finish_here(lab, tmp_path, 60, lambda: None)
        if pytestconfig.getoption("--worker-rounds") > 3:  # the long run: 15 s or more
            wait_for(lambda: time.monotonic() - began > 15, "15 s to pass")
        process.thaw()
        before = lab.committed()
        assert process.end(20)
        assert before == lab.committed()
