"""Makes a Spark session for commands; without pyspark it gives the install line."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar

from safeconsumer.errors import MissingExtraError, SparkSetupError
from safeconsumer.spark.platforms import is_of_spark, reason

# The default, unless a --conf, spark-defaults.conf or the environment sets another.
_QUIET = "-Dspark.ui.showConsoleProgress=false"

Build = Callable[[Any], Any]


def is_submitted() -> bool:
    """Tell whether ``spark-submit`` has started the JVM already, with its own settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


@contextmanager
def session(
    master: str | None,
    name: str,
    settings: Mapping[str, str] | None = None,
    build: Build | None = None,
) -> Iterator[Any]:
    """
    Provide a session, and stop it. The user's own Spark settings stay as they are.

    Args:
        master: None leaves it to ``spark-submit`` or to Spark's own settings.
        name: the application's name, unless ``spark-submit`` was given one.
        settings: further settings, where the user has not set them.
        build: gets the builder at the end; returns it.

    Raises:
        MissingExtraError: pyspark is not installed.
        SparkSetupError: Spark does not start.
    """
    try:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = "this needs pyspark: pip install 'safeconsumer[spark-local]'"
        raise MissingExtraError(message) from error
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # otherwise PATH's python3
    builder = SparkSession.builder
    if not is_submitted():
        builder = builder.appName(name)
        # Lower than everything else that Spark reads; a builder's setting would be
        # higher.
        known = os.environ.get("SPARK_SUBMIT_OPTS", "").removeprefix(_QUIET)
        os.environ["SPARK_SUBMIT_OPTS"] = f"{_QUIET} {known.strip()}".strip()
    if master is not None:
        builder = builder.master(master)
    for key, value in _missing(settings or {}).items():
        builder = builder.config(key, value)
    spark = _started(build(builder) if build else builder)
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


def _missing(settings: Mapping[str, str]) -> dict[str, str]:
    if not is_submitted():
        return dict(settings)
    pyspark = importlib.import_module("pyspark")
    pyspark.SparkContext._ensure_initialized()  # noqa: SLF001 - else SparkConf knows nothing
    given = pyspark.SparkConf()
    return {key: one for key, one in settings.items() if not given.contains(key)}


def stop_by_signal(spark: Any, stop: Callable[[], object]) -> None:  # noqa: ANN401 - pyspark's
    """
    Let the first SIGTERM or SIGINT of the JVM call ``stop``; a second one ends it.

    Under ``spark-submit`` signals go to the JVM, which is the parent of this process
    and would by default end at once, with status 143 or 130.
    """
    gateway = spark.sparkContext._gateway  # noqa: SLF001 - the way to Java
    java_gateway = importlib.import_module("pyspark.java_gateway")
    java_gateway.ensure_callback_server_started(gateway)
    kind = gateway.jvm.sun.misc.Signal
    for name in ("TERM", "INT"):
        handler = _First(stop)
        handler.restore = partial(
            kind.handle, kind(name), kind.handle(kind(name), handler)
        )


class _First:
    """A signal handler of Java's that calls a function, and gives way to the one before."""

    def __init__(self, stop: Callable[[], object]) -> None:
        self._stop = stop
        self.restore: Callable[[], object] = stop

    def handle(self, _: Any) -> None:  # noqa: ANN401 - Java's
        """Take the first signal."""
        self._stop()
        self.restore()

    class Java:
        """Tells py4j which interface this is."""

        implements: ClassVar = ["sun.misc.SignalHandler"]
