"""Offsets without a record, as a transaction's marks, are no lag and are committed."""

import threading
from typing import Any

import pytest

from safeconsumer.worker import Commit
from tests.broker.worker.handlers import Recording
from tests.harness.waiting import LIMIT, wait_for
from tests.harness.worker.lab import Lab

pytestmark = pytest.mark.any_broker

SOON = Commit(every=0.05)


def _write(lab: Lab, count: int, *, is_aborted: bool = False) -> None:
    producer = lab._make_producer(transactional_id=f"t-{lab.topic}")
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(count):
        producer.send(lab.topic, value=b"%d" % number, partition=0)
    producer.flush()
    if is_aborted:
        producer.abort_transaction()
    else:
        producer.commit_transaction()


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_transactional_topic_has_no_lag_once_all_is_done(
    lab: Lab, recording: Recording, isolation: str
) -> None:
    """The position is committed, beyond the mark that ends the transaction."""
    lab.new_topic(partitions=1)
    _write(lab, 3)
    consumer = lab.consumer(isolation_level=isolation)
    running = lab.run(recording, consumer, commit=SOON)
    running.wait_done(3)
    wait_for(lambda: lab.committed() == {0: 4}, "the mark to be passed")
    assert running.worker.stats().lag == 0
    # The broker has it before the answer is taken, which the next poll does.
    wait_for(lambda: running.worker.stats().commit_lag == 0, "the answer")
    lab.produce({0: ["v"]})
    running.wait_done(4)
    running.end()
    assert lab.committed() == {0: 5}
    assert running.worker.stats().dropped == 0


def test_what_was_aborted_is_no_lag_either(lab: Lab, recording: Recording) -> None:
    """Though no poll has ever returned any of it."""
    lab.new_topic(partitions=1)
    _write(lab, 3, is_aborted=True)
    consumer = lab.consumer(isolation_level="read_committed")
    running = lab.run(recording, consumer, commit=SOON)
    wait_for(lambda: lab.committed() == {0: 4}, "what was aborted to be passed")
    assert running.worker.stats().lag == 0
    assert running.end().done == 0


def test_nothing_is_committed_past_what_is_not_done(
    lab: Lab, request: pytest.FixtureRequest
) -> None:
    """W4: not while a handler has the last record before the mark."""
    go_on = threading.Event()
    request.addfinalizer(go_on.set)
    lab.new_topic(partitions=1)
    _write(lab, 3)

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset == 2:
            go_on.wait(LIMIT)

    running = lab.run(handle, commit=SOON)
    running.wait_done(1)
    wait_for(lambda: lab.committed() == {0: 2}, "what is done")
    polled = running.worker._engine.polled_at
    wait_for(lambda: running.worker._engine.polled_at > polled + 0.5, "more polls")
    assert lab.committed() == {0: 2}
    go_on.set()
    wait_for(lambda: lab.committed() == {0: 4}, "the rest")
    running.end()
