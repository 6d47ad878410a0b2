"""Registers with the jar of another version: ``python -m tests.system.spark.old JAR``."""

import sys

from tests.harness.spark.fixtures import SETTINGS


def main(jar):
    from pyspark.sql import SparkSession  # noqa: PLC0415  only where it is installed

    from safeconsumer import spark as safe  # noqa: PLC0415  after pyspark
    from safeconsumer.errors import SparkSetupError  # noqa: PLC0415

    builder = SparkSession.builder.master("local[1]").config("spark.jars", jar)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    try:
        safe.register(session)
    except SparkSetupError as error:
        print(error)  # noqa: T201  an answer
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
