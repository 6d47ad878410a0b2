"""
A Connect client that can be killed: ``python -m tests.harness.spark.far``.

It starts a query in a session of a given id, says so by a file, and waits.
"""

import sys
import time
from pathlib import Path


def main(remote, folder, options):
    from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415  if installed

    from safeconsumer.spark.python import SafeKafkaSource  # noqa: PLC0415  after it

    session = SparkSession.builder.remote(remote).create()
    session.dataSource.register(SafeKafkaSource)
    frame = session.readStream.format("safekafka")
    written = frame.options(**dict(options)).load().writeStream.format("parquet")
    written.trigger(processingTime="200 milliseconds").start(
        f"{folder}/data", checkpointLocation=f"{folder}/checkpoint"
    )
    Path(folder, "started").touch()
    time.sleep(600)


if __name__ == "__main__":
    main(*sys.argv[1:3], (one.split("=", 1) for one in sys.argv[3:]))
