"""``allow_auto_create_topics=False``: no question of a consumer makes a topic."""

from contextlib import suppress

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError

from safeconsumer import SafeConsumer
from tests.sim.reading import Reader, stock_fails

MISSING = TopicPartition("none", 0)


def subscribe(reader):
    reader.consumer.subscribe(["t", "none"])
    reader.is_silent(of=[MISSING])


def assign(reader):
    reader.consumer.assign([MISSING])
    reader.is_silent()


def ask_for_the_end(reader):
    with suppress(KafkaTimeoutError):
        reader.consumer.end_offsets([MISSING], timeout_ms=2000)


WAYS = (subscribe, assign, ask_for_the_end)
each_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@each_way
@stock_fails("the setting does not reach the request")
def test_no_way_of_asking_makes_a_topic(lab, kind, way):
    """And none makes it again after it was deleted."""
    lab.topic("t", 1)
    way(Reader(lab, kind, allow_auto_create_topics=False))
    lab.sleep(1)
    assert lab.cluster.topics.get("none") is None


@each_way
def test_by_default_the_broker_makes_it(lab, way):
    """As kafka-python has it: Kafka's ``auto.create.topics.enable`` decides."""
    lab.topic("t", 1)
    way(Reader(lab, SafeConsumer))
    lab.until(lambda: lab.cluster.topics.get("none") is not None)


@stock_fails("the setting does not reach the request")
def test_a_topic_that_is_deleted_while_it_is_held_stays_deleted(lab, kind):
    """Members ask for what they are subscribed to, for as long as they are."""
    (p0,) = lab.topic("t", 1, records=3)
    settings = {"allow_auto_create_topics": False, "metadata_max_age_ms": 2000}
    reader = Reader(lab, kind, "t", **settings)
    reader.reads(p0, range(3))
    reader.consumer.pause(p0)
    lab.cluster.delete_topic("t")
    reader.is_silent(seconds=10)
    assert lab.cluster.topics.get("t") is None
