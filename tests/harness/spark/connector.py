"""
Downloads Spark's Kafka connector and Delta with Maven, for each tested version.

``python -m tests.harness.spark.connector`` downloads the jars for the installed
pyspark, once for each user, and prints their folders. ``--turn`` only prints the
version of Spark with which the last commit is tested. This version depends on the day
of the commit, so that all versions take turns, while a given commit is always tested
with the same version. ``--all`` prints all tested versions, newest first. ``--newest``
prints the newest tested version, which may be older than the newest version that pip
finds.
"""

import subprocess
import sys
from pathlib import Path

from attrs import frozen

from tests.harness.brokers.jars import cache_folder, fetched


@frozen
class Jars:
    """The versions of the jars that Maven downloads for one version of Spark."""

    scala: str  # the Scala version of pyspark's jars
    # the version of the token provider, which is used only for delegation tokens; not
    # every mirror has the version that matches Spark's
    tokens: str
    clients: str  # the version of kafka-clients that the connector requires
    pool: str  # the version of commons-pool2 that the connector requires
    delta: tuple[str, str]  # Delta's artifact and its version
    # the names of the kernel jars that Delta needs
    kernels: tuple[str, ...] = ("api", "defaults", "unitycatalog")


KNOWN = {
    "4.2.0": Jars(
        *("2.13", "4.1.0-preview1", "3.9.2", "2.13.1"),
        delta=("delta-spark_4.2_2.13", "4.4.0"),
    ),
    "4.1.2": Jars(
        *("2.13", "4.1.1", "3.9.1", "2.12.1"),
        delta=("delta-spark_4.1_2.13", "4.4.0"),
    ),
    "4.0.2": Jars(
        *("2.13", "4.0.0", "3.9.1", "2.12.0"),
        delta=("delta-spark_4.0_2.13", "4.4.0"),
    ),
    "3.5.7": Jars(
        *("2.12", "3.5.7", "3.4.1", "2.11.1"),
        delta=("delta-spark_2.12", "3.3.2"),
        kernels=(),
    ),
}

_DAY = 86_400

# Each jar is downloaded without its dependencies, because Spark already has most of
# them, and some mirrors lack the others.
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
      <exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>
    </dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>safeconsumer</groupId><artifactId>test-jars</artifactId>
  <version>1</version><packaging>pom</packaging>
  <dependencies>{}
  </dependencies>
</project>
"""


def version():
    import pyspark  # noqa: PLC0415  only if it is installed

    return str(pyspark.__version__)


def newest():
    """Return the newest tested version of Spark."""
    return next(iter(KNOWN))


def turn():
    """Return the version of Spark whose turn it is on the day of the last commit."""
    command = ["git", "log", "-1", "--format=%ct"]
    shown = subprocess.run(  # noqa: S603  our own command line
        command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
    )
    return list(KNOWN)[int(shown.stdout) // _DAY % len(KNOWN)]


def folder():
    """Return the folder for the connector's jars; it exists only if all jars are in it."""
    return cache_folder() / f"spark-kafka-{version()}"


def delta():
    """Return the folder for Delta's jars."""
    return cache_folder() / f"delta-for-spark-{version()}"


def fetch():
    """Return the folders with the jars; let Maven download the jars that are missing."""
    if version() not in KNOWN:
        msg = (
            f"pyspark is {version()}; the tests know {', '.join(KNOWN)}: "
            f"pip install 'pyspark=={newest()}'"
        )
        raise RuntimeError(msg)
    known = KNOWN[version()]
    wanted = {folder(): _connector(known), delta(): _delta(known)}
    return tuple(
        fetched(
            where,
            _POM.format("".join(_DEPENDENCY.format(*one) for one in jars)),
            "jars",
        )
        for where, jars in wanted.items()
    )


def _connector(known):
    spark = "org.apache.spark"
    return [
        (spark, f"spark-sql-kafka-0-10_{known.scala}", version()),
        (spark, f"spark-token-provider-kafka-0-10_{known.scala}", known.tokens),
        ("org.apache.kafka", "kafka-clients", known.clients),
        ("org.apache.commons", "commons-pool2", known.pool),
    ]


def _delta(known):
    name, number = known.delta
    names = [name, "delta-storage", *(f"delta-kernel-{one}" for one in known.kernels)]
    return [("io.delta", one, number) for one in names]


def _answer(asked):
    if asked == ["--all"]:
        return " ".join(KNOWN)
    if asked == ["--newest"]:
        return newest()
    if asked == ["--turn"]:
        return turn()
    return "\n".join(map(str, fetch()))


if __name__ == "__main__":
    print(_answer(sys.argv[1:]))  # noqa: T201  a command's output
