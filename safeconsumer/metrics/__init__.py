"""
Exports the metrics of consumers, workers and pumps to monitoring systems.

:data:`METRICS` is the table from which everything else is generated. For Prometheus,
install the extra ``metrics``, register a collector, and let prometheus-client serve
it::

    import prometheus_client
    from safeconsumer import metrics

    prometheus_client.REGISTRY.register(metrics.Collector(worker))
    prometheus_client.start_http_server(9100)

``Collector`` needs the extra: without it even ``hasattr``, or
``from safeconsumer.metrics import *``, raises :class:`MissingExtraError`, which has the
install command. For OpenTelemetry, install the extra ``otel`` and call
:func:`safeconsumer.metrics.otel.observe`.

Events increase the counters; gauges are computed at each scrape. A scrape never takes a
consumer's lock, and takes a worker's lock only while it counts the worker's records.
Scrapes work on any thread, while ``poll`` blocks and after ``close``, and metrics do
not add any cost per record.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeconsumer.metrics.table import METRICS, Label, Metric

if TYPE_CHECKING:
    from safeconsumer.metrics.prometheus import Collector

__all__ = ["METRICS", "Collector", "Label", "Metric"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of any type
    # The collector needs prometheus-client, which only the extra installs.
    if name != "Collector":
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = import_module("safeconsumer.metrics.prometheus").Collector
    globals()[name] = value
    return value
