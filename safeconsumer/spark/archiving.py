"""
Kafka topics into partitioned Parquet, exactly once, steered by holds.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from safeconsumer.errors import SparkSettingError

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
    Say one line per batch until the query ends, or must.

    A batch under way when it must stop is ended by Spark, and comes again, in full and
    once, when the archive is started again.
    """
    told = -1
    while query.isActive and not must_stop():
        query.awaitTermination(_LOOK_SECONDS)
        told = _say_new(query, say, told)
    if query.isActive:
        query.stop()
    _say_new(query, say, told)
    if query.exception() is not None:
        raise query.exception()


def _say_new(query: Any, say: Callable[[str], object], told: int) -> int:  # noqa: ANN401 - pyspark is optional
    for one in query.recentProgress:
        batch = json.loads(one.json)
        if batch["batchId"] > told and batch["numInputRows"]:
            told = batch["batchId"]
            say(line_of(batch))
    return told


def line_of(batch: Mapping[str, Any]) -> str:
    """
    Return one line about a batch: rows, and what is held with its lag.
    """
    metrics = batch["sources"][0].get("metrics") or {}
    text = f"batch {batch['batchId']}: {batch['numInputRows']} rows"
    if metrics.get("held"):
        text += f"; held {metrics['held']}, {metrics.get('heldLag', '?')} behind"
    if metrics.get("heldBecause"):
        text += f" ({metrics['heldBecause']})"
    return text


def table(spark: Any, archive: Archive) -> list[tuple[str, int, int, int, int]]:  # noqa: ANN401 - pyspark is optional
    """
    Return topic, partition, rows, first and last offset of what the archive has.
    """
    frame = spark.read.parquet(archive.to).groupBy("topic", "partition")
    rows = frame.agg({"*": "count"}).collect()
    lowest = {row[:2]: row[2] for row in frame.agg({"offset": "min"}).collect()}
    highest = {row[:2]: row[2] for row in frame.agg({"offset": "max"}).collect()}
    return sorted(
        (str(row[0]), int(row[1]), row[2], lowest[row[:2]], highest[row[:2]])
        for row in rows
    )
