"""
Reads the table's metrics from consumers and workers, for ``prometheus-client``.

The OpenTelemetry instruments read their values from this collector.
"""

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve, frozen

from safeconsumer._kafka.fork import run_in_child
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors.base import MetricsSourceError, MissingExtraError
from safeconsumer.metrics import table
from safeconsumer.metrics.figures import Figures, OtherFigures, OtherMember
from safeconsumer.metrics.table import CONSUMER_LABELS, Metric
from safeconsumer.worker import Pump, Stats, Worker
from safeconsumer.worker.durations import Histogram

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector as Base
except ImportError as error:
    _MESSAGE = (
        "metrics for Prometheus need prometheus-client: "
        "pip install 'safeconsumer[metrics]'"
    )
    raise MissingExtraError(_MESSAGE) from error

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

__all__ = ["Base", "Collector", "Sample", "answers_of", "family"]

Value: TypeAlias = "float | Histogram"

METRICS = table.of("consumer", "control", "worker")

# The field of Stats for each of a worker's metrics.
_FIELDS = {
    "worker_queued_records": "queued",
    "worker_running_records": "running",
    "worker_done_total": "done",
    "worker_retries_total": "retries",
    "worker_dead_letters_total": "dead_letters",
    "worker_skipped_total": "skipped",
    "worker_dropped_total": "dropped_by_reason",
    "worker_refetched_total": "refetched",
    "worker_leaked_total": "leaked",
    "worker_commits_total": "commits",
    "worker_commits_failed_total": "commits_failed",
    "worker_commits_failing_seconds": "commits_failing",
    "worker_commit_lag_offsets": "commit_lag",
    "worker_lag_records": "lag",
    "worker_breaker_open_topics": "breaker_open",
    "worker_pause_seconds_total": "pause_seconds",
    "worker_handler_seconds": "handler_seconds",
    "worker_last_poll_timestamp_seconds": "last_poll_at",
    "worker_alarms_total": "alarms",
    "worker_hook_failures_total": "hook_failures",
}


@frozen
class Sample:
    """
    One value of a metric at one time.

    Attributes:
        labels: the consumer's labels and the metric's own labels.
        value: a number, or for a histogram the whole histogram.
    """

    labels: Mapping[str, str]
    value: Value


@frozen(kw_only=True, eq=False)
class _Member:
    """
    A consumer, and the worker that uses it.

    Attributes:
        consumer: the consumer.
        figures: reads the consumer's values.
        labels: the labels of all the consumer's values, until it is removed.
        worker: the worker or pump that uses the consumer, if one was given.
    """

    consumer: object
    figures: Figures
    labels: Mapping[str, str]
    worker: Worker | Pump | None = None

    def samples(self, metric: Metric, stats: Stats | None) -> Iterator[Sample]:
        """Yield the values of a metric; a worker's values come from ``stats``."""
        value: Any = None
        if metric.source == "worker":
            value = stats and getattr(stats, _FIELDS[metric.name])
        elif metric.source == "consumer" or self.figures.has_control:
            value = self.figures.read(metric.name)
        if value is None:
            return
        names = [one.name for one in metric.labels]
        values = dict(value) if isinstance(value, Mapping) else {(): value}
        for key, one in values.items():
            keys = key if isinstance(key, tuple) else (key,)
            yield Sample({**self.labels, **dict(zip(names, keys, strict=True))}, one)


_alive: "weakref.WeakSet[Collector]" = weakref.WeakSet()


class Collector(Base):
    """
    Supplies a prometheus-client registry with the metrics of consumers and workers.

    Use one collector for all sources of a registry, because the names of two collectors
    would clash. Every value has the labels ``client_id`` and ``group``. A consumer
    keeps its labels until it is removed, even if other consumers are added or removed.
    If two consumers have the same names, the second becomes ``client_id#2``. If another
    consumer gets the same labels later, its counters start at 0, as monitoring systems
    expect after a restart.

    Args:
        sources: consumers, including those of ``safeconsumer.clients``, and workers and
            pumps, each of which adds its consumer.

    Raises:
        MetricsSourceError: as for :meth:`add`.

    Thread rules: any thread may use this; the collector never waits for a ``poll``,
    holds a worker's lock only while the worker counts its records, and works after
    ``close``. The collector keeps its sources alive until :meth:`remove`. A forked
    process does not export its parent's sources, because the parent exports them
    itself.
    """

    def __init__(self, *sources: object) -> None:
        self._forget()
        _alive.add(self)
        self.add(*sources)

    def _forget(self) -> None:
        # No other thread can be using the lock at this point.
        self._lock = threading.Lock()
        self._members: tuple[_Member, ...] = ()

    def add(self, *sources: object) -> None:
        """
        Export more sources from now on; sources that were added before do not change.

        Raises:
            MetricsSourceError: a source is neither a consumer nor a worker nor a pump;
                nothing was added.
        """
        found = [_checked(one) for one in sources]
        with self._lock:
            members = list(self._members)
            for consumer, worker in found:
                at = [n for n, one in enumerate(members) if one.consumer is consumer]
                if not at:
                    members.append(_member(consumer, worker, members))
                elif worker is not None:
                    members[at[0]] = evolve(members[at[0]], worker=worker)
            self._members = tuple(members)

    def remove(self, source: object) -> None:
        """Remove a source (a worker with its consumer); ignore an unknown source."""
        consumer = source.consumer if isinstance(source, Worker | Pump) else source
        with self._lock:
            self._members = tuple(
                one for one in self._members if one.consumer is not consumer
            )

    def describe(self) -> Iterable["Family"]:
        """Return all possible metrics, so that a registry can refuse a second collector."""
        return [family(one) for one in METRICS]

    def collect(self) -> Iterator["Family"]:
        """Read all metrics once; all values of a worker are from the same time."""
        members = [
            (one, one.worker.stats() if one.worker else None) for one in self._members
        ]
        for metric in METRICS:
            samples = tuple(
                sample
                for member, stats in members
                for sample in member.samples(metric, stats)
            )
            if samples:
                yield family(metric, samples)


def _forget_all() -> None:
    # Another thread may have held a lock at the time of the fork, and the parent
    # exports its own sources.
    for one in tuple(_alive):
        one._forget()  # noqa: SLF001 - this module's


run_in_child(_forget_all)


def _checked(source: object) -> tuple[object, Worker | Pump | None]:
    worker = source if isinstance(source, Worker | Pump) else None
    consumer = source if worker is None else worker.consumer
    if not isinstance(consumer, SafeConsumer) and _other(consumer) is None:
        message = (
            "metrics come from a SafeConsumer, a consumer of safeconsumer.clients, "
            f"a Worker or a Pump, not from {source!r}"
        )
        raise MetricsSourceError(message)
    return consumer, worker


def _other(consumer: object) -> OtherMember | None:
    member = getattr(consumer, "_member", None)
    return member if isinstance(member, OtherMember) else None


def _member(
    consumer: Any,  # noqa: ANN401 - checked already
    worker: Worker | Pump | None,
    members: Iterable[_Member],
) -> _Member:
    other = _other(consumer)
    if other is None:
        # kafka-python gives all clients the same name by default.
        names = consumer.config["client_id"], consumer.config["group_id"]
    else:
        names = other.client_id, other.group_id
    client_id, group = (str(one or "") for one in names)
    taken = [one.labels for one in members]
    for number in count(1):
        name = client_id if number == 1 else f"{client_id}#{number}"
        labels = dict(zip(CONSUMER_LABELS, (name, group), strict=True))
        if labels not in taken:
            break
    figures = Figures(consumer) if other is None else OtherFigures(other)
    return _Member(consumer=consumer, figures=figures, labels=labels, worker=worker)


def family(metric: Metric, samples: Sequence[Sample] = ()) -> "Family":
    """Return a prometheus-client object for a metric with these values."""
    names = tuple(samples[0].labels) if samples else ()
    if metric.kind == "histogram":
        return _histogram(metric, names, samples)
    kind: Any = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    found = kind(metric.full_name, metric.meaning, labels=names)
    for one in samples:
        found.add_metric([one.labels[name] for name in names], one.value)
    return found  # type: ignore[no-any-return]  # one of the two


def _histogram(
    metric: Metric, names: tuple[str, ...], samples: Iterable[Sample]
) -> "Family":
    found = HistogramMetricFamily(metric.full_name, metric.meaning, labels=names)
    for one in samples:
        value = one.value
        assert isinstance(value, Histogram)  # noqa: S101 - by the table
        bounds = (*map(str, value.bounds), "+Inf")
        found.add_metric(
            [one.labels[name] for name in names],
            list(zip(bounds, accumulate(value.counts), strict=True)),
            value.total,
        )
    return found


def answers_of(collector: Base) -> Callable[[str], tuple[str, bytes]]:
    """
    Return a function that answers scrapes.

    The function takes the ``Accept`` header, and returns the content type and the text.
    """
    registry = CollectorRegistry()
    registry.register(collector)

    def answer(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return answer
