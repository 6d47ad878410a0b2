"""Exports the table of metrics to OpenTelemetry, with asynchronous instruments."""

import weakref
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

from safeconsumer.errors.base import MetricsSourceError, MissingExtraError
from safeconsumer.metrics.reading import Readings, Sample
from safeconsumer.metrics.table import Metric, name_of, unit_of
from safeconsumer.worker.durations import Histogram

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Meter,
        Observation,
        get_meter,
        get_meter_provider,
    )
except ImportError as error:
    _message = (
        f"instruments need OpenTelemetry's API ({error}): "
        f"pip install 'safeconsumer[otel]'"
    )
    raise MissingExtraError(_message) from error

__all__ = ["Instruments", "name_of", "unit_of"]

_Observe = Callable[[CallbackOptions], Iterable[Observation]]


class Instruments:
    """
    Observable instruments of consumers and workers, with the names of the table.

    ``safeconsumer_purged_bytes_total`` is ``safeconsumer.purged`` in ``By``, which
    becomes the same name again when OpenTelemetry writes its metrics for Prometheus. A
    histogram cannot be observed: for ``worker_handler_seconds`` there are two counters,
    ``safeconsumer.worker_handler.count`` and ``.sum``, whose names there differ from
    the table's. Every value has the attributes ``client_id`` and ``group``, which a
    consumer keeps until it is removed; of two with the same names the second is
    ``client_id#2``.

    You may make several objects: those with the same provider share its instruments,
    and the sources of all of them are observed.

    Args:
        sources: consumers; and workers and pumps, each of which adds its consumer.
        provider: OpenTelemetry's ``MeterProvider``; None for the global one, which may
            be set later.

    Raises:
        MetricsSourceError: a source has another type, or the provider makes no meters;
            nothing was added.

    Thread rules: any; a collection never waits for a ``poll``, and works after
    ``close``. It keeps its sources alive until :meth:`remove`. A forked process does
    not report its parent's sources, since the parent reports them itself.
    """

    def __init__(
        self,
        *sources: object,
        provider: Any = None,  # noqa: ANN401 - the API's, or an SDK's
    ) -> None:
        if provider is not None and not callable(getattr(provider, "get_meter", None)):
            message = f"provider= takes a MeterProvider, not {provider!r}"
            raise MetricsSourceError(message)
        self._readings = _observed_by(provider)
        self._readings.add(*sources)

    def add(self, source: object) -> None:
        """
        Observe one more source from now on; nothing changes if it is observed already.

        Raises:
            MetricsSourceError: it is neither consumer, worker nor pump.
        """
        self._readings.add(source)

    def remove(self, source: object) -> None:
        """
        Remove a source, a worker with its consumer; no error if it is not there.

        The instruments stay, since OpenTelemetry's API cannot remove them. The
        counters of a later source with the same attributes begin at 0.
        """
        self._readings.remove(source)


class _Global:
    """Stands for the global provider, before it is set and after."""


# An SDK takes an instrument's callbacks only when it is made first.
_by_provider: "weakref.WeakKeyDictionary[object, Readings]" = (
    weakref.WeakKeyDictionary()
)


def _observed_by(provider: Any) -> Readings:  # noqa: ANN401 - the API's, or an SDK's
    the_global = get_meter_provider()
    is_global = provider is None or provider is the_global
    key, provider = (_Global, the_global) if is_global else (provider, provider)
    made = Readings()
    found = _by_provider.setdefault(key, made)  # of two threads one makes them
    if found is made:
        meter = get_meter("safeconsumer", version("safeconsumer"), provider)
        collected = _Collected(made)
        for metric in made.metrics:
            _create(meter, metric, collected)
    return found


class _Collected:
    """
    The values of one collection, which asks for each once: they are read together.

    Thread rules: the SDK's collections come one after the other.
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._samples: dict[str, tuple[Sample, ...]] = {}
        self._asked: set[object] = set()

    def samples(self, metric: Metric, asker: object) -> tuple[Sample, ...]:
        """Return the values of a metric; who asks again begins the next collection."""
        if asker in self._asked or not self._asked:
            self._asked.clear()
            found = self._readings.read(*self._readings.metrics)
            self._samples = {one.name: samples for one, samples in found}
        self._asked.add(asker)
        return self._samples.get(metric.name, ())


def _create(meter: Meter, metric: Metric, readings: _Collected) -> None:
    name, unit, meaning = name_of(metric), unit_of(metric), metric.meaning
    if metric.kind == "histogram":
        count = _observing(readings, metric, _count)
        total = _observing(readings, metric, _total)
        meter.create_observable_counter(f"{name}.count", [count], "", meaning)
        meter.create_observable_counter(f"{name}.sum", [total], unit, meaning)
        return
    callbacks = [_observing(readings, metric, float)]
    if metric.kind == "counter":
        meter.create_observable_counter(name, callbacks, unit, meaning)
    else:
        meter.create_observable_gauge(name, callbacks, unit, meaning)


def _observing(
    readings: _Collected, metric: Metric, of: Callable[[Any], float]
) -> _Observe:
    def observe(_options: CallbackOptions) -> Iterator[Observation]:
        for sample in readings.samples(metric, observe):
            yield Observation(of(sample.value), dict(sample.labels))

    return observe


def _count(value: Histogram) -> float:
    return sum(value.counts)


def _total(value: Histogram) -> float:
    return value.total
