"""Runs a stream of the Python source without Spark, by calling its planner and readers."""

from collections import Counter
from uuid import uuid4

from kafka import KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient

from safeconsumer.spark.python import reading, settings
from safeconsumer.spark.python.planner import Planner
from tests.harness.producing import numbered, write
from tests.harness.spark.lake import dotted


class Planned:
    """
    A topic, and a stream that reads the topic batch by batch as Spark would.

    Leaving the context manager closes the planner.
    """

    def __init__(self, broker, partitions=1, topic=None, **topic_settings):
        self.broker = broker
        self.topic = topic or f"planned-{uuid4().hex[:8]}"
        self.at = None
        self._planner = None
        self._options = {}
        self.create(self.topic, partitions, dotted(topic_settings))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    # ------------------------------------------------------------ topics

    def create(self, name, partitions=1, configs=None):
        with self.admin() as admin:
            wanted = {"num_partitions": partitions, "replication_factor": 1}
            admin.create_topics(
                {name: {**wanted, "configs": configs or {}}}, wait_for_metadata=True
            )

    def admin(self):
        return KafkaAdminClient(**self.broker.client_config)

    def produce(self, *counts, topic=None, prefix=b""):
        """Write this many records to each partition; every value starts with the prefix."""
        producer = KafkaProducer(**self.broker.client_config)
        records = numbered(topic or self.topic, *counts)
        try:
            write(
                producer, ({**one, "value": prefix + one["value"]} for one in records)
            )
        finally:
            producer.close()

    def delete_before(self, offset, partition=0):
        with self.admin() as admin:
            admin.delete_records({TopicPartition(self.topic, partition): offset})

    # ------------------------------------------------------------ the stream

    def options(self, **more):
        """Return the stream's options; underscores in option names become dots."""
        given = {**self._options, **dotted(more)}
        is_named = {"assign", "subscribe", "subscribePattern"} & set(given)
        return {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            **({} if is_named else {"subscribe": self.topic}),
            "startingOffsets": "earliest",
            **given,
        }

    def start(self, **more):
        """Start a run of the query at the offsets at which the previous run ended."""
        self.end()
        self._options = dotted(more)
        self.settings = settings.parse(self.options())
        self._planner = Planner(self.settings)
        if self.at is None:
            self.at = self._planner.initial()
        return self._planner

    def plan(self, most=None):
        """Plan a batch; return its start offsets and its end offsets."""
        planner = self._planner or self.start()
        return self.at, planner.end(self.at, most)

    def tasks(self, start, end):
        return self._planner.tasks(start, end)

    def batch(self, most=None):
        """Plan and read a batch; return its records in order."""
        start, end = self.plan(most)
        found = [row for task in self.tasks(start, end) for row in self.read(task)]
        self.at = end
        return found

    def read(self, task):
        return [
            record
            for one in task
            for records in reading.read(self.settings, one)
            for record in records
        ]

    def range(self, start, end, **more):
        """Read a range of partition 0 that no planner has planned; return the offsets."""
        found = settings.parse(self.options(**more))
        wanted = reading.Range(self.topic, 0, start, end)
        return [one.offset for rows in reading.read(found, wanted) for one in rows]

    def end(self):
        planner, self._planner = self._planner, None
        if planner is not None:
            planner.close()


def close(kept):
    """Close the readers that the source keeps between tasks."""
    while kept:
        kept.popitem()[1].close()


def offsets(records):
    return [one.offset for one in records]


def counted(records):
    """Count the records of each partition."""
    return Counter(one.partition for one in records)
