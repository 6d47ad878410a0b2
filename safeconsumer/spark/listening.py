"""Provides a listener for Spark's progress that logs and counts what queries leave out."""

import json
import threading
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, TypeAlias

from attrs import evolve, frozen

from safeconsumer.errors import MissingExtraError
from safeconsumer.events.dispatch import Hook
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import events, left
from safeconsumer.spark.controller import ledger

# The most names for which the counts of ended queries are kept.
_MOST_ENDED = 1000
# A key in this source's progress, by which other sources are told apart.
_HELD = "heldPartitions"


@frozen(kw_only=True)
class QueryProgress:
    """
    What one query has done, according to its own progress.

    Attributes:
        query: its name, or its id.
        batches: how many batches of one run have read something, since it is observed.
        rows: how many rows they have read.
        held: how many partitions the last plan left out.
        partitions: which ones, as ``orders:0-3``.
        lag: how many offsets they are behind.
        because: why everything is held, if the holds cannot be read; otherwise empty.
    """

    query: str
    batches: int = 0
    rows: int = 0
    held: int = 0
    partitions: str = ""
    lag: int = 0
    because: str = ""


Heard: TypeAlias = tuple[tuple[QueryProgress, ...], tuple[QueryProgress, ...]]


class Progress:
    """
    Keeps the progress of queries, and reports when what they hold has changed.

    Thread rules: any thread.

    Args:
        hooks: take events; to structlog if None.
    """

    def __init__(self, hooks: tuple[Hook, ...] | None = None) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}
        self._ended: dict[str, QueryProgress] = {}
        self._names: dict[str, str] = {}
        self._ledger: PauseLedger = ledger(hooks)

    def queries(self) -> tuple[QueryProgress, ...]:
        """Return the running queries, as of their last progress."""
        with self._lock:
            return tuple(self._queries.values())

    def heard(self) -> Heard:
        """Return the running queries, and the counts of ended ones by name."""
        with self._lock:
            return tuple(self._queries.values()), tuple(self._ended.values())

    def begin(self, run: str, query: str) -> None:
        """Note that a query begins, by its name or its id; whether it is ours shows later."""
        with self._lock:
            self._names[run] = query

    def take(self, progress: Mapping[str, Any]) -> None:
        """Note one progress, in the form of ``StreamingQueryProgress.json``."""
        metrics = [_metrics(one) for one in progress["sources"]]
        ours = [one for one in metrics if _HELD in one or "heldBecause" in one]
        if not ours:
            return
        run, rows = progress["runId"], progress["numInputRows"]
        with self._lock:
            before = self._queries.get(
                run, QueryProgress(query=progress["name"] or progress["id"])
            )
            now = self._queries[run] = evolve(
                before,
                batches=before.batches + (rows > 0),
                rows=before.rows + rows,
                **_held(ours),
            )
        if (now.held, now.partitions, now.because) != (
            before.held,
            before.partitions,
            before.because,
        ):
            self._tell(events.QueryHeld, now)

    def end(self, run: str, query: str = "") -> None:
        """
        Note that a query has ended; what it has left out then is a warning.

        This is what its last plan left out, for which Spark may have posted no
        progress, as for any plan of a query that ended in its first batch.

        Args:
            run: its run.
            query: its id, for one that began before it was listened to.
        """
        planned = left.by(run)
        with self._lock:
            name = self._names.pop(run, query)
            last = self._queries.pop(run, None)
            if last is not None:
                self._keep(last)
        if last is None and planned is not None:
            last = QueryProgress(query=name)
        if last is not None and planned is not None:
            last = evolve(last, **_held(planned))
        if last is not None and (last.held or last.because):
            self._tell(events.QueryEndedHeld, last)

    def _keep(self, last: QueryProgress) -> None:
        before = self._ended.pop(last.query, QueryProgress(query=last.query))
        self._ended[last.query] = evolve(
            before, batches=before.batches + last.batches, rows=before.rows + last.rows
        )
        if len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]

    def _tell(self, kind: Any, one: QueryProgress) -> None:  # noqa: ANN401 - an event
        self._ledger.emit(
            kind,
            query=one.query,
            held=one.held,
            partitions=one.partitions,
            lag=one.lag,
            because=one.because,
        )
        self._ledger.deliver()


def _metrics(source: Mapping[str, Any]) -> Mapping[str, Any]:
    # Where nothing was decided nobody has counted: it is all that the source reads.
    metrics = source.get("metrics") or {}
    ends = source.get("endOffset")
    if "heldBecause" in metrics and _HELD not in metrics and isinstance(ends, dict):
        return {**metrics, _HELD: sum(map(len, ends.values()))}
    return metrics


def _held(metrics: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    ours = tuple(metrics)
    return {
        "held": sum(int(one.get(_HELD, 0)) for one in ours),
        "partitions": " ".join(filter(None, (one.get("held") for one in ours))),
        "lag": sum(int(one.get("heldLag", 0)) for one in ours),
        "because": "; ".join(filter(None, (one.get("heldBecause") for one in ours))),
    }


def listener(hooks: tuple[Hook, ...] | None = None) -> Any:  # noqa: ANN401 - pyspark is optional
    """
    Return a ``StreamingQueryListener`` that logs and counts held partitions.

    ``spark.streams.addListener(safeconsumer.spark.listener())``; its ``progress`` has
    the counts of each query, ``progress.queries()``. It notices a change with the
    progress of a batch, and while nothing is read every ten seconds
    (``spark.sql.streaming.noDataProgressEventInterval``). A
    ``safeconsumer.metrics.Collector`` takes it in addition to consumers and workers.

    Args:
        hooks: take events; to structlog if None.

    Raises:
        MissingExtraError: pyspark is not installed.
    """
    try:
        streaming = import_module("pyspark.sql.streaming.listener")
    except ModuleNotFoundError as error:
        message = "this needs pyspark: pip install 'safeconsumer[spark]'"
        raise MissingExtraError(message) from error

    class Listener(streaming.StreamingQueryListener):  # type: ignore[misc,name-defined]  # pyspark's
        """Passes Spark's events on."""

        def __init__(self) -> None:
            self.progress = Progress(hooks)

        def queries(self) -> tuple[QueryProgress, ...]:
            """Return the running queries, as of their last progress."""
            return self.progress.queries()

        def heard(self) -> Heard:
            """Return also the counts of ended queries: counters never go back."""
            return self.progress.heard()

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """Note the name; no batch is planned yet."""
            self.progress.begin(str(event.runId), str(event.name or event.id))

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """Note the progress."""
            self.progress.take(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """Do nothing: the progress has shown it."""

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """Report what was left out."""
            self.progress.end(str(event.runId), str(event.id))

    return Listener()
