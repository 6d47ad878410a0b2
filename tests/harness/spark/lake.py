"""Fills topics with known records, and runs streams that write the records to a lake."""

import json
import time
from collections import Counter
from pathlib import Path
from uuid import uuid4

from kafka import KafkaProducer

from tests.harness.producing import numbered, write
from tests.harness.spark import sink
from tests.harness.waiting import repeat_until

# Seconds that suffice even if other programs use the machine.
LIMIT = 240.0
# The last digit of the offset at which a task waits; it has passed some rows by then.
_MIDDLE = 5


class Lake:
    """Two topics, and a Parquet folder with its checkpoint."""

    def __init__(self, spark, broker, folder, partitions=4):
        self.spark = spark
        self.broker = broker
        self.data = folder / "data"
        self.checkpoint = folder / "checkpoint"
        self.partitions = partitions
        mark = uuid4().hex[:8]
        self.orders, self.returns = f"orders-{mark}", f"returns-{mark}"
        for name in (self.orders, self.returns):
            broker.create_topic(name, partitions)
        self.expected = Counter()

    def produce(self, topic, count):
        """Write this many records to each partition of a topic."""
        self._write(numbered(topic, *[count] * self.partitions))

    def produce_values(self, topic, partition, *values):
        """Write these values to a partition."""
        self._write(
            {"topic": topic, "partition": partition, "value": one} for one in values
        )

    def _write(self, records):
        producer = KafkaProducer(**self.broker.client_config, linger_ms=20)
        try:
            for written in write(producer, records):
                self.expected[written.topic, written.partition, written.offset] += 1
        finally:
            producer.close()

    def produce_both(self, count):
        for topic in (self.orders, self.returns):
            self.produce(topic, count)

    def adapted(self, example):
        """Return a page's code with this run's addresses, topics and folders."""
        places = {
            "localhost:9092": self.broker.bootstrap,
            '"orders"': f'"{self.orders}"',
            '"orders,returns"': f'"{self.orders},{self.returns}"',
            "/lake/": f"{self.data.parent}/",
            '"lake/': f'"{self.data.parent}/',
        }
        code = example.code
        for old, new in places.items():
            code = code.replace(old, new)
        return code

    def stream(self, options, format_="safekafka"):
        """Return both topics as a streaming frame; underscores in options become dots."""
        return (
            self.spark.readStream.format(format_)
            .option("kafka.bootstrap.servers", self.broker.bootstrap)
            .option("subscribe", f"{self.orders},{self.returns}")
            .option("startingOffsets", "earliest")
            .options(**dotted(options))
            .load()
        )

    def start(self, *, format_="safekafka", trigger=None, **options):
        """Start a query that writes both topics to the lake."""
        return self.write(self.stream(options, format_), trigger)

    def start_pausing(self, functions, trigger, name="", **options):
        """Start a query whose tasks wait after some rows until the file ``go`` exists."""
        from pyspark.sql import types  # noqa: PLC0415  if installed

        pausing = Pausing(self.data.parent)
        paused = functions.udf(pausing, types.LongType(), useArrow=False)
        offset = paused("offset").alias("offset")
        frame = self.stream(options).select("topic", "partition", offset)
        return self.write(frame, trigger, name)

    def write(self, frame, trigger=None, name=""):
        """Start a query that writes a frame to the lake, by default with AvailableNow."""
        writer = frame.writeStream.format("parquet").option("path", str(self.data))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer = writer.trigger(**(trigger or {"availableNow": True}))
        return (writer.queryName(name) if name else writer).start()

    def run(self, **options):
        query = self.start(**options)
        assert query.awaitTermination(LIMIT)
        return progress(query)

    def rows(self, *topics):
        """Count the records in the lake, for these topics or for all topics."""
        return _of(sink.rows(self.data), topics)

    def produced(self, *topics):
        """Count the produced records, for these topics or for all topics."""
        return _of(self.expected, topics)


class Pausing:
    """Returns each offset; makes a task wait after some rows until a test releases it."""

    def __init__(self, folder):
        self._folder = str(folder)

    def __call__(self, offset):
        """Return the offset; if the task has to wait, first create a file that says so."""
        folder = Path(self._folder)
        if offset % 10 == _MIDDLE and not (folder / "go").exists():
            (folder / "in-the-middle").touch()
            while not (folder / "go").exists():
                time.sleep(0.02)
        return offset


def dotted(options):
    """Return the options with dots instead of underscores in their names."""
    return {name.replace("_", "."): str(one) for name, one in options.items()}


def progress(query):
    """
    Return the recent progress of a query, oldest first, as plain values.

    In Spark 3.5 ``recentProgress`` has dictionaries, in later versions it has objects.
    """
    return [
        one if type(one) is dict else json.loads(one.json)
        for one in query.recentProgress
    ]


def metrics(batches):
    """Return the source's metrics of each batch."""
    return [one["sources"][0]["metrics"] for one in batches]


def until(is_so, query=None, limit=LIMIT):
    """Wait until a condition holds; raise at the time limit or if the query has failed."""

    def last():
        return "no query" if query is None else str(query.lastProgress)

    for _ in repeat_until(is_so, "the expected state of a stream", limit, seen=last):
        if query is not None and query.exception() is not None:
            raise query.exception()
        time.sleep(0.05)


def _of(rows, topics):
    if not topics:
        return rows
    return Counter({row: count for row, count in rows.items() if row[0] in topics})
