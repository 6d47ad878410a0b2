"""Finds the installed Spark: its version, its Scala version, and its jars."""

import importlib.util
import logging
import os
import re
from importlib import import_module
from pathlib import Path

from attrs import frozen

from safeconsumer.errors.base import SparkSetupError

log = logging.getLogger("safeconsumer.spark")

PYSPARK = "pip install 'safeconsumer[spark]' 'pyspark>=3.5,<4.3' 'pandas<3'"
INSTALL = f"{PYSPARK}, or use the platform's own pyspark"

# The oldest and newest tested minor versions of Spark; older ones were never tested.
OLDEST, NEWEST = (3, 5), (4, 2)
JAVA = 17

_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.(\d+))?")
_JAR = re.compile(
    r"(?:.+_)?spark-sql-kafka-0-10_(?P<scala>[\d.]+)-(?P<version>.+)\.jar"
)

# The place in an exception's text where the message ends.
_DETAILS = re.compile(r"\n\s*(?:at |=== Streaming Query ===|JVM stacktrace:|== SQL)")


@frozen
class Version:
    """
    A version of Spark, or of a vendor's build of it.

    Attributes:
        text: the full text, such as ``4.2.0-amzn-0``.
        line: the first two numbers, such as ``(4, 2)``, which must be the same for
            Spark and its connector.
        apache: the Apache release on which the build is based, such as ``4.2.0``.
    """

    text: str
    line: tuple[int, int]
    apache: str

    @classmethod
    def parse(cls, text: str) -> "Version":
        """
        Parse a version.

        Raises:
            SparkSetupError: the text does not begin with a version.
        """
        found = _VERSION.match(text)
        if found is None:
            message = f"{text!r:.60} is not a version of Spark, such as 4.2.0"
            raise SparkSetupError(message)
        line = int(found[1]), int(found[2])
        return cls(text, line, found[0] if found[3] else f"{found[0]}.0")


def spark_version() -> Version:
    """
    Return the version of the pyspark that this Python imports.

    Raises:
        SparkSetupError: pyspark is not installed.
    """
    try:
        return Version.parse(import_module("pyspark").__version__)
    except ModuleNotFoundError as error:
        message = f"pyspark cannot be imported ({error}): {INSTALL}"
        raise SparkSetupError(message) from error


def spark_homes() -> list[Path]:
    """Return the folders in which pyspark looks for Spark."""
    if home := os.environ.get("SPARK_HOME"):
        return [Path(home)]
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        return []
    package = Path(found.origin).parent
    # the second folder is SPARK_HOME for a pyspark at SPARK_HOME/python/pyspark
    return [package, package.parents[1]]


def scala() -> str:
    """
    Return the Scala version of the jars of this Spark: ``2.12`` or ``2.13``.

    If the jars cannot be found, return the Scala version of Apache's own builds;
    ``register`` later compares it with the running version.

    Raises:
        SparkSetupError: pyspark is not installed.
    """
    version = spark_version()
    for home in spark_homes():
        for jar in (home / "jars").glob("spark-core_*.jar"):
            return jar.name.removeprefix("spark-core_").partition("-")[0]
    return "2.12" if version.line < (4, 0) else "2.13"


def check_connector(jar: str, spark: Version, scala: str) -> None:
    """
    Refuse a connector for another minor version of Spark or another version of Scala.

    A different patch version causes only a warning. A jar whose name
    contains no version is accepted.

    Args:
        jar: the file's name; names that Ivy creates begin with the organisation.
        spark: the Spark with which the connector will run.
        scala: the Scala version of that Spark.

    Raises:
        SparkSetupError: the connector was built for another minor version or Scala.
    """
    found = _JAR.fullmatch(jar)
    if found is None:
        return
    wanted = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark.apache}"
    connector = Version.parse(found["version"])
    if (connector.line, found["scala"]) != (spark.line, scala):
        message = (
            f"the Kafka connector is {connector.text} for Scala {found['scala']}, and "
            f"Spark is {spark.text} for Scala {scala}; both must be the same: {wanted}"
        )
        raise SparkSetupError(message)
    if connector.text != spark.text:
        log.warning(
            "the Kafka connector is %s and Spark is %s; if your platform brings a "
            "connector of its own, take that one",
            connector.text,
            spark.text,
        )


def check_runtime(spark: Version, java: str) -> None:
    """
    Refuse a Spark or Java that is too old; warn about a Spark newer than those tested.

    Args:
        spark: the running Spark.
        java: Spark's ``java.specification.version``, such as ``1.8`` or ``17``.

    Raises:
        SparkSetupError: Spark or Java is too old.
    """
    if spark.line < OLDEST:
        message = f"Spark {spark.text} is too old: safekafka needs {_shown(OLDEST)}"
        raise SparkSetupError(message)
    if int(java.removeprefix("1.")) < JAVA:
        message = (
            f"this Spark runs on Java {java.removeprefix('1.')}, and safekafka needs "
            f"Java {JAVA}: set JAVA_HOME to a JDK {JAVA} before it starts; Spark "
            f"{_shown(OLDEST)} and newer run on that"
        )
        raise SparkSetupError(message)
    if spark.line > NEWEST:
        log.warning(
            "Spark %s is newer than %s, the newest that safekafka is tested with",
            spark.text,
            _shown(NEWEST),
        )


def is_of_spark(error: BaseException) -> bool:
    """Return whether an exception was raised by pyspark or comes from Java."""
    return type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}


def reason(error: BaseException) -> str:
    """Return the message of a Spark exception in one line, without stack traces and plans."""
    # the text of a py4j error includes the stack trace
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.toString())
    text = _DETAILS.split(text, maxsplit=1)[0]
    text = text.partition("terminated with exception: ")[2] or text
    return " ".join(text.split()) or type(error).__name__


def _shown(line: tuple[int, int]) -> str:
    return ".".join(map(str, line))
