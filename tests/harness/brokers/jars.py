"""
Downloads Kafka's jars with Maven, once for each user and version.

``python -m tests.harness.brokers.jars`` downloads the jars and prints their folder. The
variable SAFECONSUMER_TEST_KAFKA_VERSION selects another version, which has a folder of
its own.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.harness.brokers.settings import KAFKA_VERSION
from tests.harness.waiting import output_of

_POM = Path(__file__).with_name("pom.xml")
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def cache_folder():
    """Return the folder in which tests keep this user's downloads."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "safeconsumer-tests"


def jars_folder():
    """Return the folder for the jars; the folder exists only if all jars are in it."""
    return cache_folder() / f"kafka-{KAFKA_VERSION}"


def fetch():
    """Return the folder with the jars; if it is missing, let Maven download the jars."""
    version = f"-Dkafka.version={KAFKA_VERSION}"
    what = f"the jars of Kafka {KAFKA_VERSION}"
    return fetched(
        jars_folder(), _POM.read_text(), what, "-DincludeScope=runtime", version
    )


def fetched(folder, pom, what, *options):
    """Return a folder; if it is missing, let Maven fill it with the jars that a pom lists."""
    if folder.is_dir():
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        msg = f"without {what} in {folder}, and no mvn in PATH to fetch them"
        raise RuntimeError(msg)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        file, part = Path(scratch) / "pom.xml", Path(scratch) / "jars"
        file.write_text(pom)
        command = [maven, "-B", "-q", "-f", file, _GOAL, f"-DoutputDirectory={part}"]
        must_run([*command, *options], f"Maven could not fetch {what}", 600.0)
        try:
            part.rename(folder)  # all files become visible together
        except OSError:
            if not folder.is_dir():  # otherwise another process has created it
                raise
    return folder


def must_run(command, failure, timeout):
    """Run a program; if it fails, raise an error that contains the end of its output."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, **pipes) as process:  # noqa: S603  our own command line
        try:
            output, _ = output_of(process, timeout)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        msg = f"{failure}:\n{output[-4000:]}"
        raise RuntimeError(msg)


if __name__ == "__main__":
    print(fetch())  # noqa: T201  a command's output
