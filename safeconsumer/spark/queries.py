"""
What Spark says of its own queries: which are starting, and which end by themselves.
"""

import importlib
import logging
from collections.abc import Collection
from typing import Any, Protocol

from attrs import frozen

log = logging.getLogger("safeconsumer.spark")

# What StreamExecution says until it has made its sources; 3.5 to 4.2.
_INITIALIZING = "Initializing"
_ENDING = {"AvailableNowTrigger", "OneTimeTrigger"}


@frozen(kw_only=True)
class Query:
    """
    A query that Spark runs.

    Attributes:
        id: Spark's.
        name: the user's, or empty.
        is_starting: whether it has yet to make its sources: it cannot be told what it
            will read.
    """

    id: str
    name: str = ""
    is_starting: bool = False


class Queries(Protocol):
    """
    Knows the queries of a session.
    """

    def active(self) -> Collection[Query] | None:
        """
        Return those that run; None if that cannot be told.
        """

    def ends(self, query: str) -> bool:
        """
        Tell whether the query of this id ends by itself.
        """


class SparkQueries:
    """
    Asks a session.

    Thread rules: any thread, also while Java waits for an answer.

    Args:
        spark: a classic session.
    """

    def __init__(self, spark: Any) -> None:  # noqa: ANN401 - pyspark is optional
        self._spark = spark
        self._errors = OSError, importlib.import_module("py4j.protocol").Py4JError

    def active(self) -> Collection[Query] | None:
        """
        Return those that run; None if Spark does not answer.
        """
        try:
            return [
                Query(
                    id=str(one.id),
                    name=str(one.name or ""),
                    is_starting=one.status["message"].startswith(_INITIALIZING),
                )
                for one in self._spark.streams.active
            ]
        except self._errors:
            return None

    def ends(self, query: str) -> bool:
        """
        Tell whether a query has a trigger under which it ends by itself.

        Spark tells its sources only of AvailableNow, and only if each source of the
        query can do it: where one cannot it runs one batch, as with the trigger once.
        """
        try:
            java = self._spark._jvm.java.util.UUID.fromString(query)  # noqa: SLF001 - pyspark's way
            session = self._spark._jsparkSession  # noqa: SLF001 - the same
            running = session.sharedState().activeStreamingQueries().get(java)
            return str(running.trigger().toString()) in _ENDING
        except (AttributeError, TypeError, *self._errors) as error:
            log.warning(
                "the trigger of query %s cannot be asked (%s): should it be once, or "
                "availableNow beside a source that cannot do it, then the run ends "
                "well where nothing was decided",
                *(query, error),
            )
            return False
