"""
What a session needs besides pyspark: our shim, and Spark's own Kafka connector.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from safeconsumer.errors import SparkSetupError

SCALA = "2.13"
JARS_VARIABLE = "SAFECONSUMER_SPARK_JARS"

_JVM = Path(__file__).with_name("jvm")
_BUILT = _JVM / "safekafka.jar"
_SOURCES = _JVM / "src" / "main"
_CONNECTOR = f"spark-sql-kafka-0-10_{SCALA}"
_NEEDED = (
    _CONNECTOR,
    f"spark-token-provider-kafka-0-10_{SCALA}",
    "kafka-clients",
    "commons-pool2",
)
_INSTALL = "pip install 'safeconsumer[spark]'"
_TIMEOUT = 120.0


def packages() -> str:
    """
    Return what ``spark.jars.packages`` must name, for Spark to fetch its connector.

    Raises:
        SparkSetupError: there is no pyspark.
    """
    return f"org.apache.spark:{_CONNECTOR}:{spark_version()}"


def jars(connector: str | os.PathLike[str] | None = None) -> str:
    """
    Return what ``spark.jars`` must name: the shim, and the connector if it is here.

    Args:
        connector: a folder with the connector's four jars; without it that of the
            environment variable ``SAFECONSUMER_SPARK_JARS``; without both only the shim
            is named, and ``spark.jars.packages`` must name :func:`packages`.

    Raises:
        SparkSetupError: the folder lacks a jar or has that of another Spark, there is
            no pyspark, or the shim is not built and cannot be.
    """
    folder = connector or os.environ.get(JARS_VARIABLE)
    found = connector_jars(Path(folder)) if folder else ()
    return ",".join(map(str, (shim(), *found)))


def spark_version() -> str:
    """
    Return the version of the installed pyspark.

    Raises:
        SparkSetupError: there is none.
    """
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError as error:
        message = f"there is no pyspark here: {_INSTALL}"
        raise SparkSetupError(message) from error


def connector_jars(folder: Path) -> tuple[Path, ...]:
    """
    Return the connector's jars in a folder.

    Raises:
        SparkSetupError: one is missing, or the connector is not of the installed Spark.
    """
    there = sorted(folder.glob("*.jar"))
    found = []
    for name in _NEEDED:
        jar = next((one for one in there if one.name.startswith(f"{name}-")), None)
        if jar is None:
            message = (
                f"{folder} has no {name}-*.jar; it must have the four jars of "
                f"{packages()}: {', '.join(_NEEDED)}"
            )
            raise SparkSetupError(message)
        found.append(jar)
    check_version(found[0].name, spark_version())
    return tuple(found)


def check_version(jar: str, wanted: str) -> None:
    """
    Refuse a connector that was made for another Spark.

    Raises:
        SparkSetupError: it was.
    """
    version = jar.removeprefix(f"{_CONNECTOR}-").removesuffix(".jar")
    if version != wanted:
        message = (
            f"the Kafka connector is {version} and Spark is {wanted}; they must be one "
            f"version: org.apache.spark:{_CONNECTOR}:{wanted}"
        )
        raise SparkSetupError(message)


def shim() -> Path:
    """
    Return the shim's jar: the wheel's, or one compiled here against this pyspark.

    Raises:
        SparkSetupError: it is not in the package, and there is no ``javac``, or
            ``javac`` failed.
    """
    return _BUILT if _BUILT.exists() else _compiled()


def _compiled() -> Path:
    target = _cache() / f"safekafka-{_fingerprint()}.jar"
    if not target.exists():
        javac = shutil.which("javac")
        if javac is None:
            message = (
                "the shim for Spark is not built: install a wheel of safeconsumer, or "
                "put javac of a JDK 17 or newer into PATH"
            )
            raise SparkSetupError(message)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            _compile(javac, Path(scratch), target)
    return target


def _compile(javac: str, scratch: Path, target: Path) -> None:
    classes = scratch / "classes"
    command = [javac, "--release", "17", "-proc:none", "-nowarn", "-d", str(classes)]
    command += ["-cp", f"{pyspark_jars()}/*", *map(str, _java_files())]
    done = subprocess.run(  # noqa: S603 - our own command line
        command, capture_output=True, text=True, timeout=_TIMEOUT, check=False
    )
    if done.returncode:
        message = (
            f"the shim does not compile against pyspark {spark_version()}: "
            f"{done.stderr.strip()[-2000:]}"
        )
        raise SparkSetupError(message)
    shutil.copytree(_SOURCES / "resources", classes, dirs_exist_ok=True)
    made = shutil.make_archive(str(scratch / "shim"), "zip", classes)
    Path(made).replace(target)  # at once or not at all


def pyspark_jars() -> Path:
    """
    Return the folder of the jars that pyspark brings.

    Raises:
        SparkSetupError: there is no pyspark, or it brings none.
    """
    spark_version()
    folder = Path(str(metadata.distribution("pyspark").locate_file("pyspark/jars")))
    if not folder.is_dir():
        message = f"this pyspark brings no jars, it is a client only: {_INSTALL}"
        raise SparkSetupError(message)
    return folder


def _java_files() -> Iterator[Path]:
    yield from sorted((_SOURCES / "java").rglob("*.java"))


def _fingerprint() -> str:
    digest = hashlib.sha256(spark_version().encode())
    for file in _java_files():
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "safeconsumer"
