"""Work that could be done is begun: nothing waits for what it need not wait for."""

import threading
from typing import Any

import pytest

from safeconsumer.worker import Commit, Limits, Retry
from safeconsumer.worker.handlers import all_done
from safeconsumer.worker.queue import Lanes, Order, Policy, Queue, record_key
from safeconsumer.worker.results import Schedule
from tests.harness.waiting import wait_for
from tests.harness.worker.fake_client import EVERY, Clock, FakeClient
from tests.harness.worker.lab import Lab
from tests.harness.worker.standing import DRAIN, LIMITS, StandingEngine

pytestmark = pytest.mark.any_broker

SOON = 8.0


def test_unordered_records_wait_for_no_earlier_one(lab: Lab) -> None:
    """W3: also if they come when all that came before is being worked on."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"]})
    began, opened = threading.Event(), threading.Event()

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset == 0:
            began.set()
            assert opened.wait(30)

    running = lab.run(handle, order="unordered")
    assert began.wait(30)
    lab.produce({0: ["v"]})
    try:
        running.wait_done(1, limit=SOON)
    finally:
        opened.set()


@pytest.mark.parametrize("order", ["unordered", "key"])
def test_an_acknowledged_letter_lets_the_span_go_on(lab: Lab, order: str) -> None:
    """W7: what stood beyond the span of a failed record goes on once it is complete."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["v"] * 40}, key=lambda number: b"%d" % number)
    gate = threading.Event()

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset == 0:
            message = "planted"
            raise ValueError(message)

    running = lab.run(
        handle,
        order=order,
        limits=Limits(span=10),
        retry=Retry(attempts=1),
        dead_letter=lambda _record, _failure: gate.wait(30),
    )
    running.wait_done(9)
    wait_for(lambda: not running.worker.stats().running, "all others to be done")
    gate.set()
    running.wait_done(40, limit=SOON)


def test_a_join_that_is_wanted_no_more_ends_the_drain() -> None:
    """Work goes on if what asked for a join is over when the drain ends."""
    clock = Clock()
    client = FakeClient(clock, cooperative=False, most=4)
    engine = StandingEngine(
        client,
        limits=LIMITS,
        drain=DRAIN,
        commit=Commit(),
        emit=lambda *_kind, **_fields: None,
        clock=clock,
    )
    policy = Policy(retry=Retry())
    lanes = Lanes(Order.PARTITION, record_key)
    schedule = Schedule(
        Queue(engine.held, lanes, policy, clock, None), lambda *_a, **_f: None
    )
    engine.begin(schedule)
    client.log[EVERY[0]] = 8
    client.rebalance(frozenset(EVERY[:1]), 0)
    for _ in range(2):
        engine.turn()
    (task,) = schedule.queue.claim()
    client.rebalance(frozenset(EVERY[:1]), 0)
    engine.turn()
    client.wants_no_join()
    schedule.complete([all_done(task, 0.0)])
    for _ in range(3):
        engine.turn()
    assert schedule.queue.claim()
    assert not client.holds()
