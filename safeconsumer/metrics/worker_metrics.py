"""
A worker's numbers as metrics, in the text format that Prometheus scrapes.

Every metric stands in one table with its unit and meaning.
"""

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Literal, TypeAlias

from attrs import frozen

from safeconsumer.worker import Stats
from safeconsumer.worker.results import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX = "safeconsumer_worker_"
_Value: TypeAlias = int | float | Mapping[str, float] | Histogram


@frozen
class Metric:
    """
    One metric.

    Attributes:
        field: of :class:`Stats`, where its value is.
        name: without prefix, with its unit.
        kind: as Prometheus calls it.
        meaning: for people.
        label: what tells its values apart, if it has several.
    """

    field: str
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    label: str | None = None


METRICS = (
    Metric("partitions", "partitions", "gauge", "Partitions with records held."),
    Metric("queued", "queued_records", "gauge", "Records that wait."),
    Metric("running", "running_records", "gauge", "Records that handlers work on."),
    Metric("bytes", "held_bytes", "gauge", "Bytes of both."),
    Metric("done", "done_total", "counter", "Records completed."),
    Metric("retries", "retries_total", "counter", "Times a record was tried again."),
    Metric(
        "dead_letters", "dead_letters_total", "counter", "Dead letters acknowledged."
    ),
    Metric(
        "skipped", "skipped_total", "counter", "Records passed over as they failed."
    ),
    Metric("dropped", "dropped_total", "counter", "Records given up; others get them."),
    Metric(
        "leaked", "leaked_total", "counter", "Records in spite of a hold: a defect."
    ),
    Metric("commits", "commits_total", "counter", "Commits that went through."),
    Metric("commits_failed", "commits_failed_total", "counter", "Commits refused."),
    Metric("commit_lag", "commit_lag", "gauge", "Offsets complete, not committed."),
    Metric("lag", "lag", "gauge", "Records held, and known and not polled yet."),
    Metric(
        "span", "span_records", "gauge", "From a first incomplete record to the last."
    ),
    Metric("pauses", "pauses_total", "counter", "Times a handler asked for a pause."),
    Metric(
        "breaker_opened",
        "breaker_opened_total",
        "counter",
        "Times a breaker stopped a topic.",
    ),
    Metric(
        "breaker_open", "breaker_open_topics", "gauge", "Topics a breaker has stopped."
    ),
    Metric(
        "pause_seconds",
        "pause_seconds_total",
        "counter",
        "Seconds the worker held something in this owner's name.",
        label="owner",
    ),
    Metric(
        "handler_seconds",
        "handler_seconds",
        "histogram",
        "Seconds per record, failed or not; of records handed over together, their "
        "mean.",
    ),
    Metric(
        "drain_seconds", "drain_seconds_total", "counter", "Seconds spent draining."
    ),
    Metric("poll_gap", "poll_gap_seconds", "gauge", "Longest time between two polls."),
)


def as_text(stats: Stats) -> str:
    """
    Return all metrics of a worker's numbers.
    """
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, stats))


def _lines(metric: Metric, stats: Stats) -> Iterator[str]:
    name = f"{_PREFIX}{metric.name}"
    value: _Value = getattr(stats, metric.field)
    yield f"# HELP {name} {metric.meaning}"
    yield f"# TYPE {name} {metric.kind}"
    if isinstance(value, Histogram):
        yield from _buckets(name, value)
    elif isinstance(value, Mapping):
        for label, one in value.items():
            yield f'{name}{{{metric.label}="{label}"}} {one}'
    else:
        yield f"{name} {value}"


def _buckets(name: str, histogram: Histogram) -> Iterator[str]:
    bounds = (*histogram.bounds, "+Inf")
    for bound, count in zip(bounds, accumulate(histogram.counts), strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {count}'
    yield f"{name}_sum {histogram.total}"
    yield f"{name}_count {histogram.count}"
