"""
The table of metrics for OpenTelemetry: asynchronous instruments, by its API alone.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any

from safeconsumer.errors import MissingExtraError
from safeconsumer.metrics.reading import Readings, Sample
from safeconsumer.metrics.table import Metric
from safeconsumer.worker.results import Histogram

try:
    from opentelemetry.metrics import (
        CallbackOptions,
        Meter,
        Observation,
        get_meter,
    )
except ImportError as error:
    _message = (
        f"instruments need OpenTelemetry's API ({error}): "
        f"pip install 'safeconsumer[otel]'"
    )
    raise MissingExtraError(_message) from error

__all__ = ["Instruments", "name_of", "unit_of"]

_Observe = Callable[[CallbackOptions], Iterable[Observation]]

# By UCUM; others are counts of something, which stands in braces.
_UNITS = {"seconds": "s", "bytes": "By"}
# For how long one look serves those of one collection that have not asked yet.
_LOOK_SECONDS = 1.0


class Instruments:
    """
    Observable instruments of consumers and workers, with the names of the table.

    ``safeconsumer_purged_bytes_total`` is ``safeconsumer.purged`` in ``By``, which
    becomes the same name again where OpenTelemetry's metrics are written for
    Prometheus. A histogram cannot be observed: of ``worker_handler_seconds`` there are
    the ``count`` and the ``sum``.

    Args:
        sources: consumers, workers, each of which brings its consumer with it, and
            what ``safeconsumer.spark.listener()`` returns.
        provider: OpenTelemetry's ``MeterProvider``; None for the global one, which may
            be set later.
        is_labelled: whether every value has the attributes ``client_id`` and ``group``;
            None: once there are several consumers. Of two with the same names the
            second is ``client_id#2``.

    Raises:
        MetricsSourceError: something among them is none of these.

    Thread rules: any; a collection never waits for a ``poll``, and works after
    ``close``. It keeps what it was given alive until :meth:`remove`.
    """

    def __init__(
        self,
        *sources: object,
        provider: Any = None,  # noqa: ANN401 - the API's, or an SDK's
        is_labelled: bool | None = None,
    ) -> None:
        self._readings = Readings(*sources, is_labelled=is_labelled)
        self._lock = threading.Lock()
        self._look: Mapping[str, tuple[Sample, ...]] = {}
        self._looked_at = float("-inf")
        self._served: set[str] = set()
        meter = get_meter("safeconsumer", version("safeconsumer"), provider)
        for metric in self._readings.metrics():
            _create(meter, metric, self._observing)

    def add(self, source: object) -> None:
        """
        Observe one more source, from now on; nothing changes if it is there.

        Raises:
            MetricsSourceError: it is neither consumer nor worker nor listener.
        """
        self._readings.add(source)

    def remove(self, source: object) -> None:
        """
        Leave out a source, a worker with its consumer; no error if it is not there.

        The instruments stay, since OpenTelemetry's API cannot take them back.
        """
        self._readings.remove(source)

    def _observing(self, name: str, of: Callable[[Any], float], part: str) -> _Observe:
        def observe(_options: CallbackOptions) -> Iterator[Observation]:
            for sample in self._samples(name, f"{name} {part}"):
                yield Observation(of(sample.value), dict(sample.labels))

        return observe

    def _samples(self, name: str, who: str) -> tuple[Sample, ...]:
        # A collection asks instrument by instrument, and one look has all of them:
        # whoever asks a second time is the next collection.
        with self._lock:
            now = time.monotonic()
            if who in self._served or now - self._looked_at > _LOOK_SECONDS:
                found = self._readings.read()
                self._look = {metric.name: samples for metric, samples in found}
                self._looked_at = now
                self._served.clear()
            self._served.add(who)
            return self._look.get(name, ())


def name_of(metric: Metric) -> str:
    """
    Return the name of a metric's instrument.

    Its unit and ``total`` are left out where writing it for Prometheus adds them.
    """
    name = metric.name.removesuffix("_total")
    if metric.unit in _UNITS:
        name = name.removesuffix(f"_{metric.unit}")
    return f"safeconsumer.{name}"


def unit_of(metric: Metric) -> str:
    """
    Return the unit of a metric's instrument; empty for a plain number.
    """
    if metric.unit is None:
        return ""
    return _UNITS.get(metric.unit) or f"{{{metric.unit.removesuffix('s')}}}"


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
