"""Defines fixtures: a Spark session for all tests; a lake and an operator per test."""

import os
import sys

import pytest

from safeconsumer import spark as safe
from tests.harness.spark import connector
from tests.harness.spark.lake import Lake
from tests.harness.spark.operator import Operator

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.noDataProgressEventInterval": "0",  # report every trigger
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# Options for every JVM that a test starts, including the JVMs of clusters and programs.
# A JVM lives only for seconds; without these options compilation takes half of its CPU
# time.
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Spark defaults, as a user may set them, for programs that tests run as a user would.
# Without them Delta would read a table of ten files in 50 tasks on two cores.
DEFAULTS = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session", autouse=True)
def quick(tmp_path_factory):
    """Make JVMs start quickly, unless the user has set options of their own."""
    folder = tmp_path_factory.mktemp("conf")
    lines = "".join(f"{name} {value}\n" for name, value in DEFAULTS.items())
    (folder / "spark-defaults.conf").write_text(lines)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("JDK_JAVA_OPTIONS", JAVA), ("SPARK_CONF_DIR", folder)):
            if name not in os.environ:
                patch.setenv(name, str(value))
        yield


def session_with(jars=None, master="local[2]", **settings):
    """Return a session with these jars; by default with the shim and the connector."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  only where it is installed

    os.environ["PYSPARK_PYTHON"] = sys.executable  # else workers run PATH's python3
    jars = safe.jars(connector.folder()) if jars is None else jars
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, **settings, "spark.jars": jars}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@pytest.fixture(scope="session")
def spark(quick):  # noqa: ARG001 - must precede the JVM
    """Start and yield a session with all jars that ``safekafka`` needs."""
    session = session_with()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def events():
    return []


@pytest.fixture(scope="session")
def registered(spark, events):
    return safe.register(spark, hooks=(events.append,))


@pytest.fixture
def controller(registered, events):
    for hold in registered.holds():
        registered.resume(str(hold.scope), owner=hold.owner)
    events.clear()
    return registered


@pytest.fixture
def operator(kafka_broker):
    made = Operator(kafka_broker)
    with made.team:
        yield made


@pytest.fixture
def lake(
    spark,
    controller,  # noqa: ARG001 - registers the source, lifts all holds
    kafka_broker,
    tmp_path,
):
    """Yield a lake with its own folder; stop running queries afterwards."""
    yield Lake(spark, kafka_broker, tmp_path)
    for query in spark.streams.active:
        query.stop()
