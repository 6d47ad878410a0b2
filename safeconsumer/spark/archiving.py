"""
Kafka topics into partitioned Parquet or a Delta table, exactly once, steered by holds.

Spark commits a batch of Parquet by an entry in ``_spark_metadata``: whoever reads the
folder by it, as Spark does, has each record once. Others also see the files of batches
that died. A batch of Delta is one commit of the table, for every reader of Delta.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from safeconsumer.errors import SparkRunError, SparkSettingError
from safeconsumer.spark.platforms import progress_of

_INTERVAL = re.compile(r"(\d+) ?(ms|s|m|h)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_LOOK_SECONDS = 0.5

PARQUET, DELTA = "parquet", "delta"
FORMATS = (PARQUET, DELTA)


@frozen(kw_only=True)
class Archive:
    """
    What is copied, where to, and how often.

    Attributes:
        topics: their names; or one pattern, ``re:...``, which Spark reads as Java does.
        to: a folder, of any file system that Spark knows.
        checkpoint: a folder of its own.
        trigger: ``once`` (what is there now), or how often: ``500ms``, ``10s``, ``5m``.
        format: ``parquet`` or ``delta``.
        options: of the source: the cluster, holds, limits.
    """

    topics: tuple[str, ...]
    to: str
    checkpoint: str
    trigger: str = "once"
    format: str = PARQUET
    options: Mapping[str, str] = field(factory=dict, repr=False)

    def trigger_of(self) -> dict[str, Any]:
        """
        Return what Spark's ``trigger()`` takes.

        Raises:
            SparkSettingError: it is not a trigger.
        """
        if self.trigger == "once":
            return {"availableNow": True}
        found = _INTERVAL.fullmatch(self.trigger)
        if found is None:
            message = f"--trigger is once, or like 500ms, 10s, 5m; not {self.trigger!r}"
            raise SparkSettingError(message)
        return {"processingTime": f"{found[1]} {_UNITS[found[2]]}"}

    def topics_of(self) -> dict[str, str]:
        """
        Return the source's option that names the topics.

        Raises:
            SparkSettingError: a pattern stands beside other topics.
        """
        patterns = [name for name in self.topics if name.startswith("re:")]
        if not patterns:
            return {"subscribe": ",".join(self.topics)}
        if len(self.topics) > 1:
            message = "give topics, or one pattern re:...; not both, and not two"
            raise SparkSettingError(message)
        return {"subscribePattern": patterns[0].removeprefix("re:")}


# What Spark and Delta say of a folder to which no batch was written yet.
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
    Begin to copy; returns the streaming query.

    The session must be registered with :func:`safeconsumer.spark.register`.

    Raises:
        SparkSettingError: trigger or topics are not acceptable; nothing was started.
    """
    trigger = archive.trigger_of()
    options = {"startingOffsets": "earliest", **archive.topics_of(), **archive.options}
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


def follow(
    query: Any,  # noqa: ANN401 - pyspark is optional
    say: Callable[[str], object],
    must_stop: Callable[[], bool],
) -> "Telling":
    """
    Say one line per batch, and per change of what is held, until it ends, or must.

    A batch under way when it must stop is ended by Spark, and comes again, in full and
    once, when the archive is started again.

    Returns:
        What was seen of it.

    Raises:
        SparkRunError: the query failed; says why.
    """
    telling = Telling(say)
    while query.isActive and not must_stop():
        ended(query, _LOOK_SECONDS)
        telling.look(query)
    if query.isActive:
        query.stop()
    telling.look(query)
    error = query.exception()
    if error is not None:
        raise SparkRunError(_reason(error)) from error
    return telling


def ended(query: Any, seconds: float) -> bool:  # noqa: ANN401 - pyspark is optional
    """
    Wait for the end of a query, and tell whether it came; however it came.
    """
    errors = importlib.import_module("pyspark.errors")
    try:
        return bool(query.awaitTermination(seconds))
    except errors.StreamingQueryException:
        return True


def _reason(error: BaseException) -> str:
    # What Spark puts around the words that were thrown: which query, and a SQLSTATE.
    text = str(error).split("\n", 1)[0]
    return text.partition("terminated with exception: ")[2] or text


class Telling:
    """
    Says what is new in a query's progress: batches, and holds while nothing comes.

    Attributes:
        rows: how many were copied.
        batches: in how many batches.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self.rows = 0
        self.batches = 0
        self._say = say
        self._at = ""
        self._held = ""

    def look(self, query: Any) -> None:  # noqa: ANN401 - pyspark is optional
        """
        Say it.
        """
        for progress in progress_of(query):
            if progress["timestamp"] <= self._at:  # ISO, of the trigger's start
                continue
            self._at = progress["timestamp"]
            held = held_of(progress)
            if progress["numInputRows"]:
                self.rows += progress["numInputRows"]
                self.batches += 1
                self._say(line_of(progress))
            elif held and held != self._held:
                self._say(f"nothing to copy; {held}")
            self._held = held

    def summary(self) -> str:
        """
        Return what was copied, and what is held at the end, in one line.
        """
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        text = f"copied {self.rows} rows in {batches}"
        return f"{text}; {self._held}" if self._held else text


def held_of(progress: Mapping[str, Any]) -> str:
    """
    Return what is held, with its lag and what is wrong, in words.
    """
    metrics = progress["sources"][0].get("metrics") or {}
    if not metrics.get("held"):
        return ""
    text = f"held {metrics['held']}"
    if "heldLag" in metrics:
        text += f", {metrics['heldLag']} behind"
    if metrics.get("heldBecause"):
        text += f" ({metrics['heldBecause']})"
    return text


def line_of(progress: Mapping[str, Any]) -> str:
    """
    Return one line about a batch: rows, and what is held with its lag.
    """
    held = held_of(progress)
    text = f"batch {progress['batchId']}: {progress['numInputRows']} rows"
    return f"{text}; {held}" if held else text


def table(spark: Any, archive: Archive) -> list[tuple[str, int, int, int, int]]:  # noqa: ANN401 - pyspark is optional
    """
    Return topic, partition, rows, first and last offset of what the archive has.

    It reads the offsets of the whole archive, also those of earlier runs.
    """
    errors = importlib.import_module("pyspark.errors")
    functions = importlib.import_module("pyspark.sql.functions")
    try:
        found = spark.read.format(archive.format).load(archive.to)
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
