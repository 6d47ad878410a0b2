"""Exports the table of metrics to Prometheus, through ``prometheus-client``."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from safeconsumer.errors import MetricsSourceError, MissingExtraError
from safeconsumer.metrics.answering import PATIENCE, Answers
from safeconsumer.metrics.reading import Readings, Sample
from safeconsumer.metrics.table import CONSUMER_LABELS, Metric
from safeconsumer.worker.durations import Histogram

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
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


_LAST_PORT = 65535

__all__ = ["Base", "Collector", "Server", "answers_of", "family", "serve"]


class Collector(Base):
    """
    Gives a registry of prometheus-client the figures of consumers and workers.

    Use one collector for all sources of a registry: the names of two would clash.

    Args:
        sources: consumers, workers, each of which adds its consumer, and what
            ``safeconsumer.spark.listener()`` returns.
        is_labelled: whether every value has the labels ``client_id`` and ``group``; a
            consumer keeps them until it is removed. Of two with the same names the
            second is ``client_id#2``. False is only for a single consumer.

    Raises:
        MetricsSourceError: a source has another type, or a second consumer would have
            no labels.

    Thread rules: any; it never waits for a ``poll``, and works after ``close``. It
    keeps its sources alive until :meth:`remove`. A forked process does not
    show its parent's sources, since the parent reports them itself.
    """

    def __init__(self, *sources: object, is_labelled: bool = True) -> None:
        self._is_labelled = is_labelled
        self._readings = Readings(*sources, is_labelled=is_labelled)

    def add(self, source: object) -> None:
        """
        Show one more source from now on; nothing changes if it is shown already.

        Raises:
            MetricsSourceError: it is neither consumer nor worker nor listener.
        """
        self._readings.add(source, is_labelled=self._is_labelled)

    def remove(self, source: object) -> None:
        """
        Remove a source, a worker with its consumer; no error if it is not there.

        The counters of a later source with the same labels begin at 0.
        """
        self._readings.remove(source)

    def describe(self) -> Iterable["Family"]:
        """Return every possible metric, so that a registry refuses a second collector."""
        return [family(one, (), ()) for one in self._readings.metrics()]

    def collect(self) -> Iterator["Family"]:
        """Read all metrics once."""
        for metric, samples in self._readings.read():
            yield family(metric, _label_names(metric, samples), samples)


def _label_names(metric: Metric, samples: Iterable[Sample]) -> tuple[str, ...]:
    own = tuple(one.name for one in metric.labels)
    first = next(iter(samples))
    return own if len(first.labels) == len(own) else (*CONSUMER_LABELS, *own)


def family(
    metric: Metric, names: tuple[str, ...], samples: Iterable[Sample]
) -> "Family":
    """Return a metric with these values in the form of prometheus-client."""
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


class _Http(Answers, WSGIServer):
    """prometheus-client's server, except that it does not wait for silent clients."""


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE

    def log_message(self, *_args: object) -> None:
        """Write nothing: Prometheus scrapes every few seconds."""


class Server:
    """
    Answers Prometheus by HTTP until it is closed; a context manager.

    Attributes:
        port: the port that it listens on.
        collector: the collector that it shows; sources may be added and removed.
    """

    def __init__(
        self, port: int, host: str, collector: Collector, *others: Base
    ) -> None:
        self.collector = collector
        registry = CollectorRegistry()
        for one in (collector, *others):
            registry.register(one)
        self._server = _Http(host, port, _Handler, "safeconsumer-metrics-http")
        self._server.set_app(make_wsgi_app(registry))
        self.port: int = self._server.server_port

    def close(self) -> None:
        """
        End the server; a second call does nothing. Its sources are not affected.

        In a forked process it does nothing: the port is the parent's.
        """
        self._server.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def serve(
    port: int,
    *sources: object,
    host: str = "127.0.0.1",
    is_labelled: bool = True,
) -> Server:
    """
    Answer Prometheus by HTTP, on a separate thread.

    It shows these sources and nothing else. Your program's own metrics are in
    prometheus-client's own registry: register a :class:`Collector` there instead. If
    several processes share one scrape (``PROMETHEUS_MULTIPROC_DIR``) collectors are not
    called: there each process needs a port, or OpenTelemetry.

    Args:
        port: the port to listen on; 0 for any free one, see ``Server.port``.
        sources: as for :class:`Collector`; more may be added later.
        host: the address to listen on; "0.0.0.0" to be reached from other machines.
        is_labelled: as for :class:`Collector`.

    Returns:
        The server: close it, or leave it for as long as the process lives.

    Raises:
        OSError: the port is taken.
        MetricsSourceError: a source is neither consumer nor worker nor listener, or the
            port is not one.
    """
    if type(port) is not int or not 0 <= port <= _LAST_PORT:
        message = f"serve(port, *sources) takes a port from 0 to 65535, not {port!r}"
        raise MetricsSourceError(message)
    return Server(port, host, Collector(*sources, is_labelled=is_labelled))
