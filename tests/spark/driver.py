"""
A driver of its own process, so that it can be killed: ``python -m tests.spark.driver``.

It streams two topics into Parquet. The decision is the real one, of a file of holds.
In the middle of the batch, when a task has read some rows, it says so by a file, and
goes on once another file is there.
"""

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.spark import connector
from tests.spark.conftest import SETTINGS


def main(bootstrap: str, topics: str, folder: Path) -> None:
    """
    Read what is there and may be read.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415  only where it is installed

    from safeconsumer import spark as safe  # noqa: PLC0415  after pyspark

    builder = SparkSession.builder.master("local[2]")
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
        .select("topic", "partition", "offset")
    )
    query = (
        frame.mapInArrow(Pausing(folder), frame.schema)
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
    Passes rows on; a task stops after its first ones until it is let go.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def __call__(self, batches: Iterable[Any]) -> Iterable[Any]:
        """
        Yield what comes, after having told of the first batch.
        """
        folder = Path(self._folder)
        for batch in batches:
            yield batch
            if batch.num_rows and not (folder / "go").exists():
                (folder / "in-the-middle").touch()
                while not (folder / "go").exists():
                    time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
