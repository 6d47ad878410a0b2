"""
A driver that can be killed: ``python -m tests.system.spark.driver``.

It streams two topics into Parquet, a Delta table, or files that a function writes for
each batch (``foreachBatch``). The decision is the real one, by the option ``holds``.
In the middle of the batch, when a task has read some rows, it says so by a file, and
goes on once another file is there.
"""

import sys
import time
from pathlib import Path

from tests.harness.spark import connector
from tests.harness.spark.fixtures import session_with

# Some rows of the task have passed by then.
_MIDDLE = 5


def main(bootstrap, topics, folder, master="local[2]", kind="parquet"):
    from pyspark.sql import functions  # noqa: PLC0415  if installed

    from safeconsumer import spark as safe  # noqa: PLC0415  after pyspark

    jars = safe.jars(connector.folder())
    if kind == "delta":
        jars += "".join(f",{jar}" for jar in connector.delta().glob("delta-*.jar"))
    session = session_with(jars, master, **(DELTA if kind == "delta" else {}))
    holds = safe.register(session)
    if (skip := folder / "skip").exists():
        target, to = skip.read_text().split()
        holds.skip(target, to=int(to), reason="the test says so")
    frame = (
        session.readStream.format("safekafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .option("holds", (folder / "holds").read_text())
        .load()
    )
    paused = functions.udf(Pausing(folder), "long", useArrow=False)  # needs no pandas
    rows = frame.select("topic", "partition", paused("offset").alias("offset"))
    checkpoint = str(folder / "checkpoint")
    writer = rows.writeStream.option("checkpointLocation", checkpoint)
    if kind == "foreachBatch":
        writer = writer.foreachBatch(Writing(folder / "data"))
    else:
        writer = writer.format(kind).option("path", str(folder / "data"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    session.stop()


DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": (
        "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "spark.databricks.delta.snapshotPartitions": "2",  # two cores, and little data
}


class Writing:
    """
    Writes each batch into a folder of its number, in place of what that has.

    Run again, a batch leaves nothing twice.
    """

    def __init__(self, folder):
        self._folder = str(folder)

    def __call__(self, batch, number):
        batch.write.mode("overwrite").parquet(f"{self._folder}/batch-{number}")


class Pausing:
    """Passes offsets on; a task stops among its first ones until it is let go."""

    def __init__(self, folder):
        self._folder = str(folder)

    def __call__(self, offset):
        """Return the offset, after having told that a task is at work."""
        folder = Path(self._folder)
        if offset % 10 == _MIDDLE and not (folder / "go").exists():
            (folder / "in-the-middle").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
        return offset


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
