"""What pages say about aiokafka and confluent-kafka, played with them."""

import asyncio
from functools import partial

import aiokafka
import confluent_kafka
import pytest

from tests.harness.producing import produce
from tests.harness.waiting import wait_for

TOPIC = "t"
HELD = [0, 1]  # of three partitions: the third one flows
LIMIT = 20.0


class Confluent:
    """A member of a group, with the records that it was given."""

    def __init__(self, broker, assignor):
        self.came = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "partition.assignment.strategy": assignor,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 300,
            }
        )
        self.consumer.subscribe([TOPIC])

    def pause(self):
        self.consumer.pause(
            [confluent_kafka.TopicPartition(TOPIC, one) for one in HELD]
        )

    def poll(self):
        record = self.consumer.poll(0.05)
        if record is not None and record.error() is None:
            self.came.append((record.partition(), record.offset()))

    def of(self, partition):
        return [offset for number, offset in self.came if number == partition]

    def owns(self, count):
        return len(self.consumer.assignment()) == count


def _polling(*members, condition, what="records and partitions"):
    def is_so():
        for one in members:
            one.poll()
        return condition()

    wait_for(is_so, what, LIMIT)


@pytest.fixture
def write(broker, clients):
    """Create the topic; return what appends one record to each partition."""
    broker.create_topic(TOPIC, 3)
    each = partial(produce, clients.producer(), TOPIC, 1, 1, 1)
    each()
    return each


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_confluent_kafka_keeps_the_pause_of_what_moves_and_returns(
    broker, write, assignor
):
    member = Confluent(broker, assignor)
    _polling(member, condition=lambda: len(member.came) == 3)
    member.consumer.commit(asynchronous=False)
    member.pause()
    other = Confluent(broker, assignor)
    _polling(member, other, condition=lambda: not member.owns(3) and not other.owns(0))
    other.consumer.close()
    _polling(member, condition=lambda: member.owns(3))
    write()
    _polling(member, condition=lambda: 1 in member.of(2))
    assert [member.of(one) for one in HELD] == [[0], [0]]
    member.consumer.close()


@pytest.mark.usefixtures("write")
def test_confluent_kafka_forgets_a_pause_before_the_first_poll(broker):
    """It takes it after ``subscribe()``, raises nothing, and the records come."""
    member = Confluent(broker, "range")
    member.pause()
    _polling(member, condition=lambda: len(member.came) == 3)
    member.consumer.close()


def test_aiokafka_forgets_pauses_in_a_rebalance(broker, write):
    """Another member joins; even what the first one keeps flows."""
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


def test_aiokafka_asks_for_a_missing_topic_to_be_created(broker):
    """As its consumers and producers do by default: a broker that may then creates it."""

    async def play():
        settings = {"bootstrap_servers": broker.bootstrap, "metadata_max_age_ms": 100}
        async with aiokafka.AIOKafkaConsumer(**settings) as consumer:
            consumer.assign([aiokafka.TopicPartition("missing", 0)])
            while "missing" not in await consumer.topics():
                pass

    asyncio.run(asyncio.wait_for(play(), LIMIT))


def test_only_confluent_kafka_has_the_consumer_protocol():
    """KIP-848's ``group.protocol``, which a consumer of aiokafka refuses."""
    confluent_kafka.Consumer(
        {"bootstrap.servers": "", "group.id": "g", "group.protocol": "consumer"}
    ).close()
    with pytest.raises(TypeError, match="group_protocol"):
        aiokafka.AIOKafkaConsumer(group_protocol="consumer")


def test_confluent_kafka_has_a_share_consumer():
    assert hasattr(confluent_kafka, "ShareConsumer")
