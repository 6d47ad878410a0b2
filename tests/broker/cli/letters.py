"""A topic, its topic of dead letters, and the command that is tried on them."""

import itertools
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from safeconsumer.cli import dead_letters
from safeconsumer.cli.commands import safeconsumer
from safeconsumer.worker import DeadLetter, Failure
from safeconsumer.worker.dead_letters import sink_of

SECONDS = 30


class Post:
    """A topic, its topic of dead letters, and letters as a worker writes them."""

    def __init__(self, broker, topic, dead, producer, make_consumer):
        self.broker, self.topic, self.dead = broker, topic, dead
        self.bootstrap = broker.bootstrap
        self.producer = producer
        self._make_consumer = make_consumer
        self._offsets = itertools.count()
        self.group = f"safeconsumer-replay-{dead}"

    def put(self, value=b"v", key=b"k", error=None, *, is_brief=False, **record):
        """Write one letter."""
        fields = {
            "topic": self.topic,
            "partition": 1,
            "offset": next(self._offsets),
            "timestamp": 1_700_000_000_000,
            "headers": [("trace", b"1")],
            **record,
        }
        failure = Failure(
            error=error or ValueError("planted"), attempts=3, is_brief=is_brief
        )
        send = sink_of(DeadLetter(self.producer, self.dead), "billing")
        future = send(SimpleNamespace(key=key, value=value, **fields), failure)
        future.get(SECONDS)

    def run(self, command, *options, topic=None):
        """Run a command on the topic of dead letters."""
        where = topic or self.dead
        arguments = ["dead-letters", command, where, *options]
        return CliRunner().invoke(
            safeconsumer, [*arguments, "--bootstrap", self.bootstrap]
        )

    def show(self, offset):
        return self.run("show", topic=f"{self.dead}:0@{offset}")

    def committed(self, filters=""):
        """Return the group's offset; None if it has none."""
        consumer = self._make_consumer(KafkaConsumer, group=self.group + filters)
        return consumer.committed(TopicPartition(self.dead, 0))

    def commit(self, offset):
        """Set the group's offset, as Kafka's own tools do."""
        consumer = self._make_consumer(KafkaConsumer, group=self.group)
        tp = TopicPartition(self.dead, 0)
        consumer.assign([tp])
        consumer.commit({tp: OffsetAndMetadata(offset, "", -1)})

    def back(self, topic=None):
        """Return the records of the topic that letters go back to."""
        name = topic or self.topic
        consumer = self._make_consumer(KafkaConsumer)
        tps = [TopicPartition(name, n) for n in consumer.partitions_for_topic(name)]
        consumer.assign(tps)
        consumer.seek_to_beginning(*tps)
        ends = consumer.end_offsets(tps)
        found = []
        while any(consumer.position(tp) < ends[tp] for tp in tps):
            for records in consumer.poll(200).values():
                found += records
        return found


@contextmanager
def meddled(meddle):
    """
    Call something before a replay sends a letter, with its producer and the value.

    What that returns is what sending returns; after None the letter is sent as ever.
    """
    real = dead_letters.producer_of

    def producer_of(base):
        producer = real(base)
        send = producer.send

        def send_or_not(*args, **kwargs):
            return meddle(producer, kwargs["value"]) or send(*args, **kwargs)

        producer.send = send_or_not
        return producer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dead_letters, "producer_of", producer_of)
        yield


def replayed_from(record):
    """Return which letter a record was; None if it was none."""
    found = dict(record.headers).get("dead-letter-replayed-from")
    return None if found is None else found.decode()
