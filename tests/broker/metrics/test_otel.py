"""Tests the metrics as OpenTelemetry instruments with the real OpenTelemetry SDK."""

import pytest
from kafka import TopicPartition
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from safeconsumer import Worker
from safeconsumer.errors import MetricsSourceError
from safeconsumer.metrics import otel, table
from safeconsumer.metrics.otel import observe
from safeconsumer.metrics.table import name_of, unit_of
from tests.harness.kafka.fetches import assigned
from tests.harness.metrics.scraping import values

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

CONSUMER = ("messaging.client.id", "messaging.consumer.group.name")
ASSIGNED = "safeconsumer.consumer_assigned_partitions"


class Reader:
    """A meter provider, and the values of its instruments."""

    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])
        self.units = {}

    def read(self):
        """Return the values by instrument name and attributes."""
        data = self._reader.get_metrics_data()
        found = {}
        if data is None:
            return found
        for resource in data.resource_metrics:
            for scope in resource.scope_metrics:
                assert scope.scope.name == "safeconsumer"
                for metric in scope.metrics:
                    self.units[metric.name] = metric.unit
                    found[metric.name] = {
                        tuple(sorted((point.attributes or {}).items())): point.value
                        for point in metric.data.data_points
                    }
        return found


def named(client_id):
    return (("messaging.client.id", client_id),)


def without_names(values):
    return {
        tuple(one for one in labels if one[0] not in CONSUMER): value
        for labels, value in values.items()
    }


def as_prometheus(name, unit, kind):
    """Return the Prometheus name that OpenTelemetry's rules give to an instrument."""
    suffix = {"s": "_seconds", "By": "_bytes"}.get(unit, "")
    total = "_total" if kind == "counter" else ""
    return name.replace(".", "_") + suffix + total


@pytest.mark.parametrize(
    "metric", table.of("consumer", "control", "worker"), ids=lambda one: one.name
)
def test_otel_names_exported_to_prometheus_equal_our_prometheus_names(metric):
    """Because the names are equal, one dashboard can show the metrics of both exporters."""
    name, unit = name_of(metric), unit_of(metric)
    assert as_prometheus(name, unit, metric.kind) == metric.full_name
    assert unit in {"", "s", "By"} or (unit[0], unit[-1]) == ("{", "}")


@pytest.mark.any_broker
def test_otel_values_equal_the_prometheus_values(lab, monkeypatch):
    """One collection calls ``stats`` once, and all values have the consumer's labels."""
    lab.new_topic(partitions=2)
    lab.produce({0: ["a", "b"], 1: ["c"]})
    running = lab.run(lambda _record, _context: None)
    running.wait_done(3)
    running.end()
    reader = Reader()
    collector = observe(running.worker, provider=reader.provider)
    asked, stats = [], Worker.stats
    monkeypatch.setattr(Worker, "stats", lambda self: asked.append(self) or stats(self))
    read = reader.read()
    found = {name: without_names(of) for name, of in read.items()}
    config = running.worker.consumer.config
    names = {*zip(CONSUMER, (config["client_id"], config["group_id"]), strict=True)}
    assert all(names <= {*one} for of in read.values() for one in of)
    assert asked == [running.worker]
    expected = values(running.worker)
    plain = {
        metric.name: found[name_of(metric)][()]
        for metric in table.of("consumer", "control", "worker")
        if metric.name in expected and metric.kind != "histogram"
    }
    wanted = {name: expected[name] for name in plain}
    assert plain == pytest.approx(wanted, rel=0, abs=0.001)  # clocks have advanced
    assert len(plain) > 20
    owners = found["safeconsumer.worker_pause"]
    assert set(owners) == {
        (("owner", one),)
        for metric in table.METRICS
        if metric.name == "worker_pause_seconds_total"
        for one in metric.labels[0].values
    }
    assert found["safeconsumer.worker_handler.count"][()] == 3
    assert found["safeconsumer.worker_handler.sum"][()] > 0
    assert reader.units["safeconsumer.worker_handler.sum"] == "s"
    collector.remove(running.worker)
    assert reader.read() == {}


def test_observe_calls_of_one_provider_share_its_instruments(safe):
    """Several parts of a program may call ``observe``; removed sources can be added again."""
    first, second = safe(client_id="a"), safe(client_id="a")
    assigned(first, A)
    assigned(second, A, B)
    reader, other = Reader(), Reader()
    one = observe(first, provider=reader.provider)
    observe(second, provider=reader.provider)
    observe(second, provider=other.provider)
    assert reader.read()[ASSIGNED] == {named("a"): 1, named("a#2"): 2}
    assert other.read()[ASSIGNED] == {named("a"): 2}
    one.remove(first)
    one.remove(second)
    assert reader.read() == {}
    observe(first, provider=reader.provider)
    assert reader.read()[ASSIGNED] == {named("a"): 1}


def test_sources_keep_their_provider_when_the_global_provider_changes(
    safe, monkeypatch
):
    """Sources may be added before the program sets a global provider."""
    first, second, third = (safe(client_id=name) for name in "abc")
    reader, unset = Reader(), Reader()
    given = [unset.provider]
    monkeypatch.setattr(otel, "_by_provider", {})
    monkeypatch.setattr(otel, "get_meter_provider", lambda: given[0])
    observe(first)
    given[0] = reader.provider
    observe(second)
    observe(third, provider=reader.provider)
    names = {named("a"): 0, named("b"): 0, named("c"): 0}
    assert unset.read()[ASSIGNED] == names
    assert reader.read() == {}


def test_observe_refuses_an_object_that_is_not_a_source():
    reader = Reader()
    with pytest.raises(MetricsSourceError, match="come from a SafeConsumer"):
        observe(object(), provider=reader.provider)
    with pytest.raises(MetricsSourceError, match="takes a MeterProvider, not"):
        observe(provider=TracerProvider())


def test_observe_without_an_sdk_does_nothing(safe):
    consumer = safe()
    observe(consumer).remove(consumer)
