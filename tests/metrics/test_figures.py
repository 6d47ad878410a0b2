"""
What a consumer's figures say, and that reading them disturbs nobody.
"""

import threading
import time
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.metrics.metrics_reporter import AbstractMetricsReporter
from prometheus_client import CollectorRegistry

from safeconsumer import ALL, Lifetime, MetricsSourceError, SafeConsumer
from safeconsumer.events.consumer import RebalanceCompleted
from safeconsumer.metrics import METRICS, Collector, serve
from tests.group.team import Team
from tests.kafka.fetches import answer, assigned, batch
from tests.kafka.polling import poll_until
from tests.metrics.conftest import Maker
from tests.metrics.scraping import scrape, values
from tests.worker.lab import Lab, wait_for

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
C = TopicPartition("orders", 2)


def test_partitions_and_holds(safe: Maker) -> None:
    """Assigned, quiet, paused; holds and their age by who placed them."""
    consumer = safe()
    assigned(consumer, A, B)
    before = time.time()
    consumer.pause(A)
    consumer.pause("orders:1", owner="breaker", for_=60)
    consumer.assign([B, C])
    found = values(consumer)
    assert found["consumer_assigned_partitions"] == 2
    assert found["consumer_quiet_partitions"] == 1
    assert found["consumer_paused_partitions"] == 2
    assert found['holds{kind="local"}'] == 2
    assert found['holds{kind="operator"}'] == 0
    assert (
        before
        <= found['holds_oldest_timestamp_seconds{kind="local"}']
        <= consumer.holds()[1].placed_at
    )
    assert 'holds_oldest_timestamp_seconds{kind="operator"}' not in found


def test_when_it_polled_last(safe: Maker) -> None:
    """The beginning of the last poll; nothing before the first."""
    consumer, name = safe(), "consumer_last_poll_timestamp_seconds"
    assigned(consumer, A)
    assert name not in values(consumer)
    before = time.time()
    consumer.poll(0)
    assert before - 0.01 <= values(consumer)[name] <= time.time() + 0.01


def test_changes_of_holds_are_counted(safe: Maker) -> None:
    """Placed, removed, expired, ended; an unchanged one again is no change."""
    consumer = safe()
    assigned(consumer, A, B)
    consumer.pause(A, B)
    consumer.pause(A)
    consumer.resume(A)
    consumer.pause_all(for_=0.001, owner="short")
    wait_for(lambda: consumer.paused() == {B}, "it to expire")
    consumer.pause(A, lifetime=Lifetime.WHILE_ASSIGNED)
    consumer.assign([B])
    found = values(consumer)
    assert [
        found[f'hold_changes_total{{change="{change}",kind="local"}}']
        for change in ("placed", "removed", "expired", "ended")
    ] == [4, 1, 1, 1]


def test_what_was_thrown_away_is_counted(safe: Maker) -> None:
    """Purged and parked bytes, as they came from the broker."""
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


def test_rebalances_are_counted(safe: Maker) -> None:
    """Joins, and what became of partitions in them."""
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
        bit=(),
    )
    consumer._safe_ledger.deliver()
    found = values(consumer)
    assert found["rebalances_total"] == 1
    assert found['partition_moves_total{how="gained"}'] == 2
    assert found['partition_moves_total{how="revoked"}'] == 1
    assert found['partition_moves_total{how="lost"}'] == 0


def test_alarms_and_hooks_that_raise(safe: Maker) -> None:
    """A hook that raises breaks no counter."""

    def bad(_event: object) -> None:
        raise ValueError

    consumer = safe(hooks=[bad])
    consumer.subscribe(pattern="^orders.*")
    consumer.pause("re:nothing-like-it")
    found = values(consumer)
    assert found['alarms_total{event="pattern_covers_nothing"}'] == 1
    assert found['alarms_total{event="pause_forgotten"}'] == 0
    assert found["hook_failures_total"] == 2


def test_without_control_there_is_nothing_of_it(safe: Maker) -> None:
    """Not even a 0, which would be an alarm."""
    assert not [name for name in values(safe()) if name.startswith("control_")]


def test_kafka_pythons_metrics_have_them(safe: Maker) -> None:
    """Without labels, in a group of our own; reporters are told."""
    told: list[Any] = []

    class Reporter(AbstractMetricsReporter):
        def init(self, metrics: Any) -> None: ...  # noqa: ANN401 - upstream's

        def metric_change(self, metric: Any) -> None:  # noqa: ANN401 - upstream's
            told.append(metric.metric_name)

        def metric_removal(self, metric: Any) -> None: ...  # noqa: ANN401 - upstream's

        def configure(self, configs: Any) -> None: ...  # noqa: ANN401 - upstream's

        def close(self) -> None: ...

    consumer = safe(metric_reporters=[Reporter])
    assigned(consumer, A, B)
    consumer.pause(A)
    consumer.pause(ALL, owner="other")
    found = consumer.metrics()["safeconsumer-metrics"]
    assert set(found) == {one.kafka for one in METRICS if one.kafka}
    assert (found["assigned-partitions"], found["quiet-partitions"]) == (2, 2)
    assert (found["holds"], found["hold-changes-total"]) == (2, 2)
    ours = [one for one in told if one.group == "safeconsumer-metrics"]
    assert {one.name for one in ours} == set(found)
    assert all(one.description for one in ours)


def test_a_reporter_that_knows_no_group_of_ours(
    safe: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    """It raises, as with no stock consumer; ours is made, and works."""

    class Reporter(AbstractMetricsReporter):
        def init(self, metrics: Any) -> None: ...  # noqa: ANN401 - upstream's

        def metric_change(self, metric: Any) -> None:  # noqa: ANN401 - upstream's
            if metric.metric_name.group == "safeconsumer-metrics":
                raise KeyError(metric.metric_name.group)

        def metric_removal(self, metric: Any) -> None: ...  # noqa: ANN401 - upstream's

        def configure(self, configs: Any) -> None: ...  # noqa: ANN401 - upstream's

        def close(self) -> None: ...

    consumer = safe(metric_reporters=[Reporter])
    assigned(consumer, A)
    consumer.pause(A)
    assert values(consumer)["consumer_quiet_partitions"] == 1
    assert "a metric reporter raises" in caplog.text


def test_without_kafka_pythons_metrics(safe: Maker) -> None:
    """A consumer with ``metrics_enabled=False`` has none, and is made all the same."""
    consumer = safe(metrics_enabled=False)
    assert consumer.metrics() is None
    assert values(consumer)["consumer_assigned_partitions"] == 0


def test_after_close_and_from_other_threads(safe: Maker) -> None:
    """The last figures; counters stay."""
    consumer = safe()
    assigned(consumer, A)
    consumer.pause(A)
    consumer.close(autocommit=False, timeout_ms=0)
    found: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: found.append(values(consumer)))
    thread.start()
    thread.join(10)
    assert found[0]["consumer_assigned_partitions"] == 0
    assert found[0]['hold_changes_total{change="placed",kind="local"}'] == 1


def test_a_scrape_needs_no_lock_of_the_consumer(safe: Maker) -> None:
    """It answers while another thread has the ledger's lock and upstream's."""
    consumer = safe()
    assigned(consumer, A)
    found: list[dict[str, float]] = []
    thread = threading.Thread(target=lambda: found.append(values(consumer)))
    with consumer._safe_ledger._lock, consumer._subscription._lock:
        thread.start()
        thread.join(10)
        assert found
    assert found[0]["consumer_assigned_partitions"] == 1


def test_a_scrape_while_poll_blocks(safe: Maker) -> None:
    """It does not wait for it."""
    consumer = safe()
    assigned(consumer, A)
    consumer.pause(A)
    polling = threading.Thread(target=consumer.poll, args=(5000,))
    with serve(0, consumer) as server:
        polling.start()
        began = time.monotonic()
        text = scrape(server.port)
        assert time.monotonic() - began < 4
        assert polling.is_alive()
        consumer.close(autocommit=False, timeout_ms=0)
    polling.join(10)
    assert "safeconsumer_consumer_quiet_partitions 1.0" in text


def test_labels_only_where_there_are_several(safe: Maker) -> None:
    """And two of one name are told apart."""
    one, other = safe(group_id="g"), safe(group_id="g")
    collector = Collector(one)
    registry = CollectorRegistry()
    registry.register(collector)
    name = "safeconsumer_consumer_assigned_partitions"
    assert registry.get_sample_value(name) == 0
    collector.add(other)
    collector.add(other)
    client_id = one.config["client_id"]
    for wanted in (client_id, f"{client_id}#2"):
        labels = {"client_id": wanted, "group": "g"}
        assert registry.get_sample_value(name, labels) == 0
    collector.remove(one)
    assert registry.get_sample_value(name) == 0


def test_a_registry_takes_one_collector(safe: Maker) -> None:
    """Two would give the same names; it says so at once."""
    registry = CollectorRegistry()
    registry.register(Collector(safe()))
    with pytest.raises(ValueError, match="safeconsumer_"):
        registry.register(Collector(safe()))


@pytest.mark.parametrize("source", [None, "consumer", SafeConsumer])
def test_other_sources_are_refused(source: object) -> None:
    """By a typed error that says what would do."""
    with pytest.raises(MetricsSourceError, match="SafeConsumer or of a Worker"):
        Collector(source)


@pytest.mark.any_broker
def test_a_worker_brings_its_consumer(lab: Lab, recording: Any) -> None:  # noqa: ANN401
    """Both have their figures, before it runs, while it does, and after its end."""
    lab.new_topic(partitions=1)
    lab.produce({0: ["", "", "sleep=0.02"]})
    running = lab.run(recording)
    running.wait_done(3)
    now = time.time()
    wait_for(
        lambda: values(running.worker)["worker_last_poll_timestamp_seconds"] > now,
        "another poll",
    )
    found = values(running.worker)
    assert found["consumer_assigned_partitions"] == 1
    assert found["rebalances_total"] >= 1
    assert found["worker_done_total"] == 3
    assert found['worker_handler_seconds_bucket{le="+Inf"}'] == 3
    assert found["worker_handler_seconds_count"] == 3
    assert found["worker_handler_seconds_sum"] >= 0.02
    assert found['worker_pause_seconds_total{owner="worker:drain"}'] >= 0
    assert found['worker_alarms_total{event="handler_stalled"}'] == 0
    running.end()
    after = values(running.worker)
    assert after["worker_done_total"] == 3
    assert after["consumer_assigned_partitions"] == 0


@pytest.mark.any_broker
def test_what_a_member_knows_of_the_control_topics(kafka_broker: Any) -> None:  # noqa: ANN401 - any kind
    """Read, gated, skipped; holds by their source; and not read once it is closed."""
    with Team(kafka_broker) as team:
        member = team.subscribed()
        team.settled(member)
        team.write_raw(team.settings.operator_topic, b"garbage", b"garbage")
        team.operator_holds(team.topic)
        poll_until(member, team.is_quiet(member))
        wait_for(
            lambda: (
                member.poll(10) == {}
                and values(member)["control_skipped_records_total"] == 1
            ),
            "the garbage",
        )
        found = values(member)
        assert (found["control_ready"], found["control_gated_partitions"]) == (1, 0)
        assert found['holds{kind="operator"}'] == 1
        assert found['hold_changes_total{change="placed",kind="operator"}'] == 1
        assert found["control_resets_total"] == 0
        member.pause_group(ALL)
        assert values(member)['holds{kind="group"}'] == 1
        assert len(values(member)) < 100
        member.close(autocommit=False)
        assert values(member)["control_ready"] == 0
