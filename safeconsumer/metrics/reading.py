"""Reads the values of the table's metrics from consumers and workers."""

import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from attrs import evolve, frozen

from safeconsumer._kafka.fork import run_in_child
from safeconsumer.consumer import SafeConsumer
from safeconsumer.errors.base import MetricsSourceError
from safeconsumer.metrics import table
from safeconsumer.metrics.figures import Figures, OtherFigures, OtherMember
from safeconsumer.metrics.table import CONSUMER_LABELS, Metric
from safeconsumer.worker import Pump, Stats, Worker
from safeconsumer.worker.durations import Histogram

Value: TypeAlias = "float | Histogram"

# The fields of Stats for a worker's metrics.
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
    One value of a metric at one moment.

    Attributes:
        labels: the consumer's labels and the metric's own.
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
        worker: the worker or pump that works on it, if one was given.
    """

    consumer: object
    figures: Figures
    labels: Mapping[str, str]
    worker: Worker | Pump | None = None

    def samples(self, metric: Metric, stats: Stats | None) -> Iterator[Sample]:
        """Yield the values of a metric; a worker's are taken from its numbers."""
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


_alive: "weakref.WeakSet[Readings]" = weakref.WeakSet()


class Readings:
    """
    Reads the figures of consumers and workers at each scrape.

    No lock is taken for longer than a worker needs to count its records, and nothing
    waits for a ``poll``. A consumer keeps its labels until it is removed, whatever else
    is added or removed. A later one with the same labels counts from 0, as monitoring
    systems expect of a restart. A forked process starts without its parent's sources.

    Args:
        sources: consumers, also those of ``safeconsumer.clients``; and workers and
            pumps, each of which adds its consumer.

    Attributes:
        metrics: the possible metrics, whether or not they have a value now.

    Raises:
        MetricsSourceError: as for :meth:`add`.

    Thread rules: any.
    """

    metrics = table.of("consumer", "control", "worker")

    def __init__(self, *sources: object) -> None:
        self.forget()
        _alive.add(self)
        self.add(*sources)

    def forget(self) -> None:
        """Drop all sources; no other thread may use it meanwhile."""
        self._lock = threading.Lock()
        self._members: tuple[_Member, ...] = ()

    def add(self, *sources: object) -> None:
        """
        Read more sources from now on; those that are there already do not change.

        Args:
            sources: as for the class. Of two consumers with the same names the second
                is ``client_id#2``.

        Raises:
            MetricsSourceError: a source is neither consumer, worker nor pump; nothing
                was added.
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
        """Remove a source, a worker with its consumer; no error if it is not there."""
        consumer = source.consumer if isinstance(source, Worker | Pump) else source
        with self._lock:
            self._members = tuple(
                one for one in self._members if one.consumer is not consumer
            )

    def read(self, *metrics: Metric) -> Iterator[tuple[Metric, tuple[Sample, ...]]]:
        """Yield each of these that has values now; a worker's are of one moment."""
        of_workers = any(one.source == "worker" for one in metrics)
        members = [
            (one, one.worker.stats() if of_workers and one.worker else None)
            for one in self._members
        ]
        for metric in metrics:
            samples = tuple(
                sample
                for member, stats in members
                for sample in member.samples(metric, stats)
            )
            if samples:
                yield metric, samples


def _forget_all() -> None:
    # Another thread may have held a lock; and the parent reports its own sources.
    for one in tuple(_alive):
        one.forget()


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
    for number in itertools.count(1):
        name = client_id if number == 1 else f"{client_id}#{number}"
        labels = dict(zip(CONSUMER_LABELS, (name, group), strict=True))
        if labels not in taken:
            break
    figures = Figures(consumer) if other is None else OtherFigures(other)
    return _Member(consumer=consumer, figures=figures, labels=labels, worker=worker)
