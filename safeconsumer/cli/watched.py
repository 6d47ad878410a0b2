"""Implements ``safeconsumer demo --metrics``: shows the demo's numbers to Prometheus."""

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from kafka import KafkaConsumer

from safeconsumer.cli.errors import CommandError, Status
from safeconsumer.consumer import SafeConsumer
from safeconsumer.demo.results import Progress, Report
from safeconsumer.metrics import table
from safeconsumer.metrics.prometheus import Base, Collector, Server, family
from safeconsumer.metrics.reading import Sample

_METRICS = {one.name: one for one in table.of("demo")}


class Watched(Base):
    """
    Keeps the last progress of each client in each scenario, for a scrape.

    Args:
        consumers: collects the metrics of those consumers that are ours.

    Thread rules: any thread.
    """

    def __init__(self, consumers: Collector) -> None:
        self._consumers = consumers
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str], Progress] = {}
        self._others: list[Base] = []

    def watch(self, consumer: KafkaConsumer) -> Callable[[], object]:
        """Collect a consumer's metrics, if it is one of ours, until the result is called."""
        if not isinstance(consumer, SafeConsumer):
            return lambda: None
        self._consumers.add(consumer)
        return lambda: self._consumers.remove(consumer)

    def show(self, other: Base) -> None:
        """Show what another collector has, whose names are others."""
        with self._lock:
            self._others.append(other)

    def also(self, report: Report) -> Report:
        """Return a function that notes progress and passes it on to ``report``."""

        def both(progress: Progress) -> None:
            if progress.partitions:
                with self._lock:
                    self._last[progress.client, progress.scenario] = progress
            report(progress)

        return both

    def describe(self) -> Iterable[Any]:
        """Yield the names and types of all metrics."""
        return [family(one, (), ()) for one in _METRICS.values()]

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of the last progress."""
        with self._lock:
            last, others = dict(self._last), tuple(self._others)
        for one in others:
            yield from one.collect()
        found: dict[str, list[Sample]] = {name: [] for name in _METRICS}
        for (client, scenario), progress in last.items():
            labels = {"client": client, "scenario": scenario}
            for name, value in (
                ("produced", sum(one.produced for one in progress.partitions)),
                ("delivered", sum(one.delivered for one in progress.partitions)),
                ("wrong", sum(one.wrong for one in progress.partitions)),
            ):
                found[f"demo_{name}_records"].append(Sample(labels, value))
            states = Counter(one.state.name.lower() for one in progress.partitions)
            found["demo_partitions"] += [
                Sample({**labels, "state": state}, states[state])
                for state in table.DEMO_STATES
            ]
        for name, metric in _METRICS.items():
            names = tuple(label.name for label in metric.labels)
            yield family(metric, names, found[name])


@contextmanager
def watching(port: int) -> Iterator[Watched]:
    """
    Answer Prometheus on a port during the block, and print the address.

    Raises:
        CommandError: the port is taken.
    """
    consumers = Collector(is_labelled=True)
    watched = Watched(consumers)
    try:
        server = Server(port, "127.0.0.1", consumers, watched)
    except OSError as error:
        message = f"port {port}: {error.strerror or error}; choose one with --metrics"
        raise CommandError(message, Status.USAGE) from error
    with server:
        where = f"http://127.0.0.1:{server.port}/metrics"
        click.echo(f"safeconsumer: metrics at {where}", err=True)
        yield watched
