"""Reads the values of the table's metrics from consumers and workers."""

import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

from attrs import evolve, frozen

from safeconsumer._kafka.fork import run_in_child
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors import MetricsSourceError
from safeconsumer.metrics import table
from safeconsumer.metrics.figures import Figures
from safeconsumer.metrics.table import CONSUMER_LABELS, Metric
from safeconsumer.worker import Stats, Worker
from safeconsumer.worker.durations import Histogram

Value: TypeAlias = "float | Histogram"

# The fields of Stats for a worker's metrics.
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
    "worker_refetched_total": "refetched",
    "worker_commits_total": "commits",
    "worker_commits_failed_total": "commits_failed",
    "worker_commits_failing_seconds": "commits_failing",
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


# The fields of a query's progress for Spark's metrics.
_QUERY_FIELDS = {
    "spark_held_partitions": "held",
    "spark_held_lag_offsets": "lag",
    "spark_undecided": "because",
    "spark_batches_total": "batches",
    "spark_read_records_total": "rows",
}


@runtime_checkable
class Listener(Protocol):
    """Observes Spark's queries, as :func:`safeconsumer.spark.listener` returns it."""

    def heard(self) -> tuple[Iterable[Any], Iterable[Any]]:
        """Return the running queries, and the counts of ended ones by name."""


@frozen
class Sample:
    """
    One value of a metric at one moment.

    Attributes:
        labels: the metric's labels, and those of the consumer if there are any.
        value: a number; the whole histogram of a histogram.
    """

    labels: Mapping[str, str]
    value: Value


@frozen(kw_only=True, eq=False)
class _Member:
    """
    One consumer, with the worker that works on it.

    Attributes:
        consumer: the consumer.
        figures: reads its values.
        labels: the labels of all its values, until it is removed.
        worker: the worker that works on it, if one was given.
    """

    consumer: SafeConsumer
    figures: Figures
    labels: Mapping[str, str]
    worker: Worker | None = None

    def values(self) -> Iterator[tuple[Metric, Any]]:
        """Yield each metric with its value, or its values by their labels."""
        for metric in table.of("consumer", "control"):
            if metric.source == "consumer" or self.figures.has_control:
                yield metric, self.figures.read(metric.name)
        if self.worker is not None:
            stats: Stats = self.worker.stats()
            for metric in table.of("worker"):
                yield metric, getattr(stats, _FIELDS[metric.name])


_alive: "weakref.WeakSet[Readings]" = weakref.WeakSet()


class Readings:
    """
    Reads the figures of consumers, workers and Spark's queries at each scrape.

    No lock is taken for longer than a worker needs to count its records, and nothing
    waits for a ``poll``. A consumer keeps its labels until it is removed, whatever else
    is added or removed. A later one with the same labels counts from 0, as monitoring
    systems expect of a restart. A forked process starts without its parent's sources.

    Args:
        sources: consumers, workers, each of which adds its consumer, and listeners of
            Spark.
        is_labelled: as for :meth:`add`.

    Raises:
        MetricsSourceError: as for :meth:`add`.

    Thread rules: any.
    """

    def __init__(self, *sources: object, is_labelled: bool = True) -> None:
        self.forget()
        _alive.add(self)
        self.add(*sources, is_labelled=is_labelled)

    def forget(self) -> None:
        """Drop all sources; no other thread may use it meanwhile."""
        self._lock = threading.Lock()
        self._members: tuple[_Member, ...] = ()
        self._listeners: tuple[Listener, ...] = ()

    def add(self, *sources: object, is_labelled: bool = True) -> None:
        """
        Read more sources from now on; those that are there already do not change.

        Args:
            sources: as for the class.
            is_labelled: whether each of their values has the labels ``client_id`` and
                ``group``. Of two with the same names the second is ``client_id#2``.

        Raises:
            MetricsSourceError: a source is neither consumer nor worker nor listener, or
                a second consumer would have no labels; nothing was added.
        """
        found = [checked(one) for one in sources]
        with self._lock:
            members, listeners = list(self._members), list(self._listeners)
            for consumer, worker in found:
                if isinstance(consumer, SafeConsumer):
                    self._put(members, consumer, worker, is_labelled=is_labelled)
                elif not any(one is consumer for one in listeners):
                    listeners.append(consumer)
            self._members, self._listeners = tuple(members), tuple(listeners)

    def _put(
        self,
        members: list[_Member],
        consumer: SafeConsumer,
        worker: Worker | None,
        *,
        is_labelled: bool,
    ) -> None:
        at = [n for n, one in enumerate(members) if one.consumer is consumer]
        if not at:
            labels = _labels(consumer, members) if is_labelled else {}
            if not labels and any(not one.labels for one in members):
                message = "of several consumers only one can be shown without labels"
                raise MetricsSourceError(message)
            figures = Figures(consumer)
            members.append(
                _Member(
                    consumer=consumer, figures=figures, labels=labels, worker=worker
                )
            )
        elif worker is not None:
            members[at[0]] = evolve(members[at[0]], worker=worker)

    def remove(self, source: object) -> None:
        """Remove a source, a worker with its consumer; no error if it is not there."""
        consumer = source.consumer if isinstance(source, Worker) else source
        with self._lock:
            self._members = tuple(
                one for one in self._members if one.consumer is not consumer
            )
            self._listeners = tuple(one for one in self._listeners if one is not source)

    def metrics(self) -> tuple[Metric, ...]:
        """Return the possible metrics, whether or not they have a value now."""
        return table.of("consumer", "control", "worker", "spark")

    def read(self) -> Iterator[tuple[Metric, tuple[Sample, ...]]]:
        """Yield each metric that has values now, with all of them."""
        found: dict[str, list[Sample]] = {one.name: [] for one in self.metrics()}
        for member in self._members:
            for metric, value in member.values():
                found[metric.name] += _samples(metric, value, member.labels)
        for metric, value in _of_queries(self._listeners):
            found[metric.name] += _samples(metric, value, {})
        for metric in self.metrics():
            if found[metric.name]:
                yield metric, tuple(found[metric.name])


def _forget_all() -> None:
    # Another thread may have held a lock; and the parent reports its own sources.
    for one in tuple(_alive):
        one.forget()


run_in_child(_forget_all)


def checked(source: object) -> tuple[Any, Worker | None]:
    """
    Return a listener, or a consumer with the worker that works on it, if any.

    Raises:
        MetricsSourceError: it is something else.
    """
    if isinstance(source, Listener):
        return source, None
    worker = source if isinstance(source, Worker) else None
    consumer = source if worker is None else worker.consumer
    if not isinstance(consumer, SafeConsumer):
        message = (
            f"metrics come from a SafeConsumer, a Worker or "
            f"safeconsumer.spark.listener(), not from {source!r}; for a Pump give its "
            f"consumer"
        )
        raise MetricsSourceError(message)
    return consumer, worker


def _labels(consumer: SafeConsumer, members: Iterable[_Member]) -> dict[str, str]:
    # kafka-python gives all clients the same name by default.
    client_id = str(consumer.config["client_id"] or "")
    group = str(consumer.config["group_id"] or "")
    taken = [one.labels for one in members]
    for number in itertools.count(1):
        name = client_id if number == 1 else f"{client_id}#{number}"
        labels = dict(zip(CONSUMER_LABELS, (name, group), strict=True))
        if labels not in taken:
            break
    return labels


def _of_queries(
    listeners: Iterable[Listener],
) -> Iterator[tuple[Metric, Mapping[str, float]]]:
    # Sessions may have queries with the same name: their counts are added up. Those of
    # ended queries with that name are added too, or the counters would go back.
    heard = [one.heard() for one in listeners]
    running = [query for queries, _ in heard for query in queries]
    ended = [query for _, queries in heard for query in queries]
    for metric in table.of("spark"):
        sums: dict[str, float] = {}
        for query in running:
            value = getattr(query, _QUERY_FIELDS[metric.name])
            before = sums.get(query.query, 0.0)
            is_text = isinstance(value, str)
            sums[query.query] = max(before, bool(value)) if is_text else before + value
        if metric.kind == "counter":
            for query in ended:
                if query.query in sums:
                    sums[query.query] += getattr(query, _QUERY_FIELDS[metric.name])
        if sums:
            yield metric, sums


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
