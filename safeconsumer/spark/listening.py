"""
A listener for Spark's own progress: it logs and counts what queries leave alone.
"""

import json
import threading
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from attrs import evolve, frozen

from safeconsumer.errors import MissingExtraError
from safeconsumer.events.dispatch import Hook
from safeconsumer.holds.ledger import PauseLedger
from safeconsumer.spark import events, left
from safeconsumer.spark.controller import ledger

# What the source says besides: who is no ``safekafka`` source says nothing of it.
_HELD = "heldPartitions"


@frozen(kw_only=True)
class QueryProgress:
    """
    What one query has done, by its own progress.

    Attributes:
        query: its name, or its id.
        batches: how many have read something, since this is listened to.
        rows: how many they have read.
        held: how many partitions the last plan left alone.
        partitions: which, as ``orders:0-3``.
        lag: how many offsets they are behind.
        because: why everything is held, if that cannot be told; else empty.
    """

    query: str
    batches: int = 0
    rows: int = 0
    held: int = 0
    partitions: str = ""
    lag: int = 0
    because: str = ""


class Progress:
    """
    Keeps the progress of queries, and tells when what they hold has changed.

    Thread rules: any thread.

    Args:
        hooks: take events; to structlog if None.
    """

    def __init__(self, hooks: tuple[Hook, ...] | None = None) -> None:
        self._lock = threading.Lock()
        self._queries: dict[str, QueryProgress] = {}
        self._ledger: PauseLedger = ledger(hooks)

    def queries(self) -> tuple[QueryProgress, ...]:
        """
        Return the queries that run, as they were last heard of.
        """
        with self._lock:
            return tuple(self._queries.values())

    def take(self, progress: Mapping[str, Any]) -> None:
        """
        Take note of one progress, as ``StreamingQueryProgress.json`` has it.
        """
        metrics = [one.get("metrics") or {} for one in progress["sources"]]
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

    def end(self, run: str) -> None:
        """
        Take note that a query has ended; what it has left alone then is a warning.

        That is what its last plan left, of which Spark may have posted no progress.
        """
        planned = left.by(run)
        with self._lock:
            last = self._queries.pop(run, None)
        if last is not None and planned is not None:
            last = evolve(last, **_held(planned))
        if last is not None and (last.held or last.because):
            self._tell(events.QueryEndedHeld, last)

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
    the counts of each query, :meth:`Progress.queries`. It hears of a change with the
    progress of a batch, and where nothing is read every ten seconds
    (``spark.sql.streaming.noDataProgressEventInterval``). A
    ``safeconsumer.metrics.Collector`` takes it beside consumers and workers.

    Args:
        hooks: take events; to structlog if None.

    Raises:
        MissingExtraError: there is no pyspark.
    """
    try:
        streaming = import_module("pyspark.sql.streaming.listener")
    except ModuleNotFoundError as error:
        message = "this needs pyspark: pip install 'safeconsumer[spark]'"
        raise MissingExtraError(message) from error

    class Listener(streaming.StreamingQueryListener):  # type: ignore[misc,name-defined]  # pyspark's
        """
        Passes Spark's events on.
        """

        def __init__(self) -> None:
            self.progress = Progress(hooks)

        def queries(self) -> tuple[QueryProgress, ...]:
            """
            Return the queries that run, as they were last heard of: for metrics.
            """
            return self.progress.queries()

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """
            Do nothing: nothing is planned yet.
            """

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """
            Take note of it.
            """
            self.progress.take(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """
            Do nothing: the progress has said it.
            """

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802, ANN401 - pyspark's
            """
            Say what was left alone.
            """
            self.progress.end(str(event.runId))

    return Listener()
