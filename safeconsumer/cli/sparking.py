"""
A Spark session for commands; without pyspark the install line.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from safeconsumer.errors import MissingExtraError


def is_submitted() -> bool:
    """
    Tell whether ``spark-submit`` has started the JVM already, with settings of its own.
    """
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def session(
    master: str | None, name: str, settings: Mapping[str, str] | None = None
) -> Iterator[Any]:
    """
    Lend a session, and stop it; ``master`` None leaves it to ``spark-submit``.

    Raises:
        MissingExtraError: there is no pyspark.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = "this needs pyspark: pip install 'safeconsumer[spark-local]'"
        raise MissingExtraError(message) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else PATH's python3
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    for key, value in {**quiet, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
