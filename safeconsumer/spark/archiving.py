"""
Copies Kafka topics into Parquet or a Delta table, exactly once, obeying holds.

Spark commits a batch of Parquet by an entry in ``_spark_metadata``: readers that follow
it, as Spark does, get each record once. Others also see the files of batches that died.
A batch of Delta is one commit of the table, for every reader of Delta.
"""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import field, frozen

from safeconsumer.errors import SparkRunError, SparkSettingError
from safeconsumer.spark import folders, left
from safeconsumer.spark.options import parse
from safeconsumer.spark.platforms import is_of_spark, progress_of, reason

_INTERVAL = re.compile(r"(\d+) ?(ms|s|m|h)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_LOOK_SECONDS = 0.5
_KEPT = "spark.sql.streaming.numRecentProgressUpdates"

PARQUET, DELTA = "parquet", "delta"
FORMATS = (PARQUET, DELTA)


@frozen(kw_only=True)
class Archive:
    """
    Says what is copied, where to, and how often.

    Attributes:
        topics: names; or one pattern, ``re:...``, which Spark reads as Java does.
        to: a folder, on any file system that Spark knows.
        checkpoint: a folder for this archive only.
        trigger: ``once`` (what exists now), or how often: ``500ms``, ``10s``, ``5m``.
        format: ``parquet`` or ``delta``.
        options: options of the source: the cluster, holds, limits.
    """

    topics: tuple[str, ...]
    to: str
    checkpoint: str
    trigger: str = "once"
    format: str = PARQUET
    options: Mapping[str, str] = field(factory=dict, repr=False)

    def trigger_of(self) -> dict[str, Any]:
        """
        Return the arguments of Spark's ``trigger()``.

        Raises:
            SparkSettingError: it is not a trigger.
        """
        if self.trigger == "once":
            return {"availableNow": True}
        found = _INTERVAL.fullmatch(self.trigger)
        if found is None:
            message = (
                f"--trigger must be once, or like 500ms, 10s, 5m, not {self.trigger!r}"
            )
            raise SparkSettingError(message)
        return {"processingTime": f"{found[1]} {_UNITS[found[2]]}"}

    def topics_of(self) -> dict[str, str]:
        """
        Return the source's option that names the topics.

        Raises:
            SparkSettingError: there is a pattern and something else.
        """
        patterns = [name for name in self.topics if name.startswith("re:")]
        if not patterns:
            return {"subscribe": ",".join(self.topics)}
        if len(self.topics) > 1:
            message = "give topics, or one pattern re:...; not both, and not two"
            raise SparkSettingError(message)
        return {"subscribePattern": patterns[0].removeprefix("re:")}

    def pattern(self) -> str:
        """
        Return a pattern over whole names of topics, as Java has it.

        Raises:
            SparkSettingError: as :meth:`topics_of`.
        """
        found = self.topics_of()
        names = "|".join(re.escape(name) for name in self.topics)
        return found.get("subscribePattern", names)


# Errors of Spark and Delta for a folder to which no batch was written yet.
_EMPTY = (
    *("PATH_NOT_FOUND", "Unable to infer schema"),  # Spark 4.1 gives no other name
    *(
        "DELTA_MISSING_DELTA_TABLE",
        "DELTA_TABLE_NOT_FOUND",
        "DELTA_PATH_DOES_NOT_EXIST",
    ),
)


def start(spark: Any, archive: Archive) -> Any:  # noqa: ANN401 - pyspark is optional
    """
    Begin to copy; return the streaming query.

    The session must be registered with :func:`safeconsumer.spark.register`.

    Raises:
        SparkSettingError: trigger, topics or options are not acceptable, or the folder
            was written with another checkpoint; nothing was started.
        SparkRunError: Spark refuses to start it; the message says why.
    """
    trigger = archive.trigger_of()
    whole = {"startingOffsets": "earliest", "includeHeaders": "true"}
    options = {**whole, **archive.topics_of(), **archive.options}
    parse(options)
    with _translated():
        if archive.format == PARQUET:
            folders.refuse_another_checkpoint(spark, archive.to, archive.checkpoint)
        elif not any(name.lower().startswith("starting") for name in archive.options):
            topics = archive.pattern()
            folders.refuse_to_repeat(spark, archive.to, archive.checkpoint, topics)
        frame = spark.readStream.format("safekafka").options(**options).load()
        return (
            frame.writeStream.format(archive.format)
            .partitionBy("topic", "partition")
            .option("path", archive.to)
            .option("checkpointLocation", archive.checkpoint)
            .queryName("safeconsumer archive")
            .trigger(**trigger)
            .start()
        )


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if not is_of_spark(error):
            raise
        raise SparkRunError(reason(error)) from error


def follow(
    query: Any,  # noqa: ANN401 - pyspark is optional
    say: Callable[[str], object],
    must_stop: Callable[[], bool],
    kept: int = 100,
) -> "Telling":
    """
    Report each batch, and each change of the holds, until the query ends or must end.

    A batch that runs when the query must stop is ended by Spark, and comes again, in
    full and once, when the archive is started again.

    Args:
        query: the query to follow.
        say: takes each line.
        must_stop: returns whether the query must end now.
        kept: for how many triggers Spark keeps the progress, as :func:`kept_by`.

    Returns:
        What was seen of the query.

    Raises:
        SparkRunError: the query failed; the message says why.
    """
    telling = Telling(say, kept)
    while query.isActive and not must_stop():
        ended(query, _LOOK_SECONDS)
        telling.look(query)
    if query.isActive:
        query.stop()
        telling.is_stopped = True
    telling.look(query)
    telling.end(str(query.runId))
    error = query.exception()
    if error is not None:
        raise SparkRunError(reason(error)) from error
    return telling


def kept_by(spark: Any) -> int:  # noqa: ANN401 - pyspark is optional
    """Return for how many triggers of a query a session keeps the progress."""
    return int(spark.conf.get(_KEPT, "100"))


def ended(query: Any, seconds: float) -> bool:  # noqa: ANN401 - pyspark is optional
    """Wait for the end of a query; return whether it has ended, in whatever way."""
    errors = importlib.import_module("pyspark.errors")
    try:
        return bool(query.awaitTermination(seconds))
    except errors.StreamingQueryException:
        return True


class Telling:
    """
    Reports what is new in a query's progress: batches, and holds while nothing comes.

    Attributes:
        rows: how many rows were copied.
        batches: how many batches there were.
        is_stopped: whether it was ended before it was complete.

    Args:
        say: takes each line.
        kept: for how many triggers Spark keeps the progress.
    """

    def __init__(self, say: Callable[[str], object], kept: int = 100) -> None:
        self.rows = 0
        self.batches = 0
        self.is_stopped = False
        self._say = say
        self._kept = kept
        self._last: dict[str, Any] = {}
        self._missed = False
        self._held = ""
        self._told: tuple[str, ...] = ()

    def look(self, query: Any) -> None:  # noqa: ANN401 - pyspark is optional
        """Report what is new."""
        for progress in self._new(progress_of(query)):
            self._held = held_of(progress)
            told = tuple(
                str(one.get(name))
                for one in _metrics(progress)
                for name in ("held", "heldBecause")
            )
            if progress["numInputRows"]:
                self.rows += progress["numInputRows"]
                self.batches += 1
                self._say(line_of(progress))
            elif self._held and told != self._told:  # not with each change of the lag
                self._say(f"nothing to copy; {self._held}")
            self._told = told

    def _new(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # Compared by place, not by time: the driver's clock may go back.
        before = 0
        if self._last in found:
            before = len(found) - found[::-1].index(self._last)
        elif len(found) >= self._kept:
            self._missed = True
        self._last = found[-1] if found else self._last
        return found[before:]

    def end(self, run: str) -> None:
        """Note what the last plan has left out, of which Spark may show no progress."""
        metrics = left.by(run)
        if metrics is not None:
            self._held = held_in(metrics)

    def summary(self) -> str:
        """Return what was copied, and what is held at the end, in one line."""
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        least = "at least " if self._missed else ""
        text = f"copied {least}{self.rows} rows in {batches}"
        if self._missed:
            text += f" (Spark keeps the progress of few triggers: {_KEPT})"
        if self.is_stopped:
            text += "; stopped, the rest comes with the next run"
        return f"{text}; {self._held}" if self._held else text


def held_of(progress: Mapping[str, Any]) -> str:
    """Return what is held, with its lag and any trouble, in words."""
    return held_in(_metrics(progress))


def held_in(several: Sequence[Mapping[str, str]]) -> str:
    """Return the same for the metrics of one query's sources."""
    said = []
    for metrics in several:
        if not metrics.get("held") and not metrics.get("heldBecause"):
            continue
        text = f"held {metrics.get('held') or 'all'}"
        if "heldLag" in metrics:
            text += f", {metrics['heldLag']} behind"
        if metrics.get("heldBecause"):
            text += f" ({metrics['heldBecause']})"
        said.append(text)
    return "; ".join(said)


def _metrics(progress: Mapping[str, Any]) -> list[Mapping[str, str]]:
    return [one.get("metrics") or {} for one in progress["sources"]]


def line_of(progress: Mapping[str, Any]) -> str:
    """Return one line about a batch: rows, and what is held with its lag."""
    held = held_of(progress)
    text = f"batch {progress['batchId']}: {progress['numInputRows']} rows"
    return f"{text}; {held}" if held else text


def table(spark: Any, archive: Archive) -> list[tuple[str, int, int, int, int]]:  # noqa: ANN401 - pyspark is optional
    """
    Return topic, partition, rows, first and last offset of the archive's records.

    It reads the offsets of the whole archive, also those of earlier runs.

    Raises:
        SparkRunError: it cannot be read; the message says why.
    """
    with _translated():
        return _table(spark, archive)


def _table(spark: Any, archive: Archive) -> list[tuple[str, int, int, int, int]]:  # noqa: ANN401 - pyspark is optional
    errors = importlib.import_module("pyspark.errors")
    functions = importlib.import_module("pyspark.sql.functions")
    try:
        reading = spark.read.format(archive.format)
        if archive.format == PARQUET:
            # Without a schema Spark would read the folder of a topic 0071 as the number
            # 71.
            reading = reading.schema("topic string, partition int, offset long")
        found = reading.load(archive.to)
    except errors.AnalysisException as error:
        if any(name in str(error) for name in _EMPTY):
            return []
        raise
    rows = found.groupBy("topic", "partition").agg(
        functions.count("offset"), functions.min("offset"), functions.max("offset")
    )
    return sorted(
        (str(topic), int(partition), count, first, last)
        for topic, partition, count, first, last in rows.collect()
    )
