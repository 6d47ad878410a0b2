"""
Kafka topics into partitioned Parquet, exactly once, steered by holds.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from safeconsumer.errors import SparkSettingError
from safeconsumer.spark.platforms import progress_of

_INTERVAL = re.compile(r"(\d+) ?(ms|s|m|h)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
_LOOK_SECONDS = 0.5


@frozen(kw_only=True)
class Archive:
    """
    What is copied, where to, and how often.

    Attributes:
        topics: their names; or one pattern, ``re:...``, which Spark reads as Java does.
        to: a folder, of any file system that Spark knows.
        checkpoint: a folder of its own.
        trigger: ``once`` (what is there now), or how often: ``500ms``, ``10s``, ``5m``.
        options: of the source: the cluster, holds, limits.
    """

    topics: tuple[str, ...]
    to: str
    checkpoint: str
    trigger: str = "once"
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


# What Spark says of a folder to which no batch was written yet.
_EMPTY = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


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
        frame.writeStream.format("parquet")
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
) -> None:
    """
    Say one line per batch, and per change of what is held, until it ends, or must.

    A batch under way when it must stop is ended by Spark, and comes again, in full and
    once, when the archive is started again.
    """
    telling = Telling(say)
    while query.isActive and not must_stop():
        query.awaitTermination(_LOOK_SECONDS)
        telling.look(query)
    if query.isActive:
        query.stop()
    telling.look(query)
    if query.exception() is not None:
        raise query.exception()


class Telling:
    """
    Says what is new in a query's progress: batches, and holds while nothing comes.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
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
                self._say(line_of(progress))
            elif held and held != self._held:
                self._say(f"nothing to copy; {held}")
            self._held = held


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
    """
    errors = importlib.import_module("pyspark.errors")
    try:
        found = spark.read.parquet(archive.to)
    except errors.AnalysisException as error:
        if error.getCondition() in _EMPTY:
            return []
        raise
    frame = found.groupBy("topic", "partition")
    rows = frame.agg({"*": "count"}).collect()
    lowest = {row[:2]: row[2] for row in frame.agg({"offset": "min"}).collect()}
    highest = {row[:2]: row[2] for row in frame.agg({"offset": "max"}).collect()}
    return sorted(
        (str(row[0]), int(row[1]), row[2], lowest[row[:2]], highest[row[:2]])
        for row in rows
    )
