"""
Runs a Spark driver that a test can kill: ``python -m tests.harness.spark.driver``.

The driver streams two topics into Parquet, a Delta table, or files that a function
writes for each batch (``foreachBatch``). The file ``holds`` lists the scopes to hold.
During a batch, once a task has read some rows, the driver creates a file and waits
until another file exists.
"""

import os
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

from tests.harness.processes import logged, module
from tests.harness.spark import connector, sink
from tests.harness.spark.fixtures import session_with
from tests.harness.spark.lake import LIMIT, Pausing
from tests.harness.waiting import code_of, repeat_until


def main(bootstrap, topics, folder, master="local[2]", kind="parquet"):
    from pyspark.sql import functions  # noqa: PLC0415  only if it is installed

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
    # Without Arrow the function does not need pandas.
    paused = functions.udf(Pausing(folder), "long", useArrow=False)
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
    "spark.databricks.delta.snapshotPartitions": "2",  # enough for two cores and little data
}


class Writing:
    """
    Writes each batch to a folder named after the batch's number, replacing old files.

    A repeated batch therefore does not duplicate any row.
    """

    def __init__(self, folder):
        self._folder = str(folder)

    def __call__(self, batch, number):
        batch.write.mode("overwrite").parquet(f"{self._folder}/batch-{number}")


class Driven:
    """Runs a driver that reads a lake's topics, in a process of its own."""

    def __init__(self, lake, master="local[2]", kind="parquet"):
        self.lake = lake
        self.master = master
        self.kind = kind
        self.folder = lake.data.parent
        self.middle, self.go = self.folder / "in-the-middle", self.folder / "go"

    def rows(self):
        readers = {
            "parquet": sink.rows,
            "delta": sink.delta_rows,
            "foreachBatch": sink.folder_rows,
        }
        return readers[self.kind](self.lake.data)

    def hold(self, *scopes):
        (self.folder / "holds").write_text(" ".join(scopes))

    @contextmanager
    def running(self):
        topics = f"{self.lake.orders},{self.lake.returns}"
        where = [self.lake.broker.bootstrap, topics, str(self.folder), self.master]
        command = module("tests.harness.spark.driver", *where, self.kind)
        env = {"PYSPARK_PYTHON": sys.executable}
        with logged(command, self.folder / "driver.log", env) as driver:
            yield driver

    def await_middle(self, driver):
        for _ in repeat_until(self.middle.exists, "the middle", LIMIT, seen=self.log):
            assert driver.poll() is None, self.log()
            time.sleep(0.05)

    def kill_in_the_middle(self):
        self.middle.unlink(missing_ok=True)
        self.go.unlink(missing_ok=True)
        with self.running() as driver:
            self.await_middle(driver)
            os.killpg(driver.pid, signal.SIGKILL)  # driver, JVM and workers

    def finish(self):
        self.go.touch()
        with self.running() as driver:
            assert code_of(driver, LIMIT) == 0, self.log()

    def log(self):
        return (self.folder / "driver.log").read_text()[-4000:]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:])
