"""Exports the table of metrics to Prometheus, through ``prometheus-client``."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from safeconsumer.errors.base import MissingExtraError
from safeconsumer.metrics.reading import Readings, Sample
from safeconsumer.metrics.table import Metric
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


__all__ = ["Base", "Collector", "answers_of", "family"]


class Collector(Base):
    """
    Gives a registry of prometheus-client the figures of consumers and workers.

    Use one collector for all sources of a registry: the names of two would clash. Every
    value has the labels ``client_id`` and ``group``, which a consumer keeps until it is
    removed; of two with the same names the second is ``client_id#2``.

    Args:
        sources: consumers, also those of ``safeconsumer.clients``, and workers, each of
            which adds its consumer.

    Raises:
        MetricsSourceError: a source has another type.

    Thread rules: any; it never waits for a ``poll``, and works after ``close``. It
    keeps its sources alive until :meth:`remove`. A forked process does not
    show its parent's sources, since the parent reports them itself.
    """

    def __init__(self, *sources: object) -> None:
        self._readings = Readings(*sources)

    def add(self, source: object) -> None:
        """
        Show one more source from now on; nothing changes if it is shown already.

        Raises:
            MetricsSourceError: it is neither consumer nor worker.
        """
        self._readings.add(source)

    def remove(self, source: object) -> None:
        """
        Remove a source, a worker with its consumer; no error if it is not there.

        The counters of a later source with the same labels begin at 0.
        """
        self._readings.remove(source)

    def describe(self) -> Iterable["Family"]:
        """Return every possible metric, so that a registry refuses a second collector."""
        return [family(one) for one in self._readings.metrics]

    def collect(self) -> Iterator["Family"]:
        """Read all metrics once."""
        for metric, samples in self._readings.read(*self._readings.metrics):
            yield family(metric, samples)


def family(metric: Metric, samples: Sequence[Sample] = ()) -> "Family":
    """Return a metric with these values in the form of prometheus-client."""
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
        assert isinstance(value, Histogram)  # noqa: S101 - the table says so
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

    It takes the ``Accept`` header, and returns the content type and the text.
    """
    registry = CollectorRegistry()
    registry.register(collector)

    def answer(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return answer
