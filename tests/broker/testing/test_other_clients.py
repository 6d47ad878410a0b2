"""Tests the pages' claims about aiokafka and confluent-kafka on these clients."""

import asyncio
from functools import partial

import aiokafka
import confluent_kafka
import pytest

from tests.harness.members import Librdkafka
from tests.harness.producing import produce
from tests.harness.waiting import wait_for

TOPIC = "t"
HELD = [0, 1]  # two of the three partitions; the third is not held
LIMIT = 20.0


def pause_held(member):
    partitions = [confluent_kafka.TopicPartition(TOPIC, one) for one in HELD]
    member.consumer.pause(partitions)


def poll_until(condition, *members):
    def is_so():
        for one in members:
            one.poll(50)
        return condition()

    wait_for(is_so, "records and partitions", LIMIT)


@pytest.fixture
def write(broker, clients):
    """Create the topic; return a function that appends one record to each partition."""
    broker.create_topic(TOPIC, 3)
    each = partial(produce, clients.producer(), TOPIC, 1, 1, 1)
    each()
    return each


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_confluent_kafka_keeps_the_pause_of_a_partition_that_is_assigned_again(
    broker, write, assignor
):
    member = Librdkafka(broker, "g", TOPIC, assignor)
    poll_until(lambda: len(member.records) == 3, member)
    member.consumer.commit(asynchronous=False)
    pause_held(member)
    other = Librdkafka(broker, "g", TOPIC, assignor)
    poll_until(lambda: len(member.owned) < 3 and other.owned, member, other)
    other.consumer.close()
    poll_until(lambda: len(member.owned) == 3, member)
    write()
    poll_until(lambda: 1 in member.offsets(2), member)
    assert [member.offsets(one) for one in HELD] == [[0], [0]]
    member.consumer.close()


@pytest.mark.usefixtures("write")
def test_confluent_kafka_forgets_a_pause_before_the_first_poll(broker):
    """Right after ``subscribe()`` the client accepts a pause, but still delivers records."""
    member = Librdkafka(broker, "g", TOPIC, "range")
    pause_held(member)
    poll_until(lambda: len(member.records) == 3, member)
    member.consumer.close()


def test_aiokafka_forgets_pauses_in_a_rebalance(broker, write):
    """Once another member has joined, even partitions that the first one keeps are read."""
    settings = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 300,
    }

    async def play():
        consumer = aiokafka.AIOKafkaConsumer(TOPIC, **settings)
        other = aiokafka.AIOKafkaConsumer(TOPIC, **settings)
        async with consumer:
            for _ in range(3):
                await consumer.getone()
            consumer.pause(*consumer.assignment())
            async with other:
                while len(consumer.assignment()) == 3 or not consumer.assignment():
                    await consumer.getmany(timeout_ms=50)
                await asyncio.to_thread(write)
                found = await consumer.getone()
        return {found.partition} & {one.partition for one in consumer.assignment()}

    assert asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_aiokafka_requests_the_creation_of_a_missing_topic(broker):
    """By default, aiokafka's clients let a broker create the topic."""

    async def play():
        settings = {"bootstrap_servers": broker.bootstrap, "metadata_max_age_ms": 100}
        async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
            consumer.assign([aiokafka.TopicPartition("missing", 0)])
            while "missing" not in await consumer.topics():
                pass

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_only_confluent_kafka_has_the_consumer_protocol():
    """A consumer from aiokafka does not know KIP-848's setting ``group.protocol``."""
    confluent_kafka.Consumer(
        {"bootstrap.servers": "", "group.id": "g", "group.protocol": "consumer"}
    ).close()
    with pytest.raises(TypeError, match="group_protocol"):
        aiokafka.AIOKafkaConsumer(group_protocol="consumer")


def test_confluent_kafka_has_a_share_consumer():
    assert hasattr(confluent_kafka, "ShareConsumer")
