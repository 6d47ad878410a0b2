"""A worker under a hold, with handlers at work, while the broker freezes or is killed."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, field

from safeconsumer.audit.handling import Handling
from safeconsumer.audit.writer import JournalWriter
from safeconsumer.worker import Commit
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab, Running
from tests.system.containers.held import STAYS, evict, judged
from tests.system.containers.outages import Outage

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.container_broker

EACH = 10
AWAY = 2.0


@define
class Busy:
    """A handler whose first record of each partition takes until it is let go."""

    begun: list[tuple[int, int]] = field(factory=list)
    go_on: threading.Event = field(factory=threading.Event)

    def __call__(self, record: Any, _context: Any) -> None:  # noqa: ANN401 - upstream's
        self.begun.append((record.partition, record.offset))
        if record.offset == 0:
            assert self.go_on.wait(60)


@define
class Work:
    """A worker on two partitions, with a journal of it and of its handlers."""

    lab: Lab
    consumer: Any
    handle: Busy
    running: Running
    journals: Path

    def hold(self) -> None:
        self.consumer.pause(self.lab.topic, owner="alice")

    def resume(self) -> None:
        self.consumer.resume(self.lab.topic, owner="alice")

    def membership(self) -> tuple[str, int]:
        known = self.consumer._coordinator._generation
        return known.member_id, known.generation_id

    def is_committed(self, offset: int) -> Callable[[], bool]:
        return lambda: self.lab.committed() == {0: offset, 1: offset}

    def end(self) -> None:
        """Do what is left, and have it judged."""
        self.resume()
        wait_for(lambda: self.lab.committed() == {0: EACH, 1: EACH}, "all commits")
        assert self.running.end().committed
        self.consumer.close()
        producer = JournalWriter(self.journals, member="producer")
        for number in (0, 1):
            name = f"{self.lab.topic}:{number}"
            producer.write("acked", {"tp": name, "first": 0, "last": EACH - 1})
        assert judged(self.journals) == ([], set())


@pytest.fixture
def work(worker_lab: Lab, journals: Path) -> Iterator[Work]:
    """Run the worker until it is at the first record of both partitions."""
    worker_lab.new_topic(partitions=2)
    worker_lab.produce({0: ["v"] * EACH, 1: ["v"] * EACH})
    writer = JournalWriter(journals, member="worker", group=worker_lab.group)
    handling = Handling(writer, order="partition")
    handle = Busy()
    consumer = worker_lab.consumer(journal=writer, **STAYS)
    running = worker_lab.run(
        handling.around(handle),
        consumer,
        order="partition",
        concurrency=2,
        commit=Commit(every=0.2),
    )
    handling.watch(running.worker.running)
    wait_for(lambda: len(handle.begun) == 2, "both to begin")
    try:
        yield Work(worker_lab, consumer, handle, running, journals)
    finally:
        handle.go_on.set()


@pytest.mark.contract("W4", "W5", "W10")
def test_a_held_worker_ends_what_it_began_while_the_broker_is_away(
    work: Work, outage: Outage
) -> None:
    """And nothing more begins; what ended is committed when the broker is back."""
    work.hold()
    with outage.lasting():
        work.handle.go_on.set()
        wait_for(lambda: work.running.worker.stats().done == 2, "both to be done")
        at = time.monotonic() + AWAY
        wait_for(lambda: time.monotonic() > at, "the outage to last")
    wait_for(work.is_committed(1), "commits of what was begun")
    assert sorted(work.handle.begun) == [(0, 0), (1, 0)]
    work.end()
    assert sorted(work.handle.begun) == [
        (partition, offset) for partition in (0, 1) for offset in range(EACH)
    ]


@pytest.mark.contract("W4", "W10", "P6")
def test_a_held_worker_that_was_evicted_begins_with_what_is_not_committed(
    work: Work, outage: Outage
) -> None:
    """Its handlers are still at work when it comes back, and it is still held."""
    work.hold()
    with outage.lasting():
        at = time.monotonic() + AWAY
        wait_for(lambda: time.monotonic() > at, "the outage to last")
    member_id, generation = work.membership()
    evict(work.lab.broker, work.lab.group, member_id)
    wait_for(lambda: work.membership()[1] > generation, "the worker to be back")
    work.handle.go_on.set()
    wait_for(lambda: not work.running.worker.stats().running, "both to be over")
    assert sorted(work.handle.begun) == [(0, 0), (1, 0)]
    work.end()
    counts = {one: work.handle.begun.count(one) for one in work.handle.begun}
    assert set(counts) == {(p, o) for p in (0, 1) for o in range(EACH)}
    assert {one for one, count in counts.items() if count > 1} <= {(0, 0), (1, 0)}
