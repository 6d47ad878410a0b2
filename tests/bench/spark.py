"""
Compares the Spark source with the official source, equally tuned and with defaults.

All queries run in one session, in alternating order, and the results of the first
queries are discarded. Comparisons with a limit of a few percent use queries that take
at least twenty seconds. A first query shows how fast the machine is; the program
chooses the number of records accordingly.
"""

import atexit
import os
import statistics
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from attrs import frozen

from safeconsumer import spark as safe
from safeconsumer.spark.options import TUNED
from safeconsumer.spark.python import SafeKafkaSource
from tests.bench.figures import Figure, median, ratio
from tests.bench.stage import Case
from tests.harness.spark.fixtures import session_with
from tests.harness.spark.lake import progress

PYTHON = "safekafka_python"
_PARTITIONS = 8
_SIZE = 100
_SMALL = 1_000
# Starting and stopping a query takes about a second, and this time varies by chance.
_LEAST_SECONDS = 20.0
_SECONDS = 23.0


@frozen(kw_only=True)
class Read:
    rows: int  # number of rows that the query read
    inside: float  # seconds spent in the query's batches
    wall: float  # seconds from start to end
    cpu: float  # CPU seconds of the driver and the JVM
    triggers: tuple[float, ...]  # milliseconds of each batch with rows


class Bench:
    def __init__(self, session, stage):
        self._session = session
        self._stage = stage
        self.rounds = stage.sizes.rounds
        self.records = 20 * stage.sizes.records

    @contextmanager
    def topic(self, records, size, codec="none"):
        """Yield a topic with this many records."""
        case = Case(partitions=_PARTITIONS, size=size, codec=codec)
        name = self._stage.filled(case, records)
        try:
            yield name
        finally:
            self._stage.drop(name)

    @contextmanager
    def long_topic(self, size, codec="none", **options):
        """Yield a topic that takes the official source long to read, and its record count."""
        records = self.records * _SIZE // size
        while True:
            with self.topic(records, size, codec) as name:
                self.read("kafka", name, **TUNED, **options)  # this query loads classes
                seen = self.read("kafka", name, **TUNED, **options)
                if seen.wall >= _SECONDS / self._stage.sizes.scale:
                    yield name, records
                    return
            # The duration of a short query does not predict the duration of a long one.
            records = int(records * min(10, 1.2 * _SECONDS / seen.wall))

    def read(self, source, topic, **options):
        cpu, start = self._cpu(), time.monotonic()
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                self._session.readStream.format(source)
                .option("kafka.bootstrap.servers", self._stage.broker.bootstrap)
                .option("subscribe", topic)
                .option("startingOffsets", "earliest")
                .options(**options)
                .load()
                .writeStream.format("noop")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            wall = time.monotonic() - start
            batches = progress(query)
        done = [one for one in batches if one["numInputRows"]]
        return Read(
            rows=sum(one["numInputRows"] for one in done),
            inside=sum(one["durationMs"]["addBatch"] for one in done) / 1000,
            wall=wall,
            cpu=self._cpu() - cpu,
            triggers=tuple(one["durationMs"]["triggerExecution"] for one in done),
        )

    def interleaved(self, *variants):
        variants[0]()  # not counted, because this query loads classes
        taken = [[] for _ in variants]
        for number in range(self.rounds):
            # The order alternates, because the second query benefits from caches that the
            # first query has filled.
            order = range(len(variants))
            for at in order if number % 2 == 0 else reversed(order):
                taken[at].append(variants[at]())
        return taken

    def _cpu(self):
        pid = self._session.sparkContext._gateway.proc.pid
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def throughput(bench, row, size, codec):
    """Compare our source with the official source, both equally tuned."""
    with bench.long_topic(size, codec) as (topic, records):
        tuned, ours = bench.interleaved(
            lambda: bench.read("kafka", topic, **TUNED),
            lambda: bench.read("safekafka", topic),
        )
    assert {one.rows for one in (*tuned, *ours)} == {records}
    for name, value in (("inside batches", _inside), ("by wall clock", _by_wall)):
        name = f"rows/s {name}, over official tuned"  # noqa: PLW2901 - the same number, as an integer
        yield _ratio(row, name, ours, tuned, value, at_least=0.97)
    name = "CPU per row, over official tuned"
    yield _ratio(row, name, ours, tuned, lambda one: one.cpu / one.rows, at_most=1.03)
    yield median(row, "rows/s inside batches", [*map(_inside, ours)], "rows/s")
    yield _shortest(row, *tuned, *ours)


def one_batch(bench, row, source, options, limit):
    """Compare a source with the official source, which has these options, in one batch."""
    with bench.topic(bench.records, _SIZE) as topic:
        official, ours = bench.interleaved(
            lambda: bench.read("kafka", topic, **options),
            lambda: bench.read(source, topic),
        )
    assert {one.rows for one in (*official, *ours)} == {bench.records}
    name = f"rows/s inside batches, over official {'tuned' if options else 'default'}"
    yield _ratio(row, name, ours, official, _inside, at_least=limit)
    yield median(row, "rows/s inside batches", [*map(_inside, ours)], "rows/s")


def small_batches(bench):
    """Compare the duration of micro-batches with 1,000 rows from each of 8 partitions."""
    limit = {"maxOffsetsPerTrigger": str(_PARTITIONS * _SMALL)}
    with bench.long_topic(_SIZE, **limit) as (topic, records):
        official, ours = bench.interleaved(
            lambda: bench.read("kafka", topic, **TUNED, **limit),
            lambda: bench.read("safekafka", topic, **limit),
        )
    assert {one.rows for one in (*official, *ours)} == {records}
    name = "median micro-batch, over official"
    yield _ratio("small", name, ours, official, _trigger, at_most=1.02)
    yield _shortest("small", *official, *ours)


def python_small(bench):
    """Time micro-batches of 20,000 rows, with one task per range and with a single task."""
    limit = {"maxOffsetsPerTrigger": "20000"}
    with bench.topic(bench.records, _SIZE) as topic:
        official, single, grouped = bench.interleaved(
            lambda: bench.read("kafka", topic, **TUNED, **limit),
            lambda: bench.read(PYTHON, topic, **limit),
            lambda: bench.read(PYTHON, topic, **limit, minRecordsPerTask="20000"),
        )
    row, name = "python-small", "median ms of a trigger of 20,000 rows: "
    for variant, reads, most in (
        ("official", official, None),
        ("a task for each range", single, None),
        ("one task", grouped, 340),
    ):
        yield median(row, name + variant, [*map(_trigger, reads)], "ms", at_most=most)


def _inside(one):
    return one.rows / one.inside


def _by_wall(one):
    return one.rows / one.wall


def _trigger(one):
    return statistics.median(one.triggers[1:] or one.triggers)


def _shortest(row, *reads):
    shortest = min(one.wall for one in reads)
    return Figure(row, "the shortest query", shortest, "s", at_least=_LEAST_SECONDS)


def _ratio(row, name, ours, official, value, **limits):
    values = {"ours": [*map(value, ours)], "official": [*map(value, official)]}
    return ratio(row, name, values, "ours", "official", **limits)


class PythonSource(SafeKafkaSource):
    """The pure Python source, registered under another name than the shim's."""

    @classmethod
    def name(cls):
        return PYTHON


@cache
def _session():
    # The JVM needs memory, because it keeps the consumers of stopped queries, with
    # their buffers, for minutes.
    settings = {"spark.driver.memory": "4g"}
    settings["spark.sql.streaming.numRecentProgressUpdates"] = "10000"
    session = session_with(**settings)
    atexit.register(session.stop)
    safe.register(session, hooks=())
    session.dataSource.register(PythonSource)
    return session


def _row(of, *more):
    return lambda stage: of(Bench(_session(), stage), *more)


# Some of the targets differ from 1 by only a few hundredths.
ROWS = {
    "read-100": _row(throughput, "read-100", 100, "none"),
    "read-100-lz4": _row(throughput, "read-100-lz4", 100, "lz4"),
    "read-1000": _row(throughput, "read-1000", 1000, "none"),
    "read-1000-lz4": _row(throughput, "read-1000-lz4", 1000, "lz4"),
    "defaults": _row(one_batch, "defaults", "safekafka", {}, 2),
    "small": _row(small_batches),
    "python": _row(one_batch, "python", PYTHON, TUNED, 0.5),
    "python-small": _row(python_small),
}
