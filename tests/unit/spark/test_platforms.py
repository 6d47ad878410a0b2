"""Tests Apache's and vendors' builds of Spark, with and without package metadata."""

import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace

import pytest

from safeconsumer import spark as safe
from safeconsumer.errors import SparkSetupError
from safeconsumer.spark import platforms, provision
from safeconsumer.spark.platforms import Version
from safeconsumer.spark.session import register
from tests.harness.listing import short
from tests.harness.processes import ran_python
from tests.harness.spark import options, shim


class Installed:
    """A fake Spark installation with a Python package and a folder of jars."""

    def __init__(self, monkeypatch, home):
        self._patch = monkeypatch
        self.home = home
        monkeypatch.delenv("SPARK_HOME", raising=False)

    def version(self, text, package="pyspark"):
        """Make ``import pyspark`` find a package with this version and without metadata."""
        module = ModuleType("pyspark")
        module.__version__ = text
        module.__file__ = str(self.home / package / "__init__.py")
        module.__spec__ = ModuleSpec("pyspark", None, origin=module.__file__)
        self._patch.setitem(sys.modules, "pyspark", module)

    def jars(self, *names, folder="pyspark/jars"):
        where = self.home / folder
        where.mkdir(parents=True)
        for name in names:
            (where / name).touch()
        return where


@pytest.fixture
def installed(monkeypatch, tmp_path):
    return Installed(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("text", "line", "apache"),
    [
        ("4.2.0", (4, 2), "4.2.0"),
        ("4.2.0-amzn-0", (4, 2), "4.2.0"),
        ("3.5.4.3.5.7191000.0-13", (3, 5), "3.5.4"),
        ("4.1.0.dev1", (4, 1), "4.1.0"),
        ("4.10", (4, 10), "4.10.0"),
    ],
    ids=short,
)
def test_vendor_version_is_mapped_to_a_release_line_of_apache_spark(text, line, apache):
    """Maven Central has connectors for Apache's releases only."""
    assert Version.parse(text) == Version(text, line, apache)


def test_text_that_is_not_a_version_is_refused():
    with pytest.raises(SparkSetupError, match="'client' is not a version of Spark"):
        Version.parse("client")


def test_spark_without_package_metadata_is_found(installed):
    """PYTHONPATH contains the SPARK_HOME of a vendor's build for Scala 2.12."""
    installed.version("3.5.4-amzn-0", "python/pyspark")
    installed.jars("spark-core_2.12-3.5.4-amzn-0.jar", folder="jars")
    assert safe.packages() == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.4"


def test_spark_home_takes_precedence(installed, monkeypatch):
    """PySpark starts the JVM from SPARK_HOME even if pip has installed another Spark."""
    installed.version("3.5.7")
    installed.jars("spark-core_2.12-3.5.7.jar")
    elsewhere = installed.jars("spark-core_2.13-3.5.7.jar", folder="opt/jars")
    monkeypatch.setenv("SPARK_HOME", str(elsewhere.parent))
    assert platforms.scala() == "2.13"


@pytest.mark.parametrize(("text", "scala"), [("3.5.7", "2.12"), ("4.0.2", "2.13")])
def test_scala_version_of_apaches_build_is_assumed_without_jars(installed, text, scala):
    installed.version(text)
    assert platforms.scala() == scala


def test_connector_in_a_folder_must_have_the_same_scala_version(installed, tmp_path):
    """A connector for Scala 2.13 beside a Spark for 2.12 would fail at the first query."""
    installed.version("3.5.7")
    installed.jars("spark-core_2.12-3.5.7.jar")
    (tmp_path / "spark-sql-kafka-0-10_2.13-3.5.7.jar").touch()
    with pytest.raises(SparkSetupError, match=r"no spark-sql-kafka-0-10_2\.12-\*"):
        provision.connector_jars(tmp_path)


@pytest.mark.parametrize(
    "jar",
    [
        "spark-sql-kafka-0-10_2.12-3.5.7.jar",
        "spark-sql-kafka-0-10_2.13-4.1.2.jar",
        "org.apache.spark_spark-sql-kafka-0-10_2.12-4.2.0.jar",
    ],
    ids=short,
)
def test_connector_for_another_spark_line_or_scala_version_is_refused(jar):
    spark = Version.parse("4.2.0-amzn-0")
    wanted = r"org\.apache\.spark:spark-sql-kafka-0-10_2\.13:4\.2\.0$"
    with pytest.raises(SparkSetupError, match=wanted):
        platforms.check_connector(jar, spark, "2.13")


@pytest.mark.parametrize(
    ("jar", "warnings"),
    [
        ("spark-sql-kafka-0-10_2.13-4.2.0-amzn-0.jar", 0),
        ("platform-kafka.jar", 0),
        ("org.apache.spark_spark-sql-kafka-0-10_2.13-4.2.0.jar", 1),
        ("spark-sql-kafka-0-10_2.13-4.2.1.jar", 1),
    ],
)
def test_connector_from_another_build_of_the_same_spark_line_causes_a_warning(
    jar, warnings, caplog
):
    spark = Version.parse("4.2.0-amzn-0")
    with caplog.at_level(logging.WARNING, "safeconsumer.spark"):
        platforms.check_connector(jar, spark, "2.13")
    assert len(caplog.records) == warnings


@pytest.mark.parametrize(
    ("spark", "java", "refusal"),
    [
        ("3.5.7", "1.8", "runs on Java 8, and safekafka needs Java 17"),
        ("3.5.7", "11", "runs on Java 11, and safekafka needs Java 17"),
        ("3.4.4", "17", "3.4.4 is too old: safekafka needs 3.5"),
    ],
    ids=short,
)
def test_old_spark_or_java_is_refused_with_the_versions(spark, java, refusal):
    with pytest.raises(SparkSetupError, match=refusal):
        platforms.check_runtime(Version.parse(spark), java)


def test_untested_spark_causes_a_warning(caplog):
    with caplog.at_level(logging.WARNING, "safeconsumer.spark"):
        platforms.check_runtime(Version.parse("3.5.0"), "17")
        assert not caplog.records
        platforms.check_runtime(Version.parse("4.3.0"), "25")
    assert "4.3.0 is newer than 4.2" in caplog.text


def test_session_of_spark_connect_is_refused():
    """A Spark Connect server cannot call back into the client process."""
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(SparkSetupError, match="classic session"):
        register(kind())


def test_object_that_is_not_a_session_is_refused():
    with pytest.raises(SparkSetupError, match="takes a SparkSession, not str"):
        register("local[*]")


@pytest.fixture
def spark_420(monkeypatch):
    """Pretend that Spark 4.2.0 is installed."""
    known = platforms.Version.parse("4.2.0")
    monkeypatch.setattr(platforms, "spark_version", lambda: known)
    monkeypatch.setattr(platforms, "scala", lambda: "2.13")


def folder_with(path, *names):
    for name in names:
        (path / f"{name}.jar").touch()
    return path


COMPLETE = (
    "spark-sql-kafka-0-10_2.13-4.2.0",
    "spark-token-provider-kafka-0-10_2.13-4.2.0",
    "kafka-clients-3.9.2",
    "commons-pool2-2.13.1",
)


@pytest.mark.usefixtures("spark_420")
def test_connector_for_the_installed_spark_is_named(tmp_path):
    folder = folder_with(tmp_path, *COMPLETE)
    found = provision.connector_jars(folder)
    assert [jar.stem for jar in found] == list(COMPLETE)
    assert safe.packages() == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


@pytest.mark.usefixtures("spark_420")
def test_folder_without_a_required_jar_is_refused_with_the_name_of_the_jar(tmp_path):
    folder = folder_with(tmp_path, *COMPLETE[:3])
    with pytest.raises(SparkSetupError, match=r"no commons-pool2-\*\.jar"):
        provision.connector_jars(folder)


def test_jar_was_built_from_the_current_sources():
    """``python -m tests.harness.spark.shim --check`` compiles and compares them in CI."""
    assert shim.facts(provision.JAR)["Source"] == shim.digest()


def test_shim_stays_small():
    """Decisions belong in Python, not in the shim."""
    files = list(shim.SOURCES.rglob("*.java"))
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 386


@pytest.mark.parametrize("make", [safe.packages, provision.jars, provision.builder])
def test_install_line_is_shown_without_pyspark(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(
        SparkSetupError, match=r"pip install.*\[spark\].*platform's own"
    ):
        make()


def test_spark_package_can_be_imported_without_pyspark():
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        "import safeconsumer.spark, safeconsumer.spark.session"
    )
    ran_python("-c", code, check=True)


def item(**since):
    mark = pytest.mark.spark(**since).mark
    return SimpleNamespace(get_closest_marker=lambda _: mark)


@pytest.mark.parametrize(
    ("installed", "count"), [("3.5.7", 1), ("4.1.2", 1), ("4.2.0", 2), ("4.10.0", 2)]
)
def test_tests_for_a_newer_spark_are_deselected_instead_of_skipped(
    monkeypatch, installed, count
):
    """Deselected tests are not listed, and each listed test must run in some environment."""
    monkeypatch.setattr(options, "find_spec", lambda _: True)
    monkeypatch.setattr(options.connector, "version", lambda: installed)
    left_out = []
    hook = SimpleNamespace(pytest_deselected=lambda *, items: left_out.extend(items))
    items = [item(since="4.2"), item()]
    options._leave_out(SimpleNamespace(hook=hook), items)
    assert len(items) == count
    assert len(left_out) == 2 - count
