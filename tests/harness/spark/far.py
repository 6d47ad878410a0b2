"""
Functions and a program of a Connect client.

``python -m tests.harness.spark.far`` starts a query in a session of a given name, says
so, and waits to be killed.
"""

import sys
import time
from pathlib import Path


class Stopping:
    """
    Writes each batch into a folder of its number, as ``foreachBatch`` calls it.

    A batch that begins once the file ``stop`` is there tells so by ``in-the-middle``,
    and goes on when there is ``go``.
    """

    def __init__(self, folder):
        self._folder = str(folder)

    def __call__(self, batch, number):
        folder = Path(self._folder)
        if (folder / "stop").exists():
            (folder / "in-the-middle").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
        rows = batch.select("topic", "partition", "offset")
        rows.write.mode("overwrite").parquet(f"{folder}/data/{number}")


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
