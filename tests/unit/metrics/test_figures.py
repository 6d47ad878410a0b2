"""Tests a consumer's metrics, and that reading them has no side effect."""

import os
import sys
import threading
from types import SimpleNamespace

import pytest
from kafka import TopicPartition
from prometheus_client import CollectorRegistry

from safeconsumer import Lifetime, Worker
from safeconsumer.events.consumer import HoldsPlaced, HoldsRemoved, RebalanceCompleted
from safeconsumer.events.counts import Counts
from safeconsumer.holds.hold import Hold
from safeconsumer.holds.scope import Everything
from safeconsumer.metrics import Collector
from safeconsumer.worker.settings import Limits
from tests.harness.holds.forking import is_true_in_child
from tests.harness.holds.lab import Clock
from tests.harness.kafka.fetches import answer, assigned, batch
from tests.harness.metrics.scraping import values
from tests.harness.waiting import end_of, wait_for

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
C = TopicPartition("orders", 2)


def test_partitions_and_holds_are_counted(safe):
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A)
    consumer.pause("orders:1", owner="breaker", for_=60)
    consumer.assign([B, C])
    found = values(consumer)
    assert found["consumer_assigned_partitions"] == 2
    assert found["consumer_quiet_partitions"] == 1
    assert found['holds{kind="local"}'] == 1
    assert found['holds{kind="operator"}'] == 0


def test_waiting_poll_updates_the_time_of_the_last_poll(safe, monkeypatch):
    """A poll updates the time whenever it handles group membership."""
    consumer, clock = safe(), Clock()
    assert "consumer_last_poll_timestamp_seconds" not in values(consumer)
    monkeypatch.setattr(consumer._safe_ledger, "_clock", clock)
    monkeypatch.setattr(consumer._safe_ledger, "_wall", clock)
    assigned(consumer, A)
    turns = []

    def turn(**_):
        turns.append(values(consumer)["consumer_last_poll_timestamp_seconds"])
        clock.now += 100.0
        if len(turns) == 3:
            consumer._closed = True
        return False

    monkeypatch.setattr(consumer._coordinator, "poll", turn)
    began = clock.now
    consumer.poll(60_000)
    consumer._closed = False
    assert turns == [began, began + 100.0, began + 200.0]
    found = values(consumer)["consumer_last_poll_timestamp_seconds"]
    assert found == began + 200.0


def test_changes_of_holds_are_counted(safe):
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A, B)
    consumer.pause(A)
    consumer.resume(A)
    consumer.pause_all(for_=0.001, owner="short")
    wait_for(lambda: consumer.quiet() == {B}, "the hold to expire")
    consumer.pause(A, lifetime=Lifetime.WHILE_ASSIGNED)
    consumer.assign([B])
    found = values(consumer)
    assert [
        found[f'hold_changes_total{{change="{change}",kind="local"}}']
        for change in ("placed", "removed", "expired", "ended")
    ] == [4, 1, 1, 1]


def test_purged_and_parked_bytes_are_counted(safe):
    consumer = safe()
    assigned(consumer, A, B)
    data = batch(0, 10)
    answer(consumer, A, 0, data)
    consumer.assign([B])
    consumer.assign([A, B])
    consumer.poll(0)
    assert values(consumer)["purged_bytes_total"] == len(data)
    consumer.seek(A, 0)
    consumer.pause(A)
    answer(consumer, A, 0, data)
    consumer.poll(0)
    assert values(consumer)["parked_bytes"] == len(data)


def test_rebalances_are_counted(safe):
    consumer = safe()
    consumer._safe_ledger.emit(
        RebalanceCompleted,
        generation=1,
        member_id="m",
        kept=(),
        gained=(A, B),
        revoked=(C,),
        lost=(),
        quiet=(),
        holds_on_gained=(),
    )
    consumer._safe_ledger.deliver()
    found = values(consumer)
    assert found["rebalances_total"] == 1
    assert found['partition_moves_total{how="gained"}'] == 2
    assert found['partition_moves_total{how="revoked"}'] == 1
    assert found['partition_moves_total{how="lost"}'] == 0


def test_alarms_and_hooks_that_raise_are_counted(safe):
    def bad(_event):
        raise ValueError

    consumer = safe(hooks=[bad])
    consumer.subscribe(pattern="^orders.*")
    consumer.pause("re:nothing-like-it")
    found = values(consumer)
    assert found['alarms_total{event="pattern_covers_nothing"}'] == 1
    assert found["hook_failures_total"] == 2


def test_holds_are_counted_by_the_kind_of_their_owner():
    """One event may name holds of several owners; a worker's own holds are not counted."""
    counts = Counts()
    owners = ("app", "operator:bob", "operator:eve", "worker:drain")
    holds = tuple(Hold(scope=Everything(), owner=one) for one in owners)
    counts(HoldsPlaced(holds=holds))
    counts(HoldsRemoved(holds=holds[1:2]))
    counted = {key: n for key, n in counts.hold_changes.items() if n}
    assert counted == {
        ("local", "placed"): 1,
        ("operator", "placed"): 2,
        ("operator", "removed"): 1,
    }


@pytest.mark.parametrize("is_caught_up", [False, True])
def test_open_consumer_shows_whether_it_has_read_the_control_topics(
    safe, monkeypatch, *, is_caught_up
):
    consumer = safe()
    control = SimpleNamespace(is_caught_up=is_caught_up)
    monkeypatch.setattr(consumer, "_safe_control", control)
    found = values(consumer)
    assert (found["control_ready"], found["control_gated_partitions"]) == (
        is_caught_up,
        0,
    )
    with monkeypatch.context() as patch:
        patch.setattr(consumer, "_closed", True)
        closed = values(consumer)
    assert closed.keys() == found.keys() - {"control_ready"}


def test_consumer_without_control_has_no_control_metrics(safe):
    assert not [name for name in values(safe()) if name.startswith("control_")]


def scraped_while_locked(consumer, source):
    found = []
    thread = threading.Thread(target=lambda: found.append(values(source)), daemon=True)
    with consumer._safe_ledger._lock, consumer._subscription._lock:
        thread.start()
        end_of(thread)
    return found[0]


def test_scrape_of_a_worker_changes_nothing(safe):
    """Other threads may have the locks, so even an expired hold is left to the next poll."""
    consumer = safe(group_id="g", enable_auto_commit=False)
    assigned(consumer, A)
    worker, clock = Worker(consumer, print), Clock()
    consumer._safe_ledger._clock = clock
    consumer.pause_all(for_=1.0)
    clock.now += 10.0
    found = scraped_while_locked(consumer, worker)
    assert found["consumer_assigned_partitions"] == 1
    assert found['holds{kind="local"}'] == 1
    assert values(worker)['hold_changes_total{change="expired",kind="local"}'] == 0
    consumer.poll(0)
    assert values(worker)['hold_changes_total{change="expired",kind="local"}'] == 1


PLACED = "safeconsumer_hold_changes_total"


class Shown:
    """A collector for these consumers, in a registry of its own."""

    def __init__(self, *sources):
        self.collector = Collector(*sources)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    def placed(self):
        """Return how many local holds were placed, by ``client_id``."""
        return {
            one.labels["client_id"]: one.value
            for family in self.registry.collect()
            for one in family.samples
            if one.name == PLACED
            and (one.labels["kind"], one.labels["change"]) == ("local", "placed")
        }


def place(consumer, count):
    """Place this many holds, one after the other."""
    consumer.assign([A])
    for _ in range(count):
        consumer.pause(A)
        consumer.resume(A)
    return consumer


def test_consumer_keeps_its_label_until_it_is_removed(safe):
    """A second consumer with the same name gets a number; a free name can be reused."""
    one, other = place(safe(client_id="a"), 1), place(safe(client_id="a"), 2)
    third = place(safe(client_id="a#2"), 3)
    shown = Shown(one)
    assert shown.placed() == {"a": 1}
    shown.collector.add(other)
    shown.collector.add(other)
    shown.collector.add(third)
    assert shown.placed() == {"a": 1, "a#2": 2, "a#2#2": 3}
    shown.collector.remove(one)
    assert shown.placed() == {"a#2": 2, "a#2#2": 3}
    shown.collector.remove(third)
    assert shown.placed() == {"a#2": 2}
    again = place(safe(client_id="a"), 5)
    shown.collector.add(again)
    assert shown.placed() == {"a": 5, "a#2": 2}


def test_worker_may_be_added_after_its_consumer(safe):
    consumer = safe(client_id="a", group_id="g", enable_auto_commit=False)
    shown = Shown(consumer)
    shown.collector.add(Worker(consumer, print))
    every = [one for family in shown.registry.collect() for one in family.samples]
    assert {one.labels["client_id"] for one in every} == {"a"}
    assert any(one.name == "safeconsumer_worker_done_total" for one in every)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_does_not_show_its_parents_consumers(safe):
    """The parent reports its consumers, and another thread may hold a worker's lock."""
    shown = Shown(place(safe(client_id="a"), 1))

    def has_nothing():
        shown.collector.add(place(safe(client_id="b"), 2))
        return shown.placed() == {"b": 2}

    with shown.collector._lock:
        assert is_true_in_child(has_nothing)
    assert shown.placed() == {"a": 1}


def test_registry_accepts_only_one_collector(safe):
    """Two collectors would export the same names."""
    registry = CollectorRegistry()
    registry.register(Collector(safe()))
    with pytest.raises(ValueError, match="safeconsumer_"):
        registry.register(Collector(safe()))


OURS = ("safeconsumer/metrics/", "safeconsumer/events/counts.py", "/_kafka/figures.py")


def test_member_with_many_partitions_has_few_series(safe):
    """A thousand partitions, each held by two owners, do not add any series."""
    consumer = safe(group_id="g", enable_auto_commit=False)
    worker = Worker(consumer, print, limits=Limits(records=1000))
    small = values(worker)
    partitions = [TopicPartition("orders", number) for number in range(1000)]
    assigned(worker.consumer, *partitions)
    worker.consumer.pause(*partitions)
    worker.consumer.pause(*partitions, owner="another")
    found = values(worker)
    assert found['holds{kind="local"}'] == 2000
    assert not found.keys() - small.keys()
    (less,) = small.keys() - found.keys()
    assert "worker_lag_records" in less  # nothing was fetched from the new partitions
    assert len(found) < 100


def test_delivery_of_records_does_not_call_metrics_code(safe):
    """The test counts calls, because CPU time would depend on the machine."""
    consumer = safe(max_poll_records=1000)
    tp = TopicPartition("orders", 0)
    assigned(consumer, tp)
    values(consumer)  # the metrics were read before the delivery
    answer(consumer, tp, 0, batch(0, 1000))
    called = set()

    def note(frame, event, _argument):
        if event == "call":
            called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        polled = consumer.poll(0)
    finally:
        sys.setprofile(None)
    assert len(polled[tp]) == 1000
    assert any("fetcher.py" in one for one in called)
    assert not [one for one in called if any(part in one for part in OURS)]
