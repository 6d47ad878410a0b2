"""Finds Spark's queries that are starting, and those that stop on their own."""

import logging
from collections.abc import Collection
from typing import Any

from attrs import frozen

from safeconsumer.spark.java_clients import errors

log = logging.getLogger("safeconsumer.spark")

# StreamExecution's status message until it has created its sources, in Spark 3.5 to
# 4.2.
_INITIALIZING = "Initializing"
_ENDING = {"AvailableNowTrigger", "OneTimeTrigger"}


@frozen(kw_only=True)
class Query:
    """
    A query that Spark runs.

    Attributes:
        id: Spark's id of the query.
        name: the name that the program gave the query, or empty.
        is_starting: whether the query's sources do not exist yet, so that it is unknown
            which partitions it will read.
    """

    id: str
    name: str = ""
    is_starting: bool = False


class SparkQueries:
    """
    Queries a session about its streaming queries.

    Thread rules: any thread, even while the JVM waits for an answer from Python.

    Args:
        spark: a classic session.
    """

    def __init__(self, spark: Any) -> None:  # noqa: ANN401 - pyspark is optional
        self._spark = spark

    def active(self) -> Collection[Query] | None:
        """Return the running queries; None if Spark does not answer."""
        try:
            return [
                Query(
                    id=str(one.id),
                    name=str(one.name or ""),
                    is_starting=one.status["message"].startswith(_INITIALIZING),
                )
                for one in self._spark.streams.active
            ]
        except errors():
            return None

    def ends(self, query: str) -> bool:
        """
        Return whether a query has a trigger that makes it stop on its own.

        Spark informs its sources only of AvailableNow, and only if each source of the
        query supports that trigger; otherwise Spark runs one batch, as with
        ``Trigger.Once``.
        """
        try:
            java = self._spark._jvm.java.util.UUID.fromString(query)  # noqa: SLF001 - pyspark's way
            session = self._spark._jsparkSession  # noqa: SLF001 - pyspark's way
            running = session.sharedState().activeStreamingQueries().get(java)
            return str(running.trigger().toString()) in _ENDING
        except errors(AttributeError, TypeError) as error:
            log.warning(
                "the trigger of query %s cannot be read (%s): if it is once, or "
                "availableNow beside a source that cannot do it, the run ends "
                "successfully even if nothing was decided",
                *(query, error),
            )
            return False
