"""Finds the jars that a session needs: our shim, and Spark's own Kafka connector."""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from safeconsumer.errors.base import SparkSetupError
from safeconsumer.spark import platforms

# The compiled shim; tests/harness/spark/shim.py builds it.
JAR = Path(__file__).with_name("jvm") / "safekafka.jar"
_CONNECTOR = "spark-sql-kafka-0-10"
_TOKENS = "spark-token-provider-kafka-0-10"


def packages() -> str:
    """
    Return the ``spark.jars.packages`` with which Spark fetches its Kafka connector.

    The value names Apache's connector, even for a vendor's build of Spark.

    Raises:
        SparkSetupError: pyspark is not installed.
    """
    version = platforms.spark_version().apache
    return f"org.apache.spark:{_CONNECTOR}_{platforms.scala()}:{version}"


def jars(connector: str | os.PathLike[str] | None = None) -> str:
    """
    Return the value of ``spark.jars``: the shim, and the connector if it is given.

    Args:
        connector: a folder with the connector's four jars. If None, only the shim is
            returned, and ``spark.jars.packages`` must have :func:`packages`.

    Raises:
        SparkSetupError: the folder lacks a jar or contains a jar for another Spark
            version, or pyspark is not installed.
    """
    platforms.spark_version()
    found = connector_jars(Path(connector)) if connector else ()
    return ",".join(map(str, (JAR, *found)))


def builder(connector: str | os.PathLike[str] | None = None) -> Any:  # noqa: ANN401 - pyspark is optional
    """
    Return ``SparkSession.builder`` with the jars that ``format("safekafka")`` needs.

    Unless the environment has a ``PYSPARK_PYTHON``, that variable is set to this
    Python, because executors would otherwise run the ``python3`` in ``PATH``.

    Args:
        connector: as for :func:`jars`; if None, Spark fetches its Kafka connector.

    Raises:
        SparkSetupError: as :func:`jars`.
    """
    named = jars(connector)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    sql = import_module("pyspark.sql")
    made = sql.SparkSession.builder.config("spark.jars", named)
    if connector:
        return made
    return made.config("spark.jars.packages", packages())


def connector_jars(folder: Path) -> tuple[Path, ...]:
    """
    Return the connector's jars in a folder.

    Raises:
        SparkSetupError: a jar is missing, or the connector is for another line of
            Spark.
    """
    scala = platforms.scala()
    names = f"{_CONNECTOR}_{scala}", f"{_TOKENS}_{scala}", "kafka-clients"
    needed = (*names, "commons-pool2")
    there = sorted(folder.glob("*.jar"))
    found = []
    for name in needed:
        jar = next((one for one in there if one.name.startswith(f"{name}-")), None)
        if jar is None:
            message = (
                f"{folder} has no {name}-*.jar; it must have the four jars of "
                f"{packages()}: {', '.join(needed)}"
            )
            raise SparkSetupError(message)
        found.append(jar)
    platforms.check_connector(found[0].name, platforms.spark_version(), scala)
    return tuple(found)
