"""
Exports the figures of consumers and workers to monitoring systems.

:data:`METRICS` is the table from which everything else is made. For Prometheus, with
the extra ``metrics``, register a collector or serve a port::

    import prometheus_client
    from safeconsumer import metrics

    prometheus_client.REGISTRY.register(metrics.Collector(worker))

    metrics.serve(9100, worker)

``Collector``, ``Server`` and ``serve`` need the extra: without it even ``hasattr``, or
``from safeconsumer.metrics import *``, raises :class:`MissingExtraError`, which says
what to install. For OpenTelemetry, with the extra ``otel``, there is
:class:`safeconsumer.metrics.otel.Instruments`.

Metrics without labels are also in kafka-python's own ``consumer.metrics()`` and its
reporters, in the group ``safeconsumer-metrics``.

Counters come from events; gauges are read at each scrape. Reading takes no lock of a
consumer, and a lock of a worker only while that counts its records. It works from any
thread, while ``poll`` blocks and after ``close``, and costs nothing per record.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from safeconsumer.metrics.table import METRICS, Label, Metric

if TYPE_CHECKING:
    from safeconsumer.metrics.prometheus import Collector, Server, serve

__all__ = ["METRICS", "Collector", "Label", "Metric", "Server", "serve"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the name stands for
    # The names below need a package that only an extra installs.
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module("safeconsumer.metrics.prometheus"), name)
    globals()[name] = value
    return value
