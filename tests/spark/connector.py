"""
Spark's Kafka connector and Delta, fetched once per user by Maven.

``python -m tests.spark.connector`` fetches it, and Delta, and prints the folders; with
``--version`` it only prints the version of Spark that it is for.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.brokers.jars import cache_folder

VERSION = "4.2.0"
DELTA_VERSION = "4.4.0"

_POM = Path(__file__).with_name("pom.xml")
_DELTA_POM = Path(__file__).with_name("delta-pom.xml")
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT = 600.0


def folder() -> Path:
    """
    Where the jars are, or would be; it appears only when they are all there.
    """
    return cache_folder() / f"spark-kafka-{VERSION}"


def delta() -> Path:
    """
    Where Delta's jars are, or would be.
    """
    return cache_folder() / f"delta-{DELTA_VERSION}-for-{VERSION}"


def fetch() -> Path:
    """
    Return the folder of the jars, after Maven has fetched them if need be.

    Raises:
        RuntimeError: there is no Maven, or it failed; its output is in the message.

    """
    return _fetched(folder(), _POM)


def fetch_delta() -> Path:
    """
    Return the folder of Delta's jars, after Maven has fetched them if need be.

    Raises:
        RuntimeError: as :func:`fetch`.

    """
    return _fetched(delta(), _DELTA_POM)


def _fetched(target: Path, pom: Path) -> Path:
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        msg = f"no jars in {target} and no mvn in PATH to fetch them"
        raise RuntimeError(msg)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        shutil.copy(pom, Path(scratch) / "pom.xml")  # Maven writes beside it
        part = Path(scratch) / "jars"
        done = subprocess.run(  # noqa: S603  our own command line
            [
                *(maven, "-B", "-q", "-f", f"{scratch}/pom.xml", _GOAL),
                f"-DoutputDirectory={part}",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode:
            msg = f"Maven could not fetch {target.name}:\n{done.stdout[-4000:]}"
            raise RuntimeError(msg)
        part.rename(target)
    return target


if __name__ == "__main__":
    is_asked = sys.argv[1:] == ["--version"]
    if is_asked:
        print(VERSION)  # noqa: T201  a command's answer
    else:
        print(fetch())  # noqa: T201  a command's answer
        print(fetch_delta())  # noqa: T201  a command's answer
