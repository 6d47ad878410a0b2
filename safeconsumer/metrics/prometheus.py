"""
The table of metrics for Prometheus, through ``prometheus-client``.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from safeconsumer.errors import MissingExtraError
from safeconsumer.metrics.reading import Readings, Sample
from safeconsumer.metrics.table import CONSUMER_LABELS, Metric
from safeconsumer.worker.results import Histogram

try:
    from prometheus_client import CollectorRegistry, start_http_server
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


__all__ = ["Base", "Collector", "Server", "answers_of", "family", "serve"]


class Collector(Base):
    """
    Gives a registry of prometheus-client the figures of consumers and workers.

    One collector for all that a registry is to have: two would give the same names.

    Args:
        sources: consumers, workers, each of which brings its consumer with it, and
            what ``safeconsumer.spark.listener()`` returns.
        is_labelled: whether every value has the labels ``client_id`` and ``group``;
            None: once there are several consumers. Of two with the same names the
            second is ``client_id#2``.

    Raises:
        MetricsSourceError: something among them is none of these.

    Thread rules: any; it never waits for a ``poll``, and works after ``close``. It
    keeps what it was given alive until :meth:`remove`.
    """

    def __init__(self, *sources: object, is_labelled: bool | None = None) -> None:
        self._readings = Readings(*sources, is_labelled=is_labelled)

    def add(self, source: object) -> None:
        """
        Show one more source, from now on; nothing changes if it is there.

        Raises:
            MetricsSourceError: it is neither consumer nor worker nor listener.
        """
        self._readings.add(source)

    def remove(self, source: object) -> None:
        """
        Leave out a source, a worker with its consumer; no error if it is not there.
        """
        self._readings.remove(source)

    def describe(self) -> Iterable["Family"]:
        """
        Return every metric there may be, so that a registry refuses a second collector.
        """
        return [family(one, (), ()) for one in self._readings.metrics()]

    def collect(self) -> Iterator["Family"]:
        """
        Read everything once.
        """
        for metric, samples in self._readings.read():
            yield family(metric, _label_names(metric, samples), samples)


def _label_names(metric: Metric, samples: Iterable[Sample]) -> tuple[str, ...]:
    own = tuple(one.name for one in metric.labels)
    first = next(iter(samples))
    return own if len(first.labels) == len(own) else (*CONSUMER_LABELS, *own)


def family(
    metric: Metric, names: tuple[str, ...], samples: Iterable[Sample]
) -> "Family":
    """
    Return a metric with these values as prometheus-client has it.
    """
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
    Return what answers a scrape: from its ``Accept`` to a content type and the text.
    """
    registry = CollectorRegistry()
    registry.register(collector)

    def answer(accept: str) -> tuple[str, bytes]:
        encode, kind = choose_encoder(accept)
        return kind, encode(registry)

    return answer


class Server:
    """
    Answers Prometheus by HTTP until it is closed; a context manager.

    Attributes:
        port: where.
        collector: what it shows; sources may come and go.
    """

    def __init__(
        self, port: int, host: str, collector: Collector, *others: Base
    ) -> None:
        self.collector = collector
        registry = CollectorRegistry()
        for one in (collector, *others):
            registry.register(one)
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """
        End it; a second call does nothing. Consumers and workers are left as they are.
        """
        self._server.shutdown()
        self._server.server_close()
        if self._thread is not threading.current_thread():
            self._thread.join()

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
    is_labelled: bool | None = None,
) -> Server:
    """
    Answer Prometheus by HTTP, on a thread of its own.

    Args:
        port: to listen on; 0 for any, :attr:`Server.port` is which.
        sources: as of :class:`Collector`; more may be added later.
        host: the address to listen on; "0.0.0.0" for others than this machine.
        is_labelled: as of :class:`Collector`.

    Returns:
        What ends it: close it, or leave it for as long as the process lives.

    Raises:
        OSError: the port is taken.
        MetricsSourceError: a source is neither consumer nor worker nor listener.
    """
    return Server(port, host, Collector(*sources, is_labelled=is_labelled))
