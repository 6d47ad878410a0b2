"""Creates Spark sessions for commands; without pyspark, the error gives install advice."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from safeconsumer.errors.base import MissingExtraError, SparkSetupError
from safeconsumer.spark.platforms import PYSPARK, is_of_spark, reason

# The application's name if spark-submit does not set one.
_NAME = "safeconsumer audit"
_QUIET = "-Dspark.ui.showConsoleProgress=false"


@contextmanager
def session(master: str) -> Iterator[Any]:
    """
    Provide a session, and stop it at the end; the user's Spark settings stay in effect.

    Args:
        master: the URL of the Spark master.

    Raises:
        MissingExtraError: pyspark is not installed.
        SparkSetupError: Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = f"this needs pyspark: {PYSPARK}"
        raise MissingExtraError(message) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # by default PATH's python3
    builder = SparkSession.builder.master(master)
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has not started the JVM
        builder = builder.appName(_NAME)
        # Of all sources of settings, this variable has the lowest priority in Spark,
        # and the builder the highest.
        known = os.environ.get("SPARK_SUBMIT_OPTS", "").removeprefix(_QUIET)
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_QUIET} {known.strip()}".strip()
    spark = _started(builder)
    try:
        yield spark
    finally:
        spark.stop()


def _started(builder: Any) -> Any:  # noqa: ANN401 - pyspark's
    try:
        return builder.getOrCreate()
    except Exception as error:
        if not is_of_spark(error):
            raise
        message = (
            f"Spark did not start: {reason(error)} Its own lines above say more; check "
            "--master and Spark's settings, and that there is a Java (JAVA_HOME)"
        )
        raise SparkSetupError(message) from error
