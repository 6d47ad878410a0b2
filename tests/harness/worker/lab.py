"""Runs workers on the chosen broker, and waits for their results."""

import threading

import pytest
from kafka import TopicPartition

from safeconsumer import SafeConsumer
from safeconsumer.worker import Worker
from tests.harness.producing import write
from tests.harness.waiting import LIMIT, wait_for

PATIENT = {"session_timeout_ms": 15_000}
"""
The session timeout of members, so long that a slow machine does not evict them.

A test that waits for the eviction of a member sets a shorter timeout.
"""


class Running:
    def __init__(self, worker):
        self.worker = worker
        self.events = []
        self.report = None
        self.error = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self.report = self.worker.run()
        except BaseException as error:  # noqa: BLE001 - the test checks the error
            self.error = error

    def wait_done(self, count, limit=LIMIT):
        """Wait until this many records are done."""
        wait_for(
            lambda: self.worker.stats().done >= count or not self._thread.is_alive(),
            f"{count} records done",
            limit,
            seen=self.worker.stats,
        )
        assert self.worker.stats().done >= count, self.error

    def wait_end(self, limit=LIMIT):
        """Wait until ``run`` has returned or raised."""
        wait_for(
            lambda: not self._thread.is_alive(),
            "the end of the worker",
            limit,
            seen=self.worker.stats,
        )

    def end(self):
        self.worker.stop()
        self.wait_end()
        if self.error is not None:
            raise self.error
        assert self.report is not None
        return self.report


class Lab:
    def __init__(self, *, broker, make_topic, make_consumer, make_producer):
        self.broker = broker
        self._make_topic = make_topic
        self._make_consumer = make_consumer
        self._make_producer = make_producer
        self._producer = None
        self._running = []
        self.topic = ""
        self.group = ""

    def new_topic(self, partitions=4):
        """Create the lab's topic, and name the group after it."""
        self.topic = self._make_topic(partitions=partitions)
        self.group = f"g-{self.topic}"
        return self.topic

    def other_topic(self):
        """Create another topic with one partition."""
        return self._make_topic(partitions=1)

    @property
    def producer(self):
        """A producer with idempotence disabled, because tests may break the broker."""
        if self._producer is None:
            self._producer = self._make_producer(enable_idempotence=False)
        return self._producer

    def produce(self, values, key=None):
        """Write these values to the partitions; return the number of records written."""
        records = (
            {
                "topic": self.topic,
                "value": value.encode(),
                "key": None if key is None else key(number),
                "partition": partition,
            }
            for partition, texts in values.items()
            for number, value in enumerate(texts)
        )
        return len(write(self.producer, records))

    def consumer(self, **config):
        config = {**PATIENT, **config}
        return self._make_consumer(self.topic, group=self.group, **config)

    def run(self, handle, consumer=None, **settings):
        events = []
        settings.setdefault("on_event", events.append)
        worker = Worker(
            self.consumer() if consumer is None else consumer, handle, **settings
        )
        running = Running(worker)
        running.events = events
        self._running.append(running)
        return running

    def committed(self):
        """Return the group's committed offsets by partition."""
        asking = self._make_consumer(group=self.group)
        return {
            number: asking.committed(TopicPartition(self.topic, number))
            for number in sorted(asking.partitions_for_topic(self.topic))
        }

    def read(self, topic, count):
        """Read this many records from a topic, in a separate group."""
        reader, found = self._make_consumer(topic, group=f"g-{topic}"), []

        def are_there():
            for records in reader.poll(200).values():
                found.extend(records)
            return len(found) >= count

        wait_for(are_there, f"{count} records of {topic}")
        return found

    def close(self):
        """Stop all workers together, without draining."""
        for running in self._running:
            running.worker.stop(drain=False)
        for running in self._running:
            running.wait_end()


@pytest.fixture
def lab(kafka_broker, kafka_topic, make_consumer, make_producer):
    made = Lab(
        broker=kafka_broker,
        make_topic=kafka_topic,
        make_consumer=lambda *topics, **config: make_consumer(
            SafeConsumer, *topics, **config
        ),
        make_producer=make_producer,
    )
    try:
        yield made
    finally:
        made.close()
