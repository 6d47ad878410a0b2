"""Exports the values of the Prometheus collector through OpenTelemetry."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any, TypeAlias

from safeconsumer.errors.base import MetricsSourceError, MissingExtraError
from safeconsumer.metrics.prometheus import METRICS, Collector
from safeconsumer.metrics.table import Metric, name_of, unit_of

try:
    from opentelemetry.metrics import Observation, get_meter, get_meter_provider
except ImportError as error:
    _message = (
        f"instruments need OpenTelemetry's API ({error}): "
        f"pip install 'safeconsumer[otel]'"
    )
    raise MissingExtraError(_message) from error

__all__ = ["observe"]

# The names follow the semantic conventions for messaging, as in worker/tracing.py.
_ATTRIBUTES = {
    "client_id": "messaging.client.id",
    "group": "messaging.consumer.group.name",
}

_Observe: TypeAlias = "Callable[[object], Iterable[Observation]]"


class _Global:
    """A dictionary key for the global provider, before and after a program sets it."""


# An SDK accepts an instrument's callbacks only when the instrument is first created.
_by_provider: "weakref.WeakKeyDictionary[object, Collector]" = (
    weakref.WeakKeyDictionary()
)


def observe(
    *sources: object,
    provider: Any = None,  # noqa: ANN401 - the API's, or an SDK's
) -> Collector:
    """
    Add sources to the collector that a provider's instruments read; return it.

    Each provider has one collector. For example, ``safeconsumer_purged_bytes_total`` is
    named ``safeconsumer.purged``, with the unit ``By``; OpenTelemetry's own Prometheus
    exporter turns that into the original name. OpenTelemetry cannot observe a
    histogram, so ``worker_handler_seconds`` becomes two counters,
    ``safeconsumer.worker_handler.count`` and ``.sum``. The labels ``client_id`` and
    ``group`` are the attributes ``messaging.client.id`` and
    ``messaging.consumer.group.name``. The instruments remain when sources are removed.

    Args:
        sources: as for :class:`safeconsumer.metrics.Collector`.
        provider: OpenTelemetry's ``MeterProvider``; None for the global one, which may
            be set later.

    Raises:
        MetricsSourceError: a source has an unsupported type, or the provider cannot
            create meters; nothing was added.

    Thread rules: any thread may use this.
    """
    if provider is not None and not callable(getattr(provider, "get_meter", None)):
        message = f"provider= takes a MeterProvider, not {provider!r}"
        raise MetricsSourceError(message)
    the_global = get_meter_provider()
    is_global = provider is None or provider is the_global
    key, provider = (_Global, the_global) if is_global else (provider, provider)
    made = Collector()
    # if two threads call this function, only one creates the instruments
    collector = _by_provider.setdefault(key, made)
    if collector is made:
        _create(get_meter("safeconsumer", version("safeconsumer"), provider), made)
    collector.add(*sources)
    return collector


def _create(meter: Any, collector: Collector) -> None:  # noqa: ANN401 - the API's, or an SDK's
    observing = _observing(collector)
    for metric in METRICS:
        is_gauge = metric.kind == "gauge"
        kind = "create_observable_gauge" if is_gauge else "create_observable_counter"
        for sample, name, unit in _instruments(metric):
            getattr(meter, kind)(name, [observing(sample)], unit, metric.meaning)


def _instruments(metric: Metric) -> Iterator[tuple[str, str, str]]:
    # Yield the name of the collector's samples, and the instrument's name and unit.
    name, unit = name_of(metric), unit_of(metric)
    if metric.kind != "histogram":
        yield metric.full_name, name, unit
    else:
        yield f"{metric.full_name}_count", f"{name}.count", ""
        yield f"{metric.full_name}_sum", f"{name}.sum", unit


def _observing(collector: Collector) -> Callable[[str], _Observe]:
    # A collection calls each instrument once. If an instrument is called again, a new
    # collection has begun, so all values are read again.
    left: dict[str, list[Observation]] = {}

    def observing(sample: str) -> _Observe:
        def observe_one(_options: object) -> Iterable[Observation]:
            if sample not in left:
                left.update(_read(collector))
            return left.pop(sample)

        return observe_one

    return observing


def _read(collector: Collector) -> dict[str, list[Observation]]:
    found: dict[str, list[Observation]] = {
        sample: [] for metric in METRICS for sample, _, _ in _instruments(metric)
    }
    for family in collector.collect():
        for one in family.samples:
            if one.name in found:  # the buckets of a histogram are left out
                labels = {_ATTRIBUTES.get(k, k): v for k, v in one.labels.items() if v}
                found[one.name].append(Observation(one.value, labels))
    return found
