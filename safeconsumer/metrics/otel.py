"""Exports the table of metrics to OpenTelemetry, with asynchronous instruments."""

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import version
from typing import Any

from safeconsumer.errors import MetricsSourceError, MissingExtraError
from safeconsumer.metrics.reading import Readings, Sample, checked
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

# Seconds for which one reading serves the other instruments of one collection.
_LOOK_SECONDS = 1.0


class Instruments:
    """
    Observable instruments of consumers and workers, with the names of the table.

    ``safeconsumer_purged_bytes_total`` is ``safeconsumer.purged`` in ``By``, which
    becomes the same name again when OpenTelemetry writes its metrics for Prometheus. A
    histogram cannot be observed: for ``worker_handler_seconds`` there are two counters,
    ``safeconsumer.worker_handler.count`` and ``.sum``, whose names there differ from
    the table's.

    You may make several objects: those with the same provider share its instruments,
    and the sources of all of them are observed.

    Args:
        sources: consumers, workers, each of which adds its consumer, and what
            ``safeconsumer.spark.listener()`` returns.
        provider: OpenTelemetry's ``MeterProvider``; None for the global one, which may
            be set later.
        is_labelled: whether every value has the attributes ``client_id`` and ``group``;
            a consumer keeps them until it is removed. Of two with the same names the
            second is ``client_id#2``. False is only for a single consumer.

    Raises:
        MetricsSourceError: a source has another type, a second consumer would have no
            labels, or the provider makes no meters; nothing was added.

    Thread rules: any; a collection never waits for a ``poll``, and works after
    ``close``. It keeps its sources alive until :meth:`remove`. A forked process does
    not report its parent's sources, since the parent reports them itself.
    """

    def __init__(
        self,
        *sources: object,
        provider: Any = None,  # noqa: ANN401 - the API's, or an SDK's
        is_labelled: bool = True,
    ) -> None:
        if provider is not None and not callable(getattr(provider, "get_meter", None)):
            message = f"provider= takes a MeterProvider, not {provider!r}"
            raise MetricsSourceError(message)
        for one in sources:
            checked(one)
        self._readings = _observed_by(provider)
        self._is_labelled = is_labelled
        self._readings.add(*sources, is_labelled=is_labelled)

    def add(self, source: object) -> None:
        """
        Observe one more source from now on; nothing changes if it is observed already.

        Raises:
            MetricsSourceError: it is neither consumer nor worker nor listener.
        """
        self._readings.add(source, is_labelled=self._is_labelled)

    def remove(self, source: object) -> None:
        """
        Remove a source, a worker with its consumer; no error if it is not there.

        The instruments stay, since OpenTelemetry's API cannot remove them. The
        counters of a later source with the same attributes begin at 0.
        """
        self._readings.remove(source)


# An SDK takes an instrument's callbacks only when it is made first. A provider may be
# in both maps: instruments made before any was set belong to the global one, once it is
# set.
_by_provider: "weakref.WeakKeyDictionary[object, Readings]" = (
    weakref.WeakKeyDictionary()
)
_of_global: list[Readings] = []


def _observed_by(provider: object) -> Readings:
    is_global = provider is None or provider is get_meter_provider()
    provider = get_meter_provider() if is_global else provider
    fresh = Readings()
    if is_global and _of_global:
        found = _by_provider[provider] = _of_global[0]
    else:
        # Of two threads one is first here, and makes the instruments for both.
        found = _by_provider.setdefault(provider, fresh)
    if found is fresh:
        _make_instruments(provider, fresh)
    if is_global:
        _of_global[:] = [found]
    return found


def _make_instruments(provider: object, readings: Readings) -> None:
    try:
        meter = get_meter("safeconsumer", version("safeconsumer"), provider)  # type: ignore[arg-type]  # it makes meters
        looks = _Looks(readings)
        for metric in readings.metrics():
            _create(meter, metric, looks.observing)
    except BaseException:
        del _by_provider[provider]  # the next one tries again
        raise


class _Looks(threading.local):
    """
    The readings of one collection, which asks instrument by instrument, on one thread.

    One reading has all instruments: if the same thread asks for one a second time, it
    is the next collection. Another thread belongs to another reader, with readings of
    its own.
    """

    def __init__(self, readings: Readings) -> None:
        self._readings = readings
        self._look: dict[str, tuple[Sample, ...]] = {}
        self._looked_at = float("-inf")
        self._served: set[str] = set()

    def observing(self, name: str, of: Callable[[Any], float], part: str) -> _Observe:
        """Return a function that observes a metric, or a part of it."""

        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            for sample in self.samples(name, f"{name} {part}"):
                yield Observation(of(sample.value), dict(sample.labels))

        return observe

    def samples(self, name: str, who: str) -> tuple[Sample, ...]:
        """Return the values of a metric for one instrument."""
        now = time.monotonic()
        if who in self._served or now - self._looked_at > _LOOK_SECONDS:
            found = self._readings.read()
            self._look = {metric.name: samples for metric, samples in found}
            self._looked_at = now
            self._served.clear()
        self._served.add(who)
        return self._look.get(name, ())


def _create(
    meter: Meter,
    metric: Metric,
    observing: Callable[[str, Callable[[Any], float], str], _Observe],
) -> None:
    name, unit, meaning = name_of(metric), unit_of(metric), metric.meaning
    if metric.kind == "histogram":
        count = observing(metric.name, _count, "count")
        total = observing(metric.name, _total, "sum")
        meter.create_observable_counter(f"{name}.count", [count], "", meaning)
        meter.create_observable_counter(f"{name}.sum", [total], unit, meaning)
        return
    callbacks = [observing(metric.name, float, "")]
    if metric.kind == "counter":
        meter.create_observable_counter(name, callbacks, unit, meaning)
    else:
        meter.create_observable_gauge(name, callbacks, unit, meaning)


def _count(value: Histogram) -> float:
    return sum(value.counts)


def _total(value: Histogram) -> float:
    return value.total
