"""
Reads what the table of metrics has of consumers and workers.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from attrs import frozen

from safeconsumer._kafka.facade import Facade
from safeconsumer._kafka.figures import Figures
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors import MetricsSourceError
from safeconsumer.metrics import table
from safeconsumer.metrics.table import CONSUMER_LABELS, Metric
from safeconsumer.worker import Stats, Worker
from safeconsumer.worker.results import Histogram

Value: TypeAlias = "float | Histogram"

# Where Stats has what a worker's metrics are.
_FIELDS = {
    "worker_partitions": "partitions",
    "worker_queued_records": "queued",
    "worker_running_records": "running",
    "worker_held_bytes": "bytes",
    "worker_done_total": "done",
    "worker_retries_total": "retries",
    "worker_dead_letters_total": "dead_letters",
    "worker_skipped_total": "skipped",
    "worker_dropped_total": "dropped",
    "worker_leaked_total": "leaked",
    "worker_commits_total": "commits",
    "worker_commits_failed_total": "commits_failed",
    "worker_commit_lag_offsets": "commit_lag",
    "worker_lag_records": "lag",
    "worker_span_records": "span",
    "worker_pauses_total": "pauses",
    "worker_breaker_opened_total": "breaker_opened",
    "worker_breaker_open_topics": "breaker_open",
    "worker_pause_seconds_total": "pause_seconds",
    "worker_handler_seconds": "handler_seconds",
    "worker_drain_seconds_total": "drain_seconds",
    "worker_last_poll_timestamp_seconds": "last_poll_at",
    "worker_alarms_total": "alarms",
    "worker_hook_failures_total": "hook_failures",
}


# Where a query of Spark has what its metrics are.
_QUERY_FIELDS = {
    "spark_held_partitions": "held",
    "spark_held_lag_offsets": "lag",
    "spark_undecided": "because",
    "spark_batches_total": "batches",
    "spark_read_records_total": "rows",
}


@runtime_checkable
class Listener(Protocol):
    """
    Hears of Spark's queries, as :func:`safeconsumer.spark.listener` returns it.
    """

    def queries(self) -> Iterable[Any]:
        """
        Return the queries that run, as they were last heard of.
        """


@frozen
class Sample:
    """
    One value of a metric at one moment.

    Attributes:
        labels: by the metric's labels, and by those of the consumer if there are any.
        value: a number; of a histogram all of it.
    """

    labels: Mapping[str, str]
    value: Value


class _Member:
    """
    One consumer, with the worker that works on it.
    """

    def __init__(self, consumer: SafeConsumer) -> None:
        self.consumer = consumer
        self.worker: Worker | None = None
        self.figures: Figures = Facade(consumer).figures()

    @property
    def ids(self) -> tuple[str, str]:
        config = self.consumer.config
        return str(config["client_id"] or ""), str(config["group_id"] or "")


class Readings:
    """
    The figures of consumers, workers and Spark's queries, read when somebody asks.

    Nothing is remembered, no lock is taken for longer than a worker needs to count
    what it holds, and nothing waits for a ``poll``.

    Args:
        sources: consumers, workers, each of which brings its consumer with it, and
            listeners of Spark.
        is_labelled: whether every value of a consumer or worker has the labels
            ``client_id`` and ``group``; None: once there are several consumers.

    Raises:
        MetricsSourceError: something among them is none of these.

    Thread rules: any.
    """

    def __init__(self, *sources: object, is_labelled: bool | None = None) -> None:
        self._lock = threading.Lock()
        self._members: tuple[_Member, ...] = ()
        self._listeners: tuple[Listener, ...] = ()
        self._is_labelled = is_labelled
        for one in sources:
            self.add(one)

    def add(self, source: object) -> None:
        """
        Read one more source, from now on; nothing changes if it is there.

        Raises:
            MetricsSourceError: it is neither consumer nor worker nor listener.
        """
        if isinstance(source, Listener):
            with self._lock:
                if not any(one is source for one in self._listeners):
                    self._listeners = (*self._listeners, source)
            return
        worker = source if isinstance(source, Worker) else None
        consumer = source if worker is None else worker.consumer
        if not isinstance(consumer, SafeConsumer):
            message = (
                f"metrics are those of a SafeConsumer, of a Worker or of "
                f"safeconsumer.spark.listener(), not of {source!r}; of a Pump give its "
                f"consumer"
            )
            raise MetricsSourceError(message)
        with self._lock:
            found = [one for one in self._members if one.consumer is consumer]
            if not found:
                found = [_Member(consumer)]
                self._members = (*self._members, *found)
            if worker is not None:
                found[0].worker = worker

    def remove(self, source: object) -> None:
        """
        Leave out a source, a worker with its consumer; no error if it is not there.
        """
        consumer = source.consumer if isinstance(source, Worker) else source
        with self._lock:
            self._members = tuple(
                one for one in self._members if one.consumer is not consumer
            )
            self._listeners = tuple(one for one in self._listeners if one is not source)

    def metrics(self) -> tuple[Metric, ...]:
        """
        Return the metrics there may be, whatever has a value now.
        """
        return table.of("consumer", "control", "worker", "spark")

    def read(self) -> Iterator[tuple[Metric, tuple[Sample, ...]]]:
        """
        Yield each metric of which there are values now, with all of them.
        """
        members = self._members
        names = _names(members) if self._has_labels(members) else [{} for _ in members]
        found: dict[str, list[Sample]] = {one.name: [] for one in self.metrics()}
        for member, labels in zip(members, names, strict=True):
            for metric, value in _values(member):
                found[metric.name] += _samples(metric, value, labels)
        for metric, value in _of_queries(self._listeners):
            found[metric.name] += _samples(metric, value, {})
        for metric in self.metrics():
            if found[metric.name]:
                yield metric, tuple(found[metric.name])

    def _has_labels(self, members: tuple[_Member, ...]) -> bool:
        return len(members) > 1 if self._is_labelled is None else self._is_labelled


def _names(members: Iterable[_Member]) -> list[dict[str, str]]:
    # kafka-python calls every client the same unless it is told how.
    seen: dict[tuple[str, str], int] = {}
    found = []
    for one in members:
        client_id, group = one.ids
        number = seen[one.ids] = seen.get(one.ids, 0) + 1
        name = client_id if number == 1 else f"{client_id}#{number}"
        found.append(dict(zip(CONSUMER_LABELS, (name, group), strict=True)))
    return found


def _values(member: _Member) -> Iterator[tuple[Metric, Any]]:
    figures = member.figures
    for metric in table.of("consumer", "control"):
        if metric.source == "consumer" or figures.has_control:
            yield metric, figures.read(metric.name)
    if member.worker is not None:
        stats: Stats = member.worker.stats()
        for metric in table.of("worker"):
            yield metric, getattr(stats, _FIELDS[metric.name])


def _of_queries(
    listeners: Iterable[Listener],
) -> Iterator[tuple[Metric, Mapping[str, float]]]:
    # Sessions may have queries of one name each: what they have is added up.
    found: dict[str, dict[str, float]] = {}
    for query in (one for listener in listeners for one in listener.queries()):
        for name, of in _QUERY_FIELDS.items():
            value = getattr(query, of)
            sums = found.setdefault(name, {})
            before = sums.get(query.query, 0.0)
            is_text = isinstance(value, str)
            sums[query.query] = max(before, bool(value)) if is_text else before + value
    for metric in table.of("spark"):
        if metric.name in found:
            yield metric, found[metric.name]


def _samples(
    metric: Metric,
    value: Any,  # noqa: ANN401 - as the figures and Stats have it
    labels: Mapping[str, str],
) -> Iterator[Sample]:
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield Sample(labels, value)
        return
    names = [one.name for one in metric.labels]
    for key, one in dict(value).items():
        keys = key if isinstance(key, tuple) else (key,)
        yield Sample({**labels, **dict(zip(names, keys, strict=True))}, one)
