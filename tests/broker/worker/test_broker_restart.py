"""The broker is killed while a worker commits, and comes back."""

import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from safeconsumer import SafeConsumer
from safeconsumer.testing.clients import Clients
from safeconsumer.worker import Commit
from safeconsumer.worker import events as worker_events
from tests.harness.brokers.java import JavaBroker
from tests.harness.waiting import wait_for
from tests.harness.worker.lab import Lab

# Not the broker of the session: others work on that one.
pytestmark = [
    pytest.mark.real_broker,
    pytest.mark.skipif(shutil.which("java") is None, reason="starts a Java broker"),
]


@pytest.fixture
def broker() -> Iterator[JavaBroker]:
    """Start a broker of its own."""
    with JavaBroker() as broker:
        yield broker


@pytest.fixture
def own_lab(broker: JavaBroker) -> Iterator[Lab]:
    """Lend a lab on it."""
    clients = Clients(broker)
    lab = Lab(
        broker=broker,
        make_topic=clients.topic,
        make_consumer=lambda *topics, **config: clients.consumer(
            SafeConsumer, *topics, **config
        ),
        make_producer=clients.producer,
    )
    yield lab
    lab.close()
    clients.close()


def test_a_broker_that_restarts_during_commits(
    broker: JavaBroker, own_lab: Lab
) -> None:
    """W4: refused commits are computed anew; in the end all is done and committed."""
    own_lab.new_topic(partitions=2)
    count = own_lab.produce({0: ["v"] * 150, 1: ["v"] * 150})
    seen: dict[tuple[int, int], int] = {}
    lock, killed = threading.Lock(), threading.Event()

    def handle(record: Any, _context: Any) -> None:  # noqa: ANN401
        if record.offset >= 100:
            killed.wait(60)
        with lock:
            at = (record.partition, record.offset)
            seen[at] = seen.get(at, 0) + 1

    # Longer than a restart takes, or the member is rightly evicted meanwhile.
    consumer = own_lab.consumer(session_timeout_ms=30_000)
    setting = Commit(every=0.05, timeout=20.0)
    running = own_lab.run(handle, consumer, commit=setting)
    running.wait_done(40)
    wait_for(lambda: running.worker.stats().commits, "a commit")
    broker.kill()
    killed.set()
    wait_for(lambda: running.worker.stats().commits_failed, "a commit to fail")
    broker.restart()
    running.wait_done(count, limit=60)
    wait_for(lambda: len(seen) == count, "every record")
    report = running.end()
    assert report.committed
    assert own_lab.committed() == {0: 150, 1: 150}
    refused = [e for e in running.events if type(e) is worker_events.CommitRejected]
    assert refused
