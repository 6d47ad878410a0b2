"""How many series there are, what promtool says of them, and what records pay for them."""

import sys
from types import FrameType
from typing import Any

from kafka import TopicPartition

from safeconsumer import Worker
from safeconsumer.worker.settings import Limits
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.kafka.fixtures import Maker
from tests.harness.metrics.scraping import needs_promtool, promtool, text_of, values

RECORDS = 1000
OURS = ("safeconsumer/metrics/", "safeconsumer/events/counts.py", "/_kafka/figures.py")


def _worker(safe: Maker, **configs: Any) -> Worker:  # noqa: ANN401 - upstream's
    consumer = safe(group_id="g", enable_auto_commit=False, **configs)
    return Worker(consumer, print, limits=Limits(records=1000))


@needs_promtool
def test_promtool_finds_nothing(safe: Maker) -> None:
    """Two consumers and a worker in one registry: names, units, help, types."""
    worker = _worker(safe, client_id="works")
    other = safe(client_id="other", group_id="h")
    other.pause_all()
    said = promtool("check", "metrics", given=text_of(worker, other))
    assert not said.strip()


def test_a_member_has_few_series_whatever_it_owns(safe: Maker) -> None:
    """Not one more with a thousand partitions, of which each is held by two owners."""
    worker = _worker(safe)
    small = values(worker)
    partitions = [TopicPartition("orders", number) for number in range(1000)]
    assigned(worker.consumer, *partitions)
    worker.consumer.pause(*partitions)
    worker.consumer.pause(*partitions, owner="another")
    found = values(worker)
    assert found['holds{kind="local"}'] == 2000
    assert not found.keys() - small.keys()
    (less,) = small.keys() - found.keys()
    assert "worker_lag_records" in less  # nothing was fetched of them yet
    assert len(found) < 100


def test_a_record_costs_nothing(safe: Maker) -> None:
    """
    What delivers a thousand records calls nothing that counts, or reads, figures.

    A count of CPU time would depend on the machine; what is not called costs nothing.
    """
    consumer = safe(max_poll_records=RECORDS)
    tp = TopicPartition("orders", 0)
    assigned(consumer, tp)
    values(consumer)  # somebody has asked before
    answer(consumer, tp, 0, batch(0, RECORDS))
    called: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        polled = consumer.poll(0)
    finally:
        sys.setprofile(None)
    assert len(polled[tp]) == RECORDS
    assert any("fetcher.py" in one for one in called)
    assert not [one for one in called if any(part in one for part in OURS)]
