"""
Kafka's jars, fetched once per user by Maven.

``python -m tests.harness.brokers.jars`` fetches them and prints their folder. Each
version has one of its own; the variable SAFECONSUMER_TEST_KAFKA_VERSION asks for
another version.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.harness.brokers.settings import KAFKA_VERSION

_POM = Path(__file__).with_name("pom.xml")
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT = 600.0


def cache_folder():
    """Return the folder of this user's downloads for tests."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "safeconsumer-tests"


def jars_folder():
    """Where the jars are, or would be."""
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def are_fetched():
    """Whether the jars are all there: the folder appears only when it is complete."""
    return jars_folder().is_dir()


def fetch():
    """Return the folder of the jars, after Maven has fetched them if need be."""
    folder = jars_folder()
    if are_fetched():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        msg = f"no Kafka jars in {folder} and no mvn in PATH to fetch them"
        raise RuntimeError(msg)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        _copy_dependencies(maven, Path(scratch))
        part = Path(scratch) / "jars"
        try:
            part.rename(folder)  # at once or not at all
        except OSError:
            if not are_fetched():  # else somebody else was quicker
                raise
    return folder


def _copy_dependencies(maven, scratch):
    # Maven writes beside the pom, so it gets a copy.
    shutil.copy(_POM, scratch / "pom.xml")
    done = subprocess.run(  # noqa: S603  our own command line
        [
            *(maven, "-B", "-q", "-f", str(scratch / "pom.xml"), _GOAL),
            *("-DincludeScope=runtime", f"-DoutputDirectory={scratch / 'jars'}"),
            f"-Dkafka.version={KAFKA_VERSION}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode:
        said = done.stdout[-4000:]
        msg = f"Maven could not fetch the jars of Kafka {KAFKA_VERSION}:\n{said}"
        raise RuntimeError(msg)


if __name__ == "__main__":
    print(fetch())  # noqa: T201  a command's answer
