"""
Spark's Kafka connector, fetched once per user by Maven, for each Spark that is tested.

``python -m tests.spark.connector`` fetches the one for the installed pyspark and prints
its folder. ``--turn`` only prints which Spark is tested today: the day of the last
commit says it, so that each has its turn and a run of the same commit is the same;
``--all`` prints them all, the newest first.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from attrs import frozen

from tests.brokers.jars import cache_folder


@frozen
class Connector:
    """
    What Maven fetches for one Spark: its own connector, and what that is used with.

    Attributes:
        scala: what pyspark's jars are built for.
        tokens: a token provider; not every mirror has that of the same version, and it
            is only used with delegation tokens.
        clients: of Kafka, as the connector names them.
        pool: of Apache Commons, as the connector names it.
    """

    scala: str
    tokens: str
    clients: str
    pool: str


CONNECTORS = {
    "4.2.0": Connector("2.13", "4.1.0-preview1", "3.9.2", "2.13.1"),
    "4.1.2": Connector("2.13", "4.1.1", "3.9.1", "2.12.1"),
    "4.0.2": Connector("2.13", "4.0.0", "3.9.1", "2.12.0"),
    "3.5.7": Connector("2.12", "3.5.7", "3.4.1", "2.11.1"),
}

_POM = Path(__file__).with_name("pom.xml")
_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_TIMEOUT = 600.0
_DAY = 86_400


def version() -> str:
    """
    Return the version of the installed pyspark.
    """
    import pyspark  # noqa: PLC0415  only where it is installed

    return str(pyspark.__version__)


def turn() -> str:
    """
    Return the version of Spark whose turn it is.
    """
    command = ["git", "log", "-1", "--format=%ct"]
    shown = subprocess.run(  # noqa: S603  our own command line
        command, cwd=_POM.parent, capture_output=True, text=True, check=True
    )
    return list(CONNECTORS)[int(shown.stdout) // _DAY % len(CONNECTORS)]


def folder() -> Path:
    """
    Where the jars are, or would be; it appears only when they are all there.
    """
    return cache_folder() / f"spark-kafka-{version()}"


def fetch() -> Path:
    """
    Return the folder of the jars, after Maven has fetched them if need be.

    Raises:
        RuntimeError: there is no Maven, or it failed; its output is in the message;
            or the installed pyspark is none of those that are tested.

    """
    target = folder()
    if target.is_dir():
        return target
    maven = shutil.which("mvn")
    if maven is None:
        msg = f"no connector in {target} and no mvn in PATH to fetch it"
        raise RuntimeError(msg)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        shutil.copy(_POM, Path(scratch) / "pom.xml")  # Maven writes beside it
        part = Path(scratch) / "jars"
        done = subprocess.run(  # noqa: S603  our own command line
            [
                *(maven, "-B", "-q", "-f", f"{scratch}/pom.xml", _GOAL),
                f"-DoutputDirectory={part}",
                *_properties(),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if done.returncode:
            msg = f"Maven could not fetch the connector:\n{done.stdout[-4000:]}"
            raise RuntimeError(msg)
        part.rename(target)
    return target


def _properties() -> list[str]:
    if version() not in CONNECTORS:
        msg = f"pyspark is {version()}; tests know the connectors of {[*CONNECTORS]}"
        raise RuntimeError(msg)
    known = CONNECTORS[version()]
    return [
        f"-Dspark.version={version()}",
        f"-Dscala.version={known.scala}",
        f"-Dtoken.version={known.tokens}",
        f"-Dclients.version={known.clients}",
        f"-Dpool.version={known.pool}",
    ]


def _answer(asked: list[str]) -> str:
    if asked == ["--all"]:
        return " ".join(CONNECTORS)
    return turn() if asked == ["--turn"] else str(fetch())


if __name__ == "__main__":
    print(_answer(sys.argv[1:]))  # noqa: T201  a command's answer
