"""Registers the pure-Python source with Spark, and refuses Spark before 4.2."""

import importlib
from collections.abc import Mapping
from typing import Any

from safeconsumer.errors.base import SparkSetupError
from safeconsumer.spark import platforms
from safeconsumer.spark.python import settings
from safeconsumer.spark.python.planner import NAME

OLDEST = (4, 2)
_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
_HEADERS = ", headers array<struct<key: string, value: binary>>"


def _base() -> Any:  # noqa: ANN401 - pyspark's
    try:
        return importlib.import_module("pyspark.sql.datasource").DataSource
    except ModuleNotFoundError:  # pyspark is missing or older than 4.0
        return object


_DataSource: Any = _base()


class SafeKafkaSource(_DataSource):  # type: ignore[misc]  # pyspark's, if it is there
    """
    A Kafka stream source in pure Python, for Spark Connect, which cannot add jars.

    ``spark.dataSource.register(SafeKafkaSource)`` makes ``format("safekafka")`` use
    this source in that session, on Spark 4.2 and newer. A stream obeys its group's
    holds (``holds.control``, ``holds.group``) and the option ``holds``. There is no
    ``Controller`` with which the session could place holds. This package must be
    installed for the cluster's Python. Checkpoints have the official source's format.
    """

    options: Mapping[str, str]

    @classmethod
    def name(cls) -> str:
        """
        Return the name of the format.

        Raises:
            SparkSetupError: this pyspark is older than 4.2.
        """
        version = platforms.spark_version()
        if version.line < OLDEST:
            message = (
                f"the Python source needs Spark 4.2, this is {version.text}: use "
                "safeconsumer.spark.register with a classic session"
            )
            raise SparkSetupError(message)
        return NAME

    def schema(self) -> str:
        """
        Return the columns, which are those of the official source.

        Raises:
            SparkSettingError: an option is missing, unknown or has an invalid value.
        """
        # refuse invalid options as soon as the program defines the stream
        found = settings.parse(self.options)
        return _SCHEMA + _HEADERS * found.has_headers

    def streamReader(self, schema: Any) -> Any:  # noqa: ANN401, N802 - pyspark's
        """Return the object that plans and reads a stream."""
        reader = importlib.import_module("safeconsumer.spark.python.reader")
        return reader.Reader(settings.parse(self.options), schema)
