"""
A driver of its own process, so that it can be killed: ``python -m tests.spark.driver``.

It streams two topics into Parquet. The decision is the real one, of a file of holds.
In the middle of the batch, when a task has read some rows, it says so by a file, and
goes on once another file is there.
"""

import sys
import time
from pathlib import Path

from tests.spark import connector
from tests.spark.conftest import SETTINGS

# Some rows of the task have passed by then.
_MIDDLE = 5


def main(bootstrap: str, topics: str, folder: Path, master: str = "local[2]") -> None:
    """
    Read what is there and may be read.
    """
    from pyspark.sql import SparkSession, functions  # noqa: PLC0415  if installed

    from safeconsumer import spark as safe  # noqa: PLC0415  after pyspark

    builder = SparkSession.builder.master(master)
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    jars = safe.jars(connector.folder())
    session = builder.config("spark.jars", jars).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    safe.register(session)
    frame = (
        session.readStream.format("safekafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "400")
        .option("holds.file", str(folder / "holds.json"))
        .load()
    )
    paused = functions.udf(Pausing(folder), "long", useArrow=False)  # needs no pandas
    query = (
        frame.select("topic", "partition", paused("offset").alias("offset"))
        .writeStream.format("parquet")
        .option("path", str(folder / "data"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


class Pausing:
    """
    Passes offsets on; a task stops among its first ones until it is let go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, offset: int) -> int:
        """
        Return the offset, after having told that a task is at work.
        """
        folder = Path(self._folder)
        if offset % 10 == _MIDDLE and not (folder / "go").exists():
            (folder / "in-the-middle").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
        return offset


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
