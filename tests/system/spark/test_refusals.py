"""What cannot be done is refused by name, with what to do instead."""

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from safeconsumer import spark as safe
from safeconsumer.errors import SparkSetupError
from safeconsumer.spark import compiling, platforms, provision
from safeconsumer.spark.session import register
from tests.harness.spark.lake import Lake


class TestOnSpark:
    """Refusals of a running session."""

    pytestmark: ClassVar = [
        pytest.mark.spark,
        pytest.mark.real_broker,
        pytest.mark.timeout(400),
    ]

    def test_batch_reads(self, lake: Lake) -> None:
        """The official source reads them."""
        reader = lake.spark.read.format("safekafka").option("subscribe", lake.orders)
        reader = reader.option("kafka.bootstrap.servers", lake.broker.bootstrap)
        with pytest.raises(Exception, match=r'read batches with format\("kafka"\)'):
            reader.load().count()

    def test_continuous_mode(self, lake: Lake) -> None:
        """Nothing is planned there."""
        frame = lake.stream({}).select("value")
        query = frame.writeStream.format("noop").trigger(continuous="1 second")
        query = query.option("checkpointLocation", str(lake.checkpoint))
        with pytest.raises(Exception, match="no continuous mode"):
            query.start().awaitTermination(60)

    def test_a_bad_option_is_refused_when_the_stream_is_described(
        self, lake: Lake
    ) -> None:
        """Not only when it is started."""
        with pytest.raises(Exception, match=r"no option holds\.fille"):
            lake.stream({"holds.fille": "x"})

    def test_official_options_are_refused_as_before(
        self, lake: Lake, controller: safe.Controller
    ) -> None:
        """In the official source's own words."""
        before = controller.bridge.streams()
        frame = lake.spark.readStream.format("safekafka").option("subscribe", "x")
        query = frame.load().writeStream.format("noop").start()
        with pytest.raises(Exception, match=r"kafka\.bootstrap\.servers"):
            query.awaitTermination(60)
        assert controller.bridge.streams() == before

    def test_secrets_do_not_reach_errors(self, lake: Lake) -> None:
        """Not even when the option beside them is wrong."""
        options = {"kafka.sasl.jaas.config": "password='hunter2'", "holds": "a b:c"}
        with pytest.raises(Exception, match="option holds") as caught:
            lake.stream(options)
        assert "hunter2" not in str(caught.value)

    def test_a_second_registration_is_the_same(
        self, lake: Lake, controller: safe.Controller
    ) -> None:
        """Its holds are not forgotten."""
        assert safe.register(lake.spark) is controller


def test_spark_connect_has_no_way_back() -> None:
    """The server cannot call this client."""
    kind = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})
    with pytest.raises(SparkSetupError, match="classic session"):
        register(kind())


def test_what_is_no_session() -> None:
    """Said at once."""
    with pytest.raises(SparkSetupError, match="takes a SparkSession, not str"):
        register("local[*]")


@pytest.fixture
def spark_420(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the installed Spark be 4.2.0."""
    known = platforms.Version.parse("4.2.0")
    monkeypatch.setattr(platforms, "spark_version", lambda: known)
    monkeypatch.setattr(platforms, "scala", lambda: "2.13")


def folder_with(path: Path, *names: str) -> Path:
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
def test_the_connector_is_named_for_the_installed_spark(tmp_path: Path) -> None:
    """Four jars, or coordinates for Maven."""
    folder = folder_with(tmp_path, *COMPLETE)
    found = provision.connector_jars(folder)
    assert [jar.stem for jar in found] == list(COMPLETE)
    assert safe.packages() == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"


@pytest.mark.usefixtures("spark_420")
def test_a_folder_that_lacks_a_jar(tmp_path: Path) -> None:
    """It is named."""
    folder = folder_with(tmp_path, *COMPLETE[:3])
    with pytest.raises(SparkSetupError, match=r"no commons-pool2-\*\.jar"):
        provision.connector_jars(folder)


@pytest.mark.usefixtures("spark_420")
def test_no_javac_and_no_jar(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A checkout, or a wheel that was built so, says it, and what to install."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(provision, "_BUILT", tmp_path / "none.jar")
    with pytest.raises(
        SparkSetupError, match=r"built without javac; .* put javac of a JDK 17"
    ):
        provision.shim()


def with_jar(path: Path, text: bytes | None) -> Path:
    jar = path / "safekafka.jar"
    with zipfile.ZipFile(jar, "w") as made:
        for file in compiling.java_files():
            name = file.relative_to(compiling.SOURCES / "java").as_posix()
            made.writestr(name, file.read_bytes() if text is None else text)
    return jar


def test_a_built_shim_of_these_sources_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a wheel has it."""
    jar = with_jar(tmp_path, None)
    monkeypatch.setattr(provision, "_BUILT", jar)
    assert provision.shim() == jar


@pytest.mark.parametrize("how", ["changed", "without", "broken"])
def test_a_stale_shim_in_a_checkout_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    how: str,
) -> None:
    """It was built from other sources: said, and compiled anew instead."""
    jar = with_jar(tmp_path, b"class Old {}")
    if how == "without":
        with zipfile.ZipFile(jar, "w"):
            pass
    elif how == "broken":
        jar.write_bytes(b"no jar")
    compiled = tmp_path / "compiled.jar"
    monkeypatch.setattr(provision, "_BUILT", jar)
    monkeypatch.setattr(provision, "_compiled", lambda: compiled)
    assert provision.shim() == compiled
    assert "was built from other sources" in caplog.text


def test_the_shim_stays_small() -> None:
    """
    What it decides belongs into Python; what it may take for a decision is here.

    What each part of it is for stands in design/0063, "Size".
    """
    files = compiling.java_files()
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 370


@pytest.mark.parametrize("make", [provision.jars, provision.builder])
def test_without_pyspark_the_line_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make: Callable[[], object]
) -> None:
    """Also where the wheel has brought the shim, and nothing must be compiled."""
    monkeypatch.setattr(provision, "_BUILT", with_jar(tmp_path, None))
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkSetupError, match="pip install"):
        make()


def test_importing_needs_no_pyspark() -> None:
    """The package and its decision load without it."""
    import subprocess  # noqa: PLC0415

    code = (
        "import sys; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        "import safeconsumer.spark, safeconsumer.spark.stream"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 - our own
